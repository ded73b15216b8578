//! Rows of a simulated pool of three classes, a learner taught by them, and decisions to predict for.

use std::{collections::BTreeMap, sync::Arc};

use benches::is_short;
use features::{Column, FeatureRow};
use parking_lot::Mutex;
use predict::{ClassKey, ForModel, Learner, Models, Options, Outcome, Prediction, Ticket};
use router::{Recorded, Recorder};
use schedule::Policy;
use serde_json::Value;
use sim::{Bundled, Chooser, Class, Member, Profile, Scenario, Trace, TraceOptions, simulate};
use types::Slo;

/// Model of every engine.
const MODEL: &str = "llama-3.1-8b";
/// Engines simulated: the mixed pool of `slackline evaluate`.
const FLEET: [&str; 6] = ["H100-SXM", "H100-SXM", "A100-SXM-80", "A100-SXM-80", "L40S", "L40S"];
/// Arrivals per second.
const RATE: f64 = 36.0;
/// Requests that one simulated run routes: all of the bundled trace.
const PER_RUN: usize = 1_500;
/// Endpoints that the rows are spread over, and candidates of a decision.
pub(crate) const ENDPOINTS: usize = 100;
/// Shares of the rows after which batch models are fitted; those after the last judge them.
const FITS_AFTER: [f64; 2] = [0.3, 0.65];

/// Keeps what a router records.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Recorded>>);

impl Recorder for Kept {
    fn record(&self, row: &Recorded) {
        self.0.lock().push(row.clone());
    }
}

/// At least `count` labelled rows of the mixed pool, routed by the weighted scorers, each on one of
/// [`ENDPOINTS`] slots.
pub(crate) fn simulated(count: usize) -> Vec<Recorded> {
    let kept = Arc::new(Kept::default());
    let whole = Trace::bundled(Bundled::AzureConversation, &TraceOptions::default()).unwrap();
    let even = whole.arrivals.len() as f64 / whole.span().as_secs_f64();
    let trace = whole.take(if is_short() { count } else { PER_RUN }).scaled(RATE / even);
    for seed in 0_u64.. {
        if kept.0.lock().len() >= count {
            break;
        }
        let mut router = router::Options { seed, ..router::Options::default() };
        router.schedule.policy = Policy::Heuristic;
        router.learner = Options {
            regressors: vec!["mean".to_owned()],
            batch: Vec::new(),
            ..Options::default()
        };
        let classes = vec![Class::only(Slo::default())];
        let scenario = Scenario {
            recorder: Some(Arc::clone(&kept) as Arc<dyn Recorder>),
            ..Scenario::new(Chooser::Router(router), classes, MODEL)
        };
        simulate("mixed", &fleet(seed), &trace, &scenario).unwrap();
    }
    let mut rows = std::mem::take(&mut *kept.0.lock());
    rows.retain(|row| row.ttft.is_some() && row.itl.is_some());
    for (row, slot) in rows.iter_mut().zip((0..ENDPOINTS as u32).cycle()) {
        row.slot = slot;
    }
    rows
}

fn fleet(seed: u64) -> Vec<Member> {
    let member = |(at, gpu): (u64, &&str)| {
        let profile = Profile::named(gpu, MODEL).unwrap();
        let options = sim::Options { seed: seed * 100 + at, ..sim::Options::new(&profile) };
        Member::new(format!("{}-{at}", gpu.to_lowercase()), profile, options)
    };
    (0..).zip(&FLEET).map(member).collect()
}

/// A learner that was taught `rows`: each was predicted by what was published some rows before, and
/// batch models were fitted twice.
pub(crate) fn taught(rows: &[Recorded], options: &Options) -> Learner {
    let mut learner = Learner::new(options).unwrap();
    let mut models = Models::default();
    let fits = FITS_AFTER.map(|share| (share * rows.len() as f64) as usize);
    for (at, row) in rows.iter().enumerate() {
        if at % 50 == 0 || at < 200 {
            models = learner.publish();
        }
        learner.learn(&ticket(row, &models), &outcome(row));
        if fits.contains(&at) {
            for refit in learner.take_refits(usize::MAX) {
                learner.install(refit.run());
            }
        }
    }
    learner
}

/// The same knowledge with model `champion` serving in every class and regime.
pub(crate) fn forced(learner: &Learner, options: &Options, champion: usize) -> Learner {
    let saved = learner.save(&|slot| Some(slot.to_string())).unwrap();
    let mut saved: Value = serde_json::from_slice(&saved).unwrap();
    crown(&mut saved, champion);
    let mut forced = Learner::new(options).unwrap();
    let text = serde_json::to_vec(&saved).unwrap();
    forced.restore(&text, &|name| name.parse().ok()).unwrap();
    forced
}

/// Makes `champion` serve wherever there are so many models: the pool of all classes has but a few.
fn crown(saved: &mut Value, champion: usize) {
    match saved {
        Value::Array(values) => values.iter_mut().for_each(|value| crown(value, champion)),
        Value::Object(fields) => {
            let models = fields.get("models").and_then(Value::as_array).map_or(0, Vec::len);
            for (name, value) in fields {
                match value {
                    Value::Array(regimes) if name == "scores" && champion < models => {
                        for scores in regimes {
                            scores["champion"] = champion.into();
                        }
                    }
                    value => crown(value, champion),
                }
            }
        }
        _ => {}
    }
}

/// The ticket that a router would have made of `row`.
pub(crate) fn ticket(row: &Recorded, models: &Models) -> Ticket {
    let of = models.of(&row.class.model);
    let ClassKey { accelerator, role, .. } = &row.class;
    Ticket {
        class: row.class.clone(),
        slot: row.slot,
        scope: None,
        row: row.row,
        prediction: of.predict(accelerator, *role, row.slot, &row.row),
        forecasts: of.forecasts(accelerator, *role, row.slot, &row.row).map(Box::new),
    }
}

/// What came of `row`.
pub(crate) fn outcome(row: &Recorded) -> Outcome {
    let prompt_tokens = row.row.get(Column::Prompt) as u32;
    Outcome {
        ttft_ms: row.ttft.map(|known| known.ms),
        itl_ms: row.itl.map(|known| known.ms),
        output_tokens: Some(row.output_tokens),
        prompt: Some((prompt_tokens * 4, prompt_tokens)),
        ..Outcome::default()
    }
}

/// One candidate of a decision.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    class: ClassKey,
    slot: u32,
    row: FeatureRow,
}

impl Candidate {
    /// What `of` predicts for it.
    pub(crate) fn predict(&self, of: &ForModel) -> Option<Prediction> {
        of.predict(&self.class.accelerator, self.class.role, self.slot, &self.row)
    }
}

/// A request and the endpoints it may go to.
pub(crate) type Decision = Vec<Candidate>;

/// Up to `count` decisions between [`ENDPOINTS`] candidates: loads as they were recorded, and in each
/// decision one request for all.
pub(crate) fn decisions(rows: &[Recorded], count: usize) -> Vec<Decision> {
    let own = [Column::Prompt, Column::Uncached, Column::UncachedPairs, Column::Output];
    let decision = |rows: &[Recorded]| {
        let asked = rows[0].row;
        let candidate = |of: &Recorded| Candidate {
            class: of.class.clone(),
            slot: of.slot,
            row: own.iter().fold(of.row, |row, column| row.with(*column, asked.get(*column))),
        };
        rows.iter().map(candidate).collect()
    };
    let every = (rows.len() / count.max(1)).max(ENDPOINTS);
    rows.chunks(every).filter_map(|rows| rows.get(..ENDPOINTS)).map(decision).collect()
}

/// Predicts for every candidate, and returns one number that depends on all predictions.
pub(crate) fn predict_all(models: &Models, decision: &Decision) -> f32 {
    let of = models.of(MODEL);
    let predicted = decision.iter().filter_map(|candidate| candidate.predict(&of));
    predicted.map(|prediction| prediction.ttft.p90() + prediction.itl.p90()).sum()
}

/// Which models serve, and in how many regimes of both targets of all classes.
pub(crate) fn champions(learner: &Learner) -> String {
    let mut serving = BTreeMap::new();
    for class in learner.errors() {
        for regime in class.ttft.regimes.iter().chain(&class.itl.regimes) {
            *serving.entry(regime.champion).or_insert(0) += 1;
        }
    }
    let counted: Vec<_> = serving.iter().map(|(name, count)| format!("{name} {count}")).collect();
    counted.join(", ")
}
