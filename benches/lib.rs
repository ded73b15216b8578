//! Fixtures that benchmarks share.
