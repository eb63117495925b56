//! Reads the log backwards: the newest event first.

use std::{
    fmt,
    fs::File,
    hash::{DefaultHasher, Hasher as _},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    str::FromStr,
};

use insula_api::Json;
use insula_auth::audit::Filter;
use insula_meter::{Ended, Meter};

use super::file;

/// Bytes of the log that a page looks at: some hundredths of a second of parsing.
const PAGE_BYTES: u64 = 16 << 20;
/// Bytes of events that a page has: an answer that clients of gRPC take.
const EVENTS_BYTES: usize = 2 << 20;
/// Bytes that are read at once. A line that is longer is read at once, too.
const BLOCK_BYTES: u64 = 1 << 18;
/// Bytes of a line that is read. The server writes no longer ones.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Events of the log, without the objects in them.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The newest first.
    pub(crate) events: Vec<Json>,
    /// The position where the next page begins; `None` when there is no more.
    pub(crate) next: Option<Position>,
}

/// A position in the log: a file, and the byte up to which it has not been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    file: Identity,
    end: u64,
}

/// The parts of a file that stay the same when it is rotated: its inode, and a hash of its first
/// bytes, since the inode of a file that was removed may become that of a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    inode: u64,
    begin: u64,
}

/// Bytes of a file that are hashed: those of its first event up to the id and more.
const BEGIN_BYTES: usize = 160;

impl Identity {
    fn read(file: &File, inode: u64) -> io::Result<Self> {
        let mut begin = [0; BEGIN_BYTES];
        let length = file.read_at(&mut begin, 0)?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&begin[..length]);
        Ok(Identity {
            inode,
            begin: hasher.finish(),
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { file, end } = self;
        write!(f, "{}/{}/{end}", file.inode, file.begin)
    }
}

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut numbers = text.splitn(3, '/').map(str::parse::<u64>);
        let mut number = || numbers.next().and_then(Result::ok).ok_or(());
        Ok(Position {
            file: Identity {
                inode: number()?,
                begin: number()?,
            },
            end: number()?,
        })
    }
}

/// Failure of a page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The log cannot be read.
    #[error("the audit log cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The request ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Reads up to `most` selected events that were written before a position. Without a position it
/// begins at the end; if the file of the position was removed, nothing is older. Blocks.
pub(crate) fn page(
    path: &Path,
    filter: &Filter,
    most: usize,
    before: Option<Position>,
    meter: &Meter,
) -> Result<Page, Error> {
    let mut reading = Reading {
        filter,
        most,
        meter,
        left: PAGE_BYTES,
        bytes: 0,
        page: Page::default(),
    };
    let mut before = before;
    // Opened before the others are listed: a rotation in between makes it one of them, and not
    // none.
    let newest = open(path)?;
    let older = file::backups(path)?;
    let older = older.iter().rev().map(|path| open(path));
    let mut seen = None;
    for file in std::iter::once(Ok(newest)).chain(older) {
        let Some(file) = file? else { continue };
        let metadata = file.metadata()?;
        let identity = Identity::read(&file, metadata.ino())?;
        if seen.replace(identity) == Some(identity) {
            continue;
        }
        let end = match before {
            Some(position) if position.file != identity => continue,
            Some(position) => position.end.min(metadata.len()),
            None => metadata.len(),
        };
        before = None;
        if let Some(end) = reading.file(&file, end)? {
            reading.page.next = Some(Position { file: identity, end });
            break;
        }
    }
    Ok(reading.page)
}

/// Opens a file of the log. One that was removed a moment ago is none.
fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A page that is being read.
struct Reading<'a> {
    filter: &'a Filter,
    most: usize,
    meter: &'a Meter,
    /// Bytes of the log that the page may still look at.
    left: u64,
    /// Bytes of the selected lines.
    bytes: usize,
    page: Page,
}

impl Reading<'_> {
    /// Reads a file backwards from a byte on. Returns the byte at which the page is full.
    fn file(&mut self, file: &File, mut end: u64) -> Result<Option<u64>, Error> {
        let mut size = BLOCK_BYTES;
        while end > 0 {
            if self.left == 0 {
                return Ok(Some(end));
            }
            let begin = end.saturating_sub(size);
            let mut block = vec![0; usize::try_from(end - begin).unwrap_or(usize::MAX)];
            file.read_exact_at(&mut block, begin)?;
            self.meter.spend_bytes(block.len())?;
            // The first line of a block may begin before it.
            let whole = match begin {
                0 => 0,
                _ => line_ends(&block).next().map_or(block.len(), |at| at + 1),
            };
            if whole == block.len() {
                if size >= LINE_BYTES_MAX {
                    let text = format!("a line that ends at byte {end} has more than {size} bytes");
                    return Err(io::Error::new(ErrorKind::InvalidData, text).into());
                }
                size *= 2;
                continue;
            }
            if let Some(at) = self.lines(&block[whole..])? {
                return Ok(Some(begin + (whole + at) as u64));
            }
            self.left = self.left.saturating_sub((block.len() - whole) as u64);
            end = begin + whole as u64;
            size = BLOCK_BYTES;
        }
        Ok(None)
    }

    /// Takes the selected events of whole lines, from the last to the first. Returns the start of
    /// the line with which the page was full.
    fn lines(&mut self, lines: &[u8]) -> Result<Option<usize>, Error> {
        let mut starts: Vec<usize> = std::iter::once(0)
            .chain(line_ends(lines).map(|at| at + 1))
            .filter(|start| *start < lines.len())
            .collect();
        let mut end = lines.len();
        while let Some(start) = starts.pop() {
            let line = &lines[start..end];
            end = start;
            self.meter.spend_bytes(line.len())?;
            // The last line may be half written.
            let Ok(mut event) = serde_json::from_slice::<Json>(line) else {
                continue;
            };
            if !self.filter.matches(&event) {
                continue;
            }
            if let Some(event) = event.as_object_mut() {
                event.remove("requestObject");
                event.remove("responseObject");
            }
            self.bytes += line.len();
            self.page.events.push(event);
            if self.page.events.len() == self.most || self.bytes >= EVENTS_BYTES {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }
}

/// Returns the positions of the ends of lines.
fn line_ends(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let all = bytes.iter().enumerate();
    all.filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::Timestamp;
    use serde_json::json;
    use std::time::Duration;

    use super::super::file::{Keep, Rotated};

    /// Writes events of several sizes into files that rotate: event `n` has the name `n`.
    fn write(log: &mut Rotated, events: std::ops::Range<usize>) {
        for n in events {
            let long = if n % 50 == 7 { 700_000 } else { n % 90 };
            let event = json!({
                "verb": if n.is_multiple_of(3) { "get" } else { "create" }, "objectRef": {"name": n.to_string()},
                "responseObject": "x".repeat(long),
            });
            log.write(format!("{event}\n").as_bytes(), Timestamp(1_700_000_000))
                .unwrap();
        }
    }

    fn names(page: &Page) -> Vec<usize> {
        let name = |event: &Json| event["objectRef"]["name"].as_str().unwrap().parse().unwrap();
        page.events.iter().map(name).collect()
    }

    #[test]
    fn pages_have_every_event_once_and_the_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let keep = Keep {
            bytes: 900_000,
            backups: 100,
            age: Duration::ZERO,
        };
        let mut log = Rotated::open(path.clone(), keep).unwrap();
        write(&mut log, 0..400);
        assert!(file::backups(&path).unwrap().len() > 3);
        for (verb, most) in [("", 1), ("", 7), ("", 1_000), ("get", 10), ("create", 3), ("watch", 5)] {
            let filter = Filter {
                verb: verb.to_owned(),
                ..Filter::default()
            };
            let (mut found, mut before) = (Vec::new(), None);
            loop {
                let page = page(&path, &filter, most, before, &Meter::unbounded()).unwrap();
                assert!(page.events.len() <= most);
                assert!(page.events.iter().all(|event| event.get("responseObject").is_none()));
                found.extend(names(&page));
                let Some(next) = page.next else { break };
                before = Some(next.to_string().parse().unwrap());
            }
            let of_verb = |n: &usize| match verb {
                "" => true,
                "get" => n.is_multiple_of(3),
                "create" => !n.is_multiple_of(3),
                _ => false,
            };
            assert_eq!(
                found,
                (0..400).rev().filter(of_verb).collect::<Vec<_>>(),
                "{verb} {most}"
            );
        }
    }

    /// Neither later events nor the rotation of the file move a page.
    #[test]
    fn a_position_outlasts_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let keep = Keep {
            bytes: 2_000,
            backups: 100,
            age: Duration::ZERO,
        };
        let mut log = Rotated::open(path.clone(), keep).unwrap();
        write(&mut log, 0..5);
        let read = |before| page(&path, &Filter::default(), 2, before, &Meter::unbounded()).unwrap();
        let first = read(None);
        write(&mut log, 8..40);
        let second = read(first.next);
        assert_eq!((names(&first), names(&second)), (vec![4, 3], vec![2, 1]));
        // Nothing is older than a file that was removed.
        for backup in file::backups(&path).unwrap() {
            std::fs::remove_file(backup).unwrap();
        }
        let gone = read(second.next);
        assert!(gone.events.is_empty() && gone.next.is_none());
        // Half a line is not there yet.
        let half = dir.path().join("half.log");
        std::fs::write(&half, "{\"objectRef\": {\"name\": \"1\"}}\n{\"objectRef\": {\"na").unwrap();
        let page = page(&half, &Filter::default(), 9, None, &Meter::unbounded()).unwrap();
        assert_eq!(names(&page), [1]);
    }
}
