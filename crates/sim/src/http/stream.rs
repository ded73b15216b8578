//! Tells an answer while it is made, as server-sent events.

use std::{io, mem};

use axum::body::Bytes;
use futures::{Stream, stream};

use super::{live::Ticket, reply::Reply};

/// An answer that is being told.
struct Telling {
    ticket: Ticket,
    reply: Reply,
    include_usage: bool,
    /// Tokens told so far, of each part.
    told: Vec<u32>,
    is_over: bool,
}

/// The events of `reply`: the role, one per token, the usage if wanted, and `[DONE]`.
///
/// Breaks off with an error when the server shuts down. Dropped early, it takes the request back.
pub(super) fn chunks(
    ticket: Ticket,
    reply: Reply,
    include_usage: bool,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let told = vec![0; reply.parts()];
    let telling = Telling { ticket, reply, include_usage, told, is_over: false };
    stream::unfold(telling, |mut telling| async move {
        if telling.is_over {
            return None;
        }
        loop {
            if !telling.ticket.changed().await {
                telling.is_over = true;
                return Some((Err(io::Error::other("the engine is shut down")), telling));
            }
            let news = telling.news();
            if !news.is_empty() {
                return Some((Ok(news.into()), telling));
            }
        }
    })
}

impl Telling {
    /// What happened since the last call.
    fn news(&mut self) -> String {
        let mut out = String::new();
        let mut all_finished = true;
        for (index, told) in self.told.iter_mut().enumerate() {
            let progress = self.ticket.progress(index);
            all_finished &= progress.finished;
            let from = mem::replace(told, progress.tokens);
            if from == 0 && progress.tokens > 0 {
                self.reply.push_role(&mut out, index);
            }
            for token in from..progress.tokens {
                self.reply.push_token(&mut out, index, token);
            }
        }
        if all_finished {
            if self.include_usage {
                let cached = |index| self.ticket.progress(index).cached;
                let cached: Vec<_> = (0..self.told.len()).map(cached).collect();
                self.reply.push_usage(&mut out, &cached);
            }
            out.push_str("data: [DONE]\n\n");
            self.is_over = true;
        }
        out
    }
}
