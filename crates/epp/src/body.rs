//! A request body as it arrives, and how a body is given back.

use bytes::{Bytes, BytesMut};

/// Longest piece of a body sent back, in bytes. Envoy and Istio take no longer one: a message with
/// its frame must stay under 64 KiB.
const PIECE_BYTES: usize = 62_000;

/// A body that grows. One that came in one piece is never copied.
#[derive(Debug, Default)]
pub(crate) struct Body {
    first: Bytes,
    rest: BytesMut,
}

impl Body {
    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Adds `piece`; `expected_bytes` is the length the whole is believed to have.
    pub(crate) fn push(&mut self, piece: Bytes, expected_bytes: usize) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if self.rest.is_empty() && !piece.is_empty() {
            self.rest.reserve(expected_bytes.max(self.first.len() + piece.len()));
            self.rest.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.rest.extend_from_slice(&piece);
    }

    /// The whole.
    pub(crate) fn finish(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}

/// Calls `send` with every piece of `body`, in order, and whether it is the last. An empty body is
/// one empty piece.
pub(crate) fn in_pieces(mut body: Bytes, mut send: impl FnMut(Bytes, bool)) {
    while body.len() > PIECE_BYTES {
        send(body.split_to(PIECE_BYTES), false);
    }
    send(body, true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_the_sum_of_its_pieces() {
        let mut body = Body::default();
        for piece in ["", "one ", "", "two ", "three"] {
            body.push(Bytes::from_static(piece.as_bytes()), 3);
        }
        assert_eq!(body.len(), 13);
        assert_eq!(body.finish(), "one two three");
    }

    #[test]
    fn a_body_in_one_piece_is_not_copied() {
        let piece = Bytes::from(vec![7; 100]);
        let mut body = Body::default();
        body.push(piece.clone(), 0);
        body.push(Bytes::new(), 0);
        assert_eq!(body.finish().as_ptr(), piece.as_ptr());
    }

    #[test]
    fn pieces_are_bounded_and_only_the_last_is_last() {
        for (length, expected) in [
            (0, vec![(0, true)]),
            (62_000, vec![(62_000, true)]),
            (62_001, vec![(62_000, false), (1, true)]),
        ] {
            let mut pieces = Vec::new();
            in_pieces(vec![0; length].into(), |piece, last| pieces.push((piece.len(), last)));
            assert_eq!(pieces, expected);
        }
    }
}
