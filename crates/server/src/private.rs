//! Protection of the memory and files of the process from other users of the machine.

use std::io;

use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, setrlimit, umask},
};

const GROUP_AND_WORLD: u32 = 0o077;

/// Restricts memory and files to their owner, for the life of the process. Call it before any
/// secret is read.
///
/// # Errors
/// Fails when the system refuses.
pub fn keep_private() -> io::Result<()> {
    // Our code sets the mode of each file; a library that does not must not make a file that
    // everybody can read.
    umask(Mode::from_raw_mode(GROUP_AND_WORLD));
    // The memory holds keys, tokens and secrets of tenants, and a core dump would write them to
    // disk.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    // A dump that is piped into a program ignores the limit. This also keeps other processes of the
    // same user from reading the memory.
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}
