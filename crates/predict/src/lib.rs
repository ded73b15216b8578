//! Predicts TTFT and ITL per candidate, and learns from what then happened.
//!
//! One [`Learner`] holds the models of all classes (model, accelerator, role) and learns from
//! [`Ticket`]s that met their [`Outcome`]. What it knows it publishes as immutable [`Models`], which the
//! request path reads. No clock, lock or task. A prediction never fails: a cold class answers from the
//! pooled model, and says so by the number of labels behind it.

mod calibration;
mod class;
mod drift;
mod experts;
mod key;
mod learner;
mod load;
mod models;
mod outputs;
mod regime;
mod report;
mod target;
mod terms;
mod validation;
mod window;

pub use calibration::LEVELS;
pub use class::{Forecasts, Prediction, Quantiles};
pub use drift::Step;
pub use key::ClassKey;
pub use learner::{Learner, Options, Outcome, Ticket};
pub use load::LoadError;
pub use models::{ForModel, Models};
pub use outputs::{Expected, LENGTHS, Lengths, OutputLengths};
pub use regime::Regime;
pub use report::{ClassError, Promoted, RegimeError, TargetError};
pub use terms::Target;
pub use validation::{Judged, Label, Labelled, validate};
pub use window::{Refit, Refitted};
