//! The batch regressors. A new one is a file in this folder and two lines here.

mod boosted;
mod elastic_net;
mod forest;

use std::ops::RangeInclusive;

use smartcore::linalg::basic::matrix::DenseMatrix;

use crate::{BatchKind, Error, Result, window::Sound};

/// Every batch regressor a pool may name.
pub const BATCH: &[BatchKind] = &[elastic_net::KIND, forest::KIND, boosted::KIND];

/// Refuses an option outside `range`; that also keeps a typing error from taking all memory.
fn within(
    kind: &'static str,
    option: &'static str,
    value: f64,
    range: &RangeInclusive<f64>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::Range { kind, option, low: *range.start(), high: *range.end() })
}

/// A failure of the library that fits `kind`.
fn failed(kind: &'static str) -> impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> Error {
    move |source| Error::Fit { kind, source }
}

/// The rows of `which` as the tree library takes them, with the logarithms of their labels less
/// `log_mean`.
fn logged(
    kind: &'static str,
    sound: &Sound,
    which: &[usize],
    log_mean: f64,
) -> Result<(DenseMatrix<f32>, Vec<f64>)> {
    let columns = sound.columns(which);
    let rows = DenseMatrix::new(which.len(), sound.width, columns, true)
        .map_err(|error| failed(kind)(Box::new(error)))?;
    let labels = which.iter().map(|at| sound.labels[*at].ln() - log_mean).collect();
    Ok((rows, labels))
}

#[cfg(test)]
mod samples {
    //! Windows, and rows to compare predictions on.

    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
    use smartcore::linalg::basic::matrix::DenseMatrix;

    use crate::{Window, flat::Trees, window::Sound};

    pub(super) struct Rows(Vec<[f32; 3]>);

    impl Rows {
        pub(super) fn matrix(&self) -> DenseMatrix<f32> {
            let rows = self.0.iter().map(|row| row.to_vec()).collect();
            DenseMatrix::from_2d_vec(&rows).unwrap()
        }
    }

    /// A bumpy function of two features beside a constant one, rows of unequal weight.
    pub(super) fn bumpy(count: usize) -> Sound {
        let mut rng = StdRng::seed_from_u64(11);
        let mut rows = Vec::new();
        let mut labels = Vec::new();
        for _ in 0..count {
            let (x, y) = (rng.random_range(0.0..10.0_f32), rng.random_range(-1.0..1.0_f32));
            rows.extend([x, y, 4.0]);
            labels.push((x.sin() + y * y).exp() * rng.random_range(0.9..1.1));
        }
        let weights: Vec<f32> = (0..count).map(|_| rng.random_range(0.1..2.0)).collect();
        Sound::of(&Window { width: 3, rows: &rows, labels: &labels, weights: &weights }).unwrap()
    }

    /// Rows within what the model was fitted to and well outside it, and the fitted rows too.
    pub(super) fn rows_around(sound: &Sound, count: usize) -> Rows {
        let mut rng = StdRng::seed_from_u64(12);
        let drawn = (0..count).map(|_| {
            [rng.random_range(-5.0..15.0), rng.random_range(-2.0..2.0), rng.random_range(3.0..5.0)]
        });
        let fitted = (0..sound.len()).map(|at| <[f32; 3]>::try_from(sound.row(at)).unwrap());
        Rows(drawn.chain(fitted).collect())
    }

    /// `flat` and the library's `predicted` logarithms (less `log_mean`) are the same to the
    /// precision of a sum of `f32`, and not constant.
    pub(super) fn assert_agrees(flat: &Trees, rows: &Rows, predicted: &[f32], log_mean: f64) {
        let span = predicted.iter().fold(0.0_f32, |span, log| span.max((log - predicted[0]).abs()));
        assert!(span > 0.5, "{span}");
        for (row, expected) in rows.0.iter().zip(predicted) {
            let error = flat.predict_log(row) - log_mean as f32 - expected;
            assert!(error.abs() < 2e-6, "{row:?}: off by {error}");
        }
    }
}
