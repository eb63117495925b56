//! Servers: kinds, settings, start and end.

use crate::{
    Delegation, Described, Kind, Resource,
    controller::{Clusters, Controller, Reconciler},
};
use clap::{Args, Command, FromArgMatches};
use insula_catalog::CompiledKind;
use insula_server::{
    Additions, Arguments, Config, Env, Running, StartError, Started, Task,
    config::{StoreChoice, load_over},
};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// A server of kinds of one's own. [`Server::builder`] makes one.
#[derive(Debug)]
pub struct Server(());

impl Server {
    /// Returns a server without kinds, with the default settings.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            name: None,
            version: insula_server::VERSION,
            config: Config::default(),
            kinds: Vec::new(),
            tasks: Vec::new(),
            delegation: None,
            mistake: None,
        }
    }
}

/// A server before its start: its kinds, controllers and settings.
///
/// It is Insula with more kinds: each workspace serves them, with everything that the server has:
/// TLS, authentication and authorization, discovery, OpenAPI, tables, watches, server-side apply,
/// metrics, health, and an orderly end.
#[must_use = "a server does nothing before `run` or `start`"]
pub struct ServerBuilder {
    name: Option<&'static str>,
    version: &'static str,
    config: Config,
    kinds: Vec<CompiledKind>,
    tasks: Vec<Task>,
    delegation: Option<Delegation>,
    mistake: Option<String>,
}

impl ServerBuilder {
    /// Adds the kind of a type as its attributes describe it.
    pub fn resource<T: Described>(self) -> Self {
        self.kind(T::described())
    }

    /// Adds a kind.
    pub fn kind<T: Resource>(mut self, kind: Kind<T>) -> Self {
        match kind.compiled() {
            Ok(kind) => self.kinds.push(kind),
            Err(mistake) => self.mistake = self.mistake.or(Some(mistake)),
        }
        self
    }

    /// Adds a task beside requests. It begins with the server and is dropped at its end.
    pub fn task<F>(mut self, task: impl FnOnce(Started) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks
            .push(Box::new(|started: &Started| Box::pin(task(started.clone()))));
        self
    }

    /// Adds a controller, which works in all workspaces of this server, as its operator.
    pub fn controller<R: Reconciler>(self, controller: Controller<R>) -> Self {
        self.task(|started| async move {
            match Clusters::workspaces(&started.url, &started.kubeconfig).await {
                Ok(clusters) => {
                    let lifecycle = started.lifecycle;
                    let stop = async move { lifecycle.draining().await };
                    controller.run(clusters, stop).await;
                }
                Err(error) => tracing::error!(controller = R::NAME, error, "the controller does not run"),
            }
        })
    }

    /// Asks a Kubernetes server about tokens and requests that this server knows nothing about. A
    /// program that [`run`](Self::run)s takes the server from the variable `INSULA_DELEGATE`, too:
    /// a kubeconfig, or `in-cluster`.
    pub fn delegate(mut self, delegation: Delegation) -> Self {
        self.delegation = Some(delegation);
        self
    }

    /// Sets name and version of the program, for its `--help` and `--version`. Without it they are
    /// the file's name and the version of this library.
    pub fn program(mut self, name: &'static str, version: &'static str) -> Self {
        (self.name, self.version) = (Some(name), version);
        self
    }

    /// Changes the settings that the program begins with. Flags, variables and the settings file
    /// win over them.
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Sets the directory of keys and objects.
    pub fn data_dir(self, directory: impl Into<PathBuf>) -> Self {
        self.config(|config| config.data_dir = directory.into())
    }

    /// Sets the address: `ADDRESS:PORT`. Port 0 takes a free one.
    pub fn listen(self, address: impl Into<String>) -> Self {
        self.config(|config| config.listen = address.into())
    }

    /// Sets the store: `embedded` (the default), `memory`, or `etcd://HOST:PORT[,HOST:PORT…]`.
    pub fn store(mut self, store: &str) -> Self {
        match store.parse::<StoreChoice>() {
            Ok(store) => self.config.store = store,
            Err(why) => self.mistake = self.mistake.or(Some(format!("store: {why}"))),
        }
        self
    }

    /// Runs the program to its end: reads flags, `INSULA_…` variables and the settings file as
    /// `insula start` does, serves until SIGTERM or SIGINT, and lets requests in flight end. Errors
    /// are on standard error; the exit codes are those of `insula start`.
    pub fn run(self) -> ExitCode {
        self.run_from(std::env::args_os())
    }

    /// Runs the program as [`ServerBuilder::run`] does, with given arguments. The first one is the
    /// name of the program.
    pub fn run_from(self, arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let file = arguments.first().and_then(|path| Path::new(path).file_name());
        let name = file.map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        // The program has one name to its end.
        let name = self.name.unwrap_or_else(|| name.leak());
        let command = Command::new(name).version(self.version);
        let parsed = Arguments::augment_args(command).try_get_matches_from(arguments);
        let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
            Ok(arguments) => arguments,
            Err(error) => error.exit(),
        };
        match self.serve(arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(error.exit_code())
            }
        }
    }

    fn serve(mut self, arguments: Arguments) -> Result<(), StartError> {
        insula_server::keep_private()
            .map_err(|error| StartError::Build(format!("core dumps cannot be switched off: {error}")))?;
        self.delegation = Delegation::from_environment().or(self.delegation);
        self.config = load_over(self.config, arguments.sources())?;
        let runtime = insula_server::threads().enable_all().build();
        let runtime = runtime.map_err(|error| StartError::Build(format!("no threads: {error}")))?;
        runtime.block_on(async {
            let (config, additions) = self.parts().await?;
            insula_server::run_with(config, Env::real(), additions).await
        })
    }

    /// Starts the server in this program, with the settings of the builder alone.
    ///
    /// # Errors
    /// Returns why it cannot serve.
    pub async fn start(self) -> Result<Running, StartError> {
        let (config, additions) = self.parts().await?;
        insula_server::start_with(config, Env::real(), additions, &|_| ()).await
    }

    async fn parts(mut self) -> Result<(Config, Additions), StartError> {
        if let Some(mistake) = self.mistake {
            return Err(StartError::Build(mistake));
        }
        let mut delegate = None;
        if let Some(delegation) = self.delegation.take() {
            let mut config = self.config.clone();
            let begun = delegation.begin(&mut config, self).await.map_err(StartError::Build)?;
            (delegate, self) = (Some(begun.0), begun.1);
            self.config = config;
        }
        let Self {
            config, kinds, tasks, ..
        } = self;
        Ok((config, Additions { kinds, tasks, delegate }))
    }
}
