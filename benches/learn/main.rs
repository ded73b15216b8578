//! What the learner costs: predicting for 100 candidates, learning a row, fitting beside predictions, and
//! the memory of a large fleet over hours.

#![expect(clippy::print_stdout, reason = "the result is what this is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that fails should fail loudly")]

mod learning;
mod predicting;
mod refit;
mod rows;
mod soak;

use benches::{heading, is_short, role};
use predict::Options;

/// Rows that the learner of (a) and (b) is taught.
const TAUGHT: usize = 6_000;
/// Rows that models are fitted to in (c).
const FITTED: usize = 20_000;

fn main() {
    if role().is_some_and(|role| role.name == soak::ROLE) {
        return soak::run();
    }
    let about = "The learner by itself, taught by rows of a simulated pool of two H100, two A100 and two L40S.\n\
         CPU time of the measuring thread, medians (least to most).\n\
         Targets: (a) 50 us, (b) 10 us a row, (c) no prediction more than 1 ms later, (d) under 300 MB,\n\
         and no more at the end than half way.";
    println!("{}", heading("learn", about));
    println!("{} CPUs: {}", cpus(), cpu_model());
    if ["a", "b", "c"].into_iter().any(wanted) {
        measure_times();
    }
    if wanted("d") {
        println!("\n(d) memory; `--full` for the whole fleet, which takes many minutes");
        soak::in_child();
    }
}

fn measure_times() {
    let options = Options::default();
    let few = |count| if is_short() { 300 } else { count };
    let rows = rows::simulated(few(if wanted("c") { FITTED } else { TAUGHT }));
    let taught = &rows[..few(TAUGHT).min(rows.len())];
    let mut learner = rows::taught(taught, &options);
    if wanted("a") {
        println!("\n(a) TTFT and ITL, four quantiles each, for {} candidates", rows::ENDPOINTS);
        predicting::measure(taught, &mut learner, &options);
    }
    if wanted("b") {
        println!("\n(b) one row learned");
        learning::measure(taught, &options);
    }
    if wanted("c") {
        println!(
            "\n(c) 100 candidates predicted every ms, with and without fits on another thread"
        );
        refit::measure(&rows, learner, &options);
    }
}

/// Whether the measure called `letter` is asked for; without letters, all are.
fn wanted(letter: &str) -> bool {
    let mut asked =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    asked.peek().is_none() || asked.any(|argument| argument == letter)
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("model name"));
    line.unwrap_or_default().trim_start_matches(['\t', ':', ' ']).to_owned()
}
