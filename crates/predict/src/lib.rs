//! Predicts TTFT and ITL per candidate, and learns from what then happened.
//!
//! One [`Learner`] holds the models of all classes (model, accelerator, role) and learns from
//! [`Ticket`]s that met their [`Outcome`]. What it knows it publishes as immutable [`Models`], which the
//! request path reads. No clock, lock or task. A prediction never fails: a cold class answers from the
//! pooled model, and says so by the number of labels behind it.

mod calibration;
mod class;
mod correction;
mod drift;
mod experts;
mod fitting;
mod joint;
mod key;
mod learner;
mod load;
mod merge;
mod models;
mod options;
mod outputs;
mod prior;
mod regime;
mod report;
mod residuals;
mod scopes;
mod seen;
mod shaped;
mod sound;
mod target;
mod terms;
mod ticket;
mod trust;
mod twin;
mod validation;
mod window;

pub use calibration::LEVELS;
pub use class::{Forecasts, Prediction, Quantiles, Source};
pub use drift::Step;
pub use experts::EXPERTS;
pub use key::ClassKey;
pub use learner::Learner;
pub use load::LoadError;
pub use models::{ForModel, Models};
pub use options::Options;
pub use outputs::{Expected, LENGTHS, Lengths, OutputLengths};
pub use prior::{About, Fit, Lessons, Prior, PriorError, PriorSource, Priors, TrainError};
pub use regime::Regime;
pub use report::{ClassError, Promoted, RegimeError, TargetError};
pub use seen::FeatureName;
pub use sound::Unsound;
pub use terms::Target;
pub use ticket::{Outcome, Ticket, Whole};
pub use trust::Trust;
pub use validation::{Judged, Label, Labelled, teach, validate, validate_from};
pub use window::{Refit, Refitted};
