//! Format of a backup file: every object of one revision, in key order, with checksums and a hash.
//!
//! ```text
//! magic     "insula-backup 2\n"
//! header    frame of JSON: revision, created, version, installation
//! object    frame of key length, key, revision, created, stored form; one for each object
//! trailer   length 0, number of objects, SHA-256 of the frames of all objects
//! frame     length (4 bytes, little endian), checksum (16 bytes, over the frame's number and its
//!           bytes), bytes
//! ```
//!
//! Version 1 is the same, with the names of internal resources that stores of format 2 have. It is
//! read as well; whoever writes its objects into a store translates the names.
//!
//! Nothing may follow the trailer. The hash leaves out the header, so that two backups of one state
//! have the same hash.

use crate::{Entry, embedded::checksum::checksum};
use insula_api::{Object, ObjectKey, Revision};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    fmt,
    io::{self, Read, Seek, SeekFrom},
    sync::Arc,
};

const MAGIC: &[u8; 16] = b"insula-backup 2\n";
/// Magic of version 1.
const MAGIC_BEFORE: &[u8; 16] = b"insula-backup 1\n";
/// Bytes of the magic that all versions of the format share.
const MAGIC_SHARED: usize = 14;
/// Maximum number of bytes of a frame. No object is larger: a transaction holds at most 1.5 MiB.
const FRAME_BYTES_MAX: usize = 16 << 20;
const FRAME_HEAD: usize = 4 + 16;
/// Bytes of the trailer: zero length, number of objects, hash.
const TRAILER_BYTES: usize = 4 + 8 + 32;

/// Header of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Revision of the state in the backup.
    pub revision: Revision,
    /// Time at which the backup was taken, in the format of RFC 3339.
    pub created: String,
    /// Version of the program that took the backup.
    pub version: String,
    /// The installation that was backed up: the UID of the logical cluster `root`.
    pub installation: String,
    /// Path of the workspace whose tree alone is in the backup; empty for the installation.
    pub workspace: String,
    /// Logical cluster of the workspace.
    pub cluster: String,
}

/// Summary of a whole backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Header of the backup.
    pub header: Header,
    /// Number of objects.
    pub objects: u64,
    /// SHA-256 of the objects.
    pub hash: Hash,
}

/// A SHA-256, displayed in hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Hash of objects without their revisions: equal for equal objects at different revisions.
#[derive(Default)]
pub struct ContentHash(Sha256);

impl ContentHash {
    /// Adds an object. The caller passes objects in key order.
    pub fn add(&mut self, key: &ObjectKey, object: &Object) {
        for part in [&*key.encode(), &object.to_stored()] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    /// Returns the hash.
    pub fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

/// Reason why a file cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file does not begin with the magic of a backup.
    #[error("not a backup of insula")]
    Foreign,
    /// The file has a later version of the format.
    #[error("a backup in a format that this version does not read")]
    Format,
    /// The file ends too early.
    #[error("the backup is cut off at byte {offset}, after {objects} objects")]
    Truncated {
        /// Offset of the end, in bytes.
        offset: u64,
        /// Number of complete objects before the end.
        objects: u64,
    },
    /// Some bytes differ from those that were written.
    #[error("the backup is damaged at byte {offset}: {reason}")]
    Damaged {
        /// Offset of the damaged part, in bytes.
        offset: u64,
        /// Description of the damage.
        reason: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Encoder of a backup.
pub struct Encoder {
    header: Header,
    objects: u64,
    hash: Sha256,
}

impl Encoder {
    /// Begins a backup: appends the magic and the header.
    pub fn begin(header: Header, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(MAGIC);
        let mut text = json!({
            "revision": header.revision.0, "created": header.created,
            "version": header.version, "installation": header.installation,
        });
        if !header.workspace.is_empty() {
            text["workspace"] = json!(header.workspace);
            text["cluster"] = json!(header.cluster);
        }
        frame(0, text.to_string().as_bytes(), out);
        Encoder {
            header,
            objects: 0,
            hash: Sha256::new(),
        }
    }

    /// Appends an object. The caller passes objects in key order.
    pub fn object(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        let (key, stored) = (entry.key.encode(), entry.object.to_stored());
        let mut bytes = Vec::with_capacity(20 + key.len() + stored.len());
        bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&key);
        bytes.extend_from_slice(&entry.revision.0.to_le_bytes());
        bytes.extend_from_slice(&entry.created.0.to_le_bytes());
        bytes.extend_from_slice(&stored);
        self.objects += 1;
        let from = out.len();
        frame(self.objects, &bytes, out);
        self.hash.update(&out[from..]);
    }

    /// Appends the trailer and returns the summary of the backup.
    pub fn finish(self, out: &mut Vec<u8>) -> Summary {
        let hash = Hash(self.hash.finalize().into());
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&self.objects.to_le_bytes());
        out.extend_from_slice(&hash.0);
        Summary {
            header: self.header,
            objects: self.objects,
            hash,
        }
    }
}

fn frame(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&checksum(&number.to_le_bytes(), bytes).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Reads and verifies a whole backup, and passes each object to `visit`. The objects are valid only
/// if this returns `Ok`.
///
/// # Errors
/// [`BackupError`] for a file that is no whole backup, and any error of `visit`.
pub fn read<E: From<BackupError>>(
    input: impl Read,
    mut visit: impl FnMut(&Header, Entry) -> Result<(), E>,
) -> Result<Summary, E> {
    let mut reader = Reader {
        input,
        offset: 0,
        objects: 0,
    };
    let header = reader.header()?;
    let (mut hash, mut last) = (Sha256::new(), None);
    while let Some((head, bytes)) = reader.object()? {
        let damaged = |reason: String| BackupError::Damaged {
            offset: reader.offset - (FRAME_HEAD + bytes.len()) as u64,
            reason,
        };
        let (key, entry) = decode(&bytes).map_err(damaged)?;
        if last.as_ref().is_some_and(|last| *last >= key) {
            return Err(damaged("objects are not in order".into()).into());
        }
        if entry.revision > header.revision {
            return Err(damaged("an object is newer than the backup".into()).into());
        }
        hash.update(head);
        hash.update(&bytes);
        last = Some(key);
        visit(&header, entry)?;
    }
    let summary = Summary {
        header,
        objects: reader.objects,
        hash: Hash(hash.finalize().into()),
    };
    reader.trailer(&summary)?;
    Ok(summary)
}

/// Reads the header and the trailer of a backup, and verifies neither the objects nor the hash.
///
/// # Errors
/// [`BackupError`] for a file that does not begin or end as a backup does.
pub fn peek(mut input: impl Read + Seek) -> Result<Summary, BackupError> {
    let mut reader = Reader {
        input: &mut input,
        offset: 0,
        objects: 0,
    };
    let header = reader.header()?;
    let begin = reader.offset;
    let end = input.seek(SeekFrom::End(0))?;
    let short = BackupError::Truncated {
        offset: end,
        objects: 0,
    };
    let trailer = end.checked_sub(TRAILER_BYTES as u64).filter(|at| *at >= begin);
    input.seek(SeekFrom::Start(trailer.ok_or(short)?))?;
    let mut bytes = [0; TRAILER_BYTES];
    input.read_exact(&mut bytes)?;
    let (length, rest) = bytes.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    let (objects, hash) = rest.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    match (length, <[u8; 32]>::try_from(hash)) {
        ([0, 0, 0, 0], Ok(hash)) => Ok(Summary {
            header,
            objects: u64::from_le_bytes(*objects),
            hash: Hash(hash),
        }),
        _ => Err(BackupError::Damaged {
            offset: end,
            reason: "there is no trailer".into(),
        }),
    }
}

fn decode(bytes: &[u8]) -> Result<(Vec<u8>, Entry), String> {
    let short = || "an object is too short".to_owned();
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
    let (key, rest) = rest
        .split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or_else(short)?;
    let (revision, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let (created, stored) = rest.split_first_chunk().ok_or_else(short)?;
    let [revision, created] = [revision, created].map(|bytes| Revision(u64::from_le_bytes(*bytes)));
    let entry = Entry {
        key: ObjectKey::decode(key).map_err(|error| error.to_string())?,
        object: Arc::new(Object::from_stored(stored).map_err(|error| error.to_string())?),
        revision,
        created,
    };
    Ok((key.to_vec(), entry))
}

/// Length and checksum of a frame, and its bytes.
type Frame = ([u8; FRAME_HEAD], Vec<u8>);

struct Reader<R> {
    input: R,
    offset: u64,
    objects: u64,
}

impl<R: Read> Reader<R> {
    fn header(&mut self) -> Result<Header, BackupError> {
        let mut magic = [0; MAGIC.len()];
        match self.fill(&mut magic) {
            Err(BackupError::Truncated { .. }) => return Err(BackupError::Foreign),
            other => other?,
        }
        if magic != *MAGIC && magic != *MAGIC_BEFORE {
            return Err(match magic[..MAGIC_SHARED] == MAGIC[..MAGIC_SHARED] {
                true => BackupError::Format,
                false => BackupError::Foreign,
            });
        }
        let offset = self.offset;
        let unreadable = |reason: &str| BackupError::Damaged {
            offset,
            reason: reason.to_owned(),
        };
        let (_, bytes) = self.frame(0)?.ok_or_else(|| unreadable("there is no header"))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| unreadable("the header is no JSON"))?;
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let revision = value["revision"].as_u64();
        Ok(Header {
            revision: Revision(revision.ok_or_else(|| unreadable("the header has no revision"))?),
            created: text("created"),
            version: text("version"),
            installation: text("installation"),
            workspace: text("workspace"),
            cluster: text("cluster"),
        })
    }

    fn object(&mut self) -> Result<Option<Frame>, BackupError> {
        let frame = self.frame(self.objects + 1)?;
        self.objects += u64::from(frame.is_some());
        Ok(frame)
    }

    /// Reads a frame, or the zero length that the trailer begins with.
    fn frame(&mut self, number: u64) -> Result<Option<Frame>, BackupError> {
        let offset = self.offset;
        let mut head = [0; FRAME_HEAD];
        self.fill(&mut head[..4])?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length == 0 {
            return Ok(None);
        }
        let damaged = |reason: String| BackupError::Damaged { offset, reason };
        if length > FRAME_BYTES_MAX {
            return Err(damaged(format!("an object of {length} bytes")));
        }
        self.fill(&mut head[4..])?;
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        if checksum(&number.to_le_bytes(), &bytes).to_le_bytes() != head[4..] {
            return Err(damaged("the checksum does not match".into()));
        }
        Ok(Some((head, bytes)))
    }

    fn trailer(&mut self, summary: &Summary) -> Result<(), BackupError> {
        let offset = self.offset;
        let damaged = |reason: &str| BackupError::Damaged {
            offset,
            reason: reason.to_owned(),
        };
        let mut trailer = [0; 8 + 32];
        self.fill(&mut trailer)?;
        if trailer[..8] != summary.objects.to_le_bytes() {
            return Err(damaged("the number of objects does not match"));
        }
        if trailer[8..] != summary.hash.0 {
            return Err(damaged("the hash does not match"));
        }
        match self.input.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(BackupError::Damaged {
                offset: self.offset,
                reason: "something follows its end".into(),
            }),
        }
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), BackupError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.input.read(&mut out[filled..]) {
                Ok(0) => {
                    return Err(BackupError::Truncated {
                        offset: self.offset + filled as u64,
                        objects: self.objects,
                    });
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.offset += filled as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::{ClusterName, ResourceId};

    fn entry(n: usize) -> Entry {
        let resource = ResourceId::local("example.io", "widgets");
        let name = format!("w{n}");
        let value = json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": name},
            "spec": {"pad": "x".repeat(n * 40)}});
        Entry {
            key: ObjectKey::cluster_scoped(resource, ClusterName::root(), &name),
            object: Arc::new(Object::new(&value, None).unwrap()),
            revision: Revision(n as u64 + 2),
            created: Revision(2),
        }
    }

    fn backup(objects: usize) -> (Vec<u8>, Summary) {
        let header = Header {
            revision: Revision(50),
            created: "2026-11-22T10:00:00Z".into(),
            version: "0.1.0".into(),
            installation: "a".into(),
            workspace: "root:a".into(),
            cluster: "0a".into(),
        };
        let mut bytes = Vec::new();
        let mut encoder = Encoder::begin(header, &mut bytes);
        (0..objects).for_each(|n| encoder.object(&entry(n), &mut bytes));
        let summary = encoder.finish(&mut bytes);
        (bytes, summary)
    }

    fn read_all(bytes: &[u8]) -> Result<(Summary, Vec<Entry>), BackupError> {
        let mut entries = Vec::new();
        let summary = read(bytes, |_, entry| {
            entries.push(entry);
            Ok::<_, BackupError>(())
        })?;
        Ok((summary, entries))
    }

    #[test]
    fn a_backup_is_read_back() {
        for objects in [0, 1, 9] {
            let (bytes, summary) = backup(objects);
            let (found, entries) = read_all(&bytes).unwrap();
            assert_eq!(found, summary);
            assert_eq!(entries, (0..objects).map(entry).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_flipped_bit_every_cut_and_every_addition_is_refused() {
        let (bytes, _) = backup(5);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read_all(&damaged).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(read_all(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let longer = [&bytes[..], b"\n"].concat();
        let error = read_all(&longer).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "the backup is damaged at byte {}: something follows its end",
                bytes.len()
            )
        );
    }

    #[test]
    fn a_peek_finds_header_and_trailer() {
        let (bytes, summary) = backup(5);
        assert_eq!(peek(io::Cursor::new(&bytes)).unwrap(), summary);
        for cut in [0, 10, 60, bytes.len() - 1] {
            assert!(peek(io::Cursor::new(&bytes[..cut])).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn other_files_and_formats_are_told() {
        let text = |bytes: &[u8]| read_all(bytes).unwrap_err().to_string();
        assert_eq!(text(b""), "not a backup of insula");
        assert_eq!(text(&[7; 100]), "not a backup of insula");
        let later = b"insula-backup 3\nanything";
        assert_eq!(text(later), "a backup in a format that this version does not read");
    }
}
