//! Watches one response as its bytes pass, and reports to the flight.

use types::{Endpoint, Time};

use crate::{
    end::End,
    flight::Flight,
    front::{Kind, ResponseScanner, Seen},
};

/// Watches one response: finds the first token, counts tokens, and sees usage, the end marker and
/// errors inside the stream.
///
/// Dropping it without [`Observer::end`] counts as cancelled.
#[derive(Debug)]
pub struct Observer {
    flight: Flight,
    scanner: ResponseScanner,
    status: u16,
    done: bool,
    error: bool,
}

impl Observer {
    /// Watches the response of `flight`.
    pub fn new(flight: Flight) -> Self {
        Self {
            flight,
            scanner: ResponseScanner::new(Kind::Other),
            status: 200,
            done: false,
            error: false,
        }
    }

    /// The head of the response has arrived.
    pub fn head(&mut self, status: u16, content_type: Option<&str>, _now: Time) {
        self.status = status;
        self.scanner = ResponseScanner::new(Kind::of(content_type));
    }

    /// A piece of the body has arrived.
    pub fn chunk(&mut self, bytes: &[u8], now: Time) {
        let seen = self.scanner.push(bytes);
        self.take(&seen, now);
    }

    /// The proxy names the endpoint that served the request.
    pub fn served_by(&mut self, address: &str, now: Time) {
        self.flight.served_by(address, now);
    }

    /// Who serves the request, as far as is known.
    pub fn endpoint(&self) -> &Endpoint {
        self.flight.endpoint()
    }

    /// Whether the end marker of the stream was seen.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The response has ended. A `Complete` that was no success is set right: an error status, or an
    /// error inside the stream, is the endpoint's failure or rejection.
    pub fn end(mut self, end: End, now: Time) {
        let seen = self.scanner.finish();
        self.take(&seen, now);
        let end = match (end, self.status) {
            (End::Complete, 500..) => End::EndpointFailed,
            (End::Complete, 300..=499) => End::Rejected,
            (End::Complete, _) if self.error => End::EndpointFailed,
            (end, _) => end,
        };
        self.flight.finish(end, now);
    }

    fn take(&mut self, seen: &Seen, now: Time) {
        self.flight.tokens(seen.tokens, now);
        if let Some(usage) = seen.usage {
            self.flight.usage(usage);
        }
        self.done |= seen.done;
        self.error |= seen.error;
    }
}
