//! A made-up report with numbers as a laboratory finds them, for tests of what is made of reports.

use sim::{ClassAbout, ClassRun, FleetTried, Goodput, LabReport, PolicyAbout, Quantiles, Run};

pub(in crate::simulate) const SEEDS: [u64; 3] = [1, 2, 3];
/// Requests per second.
pub(in crate::simulate) const LOADS: [f64; 4] = [8.0, 12.0, 16.0, 20.0];

/// Name, what it is, whether it is an oracle, and the rate that it carries.
type Known<'a> = (&'a str, &'a str, bool, f64);
const POLICIES: [Known<'_>; 9] = [
    ("slackline", "Least expected added misses, learned online.", false, 16.4),
    ("slackline without harm", "The same, blind to what it takes from others.", false, 14.9),
    ("llm-d tuned", "Our reading of llm-d's scorers with weights 3, 2, 2.", false, 13.6),
    ("sticky until saturated", "Our reading of the token-aware rule.", false, 13.1),
    ("least-requests", "Fewest requests in flight.", false, 11.9),
    ("round-robin", "Each in turn.", false, 9.4),
    ("random", "Any.", false, 9.0),
    ("clairvoyant", "Knows service times and the arrivals to come.", true, 17.8),
    ("true-latency", "Knows each candidate's latency now.", true, 16.6),
];
/// Name, ceilings on TTFT and ITL, weight.
const CLASSES: [(&str, f32, f32, f32); 3] = [
    ("interactive", 400.0, 30.0, 4.0),
    ("agents", 1_500.0, 40.0, 2.0),
    ("batch", 8_000.0, 120.0, 1.0),
];

/// Everything that a report can hold.
pub(in crate::simulate) fn report() -> LabReport {
    let mut report = of(&POLICIES, &LOADS);
    report.goodput = POLICIES.iter().map(goodput).collect();
    report.what_if = what_if();
    report
}

/// `count` policies, the last two of them oracles.
pub(in crate::simulate) fn with_policies(count: usize) -> LabReport {
    let names: Vec<_> = (0..count).map(|at| format!("policy-{at:02}")).collect();
    let known = |at: usize| {
        let oracle = count > 2 && at + 2 >= count;
        (&*names[at], "One of many.", oracle, 9.0 + 8.0 * at as f64 / count as f64)
    };
    of(&(0..count).map(known).collect::<Vec<_>>(), &LOADS)
}

/// One policy, one load, one seed.
pub(in crate::simulate) fn single() -> LabReport {
    let mut report = of(&POLICIES[..1], &LOADS[..1]);
    report.runs.truncate(1);
    report
}

fn of(policies: &[Known<'_>], loads: &[f64]) -> LabReport {
    let mut runs = Vec::new();
    for (at, policy) in policies.iter().enumerate() {
        for rps in loads {
            runs.extend(SEEDS.map(|seed| run(policy, at, *rps, seed)));
        }
    }
    LabReport {
        version: 1,
        scenario: "mixed-fleet".to_owned(),
        about: "Chat and agents on three kinds of GPU.".to_owned(),
        fleet: "4 H100-SXM llama-3.1-8b, 4 A100-80GB llama-3.1-8b, 4 L40S llama-3.1-8b".to_owned(),
        workload: "Mooncake conversation trace, Poisson arrivals, 20 minutes".to_owned(),
        classes: CLASSES
            .iter()
            .map(|(name, ttft_ms, itl_ms, weight)| ClassAbout {
                name: (*name).to_owned(),
                ttft_ms: Some(*ttft_ms),
                itl_ms: Some(*itl_ms),
                weight: *weight,
            })
            .collect(),
        target: 0.9,
        caveats: vec![
            "Mixtures of experts and speculative decoding are not modelled.".to_owned(),
            "Step times of A100 are scaled from H100.".to_owned(),
        ],
        policies: policies
            .iter()
            .map(|(name, about, oracle, _)| PolicyAbout {
                name: (*name).to_owned(),
                about: (*about).to_owned(),
                oracle: *oracle,
            })
            .collect(),
        runs,
        ..LabReport::default()
    }
}

/// A number in -1..=1 that is the same for the same arguments.
fn noise(seed: u64, salt: usize) -> f64 {
    let mixed = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (salt as u64 + 1))
        .wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

fn met(over: f64) -> f64 {
    0.995 / (1.0 + (over / 1.3).exp())
}

fn run(policy: &Known<'_>, at: usize, rps: f64, seed: u64) -> Run {
    let (name, _, oracle, carries) = *policy;
    let offered = rps * (1.0 + 0.02 * noise(seed, 0));
    let over = offered - carries - 2.5 + 0.4 * noise(seed, at + 10);
    let attainment = met(over);
    let requests = (offered * 1_200.0) as u64;
    let stretch = 1.0 + 4.0 / (1.0 + (-over / 2.0).exp());
    let (ttft, itl) = (120.0 * stretch, 14.0 * stretch.sqrt());
    let by_class = CLASSES.iter().zip([0.8, 0.0, -2.0]).map(|((class, ..), harder)| {
        let run = ClassRun {
            requests: requests / 3,
            attainment: met(over + harder),
            ttft_ms: quantiles(ttft, 0.9),
            itl_ms: quantiles(itl, 0.35),
            worst_tenth_ratio: Some(0.8 * stretch),
        };
        ((*class).to_owned(), run)
    });
    let busy = (offered / carries).min(1.0);
    let predicts = name.starts_with("slackline") || name.starts_with("policy-0");
    let samples = |median: f64, salt: usize| {
        let sample = |n: usize| {
            let came = median * (0.9 * 1.6 * noise(seed, n * 7 + salt)).exp();
            let said = came * (0.2 * noise(seed, n * 13 + salt + 5)).exp();
            (said as f32, came as f32)
        };
        if predicts { (0..400).map(sample).collect() } else { Vec::new() }
    };
    Run {
        policy: name.to_owned(),
        seed,
        offered_rps: offered,
        requests,
        attainment,
        weighted_attainment: met(over + 0.4),
        goodput_rps: offered * attainment,
        ttft_ms: quantiles(ttft, 0.9),
        itl_ms: quantiles(itl, 0.35),
        e2e_ms: quantiles(ttft + 250.0 * itl, 0.8),
        worst_tenth_ratio: Some(0.9 * stretch),
        by_class: by_class.collect(),
        ttft_cdf: cdf(ttft, 0.9),
        itl_cdf: cdf(itl, 0.35),
        hit_ratio: 0.35 + 0.03 * carries / 2.0 + 0.01 * noise(seed, at + 70),
        utilization: [("H100-SXM", 1.0), ("A100-80GB", 0.93), ("L40S", 0.8)]
            .map(|(class, part)| (class.to_owned(), busy * part))
            .into(),
        share: [("h100-0".to_owned(), 0.4), ("l40s-0".to_owned(), 0.6)].into(),
        hot_spot_ratio: 1.05 + 6.0 / carries * (1.0 + 0.1 * noise(seed, at)),
        cost: 18.4,
        cost_per_met_mtoken: Some(5.1 / attainment.max(0.01) / rps),
        errors: if over > 4.0 { [("timeout".to_owned(), 40)].into() } else { [].into() },
        rungs: if oracle { [].into() } else { [("learned".to_owned(), requests)].into() },
        predicted_ttft_ms: samples(ttft, 100),
        predicted_itl_ms: samples(itl, 300),
        model_error: [].into(),
        steps: 1_000_000,
    }
}

/// Of a log-normal distribution.
fn quantiles(median: f64, sigma: f64) -> Quantiles {
    let at = |deviations: f64| Some(median * (sigma * deviations).exp());
    Quantiles { p50: at(0.0), p90: at(1.282), p99: at(2.326) }
}

fn cdf(median: f64, sigma: f64) -> Vec<(f64, f64)> {
    // A logistic curve is near enough to a normal one.
    let at = |share: f64| median * (sigma * (share / (1.0 - share)).ln() / 1.702).exp();
    (1..100).map(|percent| f64::from(percent) / 100.0).map(|share| (at(share), share)).collect()
}

fn goodput(policy: &Known<'_>) -> Goodput {
    let by_seed = SEEDS.map(|seed| policy.3 + 0.5 * noise(seed, 3)).to_vec();
    let rate = by_seed.iter().sum::<f64>() / by_seed.len() as f64;
    Goodput {
        policy: policy.0.to_owned(),
        goodput_rps: rate * 0.905,
        rate_rps: rate,
        by_seed,
        interval_rps: (rate - 0.6, rate + 0.6),
        worst_class_attainment: 0.86,
        worst_tenth_ratio: Some(1.4),
        tried: SEEDS.iter().flat_map(|seed| [(*seed, 8.0, 0.97), (*seed, 24.0, 0.4)]).collect(),
    }
}

fn what_if() -> Vec<FleetTried> {
    let fleets = [
        ("6 L40S", 6.6, 0.61),
        ("2 H100-SXM, 4 L40S", 10.2, 0.84),
        ("4 H100-SXM", 11.6, 0.93),
        ("4 H100-SXM, 4 L40S", 16.0, 0.985),
        ("8 H100-SXM", 23.2, 0.995),
    ];
    let mut tried = Vec::new();
    for (fleet, price_per_hour, attainment) in fleets {
        for (policy, less) in [("slackline", 0.0), ("llm-d tuned", 0.06)] {
            tried.push(FleetTried {
                fleet: fleet.to_owned(),
                price_per_hour,
                policy: policy.to_owned(),
                attainment: attainment - less,
                holds: attainment - less >= 0.9,
            });
        }
    }
    tried
}
