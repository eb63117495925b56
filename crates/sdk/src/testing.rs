//! Tests of kinds: the property that conversions lose nothing, and a server for one test.

use crate::{Resource, ServerBuilder, kind::Kind};
use insula_conversion::proof::{Search, search_all};
use insula_server::Running;
use kube::{
    Client,
    config::{Config, KubeConfigOptions, Kubeconfig},
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Variable with the seed of property tests.
const SEED: &str = "INSULA_SDK_SEED";

/// Makes a test that the conversions between the versions of a kind lose nothing, for objects
/// generated from its schemas.
///
/// ```
/// # use insula_sdk::{Resource, ObjectMeta, roundtrip};
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
/// # struct RobotSpec { mode: String }
/// # #[derive(Resource, Clone, Debug)]
/// # #[resource(group = "fleet.example.com", version = "v1")]
/// # struct Robot { metadata: ObjectMeta, spec: RobotSpec }
/// roundtrip!(robots_lose_nothing: Robot);
/// ```
#[macro_export]
macro_rules! roundtrip {
    ($test:ident: $type:ty) => {
        #[test]
        fn $test() {
            $crate::testing::check_roundtrip(<$type as $crate::Described>::described());
        }
    };
}

/// Checks that the conversions of a kind lose nothing: what is written through a version reads the
/// same in it, writing back what was read changes nothing, and a write through one version changes
/// nothing that it cannot see. Prints the seed; `INSULA_SDK_SEED` sets it.
///
/// # Panics
/// A conversion fails or breaks one of these laws. The message has the smallest objects that show
/// it.
pub fn check_roundtrip<T: Resource>(kind: Kind<T>) {
    let seed = env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let search = Search {
        seed: seed.unwrap_or(Search::default().seed),
        ..Search::default()
    };
    let name = kind.name().to_owned();
    eprintln!("round trips of {name}: {SEED}={}", search.seed);
    let api = kind.api().unwrap_or_else(|mistake| panic!("{mistake}"));
    match search_all(&api.bundle, search) {
        Ok(found) => eprintln!("{} writes in {} cases", found.writes, found.cases),
        Err(found) => {
            let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
            panic!("{name} with {SEED}={}:\n{}", search.seed, shown.join("\n\n"));
        }
    }
}

/// Returns a runtime for a test that is not asynchronous itself.
///
/// # Panics
/// There are no threads.
pub fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.unwrap_or_else(|error| panic!("no threads: {error}"))
}

/// A server for one test: in memory, on a free port of the loopback interface, with a directory
/// that goes with it.
pub struct TestServer {
    running: Option<Running>,
    // Dropped after the server.
    _directory: TemporaryDirectory,
}

impl TestServer {
    /// Starts a server.
    ///
    /// # Panics
    /// The server cannot start.
    pub async fn start(builder: ServerBuilder) -> Self {
        let directory = temporary_directory();
        let builder = builder.data_dir(directory.path()).store("memory").listen("127.0.0.1:0");
        let builder = builder.config(|config| config.shutdown_delay_seconds = 0);
        let started = builder.start().await;
        let running = started.unwrap_or_else(|error| panic!("the server does not start: {error}"));
        Self {
            running: Some(running),
            _directory: directory,
        }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the server runs until it is shut down")
    }

    /// Returns the administrator's kubeconfig, for kubectl.
    pub fn kubeconfig(&self) -> &Path {
        self.running().kubeconfig()
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        self.running().url()
    }

    /// Returns an administrator's client of a workspace, such as `root`.
    ///
    /// # Panics
    /// The kubeconfig cannot be read.
    pub async fn client(&self, workspace: &str) -> Client {
        let url = format!("{}/clusters/{workspace}", self.url());
        let config = client_config(self.kubeconfig(), None, &url).await;
        let client = config.and_then(|config| Client::try_from(config).map_err(|error| error.to_string()));
        client.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Stops the server and removes its directory.
    pub async fn shutdown(mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown().await;
        }
    }
}

/// A directory that is removed when the value is dropped.
pub struct TemporaryDirectory(PathBuf);

/// Returns the name of a directory that does not exist yet.
pub fn temporary_directory() -> TemporaryDirectory {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    TemporaryDirectory(env::temp_dir().join(format!("insula-sdk-{}-{number}", process::id())))
}

impl TemporaryDirectory {
    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // A directory that stays is in the way of nobody.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Returns the settings of a client of a URL, with the user of a context of the kubeconfig, or of
/// its present one.
pub(crate) async fn client_config(kubeconfig: &Path, context: Option<&str>, url: &str) -> Result<Config, String> {
    let read = Kubeconfig::read_from(kubeconfig).map_err(|error| error.to_string())?;
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(read, &options).await;
    let mut config = config.map_err(|error| error.to_string())?;
    config.cluster_url = url.parse().map_err(|error| format!("{url}: {error}"))?;
    Ok(config)
}
