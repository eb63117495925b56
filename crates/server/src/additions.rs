//! Parts that a program adds to the server: kinds of its own, and tasks beside requests.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use insula_access::delegate::Delegate;
use insula_catalog::CompiledKind;

use crate::{Background, Lifecycle};

/// Parts that a program adds to the server.
#[derive(Default)]
pub struct Additions {
    /// Kinds that every workspace serves.
    pub kinds: Vec<CompiledKind>,
    /// Tasks that begin with the server. A task is dropped when the server is gone; one that has to
    /// end in order watches the lifecycle.
    pub tasks: Vec<Task>,
    /// Another server, which knows users and decides where this one cannot.
    pub delegate: Option<Arc<dyn Delegate>>,
}

/// A function that makes a task beside requests.
pub type Task = Box<dyn FnOnce(&Started) -> Background + Send>;

/// A server that answers.
#[derive(Clone)]
pub struct Started {
    /// Its URL: `https://127.0.0.1:6443`.
    pub url: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Its lifecycle.
    pub lifecycle: Lifecycle,
}

impl Started {
    pub(crate) fn new(url: &str, kubeconfig: &Path, lifecycle: &Lifecycle) -> Self {
        Self {
            url: url.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            lifecycle: lifecycle.clone(),
        }
    }

    /// Makes tasks for this server.
    pub(crate) fn begin(&self, tasks: Vec<Task>) -> impl Iterator<Item = Background> {
        tasks.into_iter().map(|task| task(self))
    }
}
