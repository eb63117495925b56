//! Search for the lines of a request in the audit log.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use serde_json::Value;

/// Time to wait for the lines. The server writes events in batches of 10 ms, so that those of a
/// recent request appear soon.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);

/// Returns the events of a request, and waits for them for a moment.
pub(super) fn soon(log: &Path, id: &str) -> anyhow::Result<Vec<Value>> {
    let begun = Instant::now();
    loop {
        let found = events(log, id)?;
        if !found.is_empty() || begun.elapsed() > PATIENCE {
            return Ok(found);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the events of a request in order, from the newest file that has any.
fn events(log: &Path, id: &str) -> anyhow::Result<Vec<Value>> {
    for file in files(log)? {
        let found = in_file(&file, id).with_context(|| format!("cannot read {}", file.display()))?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Returns the log and its rotated files, newest first.
fn files(log: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let reading = || {
        format!(
            "cannot read {}: --data-dir or --log says where the server has it",
            log.display()
        )
    };
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (start, end) = (format!("{}-", text(log.file_stem())), text(log.extension()));
    let dir = log
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut old = Vec::new();
    for entry in fs::read_dir(dir).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        let name = text(path.file_name());
        if name.starts_with(&start) && name.ends_with(&end) {
            old.push(path);
        }
    }
    // Names sort as their dates do.
    old.sort_unstable_by(|a, b| b.cmp(a));
    File::open(log).with_context(reading)?;
    Ok([vec![log.to_owned()], old].concat())
}

fn in_file(file: &Path, id: &str) -> io::Result<Vec<Value>> {
    let mut found = Vec::new();
    let mut reader = BufReader::with_capacity(1 << 20, File::open(file)?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        // Only lines that contain the id are parsed.
        if contains(&line, id.as_bytes())
            && let Ok(event) = serde_json::from_slice::<Value>(&line)
            && event["auditID"] == id
        {
            found.push(event);
        }
        line.clear();
    }
    Ok(found)
}

fn contains(line: &[u8], id: &[u8]) -> bool {
    // The id is near the start of its line, after a few short fields.
    const START_BYTES: usize = 1 << 10;
    let start = &line[..line.len().min(START_BYTES)];
    start.windows(id.len()).any(|window| window == id)
}
