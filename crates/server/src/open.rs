//! Opening of the configured store and of the token file.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use insula_access::{Authenticator, static_tokens::StaticTokens};
use insula_api::Clock;
use insula_store::{
    MemoryStore, Store,
    embedded::{EmbeddedStore, OpenError, Options},
};

use insula_store_etcd::{ConnectError, Credentials, EtcdStore, MemberStatus, Options as EtcdOptions, Tls};
use tokio::sync::oneshot;

use crate::{
    Env, StartError,
    build::Background,
    config::{Config, Endpoints, EtcdConfig, StoreChoice},
    files::{private_dir, read, read_secret},
    static_tokens,
};

/// Prefix of all our keys in etcd.
const ETCD_PREFIX: &str = "/insula";
/// Time to wait for an unreachable etcd. After that the supervisor of the server may restart it.
const ETCD_PATIENCE: Duration = Duration::from_secs(20);
const ETCD_RETRY: Duration = Duration::from_millis(500);

/// An open store, with the driver that has to run until it is closed.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) driver: Option<Background>,
    /// The store, if it is on etcd.
    pub(crate) etcd: Option<Arc<EtcdStore>>,
    /// Receives the reason when the store can never be used again, and the process has to end.
    pub(crate) failed: Option<oneshot::Receiver<String>>,
    /// Description for the progress line.
    pub(crate) what: String,
}

/// Checks the files that a connection to the store needs.
///
/// # Errors
/// One is missing or readable by others. Later that only fails a connection.
pub(crate) fn check(config: &Config) -> Result<(), StartError> {
    match &config.store {
        StoreChoice::Memory | StoreChoice::Embedded => Ok(()),
        StoreChoice::Etcd(_) => credentials(&config.etcd).map(drop),
    }
}

/// Opens the store, and makes the data directory: after an etcd answers, and before another store.
pub(crate) async fn open(config: &Config, env: &Env) -> Result<Opened, StartError> {
    match &config.store {
        StoreChoice::Memory => {
            private_dir(&config.data_dir)?;
            Ok(Opened {
                store: Arc::new(MemoryStore::new()),
                driver: None,
                etcd: None,
                failed: None,
                what: "in memory: everything is gone at exit".to_owned(),
            })
        }
        StoreChoice::Embedded => {
            private_dir(&config.data_dir)?;
            embedded(config, &env.clock).await
        }
        StoreChoice::Etcd(endpoints) => {
            let opened = etcd(config, endpoints, env.rng.next_u64()).await?;
            private_dir(&config.data_dir)?;
            Ok(opened)
        }
    }
}

/// Opens a store on etcd, which follows etcd for as long as its driver runs. Waits for an etcd that
/// is being started.
async fn etcd(config: &Config, endpoints: &Endpoints, instance: u64) -> Result<Opened, StartError> {
    let begun = Instant::now();
    let options = options(&config.etcd, instance);
    let urls: Vec<String> = endpoints.urls().collect();
    loop {
        // Each request has its time limit; reading everything may take longer than that.
        let cause = match EtcdStore::connect(&urls, ETCD_PREFIX, options.clone()).await {
            Ok((store, driver)) => {
                let (failure, failed) = oneshot::channel();
                let driver: Background = Box::pin(async move {
                    if let Err(reason) = driver.await {
                        // Nobody listens if the server has ended already.
                        let _ = failure.send(reason);
                    }
                });
                let store = Arc::new(store);
                return Ok(Opened {
                    store: Arc::clone(&store) as Arc<dyn Store>,
                    driver: Some(driver),
                    etcd: Some(store),
                    failed: Some(failed),
                    what: config.store.to_string(),
                });
            }
            Err(error @ (ConnectError::Format { .. } | ConnectError::Version { .. })) => {
                return Err(StartError::Store {
                    store: config.store.to_string(),
                    cause: error.to_string(),
                });
            }
            Err(error) => chain(&error),
        };
        if begun.elapsed() + ETCD_RETRY >= ETCD_PATIENCE {
            let seconds = ETCD_PATIENCE.as_secs();
            let cause = format!("{cause}; tried for {seconds} s. Check that etcd runs and can be reached from here");
            return Err(StartError::Store {
                store: config.store.to_string(),
                cause,
            });
        }
        tracing::warn!(store = %config.store, cause, "etcd does not answer yet; trying again");
        tokio::time::sleep(ETCD_RETRY).await;
    }
}

/// Returns the settings of connections to etcd.
fn options(config: &EtcdConfig, instance: u64) -> EtcdOptions {
    let files = config.clone();
    EtcdOptions {
        request_timeout: Duration::from_secs(config.request_seconds),
        attempt_timeout: Duration::from_secs(config.attempt_seconds),
        accept_old_versions: config.accept_old_versions,
        credentials: Arc::new(move || credentials(&files).map_err(|error| error.to_string())),
        executor: Arc::new(|work| drop(tokio::task::spawn_blocking(work))),
        ..EtcdOptions::new(instance)
    }
}

/// Asks a member of etcd for its state, with the credentials of the settings.
///
/// # Errors
/// A file of the credentials cannot be used, or the member refuses or does not answer.
pub async fn survey_etcd(url: &str, config: &EtcdConfig) -> Result<MemberStatus, String> {
    insula_store_etcd::survey(url, ETCD_PREFIX, &options(config, 0)).await
}

/// Reads the files of a connection to etcd.
fn credentials(config: &EtcdConfig) -> Result<Credentials, StartError> {
    let missing = |path: &Path| StartError::read(path, std::io::ErrorKind::NotFound.into());
    let secret = |path: &Path| read_secret(path)?.ok_or_else(|| missing(path));
    let public = |path: &Path| read(path)?.ok_or_else(|| missing(path));
    let identity = match (&config.certificate, &config.key) {
        (Some(certificate), Some(key)) => Some((public(certificate)?.into_bytes(), secret(key)?.into_bytes())),
        _ => None,
    };
    let tls = match &config.ca {
        Some(ca) => Some(Tls {
            ca: public(ca)?.into_bytes(),
            identity,
        }),
        None => None,
    };
    let user = match (&config.user, &config.password_file) {
        (Some(user), Some(file)) => Some((user.clone(), secret(file)?.trim_end_matches(['\r', '\n']).to_owned())),
        _ => None,
    };
    Ok(Credentials { tls, user })
}

/// Returns the authenticator of client certificates, and of the tokens in the token file if there
/// is one.
pub(crate) fn authenticator(config: &Config) -> Result<Authenticator, StartError> {
    let tokens = config.token_file.as_deref().map(static_tokens::read).transpose()?;
    Ok(Authenticator {
        tokens: tokens.map(StaticTokens::new).unwrap_or_default(),
        ..Authenticator::default()
    })
}

async fn embedded(config: &Config, clock: &Arc<dyn Clock>) -> Result<Opened, StartError> {
    let dir = config.data_dir.join("store");
    let holder = format!("insula start --listen {}, since {}", config.listen, clock.now());
    let options = Options {
        holder,
        reserve_bytes: config.store_reserve_megabytes.saturating_mul(1 << 20),
        clock: Some(Arc::clone(clock)),
        ..Options::default()
    };
    let opening = dir.clone();
    // Opening reads every object, which blocks.
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(&opening, options)).await;
    let failed = |cause: String| StartError::Store {
        store: format!("in {}", dir.display()),
        cause,
    };
    match opened {
        Ok(Ok(store)) => {
            if let Some(format) = store.upgraded_from() {
                tracing::info!(dir = %dir.display(), format, "the store is upgraded; older versions refuse it now");
            }
            Ok(Opened {
                store: Arc::new(store),
                driver: None,
                etcd: None,
                failed: None,
                what: shown_with_mode(&config.data_dir),
            })
        }
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

/// Returns an error with all its sources on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}
