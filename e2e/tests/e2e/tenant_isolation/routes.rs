//! Routes to a cluster, as data: each turns the request of a row into another request.

use super::{row::Row, scene::Scene};

/// Owner of the virtual workspace that a route goes through: the requesting tenant, or the other
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Mine,
    Theirs,
}

/// A route to the objects of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// The workspace by its path.
    Path,
    /// The same by the name of its logical cluster.
    Name,
    /// A read, as a watch.
    Watch,
    /// The same with the old prefix.
    OldWatch,
    /// The same over a WebSocket, as a browser would.
    Socket,
    /// The same through the console, in a session of the actor.
    Console,
    /// `/services/apiexport`
    Export(Whose),
    /// `/services/initializingworkspaces`
    Initializing(Whose),
    /// `/services/terminatingworkspaces`
    Terminating(Whose),
    /// `/services/apiresourceschema`
    Schemas,
}

pub(super) const ROUTES: [Route; 13] = [
    Route::Path,
    Route::Name,
    Route::Watch,
    Route::OldWatch,
    Route::Socket,
    Route::Console,
    Route::Export(Whose::Mine),
    Route::Export(Whose::Theirs),
    Route::Initializing(Whose::Mine),
    Route::Initializing(Whose::Theirs),
    Route::Terminating(Whose::Mine),
    Route::Terminating(Whose::Theirs),
    Route::Schemas,
];

/// Headers that request a WebSocket.
const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// The request of a row by one route, and the codes that may answer it.
pub(super) struct RoutedRequest {
    pub(super) path: String,
    pub(super) expect: Vec<u16>,
}

impl Route {
    /// Versions of HTTP to try, as indices: both for the first two routes, and one in turn for the
    /// others, which share the code behind the connection.
    pub(super) fn versions(self, turn: usize) -> &'static [usize] {
        match (self, turn % 2) {
            (Route::Path | Route::Name, _) => &[0, 1],
            (Route::Socket, _) => &[1],
            (_, 0) => &[0],
            _ => &[1],
        }
    }

    /// Headers beyond the row's.
    pub(super) fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Route::Socket => &HANDSHAKE,
            _ => &[],
        }
    }

    /// Returns true for routes that name workspaces by their paths.
    pub(super) fn is_by_path(self) -> bool {
        matches!(self, Route::Path | Route::Watch | Route::Socket | Route::Console)
    }

    /// Fills the names of workspaces into a text of a row.
    pub(super) fn named(self, scene: &Scene, text: &str) -> String {
        let [mine, theirs] = [&scene.mine, &scene.theirs].map(|place| match self.is_by_path() {
            true => &place.path,
            false => &place.cluster,
        });
        text.replace("{mine}", mine).replace("{theirs}", theirs)
    }

    /// Returns the request of a row by this route, if it differs from the other routes.
    pub(super) fn request(self, scene: &Scene, row: &Row<'_>) -> Option<RoutedRequest> {
        let (method, path) = row.request.split_once(' ').unwrap();
        if self == Route::Console {
            // Headers that name a user beside the session are refused anyway.
            let has_session = row.headers.is_empty() && scene.session(row.actor).is_some();
            return has_session.then(|| self.straight(scene, row, &format!("/console/api{path}")));
        }
        let (cluster, rest) = match path.strip_prefix("/clusters/").and_then(|path| path.split_once('/')) {
            Some(parts) => parts,
            // The request addresses the server, or virtual workspaces themselves.
            None => return matches!(self, Route::Path | Route::Name).then(|| self.straight(scene, row, path)),
        };
        let reads = method == "GET" && is_of_objects(rest);
        let place = |whose: Whose| match whose {
            Whose::Mine => &scene.mine.cluster,
            Whose::Theirs => &scene.theirs.cluster,
        };
        let view = match self {
            Route::Path | Route::Name => return Some(self.straight(scene, row, path)),
            Route::Watch | Route::OldWatch | Route::Socket if !reads || !row.is_closed() || path.contains("watch=") => {
                return None;
            }
            Route::Watch | Route::Socket => {
                let and = if path.contains('?') { '&' } else { '?' };
                return Some(self.straight(scene, row, &format!("{path}{and}watch=true&timeoutSeconds=1")));
            }
            Route::OldWatch => {
                let (version, objects) = behind_version(rest)?;
                let path = format!("/clusters/{cluster}/{version}/watch/{objects}");
                return Some(self.straight(scene, row, &path));
            }
            // The owner of a virtual workspace and the platform may read its contents.
            _ if !is_of_objects(rest) && matches!(row.actor, "tA" | "pA") => return None,
            Route::Export(whose) => format!("apiexport/{}/private/clusters/{cluster}", place(whose)),
            Route::Initializing(whose) => format!("initializingworkspaces/{}:gate/clusters/{cluster}", place(whose)),
            Route::Terminating(whose) => format!("terminatingworkspaces/{}:gate/clusters/{cluster}", place(whose)),
            Route::Schemas => format!("apiresourceschema/{cluster}"),
            Route::Console => return None,
        };
        let expect = match row.expect {
            [401] => vec![401],
            _ => vec![400, 403, 404, 405],
        };
        let path = self.named(scene, &format!("/services/{view}/{rest}"));
        Some(RoutedRequest { path, expect })
    }

    fn straight(self, scene: &Scene, row: &Row<'_>, path: &str) -> RoutedRequest {
        RoutedRequest {
            path: self.named(scene, path),
            expect: row.expect.to_vec(),
        }
    }
}

/// Splits a path into `api/v1` or `apis/group/version` and the rest.
fn behind_version(rest: &str) -> Option<(&str, &str)> {
    let segments = if rest.starts_with("api/") { 2 } else { 3 };
    let (at, _) = rest.match_indices('/').nth(segments - 1)?;
    Some((&rest[..at], &rest[at + 1..]))
}

fn is_of_objects(rest: &str) -> bool {
    rest.starts_with("api") && behind_version(rest).is_some()
}
