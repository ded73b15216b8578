//! Turns a request and what is known of an endpoint into the one [`FeatureRow`] that predicting and
//! learning share.
//!
//! This is the only code that knows the order of features.

mod schema;

pub use schema::{Column, Feature, SCHEMA, SCHEMA_VERSION, View, WIDTH};

/// One row of features, in [`SCHEMA`] order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeatureRow([f32; WIDTH]);

impl FeatureRow {
    /// Reads every feature of `view` once.
    pub fn extract(view: View<'_>) -> Self {
        Self(std::array::from_fn(|i| (SCHEMA[i].of)(view)))
    }

    /// The row as a slice, in schema order.
    pub fn as_slice(&self) -> &[f32] {
        &self.0
    }

    /// The value of one column.
    pub fn get(&self, column: Column) -> f32 {
        self.0[column as usize]
    }

    /// The row with another value in one column: for "what if" questions to a model.
    #[must_use]
    pub fn with(mut self, column: Column, value: f32) -> Self {
        self.0[column as usize] = value;
        self
    }
}

impl From<[f32; WIDTH]> for FeatureRow {
    fn from(values: [f32; WIDTH]) -> Self {
        Self(values)
    }
}
