//! Why a server did not start. Each message says the cause and what to do; each kind has an exit
//! code.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::config::ConfigError;

/// A start that failed. Nothing keeps running after it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting cannot be used. Exit code 2.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address cannot be understood. Exit code 2.
    #[error("cannot listen on `{listen}`: {cause}; --listen takes ADDRESS:PORT, such as 127.0.0.1:6443 or 0.0.0.0:0")]
    Address {
        /// As set.
        listen: String,
        /// Why.
        cause: String,
    },
    /// Another server works on the data directory. Exit code 3.
    #[error("the data directory {} is in use: {holder}; stop that server, or give this one another --data-dir", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who holds it.
        holder: String,
    },
    /// The address is taken or not allowed. Exit code 4.
    #[error("cannot listen on {address}: {cause}; choose another with --listen (port 0 takes a free one)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        cause: io::Error,
    },
    /// A private key is readable by others. Exit code 5.
    #[error("{} is readable by others (mode 0{mode:o}); run: chmod 600 {}", path.display(), path.display())]
    LooseKey {
        /// The key.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Certificates and keys do not fit together, or cannot be made. Exit code 5.
    #[error("{}: {cause}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        cause: String,
    },
    /// What every installation has could not be written. Exit code 1.
    #[error("preparing the root workspace: {0}")]
    Bootstrap(String),
    /// The data directory cannot be used. Exit code 1.
    #[error("cannot use the data directory {}: {cause}; check its owner and mode, or choose another with --data-dir", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A file cannot be read or written. Exit code 1.
    #[error("cannot {action} {}: {cause}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The file of issuers is wrong. Exit code 2.
    #[error("{}: {cause}", path.display())]
    Issuers {
        /// The file.
        path: PathBuf,
        /// Each mistake with its place.
        cause: String,
    },
    /// The file of tokens is wrong. Exit code 2.
    #[error("{}: {cause}; each line is token,user,uid,\"group1,group2\"", path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
        /// Which lines, and why. Never a token.
        cause: String,
    },
    /// The audit policy is wrong. Exit code 2.
    #[error("{}: {cause}", path.display())]
    AuditPolicy {
        /// The file.
        path: PathBuf,
        /// Which fields, and why.
        cause: String,
    },
    /// The kubeconfig would replace one that is not ours. Exit code 2.
    #[error(
        "{} exists and was not written by insula; it is left alone. Choose another file with --kubeconfig, or remove it",
        path.display()
    )]
    ForeignKubeconfig {
        /// The file.
        path: PathBuf,
    },
    /// The store does not open. Exit code 1.
    #[error("cannot open the store {store}: {cause}")]
    Store {
        /// As set.
        store: String,
        /// Why.
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
        /// Why.
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

    /// What the process ends with. `insula start --help` lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Address { .. } | Self::Tokens { .. } => 2,
            Self::Issuers { .. } | Self::AuditPolicy { .. } => 2,
            Self::ForeignKubeconfig { .. } | Self::Telemetry { .. } => 2,
            Self::InUse { .. } => 3,
            Self::Listen { .. } => 4,
            Self::LooseKey { .. } | Self::Identity { .. } => 5,
            Self::Bootstrap(_) | Self::DataDir { .. } | Self::File { .. } | Self::Build(_) => 1,
            Self::Store { .. } | Self::StoreEnded(_) => 1,
        }
    }
}
