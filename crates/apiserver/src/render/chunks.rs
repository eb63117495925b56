//! Lists that are encoded while they are sent.
//!
//! A list whose objects are stored as they are shown cannot fail half way. So it is answered at
//! once, and its objects are written in chunks as the client takes them: a client that reads
//! nothing costs one chunk, whatever the list's length.

use crate::reply;
use axum::{body::Body, response::Response};
use bytes::Bytes;
use insula_store::Entry;
use std::convert::Infallible;

/// The size at which a chunk is given out.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes that a list in chunks holds: one that is written, and one on its way.
pub(super) const HELD_BYTES: usize = 2 * CHUNK_BYTES;

/// A list between what stands before its items and what stands behind them.
pub(super) struct Chunks<W> {
    /// The part to give out next.
    pub(super) head: Vec<u8>,
    pub(super) tail: Vec<u8>,
    pub(super) entries: std::vec::IntoIter<Entry>,
    /// Writes one item.
    pub(super) write: W,
}

impl<W: FnMut(&Entry, &mut Vec<u8>) + Send + 'static> Chunks<W> {
    /// The answer.
    pub(super) fn respond(self, content_type: &'static str) -> Response {
        let mut response = reply::bytes(200, Vec::new(), content_type);
        let stream = futures_util::stream::iter(self.map(Ok::<Bytes, Infallible>));
        *response.body_mut() = Body::from_stream(stream);
        response.extensions_mut().insert(reply::InChunks);
        response
    }
}

impl<W: FnMut(&Entry, &mut Vec<u8>)> Iterator for Chunks<W> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut out = std::mem::take(&mut self.head);
        if self.entries.len() > 0 {
            // The last item goes beyond the size by what it is.
            out.reserve(CHUNK_BYTES + CHUNK_BYTES / 8);
        }
        while out.len() < CHUNK_BYTES {
            let Some(entry) = self.entries.next() else {
                out.append(&mut self.tail);
                break;
            };
            (self.write)(&entry, &mut out);
            if self.entries.len() > 0 {
                out.push(b',');
            }
        }
        (!out.is_empty()).then(|| out.into())
    }
}
