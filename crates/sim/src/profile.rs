//! How long one step of an engine takes, by accelerator class, model, weights and tensor parallelism.
//!
//! The coefficients in `profiles.csv` come from measured kernels and measured step times of public
//! sources (`AIConfigurator` tables, `GuideLLM` sweeps of llm-inferno, BLIS step cycles,
//! `AIBrix` runs); its column `source` names them row by row. Rows of low confidence are estimates.

use serde::Deserialize;

/// The table, one row per profile.
const TABLE: &str = include_str!("../profiles.csv");
/// Tokens per KV block.
pub const BLOCK_TOKENS: u32 = 16;
/// KV bytes per token of the 8B model, whose first prefill kernel costs [`PREFILL_BASE_MS`].
const BASE_KV_BYTES: f64 = 131_072.0;
/// Cost of having any prefill in a step, for the 8B model; others scale with their layers, and so
/// with their KV bytes per token.
const PREFILL_BASE_MS: f64 = 0.6;
/// Cards with less than 70 GB of memory, on which the engine defaults to smaller batches.
const SMALL_CARDS: [&str; 3] = ["L40S", "A40", "L4"];

/// Step-time coefficients and KV capacity of one engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Accelerator class, such as `H100-SXM`.
    pub gpu: String,
    /// Model, such as `llama-3.1-8b`.
    pub model: String,
    /// Format of the weights, such as `bf16`.
    pub weights: String,
    /// Tensor parallelism: GPUs per engine.
    pub tp: u32,
    /// What a step costs.
    pub costs: Costs,
    /// KV blocks of [`BLOCK_TOKENS`] tokens: observed, else by formula.
    pub kv_blocks: u32,
    /// KV cache bytes per token, over all GPUs.
    pub kv_bytes_per_token: u32,
    /// Whether the coefficients are scaled from specifications rather than measured.
    pub estimated: bool,
    /// How far its source is to be trusted: `high`, `medium` or `low`.
    pub confidence: String,
    /// Where the coefficients come from.
    pub source: String,
}

/// Coefficients of the step time, see [`Profile::step_ms`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Reading the weights once, ms.
    pub weights_ms: f64,
    /// Linear layers per scheduled token when compute bound, microseconds.
    pub token_us: f64,
    /// Logits, ms.
    pub logits_ms: f64,
    /// Decode attention: constant, ms, and per token of context, nanoseconds.
    pub attention: (f64, f64),
    /// Prefill attention: constant, ms, and per pair of tokens, nanoseconds.
    pub prefill: (f64, f64),
    /// Communication between GPUs: constant, ms, and per token, microseconds.
    pub comm: (f64, f64),
    /// CPU overhead: constant and per scheduled sequence, both ms.
    pub overhead: (f64, f64),
    /// API server: fixed delay before a request reaches the scheduler, ms.
    pub api_ms: f64,
}

/// What the scheduler put into one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Batch {
    /// Scheduled tokens: one per decoding sequence, and prefill chunks.
    pub tokens: u32,
    /// Scheduled sequences.
    pub sequences: u32,
    /// Context tokens, summed over the decoding sequences.
    pub context: u64,
    /// Prefill attention pairs, `q * (k + q / 2)` summed over chunks of `q` tokens after `k`
    /// tokens that stand in the cache; zero without prefill.
    pub pairs: f64,
}

/// No profile fits.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// No row has this accelerator class.
    #[error("no profile for accelerator `{name}`; known are {known}")]
    Accelerator {
        /// The name asked for.
        name: String,
        /// The classes there are.
        known: String,
    },
    /// The accelerator class has no such model.
    #[error("no profile for `{name}` on `{gpu}`; known are {known}")]
    Model {
        /// The accelerator asked for.
        gpu: String,
        /// The model asked for, with weights and parallelism if those were asked for.
        name: String,
        /// The models there are on it, with weights and parallelism.
        known: String,
    },
}

impl Profile {
    /// Every profile of the table, in its order.
    pub fn all() -> Vec<Self> {
        Self::table(TABLE).unwrap_or_default()
    }

    /// Every profile of a table with the columns of the built-in one.
    pub fn table(text: &str) -> Result<Vec<Self>, csv::Error> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        reader.deserialize().map(|row: Result<Row, _>| row.map(Self::from)).collect()
    }

    /// The first profile of `model` on `gpu`; letter case is ignored, and `H100` means `H100-SXM`.
    pub fn named(gpu: &str, model: &str) -> Result<Self, ProfileError> {
        Self::find(gpu, model, None, None)
    }

    /// As [`Self::named`], restricted to these `weights` and this `tp` where given.
    pub fn find(
        gpu: &str,
        model: &str,
        weights: Option<&str>,
        tp: Option<u32>,
    ) -> Result<Self, ProfileError> {
        let (on_gpu, others): (Vec<_>, Vec<_>) =
            Self::all().into_iter().partition(|profile| profile.is_on(gpu));
        if on_gpu.is_empty() {
            let mut known: Vec<_> = others.into_iter().map(|profile| profile.gpu).collect();
            known.dedup();
            let known = known.join(", ");
            return Err(ProfileError::Accelerator { name: gpu.to_owned(), known });
        }
        let fits = |profile: &&Self| {
            profile.model.eq_ignore_ascii_case(model)
                && weights.is_none_or(|weights| profile.weights.eq_ignore_ascii_case(weights))
                && tp.is_none_or(|tp| profile.tp == tp)
        };
        on_gpu.iter().find(fits).cloned().ok_or_else(|| {
            let asked = [Some(model.to_owned()), weights.map(str::to_owned), tp.map(tp_name)];
            let known: Vec<_> = on_gpu.iter().map(Self::variant).collect();
            ProfileError::Model {
                gpu: gpu.to_owned(),
                name: asked.into_iter().flatten().collect::<Vec<_>>().join(" "),
                known: known.join(", "),
            }
        })
    }

    /// Whether `gpu` names this profile's class, in full or by its first part.
    fn is_on(&self, gpu: &str) -> bool {
        let short = self.gpu.split('-').next().unwrap_or_default();
        self.gpu.eq_ignore_ascii_case(gpu) || short.eq_ignore_ascii_case(gpu)
    }

    /// Model, weights and parallelism, for messages.
    fn variant(&self) -> String {
        format!("{} {} {}", self.model, self.weights, tp_name(self.tp))
    }

    /// Whether the card has 70 GB or more, on which the engine defaults to larger batches.
    pub fn is_large_card(&self) -> bool {
        !SMALL_CARDS.contains(&&*self.gpu)
    }

    /// Expected time of a step over `batch`, in ms.
    ///
    /// Weights-bound and compute-bound time of the linear layers blend as a fourth-power sum,
    /// which follows the kernel tables to 4-6 %; the other terms add up.
    pub fn step_ms(&self, batch: &Batch) -> f64 {
        let costs = &self.costs;
        let tokens = f64::from(batch.tokens);
        let compute = (costs.token_us * 1e-3 * tokens).powi(4);
        let linear = (costs.weights_ms.powi(4) + compute).sqrt().sqrt();
        let decode = costs.attention.0 + costs.attention.1 * 1e-6 * batch.context as f64;
        let prefill = if batch.pairs > 0.0 {
            costs.prefill.0 + costs.prefill.1 * 1e-6 * batch.pairs
        } else {
            0.0
        };
        let comm = costs.comm.0 + costs.comm.1 * 1e-3 * tokens;
        let overhead = costs.overhead.0 + costs.overhead.1 * f64::from(batch.sequences);
        linear + costs.logits_ms + decode + prefill + comm + overhead
    }
}

/// `tp4`, for messages.
fn tp_name(tp: u32) -> String {
    format!("tp{tp}")
}

/// One row of the table.
#[derive(Debug, Deserialize)]
struct Row {
    gpu: String,
    model: String,
    weights: String,
    tp: u32,
    t_w_ms: f64,
    t_tok_us: f64,
    t_logits_ms: f64,
    t_attn0_ms: f64,
    t_kv_ns: f64,
    t_pair_ns: f64,
    t_comm0_ms: f64,
    t_comm_us_per_tok: f64,
    oh0_ms: f64,
    oh1_ms_per_seq: f64,
    api0_ms: f64,
    kv_blocks16_observed: Option<u32>,
    kv_blocks16_formula: u32,
    kv_bytes_per_token: u32,
    confidence: String,
    source: String,
}

impl From<Row> for Profile {
    fn from(row: Row) -> Self {
        let prefill_ms = PREFILL_BASE_MS * f64::from(row.kv_bytes_per_token) / BASE_KV_BYTES;
        Self {
            gpu: row.gpu,
            model: row.model,
            weights: row.weights,
            tp: row.tp,
            costs: Costs {
                weights_ms: row.t_w_ms,
                token_us: row.t_tok_us,
                logits_ms: row.t_logits_ms,
                attention: (row.t_attn0_ms, row.t_kv_ns),
                prefill: (prefill_ms, row.t_pair_ns),
                comm: (row.t_comm0_ms, row.t_comm_us_per_tok),
                overhead: (row.oh0_ms, row.oh1_ms_per_seq),
                api_ms: row.api0_ms,
            },
            kv_blocks: row.kv_blocks16_observed.unwrap_or(row.kv_blocks16_formula),
            kv_bytes_per_token: row.kv_bytes_per_token,
            estimated: row.confidence == "low",
            confidence: row.confidence,
            source: row.source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        assert_eq!(Profile::all().len(), TABLE.trim_end().lines().count() - 1);
    }

    #[test]
    fn short_names_find_the_first_row_of_their_class() {
        for (short, full) in [
            ("H100", "H100-SXM"),
            ("a100", "A100-SXM-80"),
            ("L40S", "L40S"),
            ("H200", "H200-SXM"),
            ("B200", "B200-SXM"),
            ("L4", "L4"),
            ("A40", "A40"),
            ("MI300X", "MI300X"),
            ("H20", "H20"),
            ("H100-SXM", "H100-SXM"),
        ] {
            let profile = Profile::named(short, "llama-3.1-8b").unwrap();
            assert_eq!((&*profile.gpu, profile.tp), (full, 1));
        }
        let large = Profile::find("h100", "Llama-3.1-70B", Some("fp8"), Some(4)).unwrap();
        assert_eq!(large.kv_blocks, 43_629);
        assert_eq!(Profile::named("H100", "llama-3.1-8b").unwrap().kv_blocks, 29_205);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = Profile::named("H1", "llama-3.1-8b").unwrap_err().to_string();
        assert!(error.contains("`H1`") && error.contains("H100-SXM, H200-SXM"), "{error}");
        let error = Profile::find("L4", "gpt", None, Some(2)).unwrap_err().to_string();
        assert!(error.contains("`gpt tp2` on `L4`"), "{error}");
        assert!(error.contains("llama-3.1-8b bf16 tp1"), "{error}");
    }

    #[test]
    fn a_lone_decode_on_h100_takes_the_published_time() {
        let profile = Profile::named("H100", "llama-3.1-8b").unwrap();
        let batch = Batch { tokens: 1, sequences: 1, context: 500, pairs: 0.0 };
        assert!((profile.step_ms(&batch) - 6.71).abs() < 0.05);
    }
}
