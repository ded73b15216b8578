//! What benchmarks share: clocks that count CPU, figures with their spread, and the processes to measure.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]
#![expect(clippy::missing_panics_doc, reason = "every fixture panics when it is broken")]

mod child;
mod cpu;
mod figures;
mod stub;

pub use child::{Child, Role, role};
pub use cpu::{process_cpu, resident_mb, thread_cpu, used_by};
pub use figures::Figures;
pub use stub::serve_stubs;

/// A metrics page of vLLM 0.32 under load.
pub const PAGE: &str = include_str!("../crates/datalayer/tests/fixtures/vllm-0.32-loaded.txt");

/// Whether this is a short run, which only shows that the benchmark works: cargo says `--bench` where
/// figures are wanted.
pub fn is_short() -> bool {
    !std::env::args().any(|argument| argument == "--bench")
}

/// The lines that open every report: how to repeat it, and what it compares.
pub fn heading(bench: &str, compares: &str) -> String {
    let short = if is_short() { "\nSHORT RUN: these figures mean nothing." } else { "" };
    format!("$ cargo bench -p benches --bench {bench}\n{compares}{short}")
}
