//! Seeded draws that are the same bits on every machine: no mathematics of the platform is in them.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// A source of randomness.
#[derive(Debug)]
pub(super) struct Draw(StdRng);

impl Draw {
    /// The source number `stream` of `seed`; other numbers are independent of it.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Self(StdRng::seed_from_u64(spread(seed).wrapping_add(spread(!stream))))
    }

    /// Uniform in `0.0..1.0`.
    pub(super) fn uniform(&mut self) -> f64 {
        self.0.random()
    }

    /// Exponential with mean 1.
    pub(super) fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.uniform())
    }

    /// Normal with mean 0 and standard deviation 1 (Box and Muller 1958).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(std::f64::consts::TAU * self.uniform())
    }

    /// A gap with mean 1 and coefficient of variation `cv`: gamma, of which 1 is the exponential.
    pub(super) fn gap(&mut self, cv: f64) -> f64 {
        if cv <= 0.0 {
            return 1.0;
        }
        if (cv - 1.0).abs() < 1e-9 {
            return self.exponential();
        }
        let shape = 1.0 / (cv * cv);
        self.gamma(shape) / shape
    }

    /// Gamma with scale 1 (Marsaglia and Tsang 2000; a shape below 1 by their section 6).
    fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let root = libm::pow(1.0 - self.uniform(), 1.0 / shape);
            return self.gamma(shape + 1.0) * root;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            if libm::log(1.0 - self.uniform()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
    }
}

/// A bijection that spreads every bit over the word (the finalizer of splitmix64, Steele et al. 2014).
pub(super) fn spread(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_and_cv(count: u32, mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let drawn: Vec<f64> = (0..count).map(|_| draw()).collect();
        let mean = drawn.iter().sum::<f64>() / f64::from(count);
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(count);
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn gaps_have_the_mean_and_the_variation_that_was_asked_for() {
        for cv in [0.0, 0.3, 1.0, 2.5] {
            let mut draw = Draw::new(1, 2);
            let (mean, found) = mean_and_cv(200_000, || draw.gap(cv));
            assert!((mean - 1.0).abs() < 0.02, "cv {cv}: mean {mean}");
            assert!((found - cv).abs() < 0.03 * cv.max(1.0), "cv {cv}: {found}");
        }
    }

    #[test]
    fn streams_of_a_seed_are_reproducible_and_differ() {
        let first = |seed, stream| Draw::new(seed, stream).uniform().to_bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(2, 1));
        assert_ne!(first(1, 2), first(1, 3));
    }

    #[test]
    fn the_first_draws_of_a_seed_are_what_they_were_everywhere() {
        let mut draw = Draw::new(7, 0);
        let drawn = [draw.uniform(), draw.exponential(), draw.normal(), draw.gap(2.0)];
        let expected = [
            0x3f7b_e07a_7ef7_9700,
            0x3fd8_6ddb_67f5_816e,
            0xbff0_8dd1_e140_5395,
            0x3faf_d9d8_c638_7649,
        ];
        assert_eq!(drawn.map(f64::to_bits), expected);
    }
}
