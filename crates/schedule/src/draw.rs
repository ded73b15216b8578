//! Draws from the one random number that a decision is given.

/// Another number, for the draw numbered `at`: the finaliser of splitmix64.
pub(crate) fn another(random: u64, at: usize) -> u64 {
    let mut z = random.wrapping_add((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number of `0.0..1.0`.
pub(crate) fn unit(random: u64) -> f64 {
    const STEPS: f64 = (1_u64 << 53) as f64;
    (random >> 11) as f64 / STEPS
}

/// A position below `count`, each in proportion to its weight; `None` if there is no weight at all.
pub(crate) fn weighted(random: u64, count: usize, weight: impl Fn(usize) -> f64) -> Option<usize> {
    let total: f64 = (0..count).map(&weight).sum();
    if total <= 0.0 {
        return None;
    }
    let mut left = unit(random) * total;
    let mut last = None;
    for at in (0..count).filter(|at| weight(*at) > 0.0) {
        last = Some(at);
        left -= weight(at);
        if left < 0.0 {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_come_in_proportion_to_weights() {
        let weights = [0.0, 1.0, 3.0, 0.0, 6.0];
        let mut drawn = [0_u32; 5];
        for at in 0..20_000 {
            drawn[weighted(another(7, at), 5, |at| weights[at]).unwrap()] += 1;
        }
        for (drawn, weight) in drawn.iter().zip(weights) {
            assert!((f64::from(*drawn) / 2_000.0 - weight).abs() < 0.15, "{drawn} for {weight}");
        }
        assert_eq!(weighted(1, 3, |_| 0.0), None);
        assert_eq!(weighted(u64::MAX, 2, |_| 1.0), Some(1));
    }
}
