//! Accepts connections, and lets answers under way finish when told to stop.

use std::{io, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use router::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};
use types::Clock;

use crate::{Error, Options, service, state::State};

/// Pause after a failed accept: what is short then, file descriptors mostly, stays short for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves the gateway on `listener` until `cancel` is cancelled, then for as long as answers are
/// under way, though no longer than [`Options::drain_timeout_ms`].
pub async fn serve(
    listener: TcpListener,
    options: Options,
    router: Arc<Router>,
    clock: Arc<dyn Clock>,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let state = Arc::new(State::new(options, router, clock)?);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(state.options.head_timeout());
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    while let Some(socket) = accept(&listener, &cancel).await {
        let stop = Stop { drain: cancel.child_token(), cut: cut.clone() };
        connections.spawn(connection(http.clone(), Arc::clone(&state), socket, stop));
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(state.options.drain_timeout(), connections.wait()).await.is_err() {
        info!(connections = connections.len(), "cutting answers that outlast the drain");
        cut.cancel();
        connections.wait().await;
    }
    Ok(())
}

/// The next connection; `None` once `cancel` is cancelled.
async fn accept(listener: &TcpListener, cancel: &CancellationToken) -> Option<TcpStream> {
    loop {
        let accepted = tokio::select! {
            biased;
            () = cancel.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                send_at_once(&socket);
                return Some(socket);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Turns Nagle's algorithm off: with it, the first chunk of a stream waits for the acknowledgement
/// of the head, which the caller's host delays by 40 ms.
fn send_at_once(socket: &TcpStream) {
    if let Err(error) = socket.set_nodelay(true) {
        debug!(%error, "cannot turn off Nagle's algorithm");
    }
}

/// Whether `error` concerns the connection that was to be accepted and not the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    )
}

/// When a connection ends.
#[derive(Debug)]
struct Stop {
    /// After the answer under way, if any. One token per connection: they are polled at every
    /// chunk, and all would wait for the lock of a shared one.
    drain: CancellationToken,
    /// At once.
    cut: CancellationToken,
}

async fn connection(http: http1::Builder, state: Arc<State>, socket: TcpStream, stop: Stop) {
    let service = service_fn(move |request| service::answer(Arc::clone(&state), request));
    let mut serving = pin!(http.serve_connection(TokioIo::new(socket), service));
    let served = tokio::select! {
        biased;
        served = serving.as_mut() => served,
        () = stop.drain.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                served = serving => served,
                () = stop.cut.cancelled() => return,
            }
        }
    };
    if let Err(error) = served {
        debug!(%error, "connection broke");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sockets_of_callers_send_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _caller = TcpStream::connect(address).await.unwrap();
        let socket = accept(&listener, &CancellationToken::new()).await.unwrap();
        assert!(socket.nodelay().unwrap());
    }
}
