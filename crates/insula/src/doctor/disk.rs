//! Checks of the disk below the data directory.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use super::Finding;

/// Writes that are measured. Each is as large as a small transaction.
const WRITES: usize = 50;
const WRITE_BYTES: usize = 4096;
/// Longest flush of 99 of 100 writes that keeps writes quick; etcd asks for the same.
const FLUSH_MAX: Duration = Duration::from_millis(10);
/// MiB that a store needs to grow and to compact.
const FREE_MIN: u64 = 512;

pub(super) fn check(data_dir: &Path) -> Vec<Finding> {
    let there = data_dir
        .ancestors()
        .find(|path| path.is_dir())
        .unwrap_or(Path::new("."));
    vec![space(there), flushes(there)]
}

/// Measures the time of writes to a temporary file that are flushed to the disk.
fn flushes(folder: &Path) -> Finding {
    const CHECK: &str = "disk latency";
    let path = folder.join(format!(".insula-doctor-{}", std::process::id()));
    let measured = measure(&path);
    // A file that could not be created needs no removal.
    let _ = fs::remove_file(&path);
    match measured {
        Ok(times) => judge(times),
        Err(error) => Finding::problem(
            CHECK,
            format!("{} cannot be written: {error}", folder.display()),
            "run as the user of the server, and check that the disk is not full or read-only",
        ),
    }
}

fn measure(path: &Path) -> io::Result<Vec<Duration>> {
    let mut file = fs::File::create_new(path)?;
    let bytes = [0x5a; WRITE_BYTES];
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let begun = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

fn judge(mut times: Vec<Duration>) -> Finding {
    const CHECK: &str = "disk latency";
    times.sort_unstable();
    let millis = |share: usize| {
        let time = times.get(times.len() * share / 100).or(times.last());
        time.copied().unwrap_or_default()
    };
    let (median, slow) = (millis(50), millis(99));
    let detail = format!(
        "fsync of 4 KiB: median {:.1} ms, p99 {:.1} ms",
        median.as_secs_f64() * 1000.0,
        slow.as_secs_f64() * 1000.0
    );
    match slow > FLUSH_MAX {
        true => Finding::warning(
            CHECK,
            detail,
            "every write waits for the disk: use a local SSD, and no disk that others fill",
        ),
        false => Finding::ok(CHECK, detail),
    }
}

fn space(folder: &Path) -> Finding {
    const CHECK: &str = "disk space";
    let output = Command::new("df").arg("-Pk").arg(folder).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match text.ok().as_deref().and_then(free_mebibytes) {
        None => Finding::skipped(CHECK, "df does not tell it"),
        Some(free) if free < FREE_MIN => Finding::problem(
            CHECK,
            format!("{free} MiB are free below {}", folder.display()),
            "make space: a full store refuses writes until there is some",
        ),
        Some(free) => Finding::ok(CHECK, format!("{free} MiB are free below {}", folder.display())),
    }
}

/// Reads the free space of `df -Pk`.
fn free_mebibytes(text: &str) -> Option<u64> {
    let line = text.lines().nth(1)?;
    let kibibytes: u64 = line.split_whitespace().nth(3)?.parse().ok()?;
    Some(kibibytes / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn slow_disks_are_warned_of() {
        let times = |slow: u64| {
            let mut times = vec![Duration::from_millis(1); 49];
            times.push(Duration::from_millis(slow));
            times
        };
        assert_eq!(judge(times(9)).verdict, Verdict::Ok);
        let finding = judge(times(200));
        assert_eq!(finding.verdict, Verdict::Warning);
        assert_eq!(finding.detail, "fsync of 4 KiB: median 1.0 ms, p99 200.0 ms");
    }

    #[test]
    fn free_space_is_read() {
        let text = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 100 50 2097152 50% /\n";
        assert_eq!(free_mebibytes(text), Some(2048));
        assert_eq!(free_mebibytes(""), None);
    }
}
