//! What scraping costs: one page parsed, and 100 endpoints asked over HTTP every 50 ms.

#![expect(clippy::print_stdout, reason = "the result is what this is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that fails should fail loudly")]

use std::{hint::black_box, sync::Arc, time::Duration};

use benches::{
    Child, Figures, PAGE, heading, is_short, process_cpu, role, serve_stubs, thread_cpu,
};
use datalayer::{Options, Pool, Scraper, read_page};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use types::{Clock, Endpoint, EndpointId, SystemClock};

/// Endpoints scraped, each with a connection of its own.
const ENDPOINTS: usize = 100;
/// Pages parsed per round, and rounds.
const PARSES: (u32, usize) = (200, 100);
/// Length of one measured window, and their number in a full run: ten seconds.
const WINDOWS: (Duration, usize) = (Duration::from_millis(500), 20);

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    if role().is_some() {
        return runtime.block_on(serve_stubs(1, |addresses| println!("{}", addresses[0])));
    }
    let about = format!(
        "The metrics page of vLLM 0.32 under load, {} bytes: parsed alone, and scraped whole over\n\
         loopback HTTP from {ENDPOINTS} endpoints every {} ms. CPU is that of this process; the servers\n\
         are another, which is not counted. Target: under 10 % of one core.",
        PAGE.len(),
        Options::default().interval_ms,
    );
    println!("{}\n", heading("scrape", &about));
    measure_parse();
    let (_server, address) = Child::of_self("server", &[]);
    runtime.block_on(measure_scrapes(&address));
}

fn measure_parse() {
    let (parses, rounds) = PARSES;
    let round = || {
        let before = thread_cpu();
        for _ in 0..parses {
            black_box(read_page(None, black_box(PAGE.as_bytes())).unwrap());
        }
        (thread_cpu() - before) * 1e6 / f64::from(parses)
    };
    let us = Figures::new((0..if is_short() { 2 } else { rounds }).map(|_| round()), 1);
    println!(
        "parse:  {us} us of CPU per page, median of {rounds} rounds of {parses} (least to most)"
    );
}

async fn measure_scrapes(address: &str) {
    let pool = Pool::new((0..ENDPOINTS).map(|at| Endpoint {
        id: EndpointId::new("default", &format!("engine-{at}")),
        address: address.parse().unwrap(),
        labels: [].into(),
    }));
    let clock = Arc::new(SystemClock::start());
    let scraper = Scraper::start(
        Options::default(),
        Arc::new(pool),
        Arc::clone(&clock) as _,
        &CancellationToken::new(),
    )
    .unwrap();
    // Until every connection stands.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stats = scraper.stats();
    let (length, full) = WINDOWS;
    let windows = if is_short() { 2 } else { full };
    let (mut each_us, mut core, mut rate) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..windows {
        let (start, done, cpu) = (clock.now(), stats.ok(), process_cpu());
        tokio::time::sleep(length).await;
        let wall_s = clock.now().since(start).as_secs_f64();
        let (done, cpu_s) = ((stats.ok() - done) as f64, process_cpu() - cpu);
        each_us.push(cpu_s * 1e6 / done);
        core.push(100.0 * cpu_s / wall_s);
        rate.push(done / wall_s);
    }
    let seconds = length.as_secs_f64() * windows as f64;
    println!("over {seconds:.0} s, medians of {windows} windows (least to most):");
    println!("scrape: {} us of CPU per whole scrape", Figures::new(each_us, 1));
    println!("rate:   {} scrapes a second, {} failed", Figures::new(rate, 0), stats.failed());
    println!("share:  {} % of one core", Figures::new(core, 2));
    scraper.stop().await;
}
