//! What engines of one profile teach, in virtual time.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use predict::{Lessons, Options, Step};
use router::{Recorded, Recorder};
use schedule::Policy;
use sim::{
    Batch, Bundled, Chooser, Class, Member, Profile, Scenario, Timing, Trace, TraceOptions,
    simulate,
};
use types::Slo;

use super::workload;

/// Requests that a prior is taught by, and those that it is held against.
pub(super) const TAUGHT: usize = 3_000;
const HELD_OUT: usize = 900;
const OTHER: usize = 900;
/// Seeds of the load that teaches and of those that judge.
const SEEDS: [u64; 3] = [11, 12, 13];
/// Share of capacity at which the other workload is played.
const OTHER_LOAD: f64 = 0.5;
/// Time between two scrapes of an engine.
const SCRAPE_EVERY: Duration = Duration::from_millis(50);
/// How a request ends that teaches latency.
const COMPLETE: &str = "complete";

/// What is known of a profile once it was played.
#[derive(Debug)]
pub(super) struct Played {
    /// Varied load.
    pub(super) lessons: Lessons,
    /// The same kind of load with another seed: where residuals come from.
    pub(super) held_out: Lessons,
    /// Another workload: what the card tells of.
    pub(super) other: Lessons,
    /// What that is.
    pub(super) other_name: String,
}

/// Plays the loads on an engine of `profile`.
pub(super) fn play(profile: &Profile) -> anyhow::Result<Played> {
    let [taught, held_out, other] = SEEDS;
    let mut lessons = rows(profile, &workload::varied(profile, TAUGHT, taught), taught)?;
    lessons.steps = decode_steps(profile);
    let azure = Trace::bundled(Bundled::AzureConversation, &TraceOptions::default())?.take(OTHER);
    let azure = workload::paced(azure, profile, OTHER_LOAD);
    Ok(Played {
        lessons,
        held_out: rows(profile, &workload::varied(profile, HELD_OUT, held_out), held_out)?,
        other: rows(profile, &azure, other)?,
        other_name: format!("{} at {:.0} % of capacity", azure.name, OTHER_LOAD * 100.0),
    })
}

/// Keeps rows in the order in which their requests end.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Recorded>>);

impl Recorder for Kept {
    fn record(&self, row: &Recorded) {
        self.0.lock().push(row.clone());
    }
}

fn rows(profile: &Profile, trace: &Trace, seed: u64) -> anyhow::Result<Lessons> {
    let kept = Arc::new(Kept::default());
    // There is one engine, and what the router learns itself decides nothing.
    let schedule = schedule::Options { policy: Policy::RoundRobin, ..schedule::Options::default() };
    let learner = Options {
        regressors: vec!["mean".to_owned()],
        experts: Vec::new(),
        batch: Vec::new(),
        ..Options::default()
    };
    let chooser =
        Chooser::Router(router::Options { schedule, learner, seed, ..router::Options::default() });
    let scenario = Scenario {
        timing: Timing { scrape_every: SCRAPE_EVERY, ..Timing::default() },
        recorder: Some(Arc::clone(&kept) as Arc<dyn Recorder>),
        ..Scenario::new(chooser, vec![Class::only(Slo::default())], &profile.model)
    };
    let options = sim::Options { seed, ..sim::Options::new(profile) };
    let member = Member::new("engine", profile.clone(), options);
    simulate("train", &[member], trace, &scenario)?;
    let mut kept = std::mem::take(&mut *kept.0.lock());
    kept.retain(|row| row.end == COMPLETE);
    let mut lessons = Lessons::default();
    let label = |row: &Recorded, known: Option<router::Known>| {
        known.map(|known| (known.at, (row.row, known.ms)))
    };
    let mut ttft: Vec<_> = kept.iter().filter_map(|row| label(row, row.ttft)).collect();
    ttft.sort_by_key(|(at, _)| *at);
    lessons.ttft = ttft.into_iter().map(|(_, lesson)| lesson).collect();
    lessons.itl = kept.iter().filter_map(|row| label(row, row.itl)).map(|(_, of)| of).collect();
    Ok(lessons)
}

/// Steps that do nothing but decode, over batches and contexts that fit the card.
fn decode_steps(profile: &Profile) -> Vec<Step> {
    let capacity = u64::from(profile.kv_blocks) * u64::from(sim::BLOCK_TOKENS);
    let mut steps = Vec::new();
    for sequences in [1_u32, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128] {
        for each in [128_u64, 256, 512, 1_024, 2_048, 4_096] {
            let context = u64::from(sequences) * each;
            if context > capacity {
                continue;
            }
            let batch = Batch { tokens: sequences, sequences, context, pairs: 0.0 };
            steps.push(Step {
                step_ms: profile.step_ms(&batch) as f32,
                streams: sequences as f32,
                kv_tokens: context as f32,
            });
        }
    }
    steps
}
