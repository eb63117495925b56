//! Clusters that a controller works in: all workspaces of a server, or one cluster.

use crate::testing::client_config;
use insula_server::Started;
use kube::{Client, client::Body};
use std::path::Path;
use tower::service_fn;

/// Context of the only user who may watch all workspaces at once.
const OPERATOR: &str = "shard-base";

/// Clusters that a controller works in.
#[derive(Clone)]
pub enum Clusters {
    /// One cluster: the one of the client, on any Kubernetes server.
    One(Client),
    /// All workspaces of a server.
    Workspaces(Workspaces),
}

/// All workspaces of a server, as its operator sees them.
#[derive(Clone)]
pub struct Workspaces {
    /// A client of the server's root path.
    server: Client,
}

impl Clusters {
    /// Returns all workspaces of a server that this process or another one runs, with the
    /// operator's credentials of its `admin.kubeconfig`.
    ///
    /// # Errors
    /// The kubeconfig cannot be used.
    pub async fn workspaces(url: &str, kubeconfig: &Path) -> Result<Self, String> {
        let config = client_config(kubeconfig, Some(OPERATOR), url).await?;
        let server = Client::try_from(config).map_err(|error| error.to_string())?;
        Ok(Self::Workspaces(Workspaces { server }))
    }

    /// Returns the client that watches.
    pub(super) fn watching(&self) -> Client {
        match self {
            Self::One(client) => client.clone(),
            Self::Workspaces(workspaces) => workspaces.client("*"),
        }
    }

    /// Returns the client of a key's cluster.
    pub(super) fn client(&self, cluster: &str) -> Client {
        match self {
            Self::One(client) => client.clone(),
            Self::Workspaces(workspaces) => workspaces.client(cluster),
        }
    }

    /// Returns the client of the cluster that Leases lie in.
    pub(super) fn home(&self) -> Client {
        self.client("root")
    }
}

impl Workspaces {
    /// Returns a client of a workspace. All share the connections of one.
    fn client(&self, cluster: &str) -> Client {
        let (server, prefix) = (self.server.clone(), format!("/clusters/{cluster}"));
        let service = service_fn(move |mut request: http::Request<Body>| {
            let (server, prefix) = (server.clone(), prefix.clone());
            async move {
                let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
                let uri: Result<http::Uri, _> = format!("{prefix}{path}").parse();
                *request.uri_mut() = uri.map_err(|error| kube::Error::HttpError(error.into()))?;
                server.send(request).await
            }
        });
        Client::new(service, "default")
    }
}

/// Returns a client of a workspace of the server that this program runs, as its administrator, for
/// example for a controller of kube-rs in a [`task`](crate::ServerBuilder::task).
///
/// # Errors
/// The kubeconfig of the administrator cannot be used.
pub async fn workspace_client(started: &Started, workspace: &str) -> Result<Client, String> {
    let config = client_config(
        &started.kubeconfig,
        None,
        &format!("{}/clusters/{workspace}", started.url),
    )
    .await?;
    Client::try_from(config).map_err(|error| error.to_string())
}
