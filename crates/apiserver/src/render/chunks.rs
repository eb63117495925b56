//! Chunked lists: lists that are rendered while they are sent.
//!
//! Rendering cannot fail for a list whose objects need no conversion. So it is answered at once,
//! and its objects are rendered in chunks as the client reads them: a client that reads nothing
//! costs one chunk, whatever the list's length.

use crate::reply::{self, Form, Reply};
use axum::body::Body;
use bytes::Bytes;
use insula_store::Entry;
use std::convert::Infallible;

/// Bytes from which a chunk is sent.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes in flight of a chunked list: a chunk that is rendered, and one that is sent.
pub(super) const HELD_BYTES: usize = 2 * CHUNK_BYTES;

/// A list with the bytes before its items and behind them.
pub(super) struct Chunks<W> {
    /// Bytes to send next.
    pub(super) head: Vec<u8>,
    pub(super) tail: Vec<u8>,
    pub(super) entries: std::vec::IntoIter<Entry>,
    /// Renders one item.
    pub(super) write: W,
}

impl<W: FnMut(&Entry, &mut Vec<u8>) + Send + 'static> Chunks<W> {
    /// Answers with the list.
    pub(super) fn respond(self, content_type: &'static str) -> Reply {
        let mut response = reply::bytes(200, Vec::new(), content_type);
        let stream = futures_util::stream::iter(self.map(Ok::<Bytes, Infallible>));
        *response.body_mut() = Body::from_stream(stream);
        Reply::new(response, Form::InChunks)
    }
}

impl<W: FnMut(&Entry, &mut Vec<u8>)> Iterator for Chunks<W> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut out = std::mem::take(&mut self.head);
        if self.entries.len() > 0 {
            // The last item of a chunk exceeds the size.
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
