//! The stream of messages to the proxy, made as it is polled: no task and no channel per exchange,
//! so a proxy that does not read is not read from.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::Stream;
use proto::ext_proc::{ProcessingRequest, ProcessingResponse, processing_response::Response};
use tonic::Status;
use tracing::debug;

use crate::{
    Processor,
    exchange::{Exchange, Replies, Stop},
    rejection::immediate,
    reply,
};

impl Processor {
    /// The answers to one exchange, whose messages come from `inbound`.
    pub fn answer<S>(&self, inbound: S) -> Answers<S> {
        Answers { inbound, exchange: self.exchange(), replies: Replies::new(), is_over: false }
    }
}

/// The answers to one exchange. Dropping it before the response ended means that the client is gone.
#[derive(Debug)]
pub struct Answers<S> {
    inbound: S,
    exchange: Exchange,
    replies: Replies,
    is_over: bool,
}

impl<S> Stream for Answers<S>
where
    S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin,
{
    type Item = Result<ProcessingResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(reply) = this.replies.pop_front() {
                return Poll::Ready(Some(Ok(reply)));
            }
            if this.is_over {
                return Poll::Ready(None);
            }
            let Some(Ok(message)) = ready!(Pin::new(&mut this.inbound).poll_next(cx)) else {
                // The proxy closed the stream, or reset it: both end the exchange.
                this.is_over = true;
                this.exchange.leave();
                return Poll::Ready(None);
            };
            match this.exchange.take(message, &mut this.replies) {
                Ok(()) => {}
                Err(Stop::Rejected(fault)) => {
                    this.is_over = true;
                    debug!(?fault, "rejected");
                    let response = Response::ImmediateResponse(immediate(&fault));
                    this.replies.push_back(reply::message(response));
                }
                Err(Stop::Violation(what)) => {
                    this.is_over = true;
                    this.exchange.leave();
                    return Poll::Ready(Some(Err(Status::invalid_argument(what))));
                }
            }
        }
    }
}
