//! Which policy keeps most objectives: one fleet, four policies, three traces, three seeds, in virtual time.

#![expect(clippy::print_stdout, reason = "the result is what this is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that fails should fail loudly")]

use std::path::Path;

use benches::{Figures, heading, is_short};
use schedule::Policy;
use sim::{Bundled, Chooser, Class, Member, Profile, Scenario, Trace, TraceOptions, simulate};
use types::{Millis, Slo};

/// Accelerators of the fleet, all serving [`MODEL`].
const FLEET: [&str; 6] = ["H100", "H100", "A100", "A100", "L40S", "L40S"];
const MODEL: &str = "llama-3.1-8b";
const SEEDS: u64 = 3;
/// Longest prompt of the traces that every engine of the fleet can hold.
const LONGEST_PROMPT: u32 = 120_000;

const POLICIES: [(&str, Policy); 4] = [
    ("learned", Policy::Learned),
    ("llm-d 2,2,3,2 (our reading)", Policy::Heuristic),
    ("least-requests", Policy::LeastRequests),
    ("round-robin", Policy::RoundRobin),
];

/// A trace, how much faster it is played, and what each request is promised.
struct Case {
    bundled: Bundled,
    file: &'static str,
    rate: f64,
    slo: (f32, f32),
    requests: usize,
}

const CASES: [Case; 3] = [
    Case {
        bundled: Bundled::MooncakeConversation,
        file: "mooncake_conversation_trace.jsonl.gz",
        rate: 1.0,
        slo: (3_000.0, 50.0),
        requests: 2_500,
    },
    Case {
        bundled: Bundled::AzureConversation,
        file: "azure_llm_2023_conv.csv.gz",
        rate: 9.0,
        slo: (500.0, 40.0),
        requests: 12_000,
    },
    Case {
        bundled: Bundled::AzureCode,
        file: "azure_llm_2023_code.csv.gz",
        rate: 2.5,
        slo: (1_000.0, 40.0),
        requests: 6_000,
    },
];

fn main() {
    let about = "Attainment of four policies on two H100, two A100 and two L40S, in virtual time: median \
                 over\nthree seeds (least to most), and the worst TTFT p99 of the three. The traces are \
                 the bundled\nslices, or the whole files in the folder named after `--`.";
    println!("{}", heading("policies", about));
    let folder = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    for case in &CASES {
        compare(case, folder.as_deref());
    }
}

fn compare(case: &Case, folder: Option<&str>) {
    let slo = Slo { ttft: Millis::new(case.slo.0), itl: Millis::new(case.slo.1) };
    let name = folder.map_or(case.bundled.name(), |_| case.file);
    println!(
        "\n{name} at {} times its rate, TTFT {} ms, ITL {} ms",
        case.rate, case.slo.0, case.slo.1
    );
    let seeds = if is_short() { 1 } else { SEEDS };
    for (name, policy) in POLICIES {
        let runs: Vec<_> = (0..seeds)
            .map(|seed| {
                let trace = trace(case, folder, seed);
                let mut router = router::Options { seed, ..router::Options::default() };
                router.schedule.policy = policy;
                let classes = vec![Class::only(slo)];
                let scenario = Scenario::new(Chooser::Router(router), classes, MODEL);
                simulate(name, &fleet(seed), &trace, &scenario).unwrap().report
            })
            .collect();
        let attainment = Figures::new(runs.iter().map(|run| run.attainment * 100.0), 1);
        let tail = runs.iter().filter_map(|run| run.ttft_ms.p99).fold(0.0, f64::max) / 1e3;
        println!("  {name:28} {attainment} % met, TTFT p99 up to {tail:.1} s");
    }
}

fn trace(case: &Case, folder: Option<&str>, seed: u64) -> Trace {
    let options = TraceOptions { max_prompt_tokens: Some(LONGEST_PROMPT), seed };
    let whole = match folder {
        Some(folder) => Trace::open(&Path::new(folder).join(case.file), &options).unwrap(),
        None => Trace::bundled(case.bundled, &options).unwrap(),
    };
    let requests = if is_short() { 100 } else { case.requests };
    whole.take(requests).scaled(case.rate)
}

fn fleet(seed: u64) -> Vec<Member> {
    let member = |(at, gpu): (usize, &&str)| {
        let profile = Profile::named(gpu, MODEL).unwrap();
        let mut options = sim::Options::new(&profile);
        options.seed = seed * 100 + at as u64;
        Member::new(format!("{}-{at}", gpu.to_lowercase()), profile, options)
    };
    FLEET.iter().enumerate().map(member).collect()
}
