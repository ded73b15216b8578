//! One HTTP exchange as the proxy shows it: a state machine from its messages to ours. No I/O.

use std::{collections::VecDeque, mem, sync::Arc};

use bytes::Bytes;
use proto::{
    core::Metadata,
    ext_proc::{
        HttpBody, HttpHeaders, ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
        processing_mode::BodySendMode, processing_request::Request as Part,
    },
};
use router::{Fault, Router};
use tracing::debug;
use types::Clock;

use crate::{
    Options,
    body::{Body, in_pieces},
    headers::Received,
    ids::Ids,
    metadata,
    reply::{self, Answered, Side},
    request::Asked,
    serving::Serving,
};

/// What every exchange shares. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Processor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: Options,
    router: Arc<Router>,
    clock: Arc<dyn Clock>,
    ids: Ids,
}

impl Processor {
    /// A front before `router`.
    pub fn new(options: Options, router: Arc<Router>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared { options, router, clock, ids: Ids::default() }))
    }

    /// A new exchange.
    pub(crate) fn exchange(&self) -> Exchange {
        Exchange {
            shared: Arc::clone(&self.0),
            modes: Modes::default(),
            request: Request::Waiting,
            response: Response::Waiting,
            serving: None,
        }
    }
}

/// Messages to the proxy, in order.
pub(crate) type Replies = VecDeque<ProcessingResponse>;

/// Why an exchange ends before the proxy ends it.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The client gets this answer.
    Rejected(Fault),
    /// The proxy sent what it may not send there.
    Violation(&'static str),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Rejected(fault)
    }
}

/// How the proxy hands over a body.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Mode {
    /// In pieces that we hold and send back.
    #[default]
    Duplex,
    /// Whole, in one message; the proxy keeps it.
    Whole,
    /// Not before the headers have gone on.
    TooLate,
}

#[derive(Clone, Copy, Debug, Default)]
struct Modes {
    request: Mode,
    response: Mode,
}

impl Modes {
    fn of(config: ProtocolConfiguration) -> Self {
        let mode = |mode| match mode {
            BodySendMode::FullDuplexStreamed => Mode::Duplex,
            BodySendMode::Buffered => Mode::Whole,
            // Half a body cannot be read, so `BUFFERED_PARTIAL` stands here too.
            _ => Mode::TooLate,
        };
        Self {
            request: mode(config.request_body_mode()),
            response: mode(config.response_body_mode()),
        }
    }
}

/// How far the request has come.
#[derive(Debug)]
enum Request {
    Waiting,
    Reading(Box<(Asked, Body)>),
    Routed,
}

/// How far the response has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Response {
    Waiting,
    Streaming,
    Ended,
}

/// One HTTP exchange. Dropping it before the response ended means that the client is gone.
#[derive(Debug)]
pub(crate) struct Exchange {
    shared: Arc<Shared>,
    modes: Modes,
    request: Request,
    response: Response,
    serving: Option<Box<Serving>>,
}

impl Exchange {
    /// Takes the next message of the proxy and adds what is to be said to it.
    pub(crate) fn take(
        &mut self,
        message: ProcessingRequest,
        replies: &mut Replies,
    ) -> Result<(), Stop> {
        if let Some(config) = message.protocol_config {
            self.modes = Modes::of(config);
        }
        let metadata = message.metadata_context.as_ref();
        match message.request {
            Some(Part::RequestHeaders(part)) => self.request_headers(&part, metadata, replies),
            Some(Part::RequestBody(part)) => self.request_body(part, metadata, replies),
            Some(Part::RequestTrailers(_)) => self.request_trailers(metadata, replies),
            Some(Part::ResponseHeaders(part)) => self.response_headers(&part, metadata, replies),
            Some(Part::ResponseBody(part)) => self.response_body(part, replies),
            Some(Part::ResponseTrailers(_)) => {
                self.end_response();
                replies.push_back(reply::trailers(Side::Response));
                Ok(())
            }
            None => Err(Stop::Violation("message without a part")),
        }
    }

    fn request_headers(
        &mut self,
        part: &HttpHeaders,
        metadata: Option<&Metadata>,
        replies: &mut Replies,
    ) -> Result<(), Stop> {
        if !matches!(self.request, Request::Waiting) {
            return Err(Stop::Violation("second request headers"));
        }
        let mut asked = Asked::read(Received::new(part.headers.as_ref()), &self.shared.ids)?;
        asked.subset = metadata::subset(metadata);
        if part.end_of_stream || self.modes.request == Mode::TooLate {
            let body_bytes = asked.content_length.unwrap_or(0);
            self.request = Request::Routed;
            let address = self.route(&asked.opaque(body_bytes))?;
            let mutation = asked.mutation(&address, None);
            let metadata = metadata::destination(&address);
            replies.push_back(reply::destination(Answered::Headers, mutation, metadata));
            return Ok(());
        }
        self.refuse_too_large(asked.content_length.unwrap_or(0))?;
        if self.modes.request == Mode::Whole {
            replies.push_back(reply::headers(Side::Request, None));
        }
        self.request = Request::Reading(Box::new((asked, Body::default())));
        Ok(())
    }

    fn refuse_too_large(&self, body_bytes: usize) -> Result<(), Fault> {
        let limit_bytes = self.shared.options.max_body_bytes;
        if body_bytes > limit_bytes { Err(Fault::too_large(limit_bytes)) } else { Ok(()) }
    }

    fn request_body(
        &mut self,
        part: HttpBody,
        metadata: Option<&Metadata>,
        replies: &mut Replies,
    ) -> Result<(), Stop> {
        let read_bytes = match &mut self.request {
            Request::Waiting => return Err(Stop::Violation("request body before its headers")),
            Request::Routed if self.modes.request == Mode::TooLate => {
                replies.push_back(reply::body_unchanged(Side::Request));
                return Ok(());
            }
            Request::Routed => return Err(Stop::Violation("request body after its end")),
            Request::Reading(reading) => reading.1.len(),
        };
        self.refuse_too_large(read_bytes.saturating_add(part.body.len()))?;
        if let Request::Reading(reading) = &mut self.request {
            let (asked, body) = &mut **reading;
            // The hint may stand on any message; the latest counts.
            asked.subset = metadata::subset(metadata).or(asked.subset.take());
            body.push(part.body, asked.content_length.unwrap_or(0));
        }
        if part.end_of_stream || self.modes.request == Mode::Whole {
            self.route_body(true, replies)?;
        }
        Ok(())
    }

    fn request_trailers(
        &mut self,
        metadata: Option<&Metadata>,
        replies: &mut Replies,
    ) -> Result<(), Stop> {
        match &mut self.request {
            Request::Waiting => return Err(Stop::Violation("request trailers before its headers")),
            Request::Reading(reading) => {
                let asked = &mut reading.0;
                asked.subset = metadata::subset(metadata).or(asked.subset.take());
                self.route_body(false, replies)?;
            }
            Request::Routed => {}
        }
        replies.push_back(reply::trailers(Side::Request));
        Ok(())
    }

    /// Routes the request that has been read. `is_last` says whether its body is the last of it;
    /// if not, trailers are.
    fn route_body(&mut self, is_last: bool, replies: &mut Replies) -> Result<(), Fault> {
        let Request::Reading(reading) = mem::replace(&mut self.request, Request::Routed) else {
            return Ok(());
        };
        let (mut asked, body) = *reading;
        let body = body.finish();
        let address = self.route(&asked.request(&body)?)?;
        let metadata = metadata::destination(&address);
        if self.modes.request == Mode::Whole {
            let mutation = asked.mutation(&address, None);
            replies.push_back(reply::destination(Answered::Body, mutation, metadata));
            return Ok(());
        }
        let mutation = asked.mutation(&address, Some(body.len()));
        replies.push_back(reply::destination(Answered::Headers, mutation, metadata));
        if is_last || !body.is_empty() {
            echo(Side::Request, body, is_last, replies);
        }
        Ok(())
    }

    /// Decides where `request` goes and starts to watch it; gives the address.
    fn route(&mut self, request: &types::Request) -> Result<String, Fault> {
        let routed = self.shared.router.route(request, self.shared.clock.now(), &[]);
        let routed = routed.map_err(Fault::of_refusal)?;
        let address = routed.endpoint.address.clone();
        debug!(request_id = %request.id, endpoint = address, rung = routed.rung.as_str(), "routed");
        self.serving = Some(Box::new(Serving::new(routed)));
        Ok(address)
    }

    fn response_headers(
        &mut self,
        part: &HttpHeaders,
        metadata: Option<&Metadata>,
        replies: &mut Replies,
    ) -> Result<(), Stop> {
        if self.response != Response::Waiting {
            return Err(Stop::Violation("second response headers"));
        }
        self.response = Response::Streaming;
        let marker = self.shared.options.response_marker;
        // A response without a request is one that the proxy made itself.
        let mutation = self.serving.as_mut().map(|serving| {
            let received = Received::new(part.headers.as_ref());
            serving.head(received, metadata::served(metadata), self.shared.clock.now());
            serving.mutation(marker)
        });
        replies.push_back(reply::headers(Side::Response, mutation));
        if part.end_of_stream {
            self.end_response();
        }
        Ok(())
    }

    fn response_body(&mut self, part: HttpBody, replies: &mut Replies) -> Result<(), Stop> {
        match self.response {
            Response::Waiting => return Err(Stop::Violation("response body before its headers")),
            Response::Ended => return Err(Stop::Violation("response body after its end")),
            Response::Streaming => {}
        }
        if let Some(serving) = &mut self.serving
            && !part.body.is_empty()
        {
            serving.chunk(&part.body, self.shared.clock.now());
        }
        if self.modes.response == Mode::Duplex {
            echo(Side::Response, part.body, part.end_of_stream, replies);
        } else {
            replies.push_back(reply::body_unchanged(Side::Response));
        }
        if part.end_of_stream {
            self.end_response();
        }
        Ok(())
    }

    fn end_response(&mut self) {
        self.response = Response::Ended;
        if let Some(serving) = self.serving.take() {
            serving.end(self.shared.clock.now());
        }
    }

    /// The proxy has closed the stream: whatever is still being served is of no use to anyone.
    pub(crate) fn leave(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.leave(self.shared.clock.now());
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Sends `body` back as it is.
fn echo(side: Side, body: Bytes, is_last: bool, replies: &mut Replies) {
    in_pieces(body, |piece, last| replies.push_back(reply::piece(side, piece, last && is_last)));
}
