//! Predicts TTFT and ITL per candidate, and learns from what then happened.
//!
//! One [`Learner`] holds the models of all classes (model, accelerator, role) and learns from
//! [`Ticket`]s that met their [`Outcome`]. What it knows it publishes as immutable [`Models`], which the
//! request path reads. No clock, lock or task. A prediction never fails: a cold class answers from the
//! pooled model, and says so by the number of labels behind it.

mod class;
mod learner;
mod models;
mod outputs;
mod residuals;
mod terms;

pub use class::{ClassKey, Prediction};
pub use learner::{ClassError, Learner, Options, Outcome, TargetError, Ticket};
pub use models::{ForModel, Models};
pub use outputs::OutputLengths;
