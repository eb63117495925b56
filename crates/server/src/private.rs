//! What other users of the machine get of this process: nothing.

use std::io;

use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, setrlimit, umask},
};

const GROUP_AND_WORLD: u32 = 0o077;

/// Keeps memory and files to their owner, for the life of the process. To be called before anything
/// secret is read.
///
/// # Errors
/// The system does not let it.
pub fn keep_private() -> io::Result<()> {
    // Whoever makes a file says its mode; a library that does not is not thereby read by everybody.
    umask(Mode::from_raw_mode(GROUP_AND_WORLD));
    // Memory has keys, tokens and everybody's secrets in it, and a core dump would have them on
    // disk.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    // A dump that is piped into a program asks no limit; and nobody of the same user reads the
    // memory.
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}
