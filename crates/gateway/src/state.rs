//! What all requests share.

use std::sync::Arc;

use router::Router;
use types::{Clock, Time};

use crate::{Error, Options, headers::Ids, metrics::Metrics, upstream::Upstream};

/// What all requests share.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) router: Arc<Router>,
    pub(crate) upstream: Upstream,
    pub(crate) metrics: Metrics,
    pub(crate) ids: Ids,
    clock: Arc<dyn Clock>,
}

impl State {
    pub(crate) fn new(
        options: Options,
        router: Arc<Router>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        Ok(Self {
            upstream: Upstream::new(&options),
            metrics: Metrics::register(router.registry())?,
            ids: Ids::default(),
            options,
            router,
            clock,
        })
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }
}
