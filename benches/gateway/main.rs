//! What the gateway costs beside sglang-router: same stub servers, same generator, turn by turn.

#![expect(clippy::print_stdout, reason = "the result is what this is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that fails should fail loudly")]

mod generator;
mod proxies;
mod report;

use std::time::Duration;

use benches::{Child, heading, is_short, resident_mb, role, serve_stubs};
use tokio::runtime::Runtime;
use types::{Clock, SystemClock};

use generator::{Generator, Kind, Load, last_body, prompts};
use proxies::{BIN, PEER, Proxy, serve_bytes, serve_gateway};
use report::{Turn, print_cpu, print_later, print_messages};

/// Stub servers behind each proxy.
const STUBS: usize = 4;
/// Time over which the CPU that a proxy uses without requests is read.
const IDLE: Duration = Duration::from_secs(4);

/// What is asked of each proxy in turn.
const PLAIN: Load = Load { kind: Kind::Plain, prompt_bytes: 800, connections: 32, total: 20_000 };
const STREAM: Load =
    Load { kind: Kind::Stream(1_000), prompt_bytes: 800, connections: 16, total: 32 };
const QUIET: Load = Load { kind: Kind::Plain, prompt_bytes: 800, connections: 2, total: 4_000 };
const FIRST: Load = Load { kind: Kind::Stream(10), prompt_bytes: 800, connections: 2, total: 100 };
const LONG: Load = Load { kind: Kind::Plain, prompt_bytes: 400_000, connections: 8, total: 800 };

fn main() {
    let runtime = Runtime::new().unwrap();
    if let Some(role) = role() {
        return match &*role.name {
            "stubs" => runtime.block_on(serve_stubs(STUBS, |addresses| {
                let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                println!("{}", texts.join(" "));
            })),
            "bytes" => runtime.block_on(serve_bytes(role.arguments)),
            _ => runtime.block_on(serve_gateway(&role.arguments)),
        };
    }
    let about = format!(
        "Our gateway, a relay that only copies bytes, and sglang-router (policy cache_aware), before the\n\
         same {STUBS} stub servers, asked by the same generator in turn. CPU is that of the proxy's process by\n\
         /proc/PID/stat, less what it uses when idle. Figures are medians over turns (least to most);\n\
         times on a shared machine are noisy, so go by CPU and by the ratio of each pair.\n\
         {PEER} names the program sglang-router; {BIN} a `slackline` to measure\n\
         instead of the gateway within this benchmark."
    );
    println!("{}\n", heading("gateway", &about));
    runtime.block_on(measure());
}

async fn measure() {
    let (_stubs, line) = Child::of_self("stubs", &[]);
    let stubs: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let mut proxies = vec![Proxy::ours(&stubs), Proxy::bytes(&stubs)];
    match Proxy::peer(&stubs) {
        Some(peer) => proxies.push(peer),
        None => println!("{PEER} is not set: sglang-router is left out.\n"),
    }
    for proxy in &mut proxies {
        generator::until_ready(proxy.address).await;
        Generator::new(&scaled(Load { total: 4_000, ..PLAIN })).run(proxy.address).await;
        proxy.read_idle(if is_short() { IDLE / 8 } else { IDLE }).await;
        println!("{}: {} % of one core when idle", proxy.name, proxy.idle_percent());
    }
    check_bytes(&proxies, &stubs[0]).await;
    let turns = if is_short() { 1 } else { 7 };
    if wanted("a") {
        println!("\n(a) 1 KiB, not streamed, {PLAIN}");
        print_cpu("request", &take_turns(&proxies, PLAIN, turns).await);
    }
    if wanted("b") {
        println!("\n(b) streams of 1,000 separate chunks 2 ms apart, {STREAM}");
        let taken = take_turns(&proxies, STREAM, turns).await;
        print_cpu("stream", &taken);
        print_messages(&taken);
    }
    let none = Proxy::none(stubs[0].parse().unwrap());
    let all = || std::iter::once(&none).chain(&proxies);
    if wanted("c") {
        println!("\n(c) time to the whole answer, {QUIET}");
        print_later(|turn| &turn.whole_ms, &take_turns(all(), QUIET, turns).await);
    }
    if wanted("d") {
        println!("\n(d) time to the first chunk of a stream, {FIRST}");
        print_later(|turn| &turn.first_ms, &take_turns(all(), FIRST, turns).await);
    }
    if wanted("e") {
        println!("\n(e) 400 KB prompt, not streamed, {LONG}");
        print_cpu("request", &take_turns(&proxies, LONG, turns).await);
    }
    for proxy in &proxies {
        println!("{}: {:.0} MB resident at the end", proxy.name, resident_mb(proxy.pid().unwrap()));
    }
}

/// Whether the measure called `letter` is asked for; without arguments, all are.
fn wanted(letter: &str) -> bool {
    let mut asked =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    asked.peek().is_none() || asked.any(|argument| argument == letter)
}

/// Less of the same for a short run.
fn scaled(load: Load) -> Load {
    let total = if is_short() { load.total.div_ceil(50).max(load.connections) } else { load.total };
    Load { total, ..load }
}

/// Asks each of `proxies` in turn, `turns` times over; one list of turns for each.
async fn take_turns<'a>(
    proxies: impl IntoIterator<Item = &'a Proxy>,
    load: Load,
    turns: usize,
) -> Vec<(&'a str, Vec<Turn>)> {
    let load = scaled(load);
    let generator = Generator::new(&load);
    let clock = SystemClock::start();
    let mut all: Vec<(&Proxy, Vec<Turn>)> =
        proxies.into_iter().map(|proxy| (proxy, Vec::new())).collect();
    for _ in 0..turns {
        for (proxy, taken) in &mut all {
            let (start, cpu_s) = (clock.now(), proxy.cpu_s());
            let answers = generator.run(proxy.address).await;
            let wall_s = clock.now().since(start).as_secs_f64();
            let cpu_s = (proxy.cpu_s() - cpu_s - proxy.idle * wall_s).max(0.0);
            taken.push(Turn::of(&answers, cpu_s, wall_s));
        }
    }
    all.into_iter().map(|(proxy, taken)| (proxy.name, taken)).collect()
}

/// Says whether the body that a caller sends is the one that a server gets.
async fn check_bytes(proxies: &[Proxy], stub: &str) {
    let load = Load { total: 1, connections: 1, ..PLAIN };
    let sent = prompts(&load).swap_remove(0);
    for proxy in proxies {
        Generator::new(&load).run(proxy.address).await;
        let kept = last_body(stub.parse().unwrap()).await == twox_hash::XxHash3_64::oneshot(&sent);
        let word = if kept { "byte for byte" } else { "changed" };
        println!("{}: request bodies reach the server {word}", proxy.name);
    }
}
