//! Memory that the process may use.

use std::fs;

/// Files with the limit of the control group: of version 2, and of version 1.
const GROUP_LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];

/// Returns the bytes of memory that the process may use: those of its control group or of the
/// machine, whichever are fewer. `None` where the system tells neither.
pub(crate) fn usable() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    // No number stands for no limit.
    let groups = GROUP_LIMITS.iter().filter_map(|path| read(path)?.trim().parse().ok());
    groups.chain(read("/proc/meminfo").as_deref().and_then(total)).min()
}

/// Returns the memory of the machine in bytes, from /proc/meminfo.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine_is_read() {
        assert_eq!(
            total("MemTotal:       24737504 kB\nMemFree: 1 kB\n"),
            Some(24_737_504 * 1024)
        );
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(usable().is_some_and(|bytes| bytes > 16 << 20));
    }
}
