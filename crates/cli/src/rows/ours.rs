//! Reads a row that this program has recorded.

use std::{collections::HashMap, sync::Arc};

use features::{FeatureRow, SCHEMA, WIDTH};
use predict::{ClassKey, Label, Labelled};
use types::{Accelerator, Role};

use super::{
    fields::{Fields, Problem},
    write::SCHEMA_VERSION,
};

/// Words for how a request ended; only the first is learned from.
const ENDS: [&str; 5] = ["complete", "client-gone", "endpoint-failed", "rejected", "cancelled"];
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
        let schema = fields.required("schema")?;
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
        let end = fields.text("end")?;
        if !ENDS.contains(&end) {
            return Err(Problem::new("end", format!("is `{end}`, not one of {}", ENDS.join(", "))));
        }
        if end != ENDS[0] {
            return Ok(Row::KeptOut(end.to_owned()));
        }
        if model.is_empty() {
            return Ok(Row::KeptOut("no model".to_owned()));
        }
        Ok(Row::Learned(Box::new(Labelled { decided_at_ms, class, slot, row, ttft, itl })))
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
