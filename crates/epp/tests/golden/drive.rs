//! Holds exchanges with the front: in memory, where it is exact what answers what, and over gRPC.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{future::Future, sync::Arc, time::Duration};

use datalayer::Pool;
use epp::{Answers, Error, Listeners, Options, Processor, serve};
use futures::{FutureExt, StreamExt, channel::mpsc};
use proto::ext_proc::{
    ProcessingRequest, ProcessingResponse, external_processor_client::ExternalProcessorClient,
};
use router::Router;
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming, transport::Channel};
use types::{Endpoint, EndpointId, ManualClock, SystemClock};

use crate::meaning::Meaning;

/// The pool of most tests.
pub(crate) const POOL: [&str; 2] = ["127.0.0.1:20000", "127.0.0.1:20001"];
/// Long enough for anything that will happen at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// A router over endpoints at `addresses`.
pub(crate) fn router_over(addresses: &[&str]) -> Arc<Router> {
    let endpoint = |(at, address): (usize, &&str)| Endpoint {
        id: EndpointId::new("default", &format!("e{at}")),
        address: address.parse().unwrap(),
        labels: [].into(),
    };
    let pool = Pool::new(addresses.iter().enumerate().map(endpoint));
    Arc::new(Router::new(router::Options::default(), Arc::new(pool)).unwrap())
}

/// Waits for what must come, and fails if it does not.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.unwrap()
}

/// Waits until nothing is in flight.
pub(crate) async fn until_idle(router: &Router) {
    soon(async {
        while in_flight(router) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Requests in flight on all endpoints.
pub(crate) fn in_flight(router: &Router) -> u32 {
    router.pool().endpoints().iter().map(|endpoint| endpoint.in_flight()).sum()
}

/// The answers to each message, and how the stream ended: after which message (one past the last
/// where the proxy closed it) and with what.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) answers: Vec<Vec<ProcessingResponse>>,
    pub(crate) end: (usize, Code, String),
}

impl Held {
    pub(crate) fn meanings(&self, pool: &[&str]) -> Vec<Vec<Meaning>> {
        let meaning = |response| Meaning::of(response, pool);
        self.answers.iter().map(|answers| answers.iter().map(meaning).collect()).collect()
    }

    /// The only answer to the message at `at`.
    pub(crate) fn only(&self, at: usize) -> &ProcessingResponse {
        assert_eq!(self.answers[at].len(), 1, "{:?}", self.answers[at]);
        &self.answers[at][0]
    }
}

/// One exchange in memory.
pub(crate) struct Exchange {
    proxy: Option<mpsc::UnboundedSender<Result<ProcessingRequest, Status>>>,
    answers: Answers<mpsc::UnboundedReceiver<Result<ProcessingRequest, Status>>>,
}

impl Exchange {
    pub(crate) fn start(options: Options, router: &Arc<Router>) -> Self {
        let processor =
            Processor::new(options, Arc::clone(router), Arc::new(ManualClock::default()));
        let (proxy, inbound) = mpsc::unbounded();
        Self { proxy: Some(proxy), answers: processor.answer(inbound) }
    }

    /// Everything said to `message`, and how the stream ended if it did.
    pub(crate) fn send(
        &mut self,
        message: ProcessingRequest,
    ) -> (Vec<ProcessingResponse>, Option<Result<(), Status>>) {
        self.proxy.as_ref().unwrap().unbounded_send(Ok(message)).unwrap();
        self.drain()
    }

    /// The proxy resets the stream.
    pub(crate) fn reset(&mut self) -> (Vec<ProcessingResponse>, Option<Result<(), Status>>) {
        let proxy = self.proxy.take().unwrap();
        proxy.unbounded_send(Err(Status::cancelled("reset"))).unwrap();
        self.drain()
    }

    fn drain(&mut self) -> (Vec<ProcessingResponse>, Option<Result<(), Status>>) {
        let mut answers = Vec::new();
        loop {
            match self.answers.next().now_or_never() {
                None => return (answers, None),
                Some(None) => return (answers, Some(Ok(()))),
                Some(Some(Ok(answer))) => answers.push(answer),
                Some(Some(Err(status))) => return (answers, Some(Err(status))),
            }
        }
    }

    fn hold(mut self, messages: &[ProcessingRequest]) -> Held {
        let mut answers = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            let (answered, end) = self.send(message.clone());
            answers.push(answered);
            if let Some(end) = end {
                return Held { answers, end: ended(at, end) };
            }
        }
        self.proxy = None;
        let (rest, end) = self.drain();
        assert!(rest.is_empty(), "{rest:?}");
        Held { answers, end: ended(messages.len(), end.unwrap()) }
    }
}

fn ended(at: usize, end: Result<(), Status>) -> (usize, Code, String) {
    let status = end.err().unwrap_or_else(|| Status::ok(""));
    (at, status.code(), status.message().to_owned())
}

/// The front as a server on a free port, stopped when dropped.
pub(crate) struct Served {
    pub(crate) channel: Channel,
    pub(crate) health: Channel,
    pub(crate) cancel: CancellationToken,
    pub(crate) done: JoinHandle<Result<(), Error>>,
}

impl Served {
    pub(crate) async fn start(options: Options, router: &Arc<Router>) -> Self {
        let ext_proc = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let health = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = |listener: &TcpListener| {
            let address = format!("http://{}", listener.local_addr().unwrap());
            Channel::from_shared(address).unwrap().connect_lazy()
        };
        let (channel, health_channel) = (connect(&ext_proc), connect(&health));
        let cancel = CancellationToken::new();
        let done = tokio::spawn(serve(
            Listeners { ext_proc, health: Some(health) },
            options,
            Arc::clone(router),
            Arc::new(SystemClock::start()),
            cancel.clone(),
        ));
        Self { channel, health: health_channel, cancel, done }
    }

    /// A new stream.
    pub(crate) async fn stream(&self) -> Stream {
        let (proxy, messages) = tokio::sync::mpsc::channel(64);
        let messages = ReceiverStream::new(messages);
        let mut client = ExternalProcessorClient::new(self.channel.clone());
        let answers = soon(client.process(messages)).await.unwrap().into_inner();
        Stream { proxy: Some(proxy), answers }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// One exchange over gRPC.
pub(crate) struct Stream {
    proxy: Option<tokio::sync::mpsc::Sender<ProcessingRequest>>,
    answers: Streaming<ProcessingResponse>,
}

impl Stream {
    pub(crate) async fn send(&self, message: ProcessingRequest) {
        soon(self.proxy.as_ref().unwrap().send(message)).await.unwrap();
    }

    /// The next answer; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<ProcessingResponse>, Status> {
        soon(self.answers.message()).await
    }

    async fn hold(mut self, messages: &[ProcessingRequest], like: &Held) -> Held {
        let mut answers = Vec::new();
        for (message, expected) in messages.iter().zip(&like.answers) {
            self.send(message.clone()).await;
            let mut answered = Vec::new();
            for _ in expected {
                answered.extend(self.next().await.unwrap());
            }
            answers.push(answered);
        }
        if like.end.0 == messages.len() {
            self.proxy = None;
        }
        let end = self.next().await.map(|more| assert!(more.is_none(), "{more:?}"));
        Held { answers, end: ended(like.end.0, end) }
    }
}

/// Holds the exchange in memory and over gRPC, and gives the former once they mean the same.
pub(crate) async fn hold(
    options: Options,
    router: &Arc<Router>,
    messages: &[ProcessingRequest],
) -> Held {
    let held = Exchange::start(options.clone(), router).hold(messages);
    let served = Served::start(options, router).await;
    let on_the_wire = served.stream().await.hold(messages, &held).await;
    let endpoints = router.pool().endpoints();
    let pool: Vec<_> = endpoints.iter().map(|endpoint| endpoint.address.as_str()).collect();
    assert_eq!(held.meanings(&pool), on_the_wire.meanings(&pool));
    assert_eq!(held.end, on_the_wire.end);
    until_idle(router).await;
    held
}
