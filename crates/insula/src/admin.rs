//! Commands that are calls of the admin API: flags that they share, calls, and views of answers.

mod view;

use std::fmt;

use anyhow::bail;
use insula_proto::Message;
use serde_json::Value;

pub(crate) use view::{Answer, object, of_list, time};

use crate::{
    client::{Client, Writes},
    connection::{Connection, Resolved, ServerFlags},
    files::text,
    print::Output,
};

/// Items of a page of a list.
pub(crate) const PAGE_ITEMS: i32 = 500;

/// Workspace and format: the flags of a call in a workspace.
#[derive(clap::Args)]
pub(crate) struct InWorkspace {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Server and format: the flags of a call about the installation.
#[derive(clap::Args)]
pub(crate) struct OnServer {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The flags of a write that is repeated safely.
#[derive(clap::Args, Clone)]
pub(crate) struct Write {
    /// Check everything, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// A UUID: the server carries out a request with the same one once.
    #[arg(long, value_name = "UUID", default_value = "", hide_default_value = true)]
    pub(crate) request_id: String,
}

/// The flag of a write over HTTP, which no request_id makes idempotent.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct DryRun {
    /// Check everything, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl DryRun {
    /// Returns a client whose writes change nothing if the flag is given.
    pub(crate) fn client(self, client: &Client) -> Client {
        client.with_writes(match self.dry_run {
            true => Writes::DryRun,
            false => Writes::Made,
        })
    }

    /// Returns the end of a message about a write, in kubectl's words.
    pub(crate) fn remark(self) -> &'static str {
        if self.dry_run { " (server dry run)" } else { "" }
    }
}

/// The flag of a write that expects a state.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct Etag {
    /// Fail if the state is another than that of this etag, which -o json shows.
    #[arg(long, value_name = "ETAG", default_value = "", hide_default_value = true)]
    pub(crate) etag: String,
}

impl Etag {
    /// Refuses a write over another state of an object than that of the etag.
    pub(crate) fn check(&self, name: &str, there: Option<&Value>) -> anyhow::Result<()> {
        let Etag { etag } = self;
        match there.map(|object| text(object, "/metadata/resourceVersion")) {
            _ if etag.is_empty() => Ok(()),
            Some(now) if now == etag => Ok(()),
            Some(now) => bail!("{name}: its etag is {now}, not {etag}: read it again, and decide again"),
            None => bail!("{name}: there is none, and --etag {etag} expects one"),
        }
    }
}

/// A server, its client, and the runtime of calls.
pub(crate) struct Admin {
    client: Client,
    runtime: tokio::runtime::Runtime,
    resolved: Resolved,
}

/// The name of a service of the admin API.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Service {
    Access,
    Api,
    Backup,
    Maintenance,
    Operation,
    Quota,
    Workspace,
}

impl fmt::Display for Service {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "insula.admin.v1.{self:?}Service")
    }
}

impl Admin {
    /// Connects to the workspace that flags and variables name.
    pub(crate) fn in_workspace(connection: &Connection) -> anyhow::Result<Self> {
        Self::new(connection.resolve()?)
    }

    pub(crate) fn on_server(server: &ServerFlags) -> anyhow::Result<Self> {
        Self::new(server.resolve()?)
    }

    fn new(resolved: Resolved) -> anyhow::Result<Self> {
        Ok(Self {
            client: Client::new(&resolved)?,
            runtime: crate::runtime()?,
            resolved,
        })
    }

    /// Returns the path of the current workspace; root without one.
    pub(crate) fn workspace(&self) -> String {
        self.client.workspace().to_owned()
    }

    /// Returns the path of a workspace that an argument names, or of the current one.
    pub(crate) fn workspace_at(&self, path: Option<&str>) -> anyhow::Result<String> {
        match path {
            Some(path) => self.resolved.url.resolve(path),
            None => Ok(self.workspace()),
        }
    }

    /// Calls a method.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the call. The message has the workspace or the name
    /// that the call was about.
    pub(crate) fn call<A: Message + Default>(
        &self,
        (service, method): (Service, &str),
        request: &impl Message,
    ) -> anyhow::Result<A> {
        let path = format!("/{service}/{method}");
        self.runtime.block_on(self.client.call(&path, request))
    }

    /// Calls a method that waits longer than other calls.
    pub(crate) fn call_within<A: Message + Default>(
        &self,
        (service, method): (Service, &str),
        request: &impl Message,
        limit: std::time::Duration,
    ) -> anyhow::Result<A> {
        let path = format!("/{service}/{method}");
        self.runtime.block_on(self.client.patient(limit).call(&path, request))
    }

    /// Calls a method with a stream of messages, which `next` makes one after another.
    pub(crate) fn upload<M: Message, A: Message + Default>(
        &self,
        (service, method): (Service, &str),
        limit: std::time::Duration,
        next: impl FnMut() -> std::io::Result<Option<M>> + Send + 'static,
    ) -> anyhow::Result<A> {
        let path = format!("/{service}/{method}");
        self.runtime.block_on(self.client.patient(limit).upload(&path, next))
    }

    /// Calls a method that answers a stream, and returns its messages.
    pub(crate) fn stream<A: Message + Default>(
        &self,
        (service, method): (Service, &str),
        request: &impl Message,
        each: impl FnMut(A) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let path = format!("/{service}/{method}");
        self.runtime.block_on(self.client.stream(&path, request, each))
    }
}

/// Collects the pages of a list. `page` takes a token, and returns items with the next token.
pub(crate) fn pages<T>(mut page: impl FnMut(String) -> anyhow::Result<(Vec<T>, String)>) -> anyhow::Result<Vec<T>> {
    let (mut items, mut token) = (Vec::new(), String::new());
    loop {
        let (more, next) = page(token)?;
        items.extend(more);
        if next.is_empty() {
            return Ok(items);
        }
        token = next;
    }
}
