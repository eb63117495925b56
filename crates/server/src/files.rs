//! Files with secrets: readable by their owner only, and written atomically.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::StartError;

/// Directory of the server's identity, below the data directory.
pub(crate) const IDENTITY_DIR: &str = "pki";
const OWNER_ONLY: u32 = 0o600;
const OWNER_ONLY_DIR: u32 = 0o700;
const GROUP_AND_WORLD: u32 = 0o077;
const GROUP_WRITE_AND_WORLD: u32 = 0o037;

/// Creates a directory with mode 0700. An existing directory keeps its mode if it holds files of
/// other programs.
pub(crate) fn private_dir(path: &Path) -> Result<(), StartError> {
    let wrong = |cause: io::Error| StartError::DataDir {
        path: path.to_owned(),
        cause,
    };
    if path.is_dir() {
        let loose = mode(path).map_err(wrong)? & GROUP_AND_WORLD != 0;
        let mut entries = fs::read_dir(path).map_err(wrong)?;
        // Ours, or new and empty. The mode of somebody's home directory must not change.
        let ours = path.join(IDENTITY_DIR).is_dir() || entries.next().is_none();
        if loose && ours {
            return fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY_DIR)).map_err(wrong);
        }
        if loose {
            tracing::warn!(path = %path.display(), "the data directory can be read by others; chmod 700 closes it");
        }
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(OWNER_ONLY_DIR)
        .create(path)
        .map_err(wrong)
}

/// Writes a file of mode 0600 atomically: after a crash there is the old file or the new one.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut name = path
        .file_name()
        .ok_or_else(|| io::Error::other("not a file name"))?
        .to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = dir.join(name);
    let written = write_and_sync(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if let Err(cause) = written {
        // The file is incomplete and has no readers; an error of its removal would only hide the
        // cause.
        drop(fs::remove_file(&temporary));
        return Err(cause);
    }
    File::open(dir)?.sync_all()
}

fn write_and_sync(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(OWNER_ONLY)
        .open(path)?;
    // The mode above counts only for a new file; a file that an earlier crash left may have another
    // mode.
    file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Reads a secret, or nothing if there is no such file.
///
/// # Errors
/// Refuses a file that other users of the machine can read.
pub(crate) fn read_secret(path: &Path) -> Result<Option<String>, StartError> {
    let Some(text) = read(path)? else { return Ok(None) };
    let about = fs::metadata(path).map_err(|cause| StartError::read(path, cause))?;
    let mode = about.mode() & 0o777;
    if mode & open_bits(about.uid(), rustix::process::geteuid().as_raw()) == 0 {
        return Ok(Some(text));
    }
    Err(StartError::LooseKey {
        path: path.to_owned(),
        mode,
    })
}

/// Returns the bits that the mode of a secret must not have. A process that is not root reads a
/// file of root through its group, as Kubernetes mounts Secrets.
fn open_bits(owner: u32, process: u32) -> u32 {
    if owner == 0 && process != 0 {
        GROUP_WRITE_AND_WORLD
    } else {
        GROUP_AND_WORLD
    }
}

/// Reads a text file, or nothing if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, StartError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(StartError::read(path, cause)),
    }
}

fn mode(path: &Path) -> io::Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode())
}

/// Returns a path relative to the working directory where possible, for messages.
pub(crate) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    match path.strip_prefix(&here) {
        Ok(relative) if !relative.as_os_str().is_empty() => format!("./{}", relative.display()),
        _ => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        mode(path).unwrap() & 0o777
    }

    #[test]
    fn secrets_are_for_their_owner_and_are_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.key");
        for content in ["first", "second"] {
            write_private(&path, content.as_bytes()).unwrap();
            assert_eq!(read_secret(&path).unwrap().as_deref(), Some(content));
            assert_eq!(mode_of(&path), 0o600);
        }
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
        assert_eq!(read_secret(&dir.path().join("none")).unwrap(), None);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.key");
        write_private(&path, b"secret").unwrap();
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let message = read_secret(&path).unwrap_err().to_string();
            assert!(message.contains(&format!("0{mode:o}")), "{message}");
            assert!(message.contains(&format!("chmod 600 {}", path.display())), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn the_group_may_read_a_secret_of_root_for_a_process_that_is_not() {
        let refused = |mode: u32, owner, process| mode & open_bits(owner, process) != 0;
        assert!(!refused(0o440, 0, 65_532) && !refused(0o640, 0, 65_532));
        assert!(refused(0o460, 0, 65_532) && refused(0o444, 0, 65_532));
        assert!(refused(0o440, 0, 0) && refused(0o440, 65_532, 65_532));
    }

    #[test]
    fn data_directories_are_closed_unless_they_are_somebody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b");
        private_dir(&new).unwrap();
        assert_eq!(mode_of(&new), 0o700);

        fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
        private_dir(&new).unwrap();
        assert_eq!(mode_of(&new), 0o700, "empty");

        fs::write(new.join("thesis.tex"), "").unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
        private_dir(&new).unwrap();
        assert_eq!(mode_of(&new), 0o755, "not ours");
    }
}
