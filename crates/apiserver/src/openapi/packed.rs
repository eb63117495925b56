//! Bytes that are kept compressed, in pieces that make one stream when they stand one behind the other.
//!
//! A piece is deflated by itself and ends on a byte, so that what is in front of it and behind it does not matter. A gzip
//! stream is then a head, the pieces, and the sums of all: nothing is compressed again where one piece of many changes.

use bytes::Bytes;
use flate2::{Compression, Crc, read::GzDecoder, write::DeflateEncoder};
use std::io::{Read, Write};

/// Method deflate, no name, no time, no system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The last block: it is empty.
const LAST: [u8; 2] = [3, 0];

/// Compressed bytes. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    deflated: Bytes,
    length: u64,
    sum: std::sync::Arc<Crc>,
}

impl Piece {
    /// Compresses bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        let written = encoder.write_all(bytes).and_then(|()| encoder.flush());
        written.expect("memory takes every byte");
        let mut sum = Crc::new();
        sum.update(bytes);
        Piece {
            deflated: std::mem::take(encoder.get_mut()).into(),
            length: bytes.len() as u64,
            sum: sum.into(),
        }
    }

    /// Bytes that it takes.
    pub(super) fn size(&self) -> usize {
        self.deflated.len()
    }
}

/// Pieces as one gzip stream.
pub(super) fn gzip(pieces: &[Piece]) -> Bytes {
    let size: usize = pieces.iter().map(Piece::size).sum();
    let mut out = Vec::with_capacity(HEAD.len() + size + LAST.len() + 8);
    out.extend(HEAD);
    let (mut sum, mut length) = (Crc::new(), 0u64);
    for piece in pieces {
        out.extend_from_slice(&piece.deflated);
        sum.combine(&piece.sum);
        length += piece.length;
    }
    out.extend(LAST);
    out.extend(sum.sum().to_le_bytes());
    // The length is kept by its last 32 bits.
    out.extend((length as u32).to_le_bytes());
    out.into()
}

/// What a gzip stream of ours holds.
pub(super) fn plain(gzip: &[u8]) -> Bytes {
    let mut out = Vec::new();
    GzDecoder::new(gzip)
        .read_to_end(&mut out)
        .expect("pieces make a stream");
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_make_a_stream() {
        let texts: [&[u8]; 4] = [b"{\"a\":1", b"", &[b'x'; 70_000], b"}"];
        let pieces: Vec<Piece> = texts.iter().map(|text| Piece::of(text)).collect();
        for order in [vec![], vec![0, 1, 2, 3], vec![3, 2, 2, 0], vec![1]] {
            let chosen: Vec<Piece> = order.iter().map(|i| pieces[*i].clone()).collect();
            let want: Vec<u8> = order.iter().flat_map(|i| texts[*i].iter().copied()).collect();
            assert_eq!(plain(&gzip(&chosen)), want, "{order:?}");
        }
    }
}
