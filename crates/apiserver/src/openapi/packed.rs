//! Compressed pieces that make one gzip stream when they are concatenated.
//!
//! A piece is deflated by itself and ends on a byte boundary, so that it does not depend on its
//! neighbours. A gzip stream is a header, the pieces, and their combined checksum: a change of one
//! piece compresses no other one again. The stream has one member, because not every client reads a
//! second one.

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress, read::GzDecoder};
use std::io::{self, Read};

/// Header of a gzip stream: deflate, without name, time and system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The last block, which is empty.
const LAST: [u8; 2] = [3, 0];

/// Initial capacity for compressed bytes.
const ROOM_BYTES: usize = 32 << 10;

/// Compressed bytes. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    deflated: Bytes,
    length: u64,
    sum: std::sync::Arc<Crc>,
}

impl Piece {
    /// Compresses bytes.
    pub(super) fn compress(bytes: &[u8]) -> Self {
        let mut sum = Crc::new();
        sum.update(bytes);
        Piece {
            deflated: deflate(bytes).into(),
            length: bytes.len() as u64,
            sum: sum.into(),
        }
    }

    /// Returns its compressed bytes.
    pub(super) fn size(&self) -> usize {
        self.deflated.len()
    }
}

/// Deflates bytes into blocks that end on a byte boundary, none of which is the last one.
///
/// A flush is complete when a call leaves capacity in the output. Until then it has to be repeated,
/// which `flate2::write::DeflateEncoder::flush` does not do: it truncates output above its buffer
/// of 32 KiB.
fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut deflater = Compress::new(Compression::default(), false);
    let mut out = Vec::with_capacity(bytes.len() / 8 + ROOM_BYTES);
    loop {
        let read = usize::try_from(deflater.total_in()).expect("no more than is in memory");
        let done = deflater.compress_vec(&bytes[read..], &mut out, FlushCompress::Full);
        done.expect("a deflater that was just made is not broken");
        if out.len() < out.capacity() {
            out.shrink_to_fit();
            return out;
        }
        out.reserve(ROOM_BYTES);
    }
}

/// Joins pieces into one gzip stream.
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
    // The trailer has the last 32 bits of the length.
    out.extend((length as u32).to_le_bytes());
    out.into()
}

/// Decompresses a gzip stream.
///
/// # Errors
/// It is no gzip stream.
pub(super) fn plain(gzip: &[u8]) -> io::Result<Bytes> {
    let mut out = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut out)?;
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_in_any_order_make_a_stream() {
        let texts: [&[u8]; 4] = [b"{\"a\":1", b"", &[b'x'; 70_000], b"}"];
        let pieces: Vec<Piece> = texts.iter().map(|text| Piece::compress(text)).collect();
        for order in [vec![], vec![0, 1, 2, 3], vec![3, 2, 2, 0], vec![1]] {
            let chosen: Vec<Piece> = order.iter().map(|i| pieces[*i].clone()).collect();
            let want: Vec<u8> = order.iter().flat_map(|i| texts[*i].iter().copied()).collect();
            assert_eq!(plain(&gzip(&chosen)).expect("a stream"), want, "{order:?}");
        }
    }

    /// Bytes of which about one in `repeat` is new: 1 cannot be compressed.
    fn bytes(seed: u64, length: usize, repeat: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let mut last = 0;
        let mut next = || {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if state.is_multiple_of(repeat) {
                last = (state >> 24) as u8;
            }
            last
        };
        (0..length).map(|_| next()).collect()
    }

    /// Lengths around those at which buffers and blocks of deflate are full, and any others.
    fn length() -> impl Strategy<Value = usize> {
        const EDGES: &[usize] = &[0, 1, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20];
        prop_oneof![
            (prop::sample::select(EDGES), 0usize..12).prop_map(|(edge, more)| (edge + more).saturating_sub(6)),
            0usize..300_000,
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Documents broke as soon as what a piece had left to flush was more than 32 KiB.
        #[test]
        fn pieces_of_any_length_make_a_stream(
            made in prop::collection::vec((any::<u64>(), length(), prop::sample::select(vec![1u64, 2, 7, 100])), 1..4)
        ) {
            let texts: Vec<Vec<u8>> = made.into_iter().map(|(seed, length, repeat)| bytes(seed, length, repeat)).collect();
            let pieces: Vec<Piece> = texts.iter().map(|text| Piece::compress(text)).collect();
            prop_assert!(plain(&gzip(&pieces)).expect("a stream") == texts.concat());
        }
    }

    #[test]
    fn pieces_of_several_mebibytes_make_a_stream() {
        for repeat in [1, 5] {
            let text = bytes(17, 5 << 20, repeat);
            let piece = Piece::compress(&text);
            assert!(
                plain(&gzip(&[piece.clone(), piece])).expect("a stream") == text.repeat(2),
                "{repeat}"
            );
        }
    }
}
