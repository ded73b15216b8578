//! Reads a row that this program has recorded.

use std::{collections::HashMap, sync::Arc};

use features::{FeatureRow, SCHEMA, SCHEMA_VERSION, WIDTH};
use predict::{ClassKey, Label, Labelled, Step};
use types::{Accelerator, Role};

use super::fields::{Fields, Problem};

/// The end of a request that is learned from.
const COMPLETE: &str = "complete";
/// The end of one whose first token alone is.
const PREEMPTED: &str = "preempted";
/// Words for how a request ended.
const ENDS: [&str; 7] =
    [COMPLETE, PREEMPTED, "warm-up", "client-gone", "endpoint-failed", "rejected", "cancelled"];
/// Tolerance for instants that were rounded, in milliseconds.
const ROUNDED_MS: f64 = 1.0;

/// What one row says.
#[derive(Debug)]
pub(super) enum Row {
    /// To be learned from.
    Learned(Box<Labelled>),
    /// Not to be learned from, and why.
    KeptOut(String),
}

/// Reads rows one by one.
#[derive(Debug, Default)]
pub(super) struct Ours {
    /// Numbers of endpoints by name: slots are given anew when a router restarts.
    slots: HashMap<String, u32>,
    models: HashMap<String, Arc<str>>,
}

/// Whether `fields` is a row of this form.
pub(super) fn fits(fields: &Fields) -> bool {
    fields.has("schema") || fields.has("decided_at_ms")
}

impl Ours {
    pub(super) fn row(&mut self, fields: &Fields) -> Result<Row, Problem> {
        // Without a version the columns tell: their names must be those of this one.
        let schema = fields.number("schema")?.unwrap_or(f64::from(SCHEMA_VERSION));
        if (schema - f64::from(SCHEMA_VERSION)).abs() > f64::EPSILON {
            let problem = format!("is {schema}, and this program reads {SCHEMA_VERSION}");
            return Err(Problem::new("schema", problem));
        }
        let decided_at_ms = fields.required("decided_at_ms")?;
        let model = fields.text("model")?;
        let role = match fields.text("role")? {
            "both" => Role::Both,
            "prefill" => Role::Prefill,
            "decode" => Role::Decode,
            other => {
                let problem = format!("is `{other}`, not both, prefill or decode");
                return Err(Problem::new("role", problem));
            }
        };
        let class = ClassKey {
            model: self.model(model),
            accelerator: Accelerator::new(fields.text("accelerator")?),
            role,
        };
        let slot = self.slot(fields.text("endpoint")?);
        let row = features(fields)?;
        let ttft = label(fields, "ttft_ms", "ttft_known_at_ms", decided_at_ms)?;
        let itl = label(fields, "itl_ms", "itl_known_at_ms", decided_at_ms)?;
        let e2e = label(fields, "e2e_ms", "e2e_known_at_ms", decided_at_ms)?;
        let itl_so_far = so_far(fields, decided_at_ms)?;
        let steps = steps(fields, decided_at_ms)?;
        let output_tokens = output_tokens(fields, e2e.is_some())?;
        let end = fields.text("end")?;
        if !ENDS.contains(&end) {
            return Err(Problem::new("end", format!("is `{end}`, not one of {}", ENDS.join(", "))));
        }
        let itl = itl.filter(|_| end != PREEMPTED);
        if end != COMPLETE && (end != PREEMPTED || ttft.is_none()) {
            return Ok(Row::KeptOut(end.to_owned()));
        }
        if model.is_empty() {
            return Ok(Row::KeptOut("no model".to_owned()));
        }
        Ok(Row::Learned(Box::new(Labelled {
            decided_at_ms,
            class,
            slot,
            row,
            ttft,
            itl,
            itl_so_far,
            steps,
            e2e,
            output_tokens,
        })))
    }

    /// Names of the endpoints, by their numbers.
    pub(super) fn into_endpoints(self) -> Vec<String> {
        let mut numbered: Vec<_> = self.slots.into_iter().collect();
        numbered.sort_unstable_by_key(|(_, slot)| *slot);
        numbered.into_iter().map(|(name, _)| name).collect()
    }

    fn slot(&mut self, endpoint: &str) -> u32 {
        if let Some(slot) = self.slots.get(endpoint) {
            return *slot;
        }
        let slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.insert(endpoint.to_owned(), slot);
        slot
    }

    fn model(&mut self, name: &str) -> Arc<str> {
        if let Some(model) = self.models.get(name) {
            return Arc::clone(model);
        }
        let model: Arc<str> = name.into();
        self.models.insert(name.to_owned(), Arc::clone(&model));
        model
    }
}

/// The columns of the schema, all of them and no others: a row with other columns comes from another
/// version, whose values may mean something else.
fn features(fields: &Fields) -> Result<FeatureRow, Problem> {
    const PREFIX: &str = "features.";
    let mut values = [0.0; WIDTH];
    for (value, feature) in values.iter_mut().zip(&SCHEMA) {
        let name = format!("{PREFIX}{}", feature.name);
        let number = fields.required(&name)?;
        if number.abs() > f64::from(f32::MAX) {
            return Err(Problem::new(&name, format!("is {number}, which is out of range")));
        }
        *value = number as f32;
    }
    let is_known = |name: &str| SCHEMA.iter().any(|feature| feature.name == name);
    let unknown = fields
        .names()
        .find(|name| name.strip_prefix(PREFIX).is_some_and(|feature| !is_known(feature)));
    match unknown {
        Some(name) => Err(Problem::new(name, "is no feature that this program knows")),
        None => Ok(values.into()),
    }
}

/// A latency that came no later than it was known, if there is one; nothing is learned from zero.
fn label(
    fields: &Fields,
    name: &str,
    known: &str,
    decided_at_ms: f64,
) -> Result<Option<Label>, Problem> {
    let Some(ms) = fields.number(name)? else { return Ok(None) };
    if ms < 0.0 || ms > f64::from(f32::MAX) {
        return Err(Problem::new(name, format!("is {ms}, which is no latency")));
    }
    if ms == 0.0 {
        return Ok(None);
    }
    let known_at_ms = fields.required(known)?;
    if known_at_ms - decided_at_ms < ms - ROUNDED_MS || known_at_ms < decided_at_ms {
        return Err(Problem::new(known, format!("is before `{name}` had passed")));
    }
    Ok(Some(Label { ms: ms as f32, known_at_ms }))
}

/// The means of the gaps while the stream went on, in the order in which they were known.
fn so_far(fields: &Fields, decided_at_ms: f64) -> Result<Vec<Label>, Problem> {
    #[derive(serde::Deserialize)]
    struct SoFar {
        ms: f64,
        known_at_ms: f64,
    }
    const NAME: &str = "itl_so_far";
    let label = |SoFar { ms, known_at_ms }: SoFar| {
        if !(0.0..=f64::from(f32::MAX)).contains(&ms) {
            return Err(Problem::new(NAME, format!("holds {ms}, which is no latency")));
        }
        if known_at_ms - decided_at_ms < ms - ROUNDED_MS || known_at_ms < decided_at_ms {
            return Err(Problem::new(NAME, "holds one that was known before it had passed"));
        }
        Ok(Label { ms: ms as f32, known_at_ms })
    };
    fields.list(NAME)?.into_iter().map(label).collect()
}

/// Samples of the endpoint's steps, in the order in which they were known.
fn steps(fields: &Fields, decided_at_ms: f64) -> Result<Vec<(f64, Step)>, Problem> {
    const NAME: &str = "steps";
    let step = |(known_at_ms, step_ms, streams, kv_tokens): (f64, f32, f32, f32)| {
        if known_at_ms < decided_at_ms {
            return Err(Problem::new(NAME, "holds one that was known before the decision"));
        }
        if [step_ms, streams, kv_tokens].iter().any(|value| !value.is_finite() || *value < 0.0) {
            return Err(Problem::new(
                NAME,
                "holds a value that is no number of ms, streams or tokens",
            ));
        }
        Ok((known_at_ms, Step { step_ms, streams, kv_tokens }))
    };
    fields.list(NAME)?.into_iter().map(step).collect()
}

/// Output tokens; they must be told where a whole answer is split by them.
fn output_tokens(fields: &Fields, required: bool) -> Result<u32, Problem> {
    const NAME: &str = "output_tokens";
    if !required && !fields.has(NAME) {
        return Ok(0);
    }
    Ok(fields.within(NAME, f64::from(u32::MAX))? as u32)
}
