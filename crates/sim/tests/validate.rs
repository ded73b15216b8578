//! The simulated engine is as far off real ones as it was found to be.

use sim::{FidelityErrors, FidelityGroup, Sample, Validation, validate};

/// By how much an error may move before somebody should look, as a share.
const BAND: f64 = 0.005;
/// The same of the mean over fitted rows of the 8B sweep, one of which lies where the simulated
/// server just fails to keep up.
const WIDE_BAND: f64 = 0.1;

/// Source, model, parallelism, what the rows are, how many; then mean and median absolute error
/// of TTFT and of ITL, or of single steps.
type Golden = (&'static str, &'static str, u32, Sample, usize, Option<(f64, f64)>, (f64, f64));

#[rustfmt::skip]
const GOLDEN: [Golden; 12] = [
    ("llm-inferno", "Llama-3.1-8B", 1, Sample::Fitted, 49, Some((0.890, 0.054)), (0.130, 0.038)),
    ("llm-inferno", "Llama-3.1-8B", 1, Sample::HeldOut, 49, Some((0.061, 0.055)), (0.060, 0.030)),
    ("llm-inferno", "Qwen2.5-14B", 1, Sample::HeldOut, 88, Some((0.132, 0.143)), (0.127, 0.111)),
    ("llm-inferno", "Qwen2.5-14B", 1, Sample::AfterTheFact, 88, Some((0.079, 0.070)), (0.127, 0.115)),
    ("aiconfigurator", "Llama-3.1-70B", 2, Sample::Picked, 15, Some((0.085, 0.073)), (0.035, 0.025)),
    ("aiconfigurator", "Llama-3.1-70B", 4, Sample::Picked, 15, Some((0.083, 0.083)), (0.040, 0.044)),
    ("aiconfigurator", "Llama-3.1-70B", 8, Sample::Picked, 15, Some((0.112, 0.103)), (0.044, 0.042)),
    ("aiconfigurator", "Qwen3-32B", 2, Sample::HeldOut, 30, Some((0.276, 0.216)), (0.059, 0.042)),
    ("aiconfigurator", "Qwen3-32B", 4, Sample::HeldOut, 30, Some((0.278, 0.274)), (0.083, 0.086)),
    ("aibrix", "Llama-3.1-8B", 1, Sample::Picked, 1, Some((0.007, 0.007)), (0.040, 0.040)),
    ("inference-sim", "llama-2-70b", 4, Sample::HeldOut, 2604, None, (0.023, 0.014)),
    ("inference-sim", "codellama-34b", 2, Sample::HeldOut, 3228, None, (0.125, 0.122)),
];

fn same_rows(group: &FidelityGroup, golden: &Golden) -> bool {
    let of = (&*group.source, &*group.model, group.tp, group.sample, group.rows);
    of == (golden.0, golden.1, golden.2, golden.3, golden.4)
}

fn holds(errors: FidelityErrors, (mean, median): (f64, f64), wide: bool) -> bool {
    let band = if wide { WIDE_BAND } else { BAND };
    (errors.mean_ratio - mean).abs() <= band && (errors.median_ratio - median).abs() <= BAND
}

#[test]
fn errors_against_measured_servers_are_what_they_were_found_to_be() {
    let found = validate(2).unwrap();
    assert_eq!(found.groups.len(), GOLDEN.len(), "{found}");
    for (group, golden) in found.groups.iter().zip(&GOLDEN) {
        assert!(same_rows(group, golden), "{golden:?}\n{found}");
        let wide = group.sample == Sample::Fitted;
        let ttft_holds = match (group.ttft, golden.5) {
            (Some(errors), Some(expected)) => holds(errors, expected, wide),
            (None, None) => true,
            _ => false,
        };
        let itl = group.itl.or(group.step).unwrap();
        assert!(ttft_holds && holds(itl, golden.6, wide), "{golden:?}\n{found}");
    }
    every_row_is_compared_or_counted(&found);
    what_is_not_modelled_is_named(&found);
}

/// Of 272 rates, 386 operating points, 6,183 steps and the one point of an A100.
fn every_row_is_compared_or_counted(found: &Validation) {
    let compared: usize = found
        .groups
        .iter()
        .filter(|group| group.sample != Sample::AfterTheFact)
        .map(|group| group.rows)
        .sum();
    let skipped: usize = found.skipped.iter().map(|rows| rows.rows).sum();
    assert_eq!(compared + skipped, 272 + 386 + 6_183 + 1, "{found}");
}

fn what_is_not_modelled_is_named(found: &Validation) {
    let experts = found.skipped.iter().filter(|rows| rows.reason.contains("mixture of experts"));
    assert_eq!(experts.map(|rows| rows.rows).sum::<usize>(), 247);
    let text = found.to_string();
    assert!(text.contains("speculative decoding"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
}
