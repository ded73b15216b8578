//! Both ways to the same endpoints: the gateway, and a real Envoy with the endpoint picker behind it.

use std::{fmt, sync::Arc};

use harness::{Engine, Envoy, Epp, Front, Gateway, idle};
use router::{Options, Router};
use types::Endpoint;

/// Where clients come to, and the router behind it.
pub(crate) struct Site {
    pub(crate) name: &'static str,
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) router: Arc<Router>,
    parts: Parts,
}

/// What runs behind a site.
enum Parts {
    Gateway(Gateway),
    Envoy(Epp, #[expect(dead_code, reason = "held for its end")] Envoy),
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Site {
    /// The gateway before `front`.
    pub(crate) async fn gateway(front: Front) -> Self {
        let gateway = Gateway::start(front).await;
        let (address, router) = (gateway.address.clone(), Arc::clone(&gateway.router));
        Self { name: "gateway", address, router, parts: Parts::Gateway(gateway) }
    }

    /// Envoy and the endpoint picker before `front`; `None` where there is no Envoy.
    pub(crate) async fn envoy(front: Front) -> Option<Self> {
        let epp = Epp::start(front).await;
        let envoy = Envoy::start(&epp).await?;
        let (address, router) = (envoy.address.clone(), Arc::clone(&epp.router));
        Some(Self { name: "envoy", address, router, parts: Parts::Envoy(epp, envoy) })
    }

    pub(crate) fn front(&self) -> &Front {
        match &self.parts {
            Parts::Gateway(gateway) => gateway,
            Parts::Envoy(epp, _) => epp,
        }
    }

    /// Waits until nothing is in flight, neither by our count nor on `engines`.
    pub(crate) async fn quiet(&self, engines: &[Engine]) {
        idle(&self.router).await;
        for engine in engines {
            engine.until_requests(0).await;
        }
    }
}

/// Both sites before `endpoints`, each with a router of its own.
pub(crate) async fn sites(endpoints: impl IntoIterator<Item = Endpoint>) -> Vec<Site> {
    sites_with(&Options::default(), endpoints).await
}

/// Both sites before `endpoints`, with routers tuned by `options`.
pub(crate) async fn sites_with(
    options: &Options,
    endpoints: impl IntoIterator<Item = Endpoint>,
) -> Vec<Site> {
    let endpoints: Vec<_> = endpoints.into_iter().collect();
    let front = || Front::start_with(options.clone(), endpoints.clone());
    let mut sites = vec![Site::gateway(front()).await];
    sites.extend(Site::envoy(front()).await);
    sites
}

/// What the router knows of `engines`.
pub(crate) fn endpoints(engines: &[Engine]) -> Vec<Endpoint> {
    engines.iter().map(Engine::endpoint).collect()
}

/// An engine called `name` that runs `time_scale` times faster than life; at 1 its long answers outlast
/// any test.
pub(crate) async fn engine_at(time_scale: f64, name: &str) -> Engine {
    Engine::start_with("H100", name, |options| options.time_scale = time_scale).await
}
