//! (a) What it costs to predict TTFT and ITL for 100 candidates, by the model that serves.

use std::hint::black_box;

use benches::{Figures, is_short, thread_cpu};
use predict::{Learner, Models, Options};
use router::Recorded;

use crate::rows::{Decision, champions, decisions, forced, predict_all};

/// Different decisions, and rounds through all of them.
const DECISIONS: usize = 50;
const ROUNDS: usize = 100;
/// Numbers read between two decisions to empty the caches: 8 MB.
const OTHER_WORK: usize = 1 << 20;

/// Prints what those models cost that have proved best, and each where it alone serves.
pub(crate) fn measure(rows: &[Recorded], learner: &mut Learner, options: &Options) {
    let decisions = decisions(rows, DECISIONS);
    println!("    what has proved best: {}", champions(learner));
    print(&learner.publish(), &decisions, None);
    let base = options.regressors.len() - 1;
    let plain = forced(learner, options, base).publish();
    for (at, name) in learner.model_names().into_iter().enumerate() {
        let models = forced(learner, options, at).publish();
        println!("    {name} everywhere");
        print(&models, &decisions, (at != base).then_some(&plain));
    }
}

/// `base` is what predicts where the model abstains.
fn print(models: &Models, decisions: &[Decision], base: Option<&Models>) {
    let rounds = if is_short() { 2 } else { ROUNDS };
    let warm = Figures::new((0..rounds).map(|_| warm_us(models, decisions)), 1);
    println!("      {warm} us, median of {rounds} rounds of {}", decisions.len());
    let cold = Figures::new(cold_us(models, decisions), 1);
    println!("      {} us after other work has emptied the caches", cold.percentiles());
    if let Some(base) = base {
        println!("      {:.1} % of it is not the base's answer", answered(models, base, decisions));
    }
}

fn warm_us(models: &Models, decisions: &[Decision]) -> f64 {
    let before = thread_cpu();
    for decision in decisions {
        black_box(predict_all(models, black_box(decision)));
    }
    (thread_cpu() - before) * 1e6 / decisions.len() as f64
}

fn cold_us(models: &Models, decisions: &[Decision]) -> Vec<f64> {
    let other: Vec<u64> = (0..OTHER_WORK as u64).collect();
    let one = |decision| {
        black_box(black_box(&other).iter().sum::<u64>());
        let before = thread_cpu();
        black_box(predict_all(models, black_box(decision)));
        (thread_cpu() - before) * 1e6
    };
    decisions.iter().map(one).collect()
}

/// Share of candidates, in percent, that `models` and `base` predict differently.
fn answered(models: &Models, base: &Models, decisions: &[Decision]) -> f64 {
    let each = |decision: &Decision| {
        let one = |at: usize| decision[at..=at].to_vec();
        let differs = |at: &usize| {
            predict_all(models, &one(*at)).to_bits() != predict_all(base, &one(*at)).to_bits()
        };
        (0..decision.len()).filter(differs).count()
    };
    let candidates: usize = decisions.iter().map(Vec::len).sum();
    100.0 * decisions.iter().map(each).sum::<usize>() as f64 / candidates as f64
}
