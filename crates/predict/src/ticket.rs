//! What is kept of a prediction until its label arrives, and the labels.

use std::sync::Arc;

use features::FeatureRow;

use crate::{
    class::{Forecasts, Prediction},
    key::ClassKey,
};

/// The row a prediction was made from, kept until its label arrives.
#[derive(Debug)]
pub struct Ticket {
    /// Class of the endpoint it went to.
    pub class: ClassKey,
    /// Slot of that endpoint.
    pub slot: u32,
    /// Tenant or route it belongs to, if one is known: output lengths are learned for each.
    pub scope: Option<Arc<str>>,
    /// The row.
    pub row: FeatureRow,
    /// What was predicted, if anything was.
    pub prediction: Option<Prediction>,
    /// What every model said, if anything was predicted.
    pub forecasts: Option<Box<Forecasts>>,
}

/// What then happened. Of one request several may come, each with what has become known since the
/// last one; none holds the same label twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Time to first token, where it was seen.
    pub ttft_ms: Option<f32>,
    /// Mean time between tokens of the whole stream, where at least two were seen.
    pub itl_ms: Option<f32>,
    /// Mean time between the tokens so far, of a stream that goes on.
    pub itl_so_far: Option<f32>,
    /// The whole answer, where no token was seen by itself.
    pub e2e: Option<Whole>,
    /// Output tokens of an answer that ended by itself.
    pub output_tokens: Option<u32>,
    /// Bytes and tokens of the prompt, where the endpoint told the tokens.
    pub prompt: Option<(u32, u32)>,
}

/// An answer that came in one piece.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whole {
    /// Time from dispatch to its end, in milliseconds.
    pub ms: f32,
    /// Its output tokens.
    pub output_tokens: u32,
}
