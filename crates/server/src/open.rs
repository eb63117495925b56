//! Opens the store that was chosen.

use std::{path::Path, sync::Arc};

use insula_api::Timestamp;
use insula_store::{
    MemoryStore, Store,
    embedded::{EmbeddedStore, OpenError, Options},
};

use crate::{
    StartError,
    build::Background,
    config::{Config, StoreChoice},
};

/// A store, and what has to run for it.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) background: Vec<Background>,
    /// For the progress line.
    pub(crate) what: String,
}

pub(crate) async fn open(config: &Config, now: Timestamp) -> Result<Opened, StartError> {
    match &config.store {
        StoreChoice::Memory => Ok(Opened {
            store: Arc::new(MemoryStore::new()),
            background: Vec::new(),
            what: "in memory: everything is gone at exit".to_owned(),
        }),
        StoreChoice::Embedded => embedded(config, now).await,
        StoreChoice::Etcd(_) => Err(StartError::Store {
            store: config.store.to_string(),
            cause: "this program was built without the etcd store; use --store embedded".to_owned(),
        }),
    }
}

async fn embedded(config: &Config, now: Timestamp) -> Result<Opened, StartError> {
    let dir = config.data_dir.join("store");
    let holder = format!("insula start --listen {}, since {now}", config.listen);
    let options = Options {
        holder,
        ..Options::default()
    };
    let opening = dir.clone();
    // It reads every object, which blocks.
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(&opening, options)).await;
    let failed = |cause: String| StartError::Store {
        store: format!("in {}", dir.display()),
        cause,
    };
    match opened {
        Ok(Ok(store)) => Ok(Opened {
            store: Arc::new(store),
            background: Vec::new(),
            what: shown_with_mode(&config.data_dir),
        }),
        Ok(Err(OpenError::InUse { holder, .. })) => Err(StartError::InUse {
            path: config.data_dir.clone(),
            holder,
        }),
        Ok(Err(error)) => Err(failed(chain(&error))),
        Err(panic) => Err(failed(panic.to_string())),
    }
}

fn shown_with_mode(dir: &Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(dir).map(|metadata| metadata.permissions().mode() & 0o777);
    match mode {
        Ok(mode) => format!("{} (0{mode:o})", crate::files::shown(dir)),
        Err(_) => crate::files::shown(dir),
    }
}

/// An error with everything that caused it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}
