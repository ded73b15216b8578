//! The gRPC server: the `ext_proc` service, and the health service beside it.

use std::{future::Future, sync::Arc, time::Duration};

use futures::future;
use proto::ext_proc::{
    ProcessingRequest,
    external_processor_server::{ExternalProcessor, ExternalProcessorServer},
};
use router::Router;
use tokio::{net::TcpListener, time};
use tokio_util::sync::CancellationToken;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Server, server::TcpIncoming},
};
use tonic_health::{ServingStatus, server::HealthReporter};
use types::Clock;

use crate::{Answers, Options, Processor};

/// Health services that follow readiness: the names that llm-d's charts and Envoy ask for.
const READINESS: [&str; 4] =
    ["", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension", "readiness"];
/// The health service that only says that the process answers.
const LIVENESS: &str = "liveness";
/// How often readiness is looked at.
const READINESS_INTERVAL: Duration = Duration::from_millis(200);

/// Bytes a proxy may send ahead on one stream: half a long body.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes a proxy may send ahead on one connection, which carries all streams of a worker.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Streams per connection; a proxy opens another connection for more.
const STREAMS_PER_CONNECTION: u32 = 10_000;
/// Streams that may be reset before they were looked at. A proxy resets many at once when its
/// clients leave; the default of 20 would close the connection, and all others on it.
const PENDING_RESETS: usize = STREAMS_PER_CONNECTION as usize;
/// How often a silent proxy is asked whether it is still there. The streams of one that is not end,
/// and with them the requests counted as in flight.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Room for headers and metadata beside a piece of a body in one message.
const MESSAGE_OVERHEAD_BYTES: usize = 4 << 20;

/// The front stopped because of this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server failed.
    #[error("cannot serve gRPC on the {listener} listener")]
    Serve {
        /// Which of the listeners: `ext_proc` or `health`.
        listener: &'static str,
        /// Why.
        source: tonic::transport::Error,
    },
}

/// Where the front listens, bound by the caller.
#[derive(Debug)]
pub struct Listeners {
    /// For `ext_proc` and health (llm-d: 9002).
    pub ext_proc: TcpListener,
    /// For health alone (llm-d: 9003).
    pub health: Option<TcpListener>,
}

/// Serves until `cancel`, then lets streams in flight go on for the drain timeout.
///
/// Health is `SERVING` while the pool has endpoints and shutdown has not begun; `liveness` always.
pub async fn serve(
    listeners: Listeners,
    options: Options,
    router: Arc<Router>,
    clock: Arc<dyn Clock>,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let drain_timeout = Duration::from_millis(options.drain_timeout_ms);
    let max_message_bytes = options.max_body_bytes.saturating_add(MESSAGE_OVERHEAD_BYTES);
    let service = ExternalProcessorServer::new(Processor::new(options, Arc::clone(&router), clock))
        .max_decoding_message_size(max_message_bytes);
    let (reporter, health) = tonic_health::server::health_reporter();
    let readiness = Readiness::start(reporter, router).await;
    // The health port goes on answering, "not serving", while streams drain.
    let drained = CancellationToken::new();

    let ext_proc = async {
        let server = builder()
            .add_service(service)
            .add_service(health.clone())
            .serve_with_incoming_shutdown(incoming(listeners.ext_proc), cancel.cancelled());
        let result = within(server, &cancel, drain_timeout).await;
        drained.cancel();
        result.map_err(|source| Error::Serve { listener: "ext_proc", source })
    };
    let health_alone = async {
        let Some(listener) = listeners.health else { return Ok(()) };
        let server = builder()
            .add_service(health.clone())
            .serve_with_incoming_shutdown(incoming(listener), drained.cancelled());
        // Probes keep their connections; they must not hold up the end.
        let result = within(server, &drained, Duration::ZERO).await;
        result.map_err(|source| Error::Serve { listener: "health", source })
    };
    let follow = async {
        readiness.follow(&cancel).await;
        Ok(())
    };
    future::try_join3(ext_proc, health_alone, follow).await.map(|_| ())
}

/// Runs `server` until it ends, for `grace` at most after `stop`.
async fn within(
    server: impl Future<Output = Result<(), tonic::transport::Error>>,
    stop: &CancellationToken,
    grace: Duration,
) -> Result<(), tonic::transport::Error> {
    let deadline = async {
        stop.cancelled().await;
        time::sleep(grace).await;
    };
    tokio::select! {
        result = server => result,
        () = deadline => Ok(()),
    }
}

fn builder() -> Server {
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS))
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
}

/// Connections without Nagle's algorithm: with it every answer waits some 40 ms for an
/// acknowledgement. The builder's own setting is ignored where a listener is handed in.
fn incoming(listener: TcpListener) -> TcpIncoming {
    TcpIncoming::from(listener).with_nodelay(Some(true))
}

/// What the health service says.
struct Readiness {
    reporter: HealthReporter,
    router: Arc<Router>,
    is_ready: bool,
}

impl Readiness {
    /// Says how it is now.
    async fn start(reporter: HealthReporter, router: Arc<Router>) -> Self {
        reporter.set_service_status(LIVENESS, ServingStatus::Serving).await;
        let is_ready = !router.pool().endpoints().is_empty();
        let readiness = Self { reporter, router, is_ready };
        readiness.report().await;
        readiness
    }

    /// Says how it is whenever that changes, and after `cancel` that it is over.
    async fn follow(mut self, cancel: &CancellationToken) {
        let mut interval = time::interval(READINESS_INTERVAL);
        interval.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        while cancel.run_until_cancelled(interval.tick()).await.is_some() {
            self.set(!self.router.pool().endpoints().is_empty()).await;
        }
        self.set(false).await;
    }

    async fn set(&mut self, is_ready: bool) {
        if self.is_ready != is_ready {
            self.is_ready = is_ready;
            self.report().await;
        }
    }

    async fn report(&self) {
        let status = if self.is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in READINESS {
            self.reporter.set_service_status(service, status).await;
        }
    }
}

#[tonic::async_trait]
impl ExternalProcessor for Processor {
    type ProcessStream = Answers<Streaming<ProcessingRequest>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        Ok(Response::new(self.answer(request.into_inner())))
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn accepted_connections_do_not_wait_to_fill_a_packet() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut incoming = incoming(listener);
        let (accepted, connected) = tokio::join!(incoming.next(), TcpStream::connect(address));
        assert!(accepted.unwrap().unwrap().nodelay().unwrap());
        drop(connected.unwrap());
    }
}
