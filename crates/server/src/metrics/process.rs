//! Metrics of the process, by the names of Prometheus' client libraries. Read from `/proc`, so only
//! on Linux.

use std::{fmt, fs, time::SystemTime};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use rustix::process::{Resource, getrlimit};

use super::sources::Families;

/// Ticks in a second of the times in `/proc`: 100 on every Linux, whatever the kernel's own.
const TICKS: f64 = 100.0;

/// Collector of this process, which started at the given time.
#[derive(Debug)]
pub(super) struct Process(pub(super) SystemTime);

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut Families(encoder);
        let since_1970 = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let help = "Start of the process, in seconds since 1970";
        out.time("process_start_time", help, since_1970.as_secs_f64())?;
        let uptime = self.0.elapsed().unwrap_or_default();
        let help = "Time since the start of the process";
        out.time("process_uptime", help, uptime.as_secs_f64())?;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let help = "Limit on open file descriptors";
        out.gauge("process_max_fds", help, i64::try_from(limit).unwrap_or(i64::MAX))?;
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them is the directory that is read.
            let open = i64::try_from(open.count()).unwrap_or(i64::MAX) - 1;
            out.gauge("process_open_fds", "Open file descriptors", open)?;
        }
        if let Some(seconds) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu(&stat)) {
            out.time_count("process_cpu", "CPU time in user and system mode", seconds)?;
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (field, name, help) in [
            ("VmRSS:", "process_resident_memory", "Resident memory"),
            ("VmSize:", "process_virtual_memory", "Virtual memory"),
        ] {
            if let Some(kilobytes) = number(&status, field) {
                out.bytes(name, help, kilobytes.saturating_mul(1024))?;
            }
        }
        match number(&status, "Threads:") {
            Some(threads) => out.gauge("process_threads", "Threads", threads),
            None => Ok(()),
        }
    }
}

/// Returns the CPU time of `/proc/self/stat` in seconds.
fn cpu(stat: &str) -> Option<f64> {
    // The name of the program, in parentheses, may contain spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).take(2);
    let user: f64 = times.next()?.parse().ok()?;
    let system: f64 = times.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

/// Returns the number of a field of `/proc/self/status`.
fn number(status: &str, field: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;

    #[test]
    fn the_process_measures_itself() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 200 0 1 0 250 50 0 0 20 0 4 0 99 1000 300";
        assert_eq!(cpu(stat), Some(3.0));
        assert_eq!(number("Threads:\t12\nVmRSS:\t  2048 kB\n", "VmRSS:"), Some(2048));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process(SystemTime::now())));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        if cfg!(target_os = "linux") {
            let types = text.lines().filter(|line| line.starts_with("# TYPE process_"));
            assert_eq!(types.count(), 8, "{text}");
        }
    }
}
