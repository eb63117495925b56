//! A process of its own: what it keeps to itself is kept for its whole life.

#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt;

use rustix::process::{DumpableBehavior, dumpable_behavior};

#[test]
fn nothing_is_left_for_others() {
    insula_server::keep_private().unwrap();
    assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    let limits = std::fs::read_to_string("/proc/thread-self/limits").unwrap_or_default();
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    // Where /proc is hidden, there is nothing to read.
    assert!(
        core.is_none_or(|line| line.split_whitespace().nth(4) == Some("0")),
        "{limits}"
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "anything").unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}
