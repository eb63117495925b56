//! Errors of a start. Each message says the cause and the remedy; each variant has an exit code.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::config::ConfigError;

/// Reason why a server did not start. No part of the server keeps running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting cannot be used. Exit code 2.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address cannot be understood. Exit code 2.
    #[error("cannot listen on `{listen}`: {cause}; --listen takes ADDRESS:PORT, such as 127.0.0.1:6443 or 0.0.0.0:0")]
    Address {
        /// The setting as written.
        listen: String,
        /// Cause.
        cause: String,
    },
    /// Another server uses the data directory. Exit code 3.
    #[error("the data directory {} is in use: {holder}; stop that server, or give this one another \
     --data-dir", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Description of that server.
        holder: String,
    },
    /// The address is taken or not allowed. Exit code 4.
    #[error("cannot listen on {address}: {cause}; choose another with --listen (port 0 takes a free one)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Cause.
        cause: io::Error,
    },
    /// A private key is readable by others. Exit code 5.
    #[error("{} is readable by others (mode 0{mode:o}); run: chmod 600 {}", path.display(), path.display())]
    LooseKey {
        /// The key.
        path: PathBuf,
        /// Mode of the key file.
        mode: u32,
    },
    /// Certificates and keys do not fit together, or cannot be made. Exit code 5.
    #[error("{}: {cause}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// The mistake and its remedy.
        cause: String,
    },
    /// The other servers on the store have other keys. Exit code 5.
    #[error(
        "the keys of this server are not those of the other servers on {store}, such as {other}: clients of one would \
         not trust the other. Copy ca.crt, ca.key and service-accounts.key from `pki` in the data directory of that \
         server to a directory of this one, `scp HOST:DATA-DIR/pki/{{ca.crt,ca.key,service-accounts.key}} DIRECTORY`, \
         and name it in INSULA_SHARED_KEYS (sharedKeys); where these are the new keys of all servers, set \
         etcd.acceptNewKeys for this start"
    )]
    OtherKeys {
        /// The setting as written.
        store: String,
        /// URL of another server.
        other: String,
    },
    /// The objects of every installation could not be written. Exit code 1.
    #[error("preparing the root workspace: {0}")]
    Bootstrap(String),
    /// The data directory cannot be used. Exit code 1.
    #[error("cannot use the data directory {}: {cause}; check its owner and mode, or choose another with \
     --data-dir", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// Cause.
        cause: io::Error,
    },
    /// A file cannot be read or written. Exit code 1.
    #[error("cannot {action} {}: {cause}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Cause.
        cause: io::Error,
    },
    /// The file of issuers is wrong. Exit code 2.
    #[error("{}: {cause}", path.display())]
    Issuers {
        /// The file.
        path: PathBuf,
        /// Each mistake with its position.
        cause: String,
    },
    /// The console's provider is none whose tokens are accepted. Exit code 2.
    #[error("{0}; sign-ins of the console give tokens of an issuer that the server trusts")]
    ConsoleLogin(String),
    /// The file of tokens is wrong. Exit code 2.
    #[error("{}: {cause}; each line is token,user,uid,\"group1,group2\"", path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
        /// The wrong lines and the reasons; never a token.
        cause: String,
    },
    /// The audit policy is wrong. Exit code 2.
    #[error("{}: {cause}", path.display())]
    AuditPolicy {
        /// The file.
        path: PathBuf,
        /// The wrong fields and the reasons.
        cause: String,
    },
    /// The kubeconfig would replace a file of somebody else. Exit code 2.
    #[error(
        "{} exists and was not written by insula; it is left alone. Choose another file with --kubeconfig, or \
         remove it",
        path.display()
    )]
    ForeignKubeconfig {
        /// The file.
        path: PathBuf,
    },
    /// The kubeconfig would replace that of another server. Exit code 2.
    #[error(
        "{} is the kubeconfig of another server, with another data directory, CA and keys; it is left alone. Choose \
         another file with --kubeconfig, or remove it",
        path.display()
    )]
    OtherKubeconfig {
        /// The file.
        path: PathBuf,
    },
    /// The store cannot be opened. Exit code 1.
    #[error("cannot open the store {store}: {cause}")]
    Store {
        /// The setting as written.
        store: String,
        /// Cause.
        cause: String,
    },
    /// The store cannot be used any more, and the server has stopped. Exit code 1.
    #[error("stopped: {0}")]
    StoreEnded(String),
    /// Logs or telemetry cannot be set up. Exit code 2.
    #[error("cannot set up {what}: {cause}")]
    Telemetry {
        /// `logs` or `OTLP`.
        what: &'static str,
        /// Cause.
        cause: String,
    },
    /// Wiring failed. Exit code 1.
    #[error("cannot start: {0}")]
    Build(String),
}

impl StartError {
    pub(crate) fn read(path: &Path, cause: io::Error) -> Self {
        Self::File {
            action: "read",
            path: path.to_owned(),
            cause,
        }
    }

    pub(crate) fn write(path: &Path, cause: io::Error) -> Self {
        Self::File {
            action: "write",
            path: path.to_owned(),
            cause,
        }
    }

    /// Returns the exit code of the process. `insula start --help` lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Address { .. } | Self::Tokens { .. } => 2,
            Self::Issuers { .. } | Self::ConsoleLogin(_) | Self::AuditPolicy { .. } => 2,
            Self::ForeignKubeconfig { .. } | Self::OtherKubeconfig { .. } | Self::Telemetry { .. } => 2,
            Self::InUse { .. } => 3,
            Self::Listen { .. } => 4,
            Self::LooseKey { .. } | Self::Identity { .. } | Self::OtherKeys { .. } => 5,
            Self::Bootstrap(_) | Self::DataDir { .. } | Self::File { .. } | Self::Build(_) => 1,
            Self::Store { .. } | Self::StoreEnded(_) => 1,
        }
    }
}
