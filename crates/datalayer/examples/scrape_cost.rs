//! Measures what scraping costs: µs of CPU per page parsed, and per whole scrape over loopback, with
//! the servers in a process of their own. Beside the median stands the best, which other load on the
//! machine disturbs least. Linux only, as it reads `/proc`.
//!
//! `cargo run --release -p datalayer --example scrape_cost -- [endpoints] [seconds]`

#![expect(clippy::unwrap_used, reason = "a measurement that fails should fail loudly")]
#![expect(clippy::print_stdout, reason = "the result is what this is for")]

use std::{
    hint::black_box,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use datalayer::{Options, Pool, Scraper, read_page};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_util::sync::CancellationToken;
use types::{Clock, Endpoint, EndpointId, SystemClock};

const PAGE: &[u8] = include_bytes!("../tests/fixtures/vllm-0.32-loaded.txt");
const ROUNDS: u32 = 100;
const PARSES: u32 = 200;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    if first.as_deref() == Some("serve") {
        return runtime.block_on(serve());
    }
    let endpoints = first.map_or(100, |text| text.parse().unwrap());
    let seconds = arguments.next().map_or(5, |text| text.parse().unwrap());
    measure_parse();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .arg("serve")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    runtime.block_on(measure_scrapes(endpoints, seconds, port.trim()));
    server.kill().unwrap();
    server.wait().unwrap();
}

fn measure_parse() {
    let clock = SystemClock::start();
    let mut us: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = clock.now();
            for _ in 0..PARSES {
                black_box(read_page(None, black_box(PAGE)).unwrap());
            }
            clock.now().since(start).as_secs_f64() * 1e6 / f64::from(PARSES)
        })
        .collect();
    us.sort_by(f64::total_cmp);
    let (least, median) = (us[0], us[us.len() / 2]);
    println!("parse: {median:.1} us per page of {} bytes, {least:.1} at best", PAGE.len());
}

async fn measure_scrapes(endpoints: u32, seconds: u64, port: &str) {
    let address: types::Address = format!("127.0.0.1:{port}").parse().unwrap();
    let pool = Pool::new((0..endpoints).map(|i| Endpoint {
        id: EndpointId::new("default", &format!("e{i}")),
        address: address.clone(),
        labels: [].into(),
    }));
    let cancel = CancellationToken::new();
    let clock = Arc::new(SystemClock::start());
    let options = Options::default();
    let scraper =
        Scraper::start(options, Arc::new(pool), Arc::clone(&clock) as _, &cancel).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stats = scraper.stats();
    let (start, first) = (clock.now(), stats.ok());
    let mut us = Vec::new();
    for _ in 0..seconds * 4 {
        let (scrapes, cpu) = (stats.ok(), cpu_seconds());
        tokio::time::sleep(Duration::from_millis(250)).await;
        us.push((cpu_seconds() - cpu) * 1e6 / (stats.ok() - scrapes) as f64);
    }
    us.sort_by(f64::total_cmp);
    let (least, median) = (us[0], us[us.len() / 2]);
    let rate = (stats.ok() - first) as f64 / clock.now().since(start).as_secs_f64();
    println!("scrape: {median:.1} us of CPU each, {least:.1} at best; {rate:.0} a second");
    println!("load: {:.1} % of one core, {} failed", median * rate / 1e4, stats.failed());
    scraper.stop().await;
}

/// CPU time of this process, user and system.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let nanos = tasks.map(|task| {
        let schedstat = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        schedstat.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    });
    nanos.sum::<u64>() as f64 / 1e9
}

/// Serves the page on a port that it prints, until killed.
async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\r\n",
        PAGE.len()
    );
    let answer: Arc<[u8]> = [head.as_bytes(), PAGE].concat().into();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            let mut request = [0; 4096];
            while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        });
    }
}
