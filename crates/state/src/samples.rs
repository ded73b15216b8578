//! Walks the samples chunk by chunk, so that neither all of them nor a lock is held meanwhile.

use std::vec;

use crate::{chunk, error::Error};

/// A chunk: its key and its value.
pub(crate) type Entry = (u64, Vec<u8>);

/// The samples, oldest first, from chunks that `read` gives: the first at or after a key.
pub(crate) struct Samples<F> {
    read: F,
    from: Option<u64>,
    ready: vec::IntoIter<Vec<u8>>,
}

impl<F: FnMut(u64) -> Result<Option<Entry>, Error>> Samples<F> {
    pub(crate) fn new(read: F) -> Self {
        Self { read, from: Some(0), ready: Vec::new().into_iter() }
    }
}

impl<F: FnMut(u64) -> Result<Option<Entry>, Error>> Iterator for Samples<F> {
    type Item = Result<Vec<u8>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(sample) = self.ready.next() {
                return Some(Ok(sample));
            }
            // Taken: an error ends the walk.
            let (key, value) = match (self.read)(self.from.take()?) {
                Ok(entry) => entry?,
                Err(error) => return Some(Err(error)),
            };
            self.from = key.checked_add(1);
            match chunk::unpack(&value) {
                Some(samples) => self.ready = samples.into_iter(),
                None => return Some(Err(Error::Damaged { name: format!("samples from {key}") })),
            }
        }
    }
}
