//! Limit of file descriptors, with a reserve for files other than connections.

use std::{fs::File, io, os::fd::AsFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Divisor of the limit that gives the descriptors kept for the store, the audit log, etcd and
/// calls to other servers.
const KEPT: u64 = 4;
/// Bounds of the kept descriptors: what a server opens at its start, and more than it ever had
/// open.
const KEPT_MIN: u64 = 32;
const KEPT_MAX: u64 = 1_024;

/// Raises the soft limit of the process to the hard one, as programs in Go do. Returns the number
/// of connections that fit below it, at most `wanted`.
pub fn connections(wanted: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of file descriptors stays as it is");
            current
        }
    };
    let Some(limit) = limit else { return wanted };
    let fit = below(limit);
    if wanted <= fit {
        return wanted;
    }
    tracing::warn!(
        connections = fit,
        file_descriptors = limit,
        "limits.connections is {wanted}, and the process may have only {limit} file descriptors: it takes {fit} \
         connections; raise the limit (ulimit -n, LimitNOFILE=) or lower limits.connections"
    );
    fit
}

fn below(limit: u64) -> usize {
    let kept = (limit / KEPT).clamp(KEPT_MIN, KEPT_MAX);
    usize::try_from(limit.saturating_sub(kept)).unwrap_or(usize::MAX).max(1)
}

/// A spare file descriptor, which is released when there are no others.
pub(crate) struct Spare(Option<File>);

impl Spare {
    pub(crate) fn new() -> Self {
        let mut spare = Spare(None);
        spare.restore();
        spare
    }

    /// Releases the descriptor. Returns false if it was released already.
    pub(crate) fn release(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Takes a descriptor again, if there is one.
    pub(crate) fn restore(&mut self) {
        if self.0.is_none() {
            self.0 = File::open("/dev/null").ok();
        }
    }
}

/// Returns true for errors of a process, or a machine, without file descriptors.
pub(crate) fn are_out(error: &io::Error) -> bool {
    let codes = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    codes
        .iter()
        .any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

/// Returns true if a connection waits to be accepted. In doubt one does.
pub(crate) fn is_readable(listener: &impl AsFd) -> bool {
    has_event(listener, PollFlags::IN).unwrap_or(true)
}

/// Returns true if a descriptor has one of some events now, without waiting. Hang-ups and errors
/// are told whether or not they are wanted.
pub(crate) fn has_event(descriptor: &impl AsFd, wanted: PollFlags) -> rustix::io::Result<bool> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let told = poll(&mut [PollFd::new(descriptor, wanted)], Some(&at_once))?;
    Ok(told > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_kept_and_one_connection_is_always_taken() {
        for (limit, want) in [
            (16, 1),
            (64, 32),
            (256, 192),
            (1_024, 768),
            (20_000, 18_976),
            (1 << 20, (1 << 20) - 1_024),
        ] {
            assert_eq!(below(limit), want, "{limit}");
        }
    }
}
