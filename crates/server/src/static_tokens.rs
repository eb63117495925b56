//! The file of static tokens, which is read again when it changes.

use std::{path::Path, sync::Arc, time::Duration};

use insula_access::Authenticator;
use insula_auth::{TokenFile, certificate::MarkKey};

use crate::{StartError, files::read_secret, identity};

/// Period of reading the file.
const PERIOD: Duration = Duration::from_secs(5);

/// Reads the file.
pub(crate) fn read(path: &Path) -> Result<TokenFile, StartError> {
    let missing = || {
        let cause = "there is no such file: correct --token-file (tokenFile), or create it with mode 0600";
        StartError::read(path, std::io::Error::new(std::io::ErrorKind::NotFound, cause))
    };
    let text = read_secret(path)?.ok_or_else(missing)?;
    TokenFile::parse(&text).map_err(|error| StartError::Tokens {
        path: path.to_owned(),
        cause: error.to_string(),
    })
}

/// Returns the secret from which the marks of certificates are made: the server that signs them has
/// it, and one that shares its keys. `None` where the CA has no key.
pub(crate) fn mark_key(data_dir: &Path) -> Result<Option<MarkKey>, StartError> {
    let key = identity::ca_key(data_dir)?;
    Ok(key.map(|key| MarkKey::from_ca_key(&key)))
}

/// Follows the file: tokens that are no longer in it are refused within seconds. A mistake in it is
/// logged once, and the previous tokens stay valid.
pub(crate) async fn follow(path: std::path::PathBuf, authenticator: Arc<Authenticator>) {
    let mut last = None;
    loop {
        tokio::time::sleep(PERIOD).await;
        let of_file = path.clone();
        // A task that ends early is the end of the server.
        let Ok(file) = tokio::task::spawn_blocking(move || read(&of_file)).await else {
            return;
        };
        match file {
            Ok(file) => {
                authenticator.tokens.replace(file);
                last = None;
            }
            Err(error) => {
                let cause = error.to_string();
                if last.as_ref() != Some(&cause) {
                    tracing::warn!(file = %path.display(), cause, "the static tokens stay as they were");
                }
                last = Some(cause);
            }
        }
    }
}
