//! What one routing decision costs: `Router::route` over 100 and 4,000 endpoints, on one core.

#![expect(clippy::print_stdout, reason = "the result is what this is for")]

mod traffic;

use benches::{Figures, heading, is_short, thread_cpu};
use schedule::Policy;
use types::{Clock, SystemClock};

use traffic::Traffic;

/// Endpoints, and requests in flight on each.
const POOLS: [(usize, usize); 2] = [(100, 8), (4_000, 2)];

fn main() {
    let heading = heading(
        "decide",
        "One decision for a 4k-token prompt, of which half is held by some endpoints: candidates,\n\
         features, predictions, costs, accounting. Virtual time keeps the pool loaded, and the learner\n\
         was taught by the same traffic. `learned` predicts; `heuristic` scores by queue, KV and prefix.\n\
         CPU is that of the deciding thread; wall time has the machine's other work in it.\n\
         Targets: learned p99 under 200 us over 100 endpoints, under 8,000 us over 4,000.",
    );
    println!("{heading}");
    for (endpoints, in_flight) in POOLS {
        for (policy, name) in [(Policy::Learned, "learned"), (Policy::Heuristic, "heuristic")] {
            println!("\n{endpoints} endpoints, {in_flight} in flight on each, {name}");
            measure(endpoints, in_flight, policy);
        }
    }
}

fn measure(endpoints: usize, in_flight: usize, policy: Policy) {
    let decisions = match (is_short(), policy) {
        (true, _) => 200,
        (false, Policy::Learned) => 20_000,
        (false, _) => 5_000,
    };
    let mut traffic = Traffic::new(endpoints, in_flight, policy);
    traffic.warm_up();
    let clock = SystemClock::start();
    let (mut cpu_us, mut wall_us, mut by_rung) = (Vec::new(), Vec::new(), 0);
    while cpu_us.len() < decisions {
        let request = traffic.next_request();
        let (wall, cpu) = (clock.now(), thread_cpu());
        let routed = traffic.route(&request);
        cpu_us.push((thread_cpu() - cpu) * 1e6);
        wall_us.push(clock.now().since(wall).as_secs_f64() * 1e6);
        by_rung += usize::from(routed.rung.as_str() == expected(policy));
        traffic.follow(routed);
    }
    println!("  CPU us:    {}", Figures::new(cpu_us, 1).percentiles());
    println!("  wall us:   {}", Figures::new(wall_us, 1).percentiles());
    let finish_us = Figures::new(std::mem::take(&mut traffic.finish_us), 1);
    println!("  finish us: {} (CPU; learns, at times publishes)", finish_us.percentiles());
    println!(
        "  {decisions} decisions, {:.1} % of them {}",
        share(by_rung, decisions),
        expected(policy)
    );
    println!("  {}", traffic.summary());
}

fn expected(policy: Policy) -> &'static str {
    if policy == Policy::Learned { "learned" } else { "heuristic" }
}

fn share(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}
