//! The newest history on disk: the file `history` beside the objects, for the next start.
//!
//! A record holds a batch of commits by what they replaced. From the objects at the end, which are
//! in `objects.redb`, the batches are undone one after the other: so the file holds no object that
//! the other one has, and a creation takes a few bytes.
//!
//! ```text
//! half 0: head │ record │ record │ record
//! half 1: head │ record │ (space)          the next record; without space half 0 begins anew
//! ```
//! A record is written before its batch is committed, and never flushed. A killed process leaves at
//! most one record too many, which is not read; a power cut may take records away. Nothing depends
//! on the file: each record's checksum covers that of the one before, the last one has to have the
//! seal of the objects, and otherwise the start knows no history. A file that a restored store or
//! another program left behind does not have it.
//!
//! Of a full disk the file takes nothing: it is emptied before the reserve is used up.

use super::{
    checksum::{Digest, Seal, checksum},
    disk::Disk,
};
use crate::plan::{Pending, Replaced, Step};
use insula_api::{Object, Revision};
use std::{io, sync::Arc};

const MAGIC: [u8; 16] = *b"insula-history1\n";
/// Magic, bytes of a half, generation, chain, revision, sum, floor, checksum.
const HEAD_BYTES: usize = 16 + 8 + 8 + 16 + 8 + 16 + 8 + 16;
/// Bytes of a record besides its body: the length before it and the checksum behind it.
const FRAME_BYTES: usize = 4 + 16;
/// Least bytes of a half, so that a head and a record fit.
const HALF_BYTES_MIN: u64 = 4096;
/// Bytes by which the file grows.
const GROWTH_BYTES: u64 = 1 << 20;

/// The history of the last commits on disk.
pub(super) struct Tail {
    disk: Box<dyn Disk>,
    /// Length of the disk.
    len: u64,
    /// Bytes of a half when a history begins.
    new_half_bytes: u64,
    half_bytes: u64,
    /// Grows by one when the other half begins and goes on from this one, by two when the history
    /// begins anew.
    generation: u64,
    /// Offset of the next record; `None` while there is no history on disk.
    position: Option<u64>,
    /// Checksum of the last record.
    chain: u128,
    seal: Seal,
    /// The revision before which nothing may be shown.
    floor: Revision,
}

/// The head of a half.
struct Head {
    half_bytes: u64,
    generation: u64,
    read: Read,
}

/// A head or a record as it was read, with what follows from all before it.
struct Read {
    chain: u128,
    seal: Seal,
    floor: Revision,
    /// Offset behind it.
    end: u64,
    /// The commits, not decoded.
    commits: Vec<u8>,
}

/// A half as it was read: its head, and the records that verify.
struct Half {
    generation: u64,
    reads: Vec<Read>,
}

impl Tail {
    /// Creates the history of a disk that is not read yet. `bytes` is the size of a new one; 0 for
    /// none.
    pub(super) fn new(disk: Box<dyn Disk>, bytes: u64) -> Self {
        Tail {
            len: disk.len().unwrap_or_default(),
            disk,
            new_half_bytes: bytes / 2,
            half_bytes: 0,
            generation: 0,
            position: None,
            chain: 0,
            seal: Digest::default().seal(Revision(0)),
            floor: Revision(0),
        }
    }

    /// Reads the commits that end with the objects of a seal, oldest first, and goes on after them.
    pub(super) fn recover(&mut self, seal: Seal) -> Vec<Step> {
        let steps = self.find(seal);
        if self.position.is_none() {
            let begun = self.begin(seal);
            self.discard_unless(begun);
        }
        self.seal = seal;
        steps
    }

    fn find(&mut self, seal: Seal) -> Vec<Step> {
        let Some(head) = self.head(0) else { return Vec::new() };
        self.half_bytes = head.half_bytes;
        let heads = [Some(head), self.head(self.half_bytes)];
        let mut halves: Vec<Half> = heads.into_iter().flatten().map(|head| self.half(head)).collect();
        halves.sort_by_key(|half| half.generation);
        let Some(newest) = halves.pop() else { return Vec::new() };
        self.generation = newest.generation;
        let Some(last) = newest.reads.iter().rposition(|read| read.seal == seal) else {
            return Vec::new();
        };
        let end = &newest.reads[last];
        (self.chain, self.floor, self.position) = (end.chain, end.floor, Some(end.end));
        let mut steps = Vec::new();
        let before = newest.reads[0].chain;
        if let Some(older) = halves.pop().filter(|older| older.generation + 1 == newest.generation)
            && let Some(end) = older.reads.iter().position(|read| read.chain == before)
        {
            steps.extend(older.steps(end));
        }
        steps.extend(newest.steps(last));
        // Undone from the end, so that one which cannot be decoded ends what is known.
        let known = steps.iter().rposition(Option::is_none).map_or(0, |unknown| unknown + 1);
        let steps = steps.into_iter().skip(known).flatten();
        steps.filter(|step| step.revision > self.floor).collect()
    }

    /// Records a batch that is about to be committed, with the seal of the objects after it. An
    /// error of the disk costs the history, and nothing else.
    pub(super) fn append(&mut self, steps: &[Step], seal: Seal) {
        let written = match self.position {
            Some(position) if size(steps) < self.half_bytes => self.put(position, steps, seal),
            _ => self.begin(seal),
        };
        self.discard_unless(written);
    }

    /// Takes note that history before a revision is not to be shown any more.
    pub(super) fn raise_floor(&mut self, floor: Revision) {
        self.floor = self.floor.max(floor);
        if let Some(position) = self.position {
            let written = self.put(position, &[], self.seal);
            self.discard_unless(written);
        }
    }

    /// Gives up the history and its space.
    pub(super) fn discard(&mut self) {
        if self.position.take().is_some() {
            // What stays is not read: it does not end with the objects.
            let _ = self.disk.set_len(0);
            self.len = self.disk.len().unwrap_or_default();
        }
    }

    fn discard_unless(&mut self, written: io::Result<()>) {
        if written.is_err() {
            self.discard();
        }
    }

    /// Begins a history at a seal, which no half continues.
    fn begin(&mut self, seal: Seal) -> io::Result<()> {
        self.seal = seal;
        self.half_bytes = self.new_half_bytes;
        if self.half_bytes < HALF_BYTES_MIN {
            return Ok(());
        }
        self.disk.set_len(0)?;
        self.len = 0;
        // In the first half, whose head is read first.
        self.put_head((self.generation + 3) / 2 * 2).map(drop)
    }

    /// Begins the half of a generation. Returns the offset of its first record.
    fn put_head(&mut self, generation: u64) -> io::Result<u64> {
        self.generation = generation;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&self.half_bytes.to_le_bytes());
        head.extend_from_slice(&generation.to_le_bytes());
        head.extend_from_slice(&self.chain.to_le_bytes());
        put_seal(&mut head, self.seal, self.floor);
        let checksum = checksum(&[], &head);
        head.extend_from_slice(&checksum.to_le_bytes());
        let begin = (generation % 2) * self.half_bytes;
        let position = begin + HEAD_BYTES as u64;
        self.position = Some(position);
        self.write(begin, &head)?;
        Ok(position)
    }

    fn put(&mut self, mut position: u64, steps: &[Step], seal: Seal) -> io::Result<()> {
        let mut record = vec![0; 4];
        put_seal(&mut record, seal, self.floor);
        steps.iter().for_each(|step| put_step(&mut record, step));
        let body = record.len() - 4;
        record[..4].copy_from_slice(&(body as u32).to_le_bytes());
        let bytes = (body + FRAME_BYTES) as u64;
        if position + bytes > (self.generation % 2 + 1) * self.half_bytes {
            if bytes + HEAD_BYTES as u64 > self.half_bytes {
                return self.begin(seal);
            }
            position = self.put_head(self.generation + 1)?;
        }
        let chain = checksum(&self.chain.to_le_bytes(), &record[4..]);
        record.extend_from_slice(&chain.to_le_bytes());
        self.write(position, &record)?;
        (self.chain, self.seal, self.position) = (chain, seal, Some(position + bytes));
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if end > self.len {
            let len = end.next_multiple_of(GROWTH_BYTES).min(2 * self.half_bytes);
            self.disk.set_len(len)?;
            self.len = len;
        }
        self.disk.write(offset, bytes)
    }

    /// Reads some bytes, if the disk has them.
    fn bytes(&self, offset: u64, count: usize) -> Option<Vec<u8>> {
        if offset + count as u64 > self.len {
            return None;
        }
        let mut bytes = vec![0; count];
        self.disk.read(offset, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Reads the head of the half that begins at an offset, if it verifies.
    fn head(&self, begin: u64) -> Option<Head> {
        let bytes = self.bytes(begin, HEAD_BYTES)?;
        let (head, stored) = bytes.split_at(HEAD_BYTES - 16);
        let mut rest = head.strip_prefix(&MAGIC)?;
        let (half_bytes, generation) = (take_u64(&mut rest)?, take_u64(&mut rest)?);
        let chain = take_u128(&mut rest)?;
        let (seal, floor) = take_seal(&mut rest)?;
        let is_here = begin == (generation % 2) * half_bytes;
        (is_here && checksum(&[], head).to_le_bytes() == *stored).then(|| Head {
            half_bytes,
            generation,
            read: Read {
                chain,
                seal,
                floor,
                end: begin + HEAD_BYTES as u64,
                commits: Vec::new(),
            },
        })
    }

    /// Reads a half as far as it verifies.
    fn half(&self, head: Head) -> Half {
        let end = (head.generation % 2 + 1) * head.half_bytes;
        let mut last = (head.read.end, head.read.chain);
        let mut reads = vec![head.read];
        while let Some(read) = self.record(last.0, end, last.1) {
            last = (read.end, read.chain);
            reads.push(read);
        }
        Half {
            generation: head.generation,
            reads,
        }
    }

    /// Reads the record at an offset before the end of its half.
    fn record(&self, from: u64, end: u64, chain: u128) -> Option<Read> {
        let length = take_u32(&mut &*self.bytes(from, 4)?)? as usize;
        let behind = from + (length + FRAME_BYTES) as u64;
        if behind > end {
            return None;
        }
        let bytes = self.bytes(from + 4, length + 16)?;
        let (mut body, stored) = bytes.split_at(length);
        let chain = checksum(&chain.to_le_bytes(), body);
        if chain.to_le_bytes() != *stored {
            return None;
        }
        let (seal, floor) = take_seal(&mut body)?;
        Some(Read {
            chain,
            seal,
            floor,
            end: behind,
            commits: body.to_vec(),
        })
    }
}

impl Half {
    /// Decodes the commits of the records up to one; `None` for a record that has others.
    fn steps(&self, last: usize) -> Vec<Option<Step>> {
        let mut steps = Vec::new();
        for pair in self.reads[..=last].windows(2) {
            let [before, read] = pair else { continue };
            let mut revision = before.seal.revision;
            let mut rest = &*read.commits;
            while !rest.is_empty() && revision < read.seal.revision {
                revision.0 += 1;
                let replaced = take_step(&mut rest);
                steps.push(replaced.map(|replaced| Step { revision, replaced }));
            }
            if !rest.is_empty() || revision != read.seal.revision {
                steps.push(None);
            }
        }
        steps
    }
}

/// Returns the bytes of what some commits replaced, without their keys.
fn size(steps: &[Step]) -> u64 {
    let replaced = steps.iter().flat_map(|step| &step.replaced);
    let sizes = replaced.filter_map(|(_, old)| old.as_ref().map(|old| old.object.size() as u64));
    sizes.sum()
}

fn put_step(out: &mut Vec<u8>, Step { replaced, .. }: &Step) {
    out.extend_from_slice(&(replaced.len() as u32).to_le_bytes());
    for (key, old) in replaced {
        put_bytes(out, key);
        out.push(u8::from(old.is_some()));
        if let Some(Pending {
            revision,
            created,
            object,
        }) = old
        {
            out.extend_from_slice(&revision.0.to_le_bytes());
            out.extend_from_slice(&created.0.to_le_bytes());
            put_bytes(out, &object.to_stored());
        }
    }
}

fn take_step(rest: &mut &[u8]) -> Option<Replaced> {
    let mut replaced = Vec::new();
    for _ in 0..take_u32(rest)? {
        let key = Arc::from(take_bytes(rest)?);
        let (is_there, after) = rest.split_first()?;
        *rest = after;
        let old = if *is_there == 0 {
            None
        } else {
            Some(Pending {
                revision: Revision(take_u64(rest)?),
                created: Revision(take_u64(rest)?),
                object: Arc::new(Object::from_stored(take_bytes(rest)?).ok()?),
            })
        };
        replaced.push((key, old));
    }
    Some(replaced)
}

fn put_seal(out: &mut Vec<u8>, seal: Seal, floor: Revision) {
    out.extend_from_slice(&seal.revision.0.to_le_bytes());
    out.extend_from_slice(&seal.sum.to_le_bytes());
    out.extend_from_slice(&floor.0.to_le_bytes());
}

fn take_seal(rest: &mut &[u8]) -> Option<(Seal, Revision)> {
    let (revision, sum) = (Revision(take_u64(rest)?), take_u128(rest)?);
    Some((Seal { revision, sum }, Revision(take_u64(rest)?)))
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_u32(rest)?;
    let (bytes, after) = rest.split_at_checked(length as usize)?;
    *rest = after;
    Some(bytes)
}

fn take_chunk<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (chunk, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*chunk)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take_chunk(rest).map(u32::from_le_bytes)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take_chunk(rest).map(u64::from_le_bytes)
}

fn take_u128(rest: &mut &[u8]) -> Option<u128> {
    take_chunk(rest).map(u128::from_le_bytes)
}
