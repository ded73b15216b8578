//! An answer on its way: every frame is passed on as it came, and shown to the router's observer.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use datalayer::EndpointState;
use http::{
    StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    response::Parts,
};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use router::{End, Flight, Observer};
use tracing::debug;

use crate::{answer::Refused, headers, state::State};

/// The body of an answer that an endpoint gives.
///
/// Whatever ends it, the observer is told once. Dropped before the end, it closes the connection to
/// the endpoint and counts the caller as gone.
#[derive(Debug)]
pub(crate) struct Relay {
    upstream: Incoming,
    /// `None` once the end was told.
    observer: Option<Observer>,
    state: Arc<State>,
    endpoint: Arc<EndpointState>,
    /// Whether this is a plain event stream, in which an error can be told in band.
    events: bool,
    tail: Tail,
}

impl Relay {
    /// Relays the response with head `parts`, whose body is `upstream`.
    pub(crate) fn new(
        state: Arc<State>,
        (endpoint, flight): (Arc<EndpointState>, Flight),
        parts: &mut Parts,
        upstream: Incoming,
    ) -> Self {
        headers::keep_for_caller(&mut parts.headers);
        let content_type = headers::text(&parts.headers, CONTENT_TYPE.as_str());
        let mut observer = Observer::new(flight);
        observer.head(parts.status.as_u16(), content_type, state.now());
        let events = parts.status == StatusCode::OK
            && content_type.is_some_and(is_event_stream)
            && headers::encoding(&parts.headers).is_none();
        if events {
            // Its length may grow by an error.
            parts.headers.remove(CONTENT_LENGTH);
        }
        state.metrics.in_flight.inc();
        let observer = Some(observer);
        let mut relay = Self { upstream, observer, state, endpoint, events, tail: Tail::default() };
        relay.end_if_whole();
        relay
    }

    /// Tells the observer, which knows by itself what a complete error is.
    fn end(&mut self, end: End) {
        if let Some(observer) = self.observer.take() {
            observer.end(end, self.state.now());
        }
    }

    /// A body of known length is not polled again after its last byte, so its end is told with it.
    fn end_if_whole(&mut self) {
        if !self.events && self.upstream.is_end_stream() {
            self.end(End::Complete);
        }
    }

    /// The endpoint stopped before the answer was whole.
    fn end_badly(
        &mut self,
        cause: Option<hyper::Error>,
    ) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        self.state.metrics.failures.inc();
        self.end(End::EndpointFailed);
        let endpoint = &self.endpoint;
        debug!(endpoint = %endpoint.endpoint.id, cause = ?cause, "answer broke off");
        if !self.events {
            return cause.map(Err);
        }
        let message = format!(
            "endpoint `{}` ({}) broke off its answer before the end",
            endpoint.endpoint.id, endpoint.address
        );
        let refused = Refused::endpoint(StatusCode::BAD_GATEWAY, "stream_broken_off", message);
        let mut event = self.tail.until_next_event().to_vec();
        event.extend(refused.event().into_bytes());
        Some(Ok(Frame::data(event.into())))
    }
}

fn is_event_stream(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default();
    media.trim().eq_ignore_ascii_case("text/event-stream")
}

impl Body for Relay {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(observer) = this.observer.as_mut() else { return Poll::Ready(None) };
        let frame = match ready!(Pin::new(&mut this.upstream).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            // An event stream that has told its end is whole, however the connection ends.
            _ if this.events && observer.is_done() => {
                this.end(End::Complete);
                return Poll::Ready(None);
            }
            Some(Err(error)) => return Poll::Ready(this.end_badly(Some(error))),
            None if this.events => return Poll::Ready(this.end_badly(None)),
            None => {
                this.end(End::Complete);
                return Poll::Ready(None);
            }
        };
        if let Some(data) = frame.data_ref() {
            observer.chunk(data, this.state.now());
            this.tail.push(data);
        }
        this.end_if_whole();
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.observer.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.events { SizeHint::default() } else { self.upstream.size_hint() }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.metrics.in_flight.dec();
        if self.observer.as_ref().is_some_and(Observer::is_done) {
            self.end(End::Complete);
        } else if self.observer.is_some() {
            self.state.metrics.disconnects.inc();
            self.end(End::ClientGone);
        }
    }
}

/// The last bytes of an event stream: they tell where the next event may start.
#[derive(Clone, Copy, Debug)]
struct Tail([u8; 3]);

impl Default for Tail {
    /// As before the first byte, where an event may start.
    fn default() -> Self {
        Self(*b"\n\n\n")
    }
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        for &byte in &bytes[bytes.len().saturating_sub(self.0.len())..] {
            self.0.rotate_left(1);
            self.0[self.0.len() - 1] = byte;
        }
    }

    /// What must come before the next event so that it stands alone.
    fn until_next_event(self) -> &'static [u8] {
        match self.0 {
            [_, b'\n', b'\n'] | [b'\n', b'\r', b'\n'] => b"",
            _ => b"\n\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_stands_in_an_event_of_its_own() {
        for (sent, between) in [
            (&[""][..], ""),
            (&["data: 1\n\n"], ""),
            (&["data: 1\n", "\n"], ""),
            (&["data: 1\r\n\r", "\n"], ""),
            (&["data: 1\n"], "\n\n"),
            (&["data: {\"a"], "\n\n"),
        ] {
            let mut tail = Tail::default();
            for part in sent {
                tail.push(part.as_bytes());
            }
            assert_eq!(tail.until_next_event(), between.as_bytes(), "{sent:?}");
        }
    }

    #[test]
    fn event_streams_are_known_by_their_media_type() {
        assert!(is_event_stream("text/event-stream; charset=utf-8"));
        assert!(is_event_stream("Text/Event-Stream"));
        assert!(!is_event_stream("application/json"));
    }
}
