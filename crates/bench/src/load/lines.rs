//! Lines of a streamed body, such as the events of a watch.

use anyhow::Result;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// Splits a body at newlines.
pub(crate) struct Lines {
    body: Incoming,
    pending: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(body: Incoming) -> Self {
        Lines {
            body,
            pending: Vec::new(),
        }
    }

    /// Returns the lines that the next piece of the body completes; `None` at its end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(piece) = piece(&mut self.body).await? else {
            return Ok(None);
        };
        Ok(Some(split(&mut self.pending, &piece)))
    }
}

/// Returns the next piece of a body.
pub(crate) async fn piece(body: &mut Incoming) -> Result<Option<Bytes>> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(frame) => {
                if let Ok(data) = frame?.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn split(pending: &mut Vec<u8>, piece: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut rest = piece;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        pending.extend_from_slice(&rest[..end]);
        lines.push(std::mem::take(pending));
        rest = &rest[end + 1..];
    }
    pending.extend_from_slice(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_come_in_any_pieces() {
        let mut pending = Vec::new();
        let mut lines = Vec::new();
        for piece in ["a", "b\nc", "", "d\n\ne", "\n"] {
            lines.extend(split(&mut pending, piece.as_bytes()));
        }
        assert_eq!(lines, [&b"ab"[..], b"cd", b"", b"e"]);
    }
}
