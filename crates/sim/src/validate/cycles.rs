//! Single steps of real engines against the time that a step of the simulated one takes.

use super::{
    ValidateError,
    data::{self, CycleRow},
    plan::{About, Skips},
    result::{FidelityErrors, FidelityGroup, Sample},
    sweeps::named,
};
use crate::profile::{BLOCK_TOKENS, Batch, Profile};

/// Name of the source in reports.
const SOURCE: &str = "inference-sim";
/// Most by which the decoding sequences of two steps in a row may differ, so that what the first
/// one held is what took the time between them.
const MOST_CHANGE: u32 = 2;
/// Most prefill tokens of a step: where prompts begin alike, it is not known how many were cached.
const MOST_PREFILL: u32 = 32;

const REPLAY: &str = "expected time of a step with as many sequences and KV tokens, no noise; runs \
                      of the team whose other runs the overhead was fitted to";

/// One group per model measured. `profiles` are those that only the validation knows.
pub(super) fn groups(
    profiles: &[Profile],
    skips: &mut Skips,
) -> Result<Vec<FidelityGroup>, ValidateError> {
    let rows = data::cycles()?;
    let large = Profile::find("H100-SXM", "llama-3.1-70b", Some("bf16"), Some(4))?;
    let small = named(profiles, "codellama-34b", 2)?;
    let mut groups = Vec::new();
    for (model, tp, profile, sample) in
        [("llama-2-70b", 4, &large, Sample::HeldOut), ("codellama-34b", 2, small, Sample::HeldOut)]
    {
        let pairs: Vec<(f64, f64)> = rows
            .iter()
            .filter(|row| row.model == model && row.tp == tp)
            .filter(|row| keep(row, skips))
            .map(|row| (row.cycle_us * 1e-3, profile.step_ms(&batch(row))))
            .collect();
        let about = About { source: SOURCE, model, replay: REPLAY, sample };
        let mut group = about.group(profile, pairs.len());
        group.step = FidelityErrors::of(pairs);
        groups.push(group);
    }
    Ok(groups)
}

fn keep(row: &CycleRow, skips: &mut Skips) -> bool {
    let reason = if row.decode_a.abs_diff(row.decode_b) > MOST_CHANGE {
        "the batch changed by more than 2 sequences between two steps"
    } else if row.prefill_tokens > MOST_PREFILL {
        "more than 32 prefill tokens in the step"
    } else {
        return true;
    };
    skips.add(SOURCE, &row.model, reason);
    false
}

fn batch(row: &CycleRow) -> Batch {
    let kv_tokens = row.kv_usage * f64::from(row.kv_blocks) * f64::from(BLOCK_TOKENS);
    Batch {
        tokens: row.decode_a + row.prefill_tokens,
        sequences: row.running,
        context: kv_tokens as u64,
        pairs: 0.0,
    }
}
