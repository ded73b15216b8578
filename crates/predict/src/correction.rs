//! How far one endpoint is from what its class predicts.

use serde::{Deserialize, Serialize};

/// Labels over which it is averaged.
pub(crate) const MEMORY: f32 = 60.0;
/// Labels' worth of what is believed before there are any.
const SHRINK: f32 = 15.0;
/// Labels that the past weighs after a sudden change.
const AFTER_CHANGE: f32 = 10.0;
/// What is left of a measured change, as a belief, a label later.
const BELIEF_MEMORY: f32 = 0.95;

/// Moving mean of one endpoint's log residual, shrunk towards what is believed while there are few labels:
/// no difference, or the sudden change that its steps have shown.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Correction {
    labels: f32,
    log_bias: f32,
    /// Believed at once, since it was measured; labels then say how much of it stays, and how much of it
    /// the models have learned themselves.
    belief: f32,
}

impl Correction {
    fn log_factor(self) -> f32 {
        (self.log_bias * self.labels + self.belief * SHRINK) / (self.labels + SHRINK)
    }

    /// What a prediction is to be multiplied with.
    pub(crate) fn factor(self) -> f32 {
        self.log_factor().exp()
    }

    /// Whether it has seen few labels, or few since the last sudden change.
    pub(crate) fn is_young(self) -> bool {
        self.labels < MEMORY
    }

    /// A label came out at `residual` (log) from what the models say now.
    pub(crate) fn push(&mut self, residual: f32) {
        self.labels = (self.labels + 1.0).min(MEMORY);
        self.log_bias += (residual - self.log_bias).clamp(-1.0, 1.0) / self.labels;
        self.belief *= BELIEF_MEMORY;
    }

    /// The endpoint has become slower or faster by `shift` (log) a moment ago.
    pub(crate) fn shift(&mut self, shift: f32) {
        self.belief = (self.log_factor() + shift).clamp(-3.0, 3.0);
        self.log_bias = self.belief;
        // Few labels weigh what was learned before, so that the next ones move it fast.
        self.labels = self.labels.min(AFTER_CHANGE);
    }

    /// Both, weighed by their labels; what is believed is that of the one with more.
    pub(crate) fn merge(&mut self, other: Self) {
        let labels = self.labels + other.labels;
        if labels > 0.0 {
            self.log_bias += (other.log_bias - self.log_bias) * other.labels / labels;
        }
        if other.labels > self.labels {
            self.belief = other.belief;
        }
        self.labels = labels.min(MEMORY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_believed_at_once_and_given_back_as_the_models_learn_it() {
        let mut correction = Correction::default();
        for _ in 0..100 {
            correction.push(0.0);
        }
        correction.shift(0.47);
        assert!((correction.factor() - 1.6).abs() < 0.02, "{}", correction.factor());
        // The models have learned it themselves: labels come out where they say.
        for _ in 0..120 {
            correction.push(0.0);
        }
        assert!((correction.factor() - 1.0).abs() < 0.03, "{}", correction.factor());
    }

    #[test]
    fn few_labels_move_it_little_and_many_all_the_way() {
        let after = |labels: u32| {
            let mut correction = Correction::default();
            (0..labels).for_each(|_| correction.push(0.5));
            correction.log_factor()
        };
        assert!(after(3) < 0.1 && after(60) > 0.39, "{} {}", after(3), after(60));
    }
}
