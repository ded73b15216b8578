//! The engines of the demo: two each of three GPU classes.

use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc};

use anyhow::Context as _;
use sim::{Member, Profile, ServerOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use types::{Address, Clock, Endpoint, EndpointId};

use super::MODEL;
use crate::args;

/// Name and accelerator class of each engine.
const FLEET: [(&str, &str); 6] = [
    ("h100-0", "H100-SXM"),
    ("h100-1", "H100-SXM"),
    ("a100-0", "A100-SXM-80"),
    ("a100-1", "A100-SXM-80"),
    ("l40s-0", "L40S"),
    ("l40s-1", "L40S"),
];

/// The fleet, with vLLM's defaults on every card.
pub(super) fn members(seed: u64) -> anyhow::Result<Vec<Member>> {
    let member = |(at, (name, gpu)): (u64, (&str, &str))| {
        let profile = Profile::named(gpu, MODEL)?;
        let options = sim::Options { seed: seed.wrapping_add(at), ..sim::Options::new(&profile) };
        Ok(Member::new(name, profile, options))
    };
    (0..).zip(FLEET).map(member).collect()
}

/// The fleet behind HTTP on loopback.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) endpoints: Vec<Endpoint>,
    servers: JoinSet<std::io::Result<()>>,
    stop: CancellationToken,
}

impl Served {
    /// Serves every member on a port of its own, at `time_scale` times the pace of life.
    pub(super) async fn start(
        fleet: &[Member],
        time_scale: f64,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let mut served =
            Self { endpoints: Vec::new(), servers: JoinSet::new(), stop: CancellationToken::new() };
        for member in fleet {
            let listener = args::listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
            let address = Address::new("127.0.0.1", listener.local_addr()?.port())?;
            let label = ("llm-d.ai/accelerator".to_owned(), member.profile.gpu.clone());
            served.endpoints.push(Endpoint {
                id: EndpointId::new("default", &member.name),
                address,
                labels: BTreeMap::from([label]),
            });
            let options = ServerOptions {
                model: MODEL.to_owned(),
                engine: member.options.clone(),
                time_scale,
                pod_name: member.name.clone(),
                ..ServerOptions::new(member.profile.clone())
            };
            let (clock, stop) = (Arc::clone(clock), served.stop.clone());
            served.servers.spawn(sim::serve(listener, options, clock, stop));
        }
        Ok(served)
    }

    /// Stops the engines, and returns when all have ended.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.servers.join_next().await {
            ended.context("an engine ended badly")?.context("an engine could not serve")?;
        }
        Ok(())
    }
}
