//! Compressed pieces that make one gzip stream when they are concatenated.
//!
//! A piece is deflated by itself and ends on a byte boundary, so that it does not depend on its
//! neighbours. A gzip stream is a header, the pieces, and their combined checksum: a change of one
//! piece compresses no other one again. The stream has one member, because not every client reads a
//! second one.
//!
//! A piece is compressed while it is written, and a document is sent piece by piece, or unpacked
//! while it is sent. So neither exists as a whole in memory.

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress, read::DeflateDecoder};
use std::io::{self, Read, Write};

/// Header of a gzip stream: deflate, without name, time and system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The last block, which is empty.
const LAST: [u8; 2] = [3, 0];

/// Capacity by which compressed bytes grow, and bytes that are compressed at once.
const ROOM_BYTES: usize = 32 << 10;
/// Bytes of an unpacked document that are sent at once.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

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
        let mut writer = PieceWriter::default();
        writer.feed(bytes);
        writer.finish()
    }

    /// Returns its compressed bytes.
    pub(super) fn size(&self) -> usize {
        self.deflated.len()
    }
}

/// A piece that is being written. It holds the compressed bytes, and some that are not compressed
/// yet.
pub(super) struct PieceWriter {
    deflater: Compress,
    deflated: Vec<u8>,
    pending: Vec<u8>,
    sum: Crc,
    length: u64,
}

impl Default for PieceWriter {
    fn default() -> Self {
        PieceWriter {
            deflater: Compress::new(Compression::default(), false),
            deflated: Vec::with_capacity(ROOM_BYTES),
            pending: Vec::new(),
            sum: Crc::new(),
            length: 0,
        }
    }
}

impl PieceWriter {
    /// Writes a value as JSON.
    pub(super) fn json(&mut self, value: &insula_api::Json) {
        serde_json::to_writer(self, value).expect("values are JSON, and memory takes all bytes");
    }

    /// Compresses bytes.
    fn feed(&mut self, mut bytes: &[u8]) {
        self.sum.update(bytes);
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let read = self.deflate(bytes, FlushCompress::None);
            bytes = &bytes[read..];
        }
    }

    /// Runs the deflater once, with capacity for its output. Returns the bytes that it read.
    fn deflate(&mut self, bytes: &[u8], flush: FlushCompress) -> usize {
        if self.deflated.capacity() - self.deflated.len() < ROOM_BYTES / 2 {
            self.deflated.reserve(ROOM_BYTES);
        }
        let before = self.deflater.total_in();
        let done = self.deflater.compress_vec(bytes, &mut self.deflated, flush);
        done.expect("a deflater that only gets bytes is not broken");
        usize::try_from(self.deflater.total_in() - before).expect("no more than is in memory")
    }

    /// Ends the piece on a byte boundary; its last block is not the last one of a stream.
    ///
    /// A flush is complete when a call leaves capacity in the output. Until then it has to be
    /// repeated, which `flate2::write::DeflateEncoder::flush` does not do: it truncates output
    /// above its buffer of 32 KiB.
    pub(super) fn finish(mut self) -> Piece {
        let pending = std::mem::take(&mut self.pending);
        self.feed(&pending);
        loop {
            self.deflate(&[], FlushCompress::Full);
            if self.deflated.len() < self.deflated.capacity() {
                break;
            }
        }
        self.deflated.shrink_to_fit();
        Piece {
            deflated: self.deflated.into(),
            length: self.length,
            sum: self.sum.into(),
        }
    }
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= ROOM_BYTES {
            let mut pending = std::mem::take(&mut self.pending);
            self.feed(&pending);
            pending.clear();
            self.pending = pending;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A document of pieces, which is never put together.
#[derive(Debug, Clone)]
pub(crate) struct Document(Vec<Piece>);

impl Document {
    pub(super) fn new(pieces: Vec<Piece>) -> Self {
        Document(pieces)
    }

    /// Returns the bytes of the gzip stream.
    pub(super) fn gzip_bytes(&self) -> usize {
        HEAD.len() + self.0.iter().map(Piece::size).sum::<usize>() + LAST.len() + 8
    }

    /// Returns the bytes of the document.
    pub(super) fn plain_bytes(&self) -> u64 {
        self.0.iter().map(|piece| piece.length).sum()
    }

    /// Returns the gzip stream, of bytes that are shared with the cache.
    pub(super) fn gzip(self) -> impl Iterator<Item = Bytes> {
        let mut sum = Crc::new();
        self.0.iter().for_each(|piece| sum.combine(&piece.sum));
        // The trailer has the last 32 bits of the length.
        let length = self.plain_bytes() as u32;
        let tail = [&LAST[..], &sum.sum().to_le_bytes(), &length.to_le_bytes()].concat();
        let pieces = self.0.into_iter().map(|piece| piece.deflated);
        let head = std::iter::once(Bytes::from_static(&HEAD));
        head.chain(pieces.filter(|piece| !piece.is_empty()))
            .chain([tail.into()])
    }

    /// Returns the document, which is unpacked while it is read.
    pub(super) fn plain(self) -> impl Iterator<Item = io::Result<Bytes>> {
        let pieces: Vec<Bytes> = self.0.into_iter().map(|piece| piece.deflated).collect();
        let pieces = pieces.into_iter().chain([Bytes::from_static(&LAST)]);
        let mut unpacked = DeflateDecoder::new(Joined {
            pieces,
            current: Bytes::new(),
        });
        std::iter::from_fn(move || {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            match unpacked.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk) {
                Ok(0) => None,
                Ok(_) => Some(Ok(chunk.into())),
                Err(error) => Some(Err(error)),
            }
        })
    }
}

/// A reader of pieces, one after the other.
struct Joined<I> {
    pieces: I,
    current: Bytes,
}

impl<I: Iterator<Item = Bytes>> Read for Joined<I> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.next() {
                Some(next) => self.current = next,
                None => return Ok(0),
            }
        }
        let length = out.len().min(self.current.len());
        out[..length].copy_from_slice(&self.current.split_to(length));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    /// Returns a document after both ways of unpacking, which agree.
    fn plain(pieces: &[Piece]) -> io::Result<Vec<u8>> {
        let document = Document::new(pieces.to_vec());
        let packed: Vec<u8> = document.clone().gzip().flatten().collect();
        assert_eq!(packed.len(), document.gzip_bytes());
        let mut out = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut out)?;
        assert_eq!(out.len() as u64, document.plain_bytes());
        let chunks: io::Result<Vec<Bytes>> = document.plain().collect();
        assert!(chunks?.concat() == out);
        Ok(out)
    }

    /// A piece that is written in small parts is the same.
    #[test]
    fn pieces_are_compressed_while_they_are_written() {
        let text = bytes(3, 300_000, 3);
        let mut writer = PieceWriter::default();
        text.chunks(7)
            .for_each(|part| writer.write_all(part).expect("memory takes all"));
        assert!(writer.pending.len() < ROOM_BYTES);
        let piece = writer.finish();
        assert!(plain(&[piece.clone(), piece]).expect("a stream") == text.repeat(2));
    }

    #[test]
    fn pieces_in_any_order_make_a_stream() {
        let texts: [&[u8]; 4] = [b"{\"a\":1", b"", &[b'x'; 70_000], b"}"];
        let pieces: Vec<Piece> = texts.iter().map(|text| Piece::compress(text)).collect();
        for order in [vec![], vec![0, 1, 2, 3], vec![3, 2, 2, 0], vec![1]] {
            let chosen: Vec<Piece> = order.iter().map(|i| pieces[*i].clone()).collect();
            let want: Vec<u8> = order.iter().flat_map(|i| texts[*i].iter().copied()).collect();
            assert_eq!(plain(&chosen).expect("a stream"), want, "{order:?}");
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
            prop_assert!(plain(&pieces).expect("a stream") == texts.concat());
        }
    }

    #[test]
    fn pieces_of_several_mebibytes_make_a_stream() {
        for repeat in [1, 5] {
            let text = bytes(17, 5 << 20, repeat);
            let piece = Piece::compress(&text);
            assert!(
                plain(&[piece.clone(), piece]).expect("a stream") == text.repeat(2),
                "{repeat}"
            );
        }
    }
}
