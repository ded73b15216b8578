//! Running geometric mean: ignores the row. The baseline any other model has to beat.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::{NoOptions, read_options};

use crate::{Error, Frozen, Kind, Regressor, Result, is_sound};

/// Labels after which the mean goes on as a moving one.
const WINDOW: f64 = 500.0;

pub(crate) const KIND: Kind = Kind {
    name: "mean",
    build: |_width, options| {
        let NoOptions {} = read_options(KIND.name, options)?;
        Ok(Box::new(Mean::default()))
    },
    load: |saved| Ok(Box::new(serde_json::from_value::<Mean>(saved)?)),
};

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Mean {
    count: f64,
    log_mean: f64,
}

impl Regressor for Mean {
    fn predict_one(&self, _row: &[f32]) -> f32 {
        self.log_mean.exp() as f32
    }

    fn learn_one(&mut self, row: &[f32], label: f32) {
        if !is_sound(row, label) {
            return;
        }
        self.count = (self.count + 1.0).min(WINDOW);
        self.log_mean += (f64::from(label).ln() - self.log_mean) / self.count;
    }

    fn save(&self) -> Value {
        json!(self)
    }

    fn copy(&self) -> Box<dyn Regressor> {
        Box::new(self.clone())
    }

    fn freeze(&self) -> Frozen {
        Frozen::Constant(self.predict_one(&[]))
    }

    /// The mean of both, each weighed by its labels.
    fn merge(&mut self, saved: &Value) -> Result<()> {
        let other = Self::deserialize(saved)?;
        if !(other.log_mean.is_finite() && other.count.is_finite() && other.count >= 0.0) {
            return Err(Error::Merge("the other mean is no number".to_owned()));
        }
        let count = self.count + other.count;
        if count > 0.0 {
            self.log_mean += (other.log_mean - self.log_mean) * other.count / count;
            self.count = count.min(WINDOW);
        }
        Ok(())
    }
}
