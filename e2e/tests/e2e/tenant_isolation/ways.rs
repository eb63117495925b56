//! The doors, as data: each makes another request of a row's.

use super::{row::Row, scene::Scene};

/// Whose door it is: of the tenant who asks, where they are somebody but not for the cluster that
/// they ask about, or of the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Mine,
    Theirs,
}

/// A way to what is in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// The workspace by its path.
    Path,
    /// The same by the name of its logical cluster.
    Name,
    /// What is read, as a watch.
    Watch,
    /// The same with the old prefix.
    OldWatch,
    /// The same over a WebSocket, as a browser would.
    Socket,
    /// `/services/apiexport`
    Export(Whose),
    /// `/services/initializingworkspaces`
    Initializing(Whose),
    /// `/services/terminatingworkspaces`
    Terminating(Whose),
    /// `/services/apiresourceschema`
    Schemas,
}

pub(super) const DOORS: [Door; 12] = [
    Door::Path,
    Door::Name,
    Door::Watch,
    Door::OldWatch,
    Door::Socket,
    Door::Export(Whose::Mine),
    Door::Export(Whose::Theirs),
    Door::Initializing(Whose::Mine),
    Door::Initializing(Whose::Theirs),
    Door::Terminating(Whose::Mine),
    Door::Terminating(Whose::Theirs),
    Door::Schemas,
];

/// What asks for a WebSocket.
const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// A request through a door.
pub(super) struct Way {
    pub(super) path: String,
    pub(super) expect: Vec<u16>,
}

impl Door {
    /// The versions of HTTP that it is tried with: what is behind a door is the same, whatever
    /// brought somebody there, so that beyond the first two doors one of them in turns is enough.
    pub(super) fn versions(self, turn: usize) -> &'static [usize] {
        match (self, turn % 2) {
            (Door::Path | Door::Name, _) => &[0, 1],
            (Door::Socket, _) => &[1],
            (_, 0) => &[0],
            _ => &[1],
        }
    }

    /// Headers beyond the row's.
    pub(super) fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Door::Socket => &HANDSHAKE,
            _ => &[],
        }
    }

    /// Whether workspaces go by their paths there.
    pub(super) fn is_by_path(self) -> bool {
        matches!(self, Door::Path | Door::Watch | Door::Socket)
    }

    /// A text of a row with the names of workspaces in it.
    pub(super) fn named(self, scene: &Scene, text: &str) -> String {
        let [mine, theirs] = [&scene.mine, &scene.theirs].map(|place| match self.is_by_path() {
            true => &place.path,
            false => &place.cluster,
        });
        text.replace("{mine}", mine).replace("{theirs}", theirs)
    }

    /// A row's request through this door, where it makes another one.
    pub(super) fn way(self, scene: &Scene, row: &Row<'_>) -> Option<Way> {
        let (method, path) = row.request.split_once(' ').unwrap();
        let (cluster, rest) = match path.strip_prefix("/clusters/").and_then(|path| path.split_once('/')) {
            Some(parts) => parts,
            // It is about the server, or about doors themselves.
            None => return matches!(self, Door::Path | Door::Name).then(|| self.straight(scene, row, path)),
        };
        let reads = method == "GET" && is_of_objects(rest);
        let place = |whose: Whose| match whose {
            Whose::Mine => &scene.mine.cluster,
            Whose::Theirs => &scene.theirs.cluster,
        };
        let view = match self {
            Door::Path | Door::Name => return Some(self.straight(scene, row, path)),
            Door::Watch | Door::OldWatch | Door::Socket if !reads || !row.is_closed() || path.contains("watch=") => {
                return None;
            }
            Door::Watch | Door::Socket => {
                let and = if path.contains('?') { '&' } else { '?' };
                return Some(self.straight(scene, row, &format!("{path}{and}watch=true&timeoutSeconds=1")));
            }
            Door::OldWatch => {
                let (version, objects) = behind_version(rest)?;
                let path = format!("/clusters/{cluster}/{version}/watch/{objects}");
                return Some(self.straight(scene, row, &path));
            }
            // What a view serves is no secret to those whose it is, nor to the platform.
            _ if !is_of_objects(rest) && matches!(row.actor, "tA" | "pA") => return None,
            Door::Export(whose) => format!("apiexport/{}/private/clusters/{cluster}", place(whose)),
            Door::Initializing(whose) => format!("initializingworkspaces/{}:gate/clusters/{cluster}", place(whose)),
            Door::Terminating(whose) => format!("terminatingworkspaces/{}:gate/clusters/{cluster}", place(whose)),
            Door::Schemas => format!("apiresourceschema/{cluster}"),
        };
        let expect = match row.expect {
            [401] => vec![401],
            _ => vec![400, 403, 404, 405],
        };
        let path = self.named(scene, &format!("/services/{view}/{rest}"));
        Some(Way { path, expect })
    }

    fn straight(self, scene: &Scene, row: &Row<'_>, path: &str) -> Way {
        Way {
            path: self.named(scene, path),
            expect: row.expect.to_vec(),
        }
    }
}

/// `api/v1` and what stands behind it.
fn behind_version(rest: &str) -> Option<(&str, &str)> {
    let segments = if rest.starts_with("api/") { 2 } else { 3 };
    let (at, _) = rest.match_indices('/').nth(segments - 1)?;
    Some((&rest[..at], &rest[at + 1..]))
}

fn is_of_objects(rest: &str) -> bool {
    rest.starts_with("api") && behind_version(rest).is_some()
}
