//! Keys that several servers of one etcd share, copied from a directory such as a mounted Secret
//! into the data directory before anything reads them.

use std::{fs, path::Path};

use insula_api::Timestamp;

use crate::{
    StartError, accounts,
    files::{IDENTITY_DIR, private_dir, read, read_secret, write_private},
    identity::{Authority, FrontProxies, Pair},
};

/// Files that the directory must have: without one of them each server would create its own.
const REQUIRED: [&str; 3] = ["ca.crt", "ca.key", "service-accounts.key"];
/// Files that the directory may have. The first is there while tokens of the previous key are still
/// valid. Without the others each server makes a CA of front proxies of its own, and extension
/// servers trust all of them.
const OPTIONAL: [&str; 3] = [
    "service-accounts-previous.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
];
/// The one of them that is removed when it is gone from the directory.
const PREVIOUS: &str = OPTIONAL[0];

/// Reads the keys: the text of each file, `None` for an optional one that is missing.
///
/// # Errors
/// Fails when a required file is missing or a key is readable by others.
fn read_all(from: &Path) -> Result<Vec<(&'static str, Option<String>)>, StartError> {
    let read_one = |name: &'static str| {
        let source = from.join(name);
        let found = match name.ends_with(".key") {
            true => read_secret(&source)?,
            false => read(&source)?,
        };
        if found.is_none() && REQUIRED.contains(&name) {
            let all = REQUIRED.join(", ");
            return Err(StartError::Identity {
                path: source,
                cause: format!("is missing; the directory of sharedKeys must have {all}"),
            });
        }
        Ok((name, found))
    };
    REQUIRED.into_iter().chain(OPTIONAL).map(read_one).collect()
}

/// Checks that the keys can be used, without writing anything.
///
/// # Errors
/// A required file is missing, a key is readable by others or none, or the CA cannot sign now.
pub(crate) fn check(from: &Path, now: Timestamp) -> Result<(), StartError> {
    let found = read_all(from)?;
    let text = |name: &str| {
        found
            .iter()
            .find(|(key, _)| *key == name)
            .and_then(|(_, text)| text.as_deref())
    };
    for ca in ["ca", FrontProxies::NAME] {
        let pair = Pair::in_dir(from, ca);
        if let (Some(certificate), Some(key)) = (text(&format!("{ca}.crt")), text(&format!("{ca}.key"))) {
            Authority::read(&pair, certificate, key, now)?;
        }
    }
    accounts::check(from)
}

/// Copies the keys to `pki` in the data directory, where they differ. A previous key that is gone
/// from the directory is removed.
///
/// # Errors
/// Fails when a required file is missing or a key is readable by others.
pub(crate) fn copy(from: &Path, data_dir: &Path) -> Result<(), StartError> {
    let into = data_dir.join(IDENTITY_DIR);
    private_dir(&into)?;
    for (name, found) in read_all(from)? {
        let target = into.join(name);
        let Some(text) = found else {
            if name == PREVIOUS {
                remove(&target)?;
            }
            continue;
        };
        if read(&target)?.as_ref() != Some(&text) {
            write_private(&target, text.as_bytes()).map_err(|cause| StartError::write(&target, cause))?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), StartError> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(StartError::write(path, cause)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn keys_follow_their_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (from, data) = (dir.path().join("from"), dir.path().join("data"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir_all(&data).unwrap();
        let missing = copy(&from, &data).unwrap_err().to_string();
        assert!(missing.contains("ca.crt: is missing"), "{missing}");
        for name in REQUIRED.into_iter().chain([PREVIOUS]) {
            write_private(&from.join(name), name.as_bytes()).unwrap();
        }
        copy(&from, &data).unwrap();
        let copied = |name: &str| read(&data.join("pki").join(name)).unwrap();
        assert_eq!(copied("ca.key").as_deref(), Some("ca.key"));
        assert_eq!(copied(PREVIOUS).as_deref(), Some(PREVIOUS));
        fs::remove_file(from.join(PREVIOUS)).unwrap();
        write_private(&from.join("ca.crt"), b"next").unwrap();
        copy(&from, &data).unwrap();
        assert_eq!((copied("ca.crt").as_deref(), copied(PREVIOUS)), (Some("next"), None));
    }

    #[test]
    fn a_key_that_the_world_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in REQUIRED {
            write_private(&dir.path().join(name), b"secret").unwrap();
        }
        let key = dir.path().join("ca.key");
        for mode in [0o444, 0o644, 0o660] {
            fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
            let refusal = copy(dir.path(), dir.path()).unwrap_err();
            assert!(matches!(refusal, StartError::LooseKey { .. }), "{mode:o}: {refusal}");
        }
    }
}
