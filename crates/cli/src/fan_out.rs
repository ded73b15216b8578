//! Hands every row of a decided request to all who record it.

use std::sync::Arc;

use router::{Recorded, Recorder, Router};

#[derive(Debug)]
struct FanOut(Vec<Arc<dyn Recorder>>);

impl Recorder for FanOut {
    fn record(&self, row: &Recorded) {
        for recorder in &self.0 {
            recorder.record(row);
        }
    }

    fn wants_candidates(&self) -> bool {
        self.0.iter().any(|recorder| recorder.wants_candidates())
    }
}

/// Has `router` record to all of `recorders` that there are.
pub(crate) fn record_to(
    router: &Router,
    recorders: impl IntoIterator<Item = Option<Arc<dyn Recorder>>>,
) {
    let recorders: Vec<_> = recorders.into_iter().flatten().collect();
    if !recorders.is_empty() {
        router.record_to(Arc::new(FanOut(recorders)));
    }
}
