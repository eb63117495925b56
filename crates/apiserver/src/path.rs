//! URL paths, parsed into routes. No later stage splits a path.

use insula_api::{ClusterName, ClusterPath};
use insula_catalog::locate;
use insula_pipeline::ObjectPath;
use insula_store::Pinned;

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// A path of the whole server: health, version, metrics.
    Server(String),
    /// A path in a logical cluster (`None`: the wildcard `*`).
    Cluster { path: Option<ClusterPath>, rest: Rest },
    /// A path in a virtual workspace, for one cluster or for all of them (`None`: the wildcard
    /// `*`).
    Virtual {
        workspace: Virtual,
        cluster: Option<ClusterName>,
        rest: Rest,
    },
    /// A path below `/services` that no virtual workspace has.
    Service(String),
    /// A path without a cluster that only clusters serve.
    NoCluster,
}

impl Route {
    /// Returns the name of the object that the path is about.
    fn object_name(&self) -> Option<&str> {
        match self {
            Route::Cluster {
                rest: Rest::Resource(path),
                ..
            }
            | Route::Virtual {
                rest: Rest::Resource(path),
                ..
            } => path.name.as_deref(),
            _ => None,
        }
    }

    /// Returns the cluster of the path, and the path, as far as they exist.
    pub(crate) fn place(&self, snapshot: &Pinned) -> (Option<ClusterName>, Option<ClusterPath>) {
        match self {
            Route::Cluster { path: Some(path), .. } => {
                let cluster = locate::locate(snapshot, path).ok();
                (cluster, Some(path.clone()))
            }
            Route::Virtual { cluster, .. } => (cluster.clone(), None),
            Route::Cluster { path: None, .. } | Route::Server(_) | Route::Service(_) | Route::NoCluster => (None, None),
        }
    }
}

/// A virtual workspace as its path under `/services` names it, with names of clusters and never
/// with paths of workspaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Virtual {
    /// `/services/apiexport/<cluster>/<export>`: the objects that the export's consumers show its
    /// provider.
    ApiExport { cluster: ClusterName, name: String },
    /// `/services/initializingworkspaces/<initializer>`
    Initializing(String),
    /// `/services/terminatingworkspaces/<terminator>`
    Terminating(String),
    /// `/services/apiresourceschema/<consumer>`: the schemas behind the bindings of a cluster.
    ApiResourceSchemas { cluster: ClusterName },
}

/// The target of the part of a path behind the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rest {
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(String),
    /// `/api/v1`, `/apis/<group>/<version>`
    GroupVersion { group: String, version: String },
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3` and, with a group version's path, below.
    OpenApiV3(Option<String>),
    /// `/thirdparty`, or `/third-party`: groups and versions of ThirdPartyResources that `/apis`
    /// cannot name.
    ThirdParty {
        group: Option<String>,
        version: Option<String>,
    },
    /// Objects.
    Resource(ObjectPath),
    /// Anything else, e.g. `/version`, `/healthz`, `/metrics`.
    Other(String),
}

/// A path that is no request; the text goes into a 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPath(pub String);

/// Parses a path as it came over the wire. Encoded bytes are decoded once; a segment that decodes
/// to `.`, `..` or a text with `/` is refused, so that the authorised path is the served one. The
/// name of an object alone may have `;` or a backslash, which other servers may read in two ways.
pub fn parse(raw: &str) -> Result<Route, BadPath> {
    let segments = segments(raw)?;
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let route = route(&parts)?;
    let mut ambiguous = parts.iter().filter(|part| is_ambiguous(part));
    match (ambiguous.next(), ambiguous.next()) {
        (Some(part), None) if route.object_name() == Some(part) => Ok(route),
        (Some(part), _) => Err(BadPath(format!("invalid path segment {part:?}"))),
        (None, _) => Ok(route),
    }
}

/// Returns true for a text that other servers may read as more than one segment: `..;a`, `a\..\b`.
pub(crate) fn is_ambiguous(segment: &str) -> bool {
    segment.contains([';', '\\'])
}

/// Returns the target of the segments of a path.
fn route(parts: &[&str]) -> Result<Route, BadPath> {
    match parts {
        [] => Ok(Route::NoCluster),
        ["clusters"] => Err(BadPath("no cluster in the path".into())),
        ["clusters", "*", rest @ ..] => Ok(Route::Cluster {
            path: None,
            rest: parse_rest(rest)?,
        }),
        ["clusters", cluster, rest @ ..] => {
            let path = ClusterPath::parse(cluster).map_err(|error| BadPath(error.to_string()))?;
            Ok(Route::Cluster {
                path: Some(path),
                rest: parse_rest(rest)?,
            })
        }
        ["services", rest @ ..] => {
            let unknown = || Route::Service(format!("/{}", parts.join("/")));
            Ok(virtual_workspace(rest)?.unwrap_or_else(unknown))
        }
        ["healthz" | "livez" | "readyz" | "version" | "metrics", ..] => {
            Ok(Route::Server(format!("/{}", parts.join("/"))))
        }
        // Paths to objects without a cluster mean all clusters, as in kcp.
        rest => Ok(match parse_rest(rest)? {
            rest @ Rest::Resource(_) => Route::Cluster { path: None, rest },
            _ => Route::NoCluster,
        }),
    }
}

/// Parses a path below `/services`; `None` if there is no such virtual workspace.
fn virtual_workspace(parts: &[&str]) -> Result<Option<Route>, BadPath> {
    let named = |cluster: &str| ClusterName::parse(cluster).ok();
    let (workspace, rest) = match parts {
        ["apiexport", cluster, name, rest @ ..] => {
            let name = (*name).to_owned();
            (named(cluster).map(|cluster| Virtual::ApiExport { cluster, name }), rest)
        }
        ["initializingworkspaces", name, rest @ ..] => {
            return lifecycle(Virtual::Initializing((*name).to_owned()), rest);
        }
        ["terminatingworkspaces", name, rest @ ..] => {
            return lifecycle(Virtual::Terminating((*name).to_owned()), rest);
        }
        ["apiresourceschema", cluster, rest @ ..] => {
            // Clients of many clusters append one, which makes no difference.
            let (["clusters", _, rest @ ..] | rest) = rest;
            let rest = parse_rest(rest)?;
            return Ok(named(cluster).map(|cluster| Route::Virtual {
                workspace: Virtual::ApiResourceSchemas { cluster },
                cluster: None,
                rest,
            }));
        }
        _ => return Ok(None),
    };
    match (workspace, rest) {
        (Some(workspace), ["clusters", ..]) => in_clusters(workspace, rest),
        _ => Ok(None),
    }
}

/// Parses the path behind an initializer or terminator: without a cluster, it is about all of them.
fn lifecycle(workspace: Virtual, parts: &[&str]) -> Result<Option<Route>, BadPath> {
    if let ["clusters", ..] | [] = parts {
        return in_clusters(workspace, parts);
    }
    Ok(Some(Route::Virtual {
        workspace,
        cluster: None,
        rest: parse_rest(parts)?,
    }))
}

/// Parses `clusters/<cluster>/…` behind the name of a virtual workspace.
fn in_clusters(workspace: Virtual, parts: &[&str]) -> Result<Option<Route>, BadPath> {
    let ["clusters", cluster, rest @ ..] = parts else {
        return Ok(None);
    };
    let cluster = match *cluster {
        "*" => None,
        name => match ClusterName::parse(name).ok() {
            Some(cluster) => Some(cluster),
            None => return Ok(None),
        },
    };
    let rest = parse_rest(rest)?;
    Ok(Some(Route::Virtual {
        workspace,
        cluster,
        rest,
    }))
}

fn segments(raw: &str) -> Result<Vec<String>, BadPath> {
    let trimmed = raw.strip_prefix('/').unwrap_or(raw);
    let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
    if trimmed.is_empty() {
        return Ok(Vec::new());
    }
    trimmed.split('/').map(segment).collect()
}

fn segment(raw: &str) -> Result<String, BadPath> {
    let bad = || BadPath(format!("invalid path segment {raw:?}"));
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |b: Option<u8>| b.and_then(|b| (b as char).to_digit(16)).ok_or_else(bad);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push((high * 16 + low) as u8);
    }
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    let dots = text == "." || text == "..";
    if text.is_empty() || dots || text.contains(['/', '%', '\0']) {
        return Err(bad());
    }
    Ok(text)
}

fn parse_rest(parts: &[&str]) -> Result<Rest, BadPath> {
    let own = |text: &&str| (*text).to_owned();
    Ok(match parts {
        ["api"] => Rest::CoreVersions,
        ["api", version] => Rest::GroupVersion {
            group: String::new(),
            version: own(version),
        },
        ["apis"] => Rest::Groups,
        ["apis", group] => Rest::Group(own(group)),
        ["apis", group, version] => Rest::GroupVersion {
            group: own(group),
            version: own(version),
        },
        ["api", version, rest @ ..] => Rest::Resource(resource("", version, rest)),
        ["apis", group, version, rest @ ..] => Rest::Resource(resource(group, version, rest)),
        ["thirdparty" | "third-party", rest @ ..] => third_party(rest),
        ["openapi", "v2"] => Rest::OpenApiV2,
        ["openapi", "v3"] => Rest::OpenApiV3(None),
        ["openapi", "v3", rest @ ..] => Rest::OpenApiV3(Some(rest.join("/"))),
        rest => Rest::Other(format!("/{}", rest.join("/"))),
    })
}

/// Parses a path below `/thirdparty`, where a version may have a slash: `<group>/stable/v1` or
/// `<group>/v1`. Objects are namespaced, so the version ends where `namespaces` or `watch` begins,
/// or before the resource of a list over all namespaces. Of two segments behind the group the
/// second one is part of the version unless it is a resource; plurals end with `s`, versions with a
/// digit.
fn third_party(parts: &[&str]) -> Rest {
    let [group, rest @ ..] = parts else {
        return Rest::ThirdParty {
            group: None,
            version: None,
        };
    };
    let of_resource = |part: &&str| matches!(*part, "namespaces" | "watch") || part.ends_with('s');
    let (version, rest) = match rest {
        [] => {
            return Rest::ThirdParty {
                group: Some((*group).to_owned()),
                version: None,
            };
        }
        [version, rest @ ..] if rest.first().is_some_and(of_resource) => ((*version).to_owned(), rest),
        [prefix, version, rest @ ..] => (format!("{prefix}/{version}"), rest),
        [version] => ((*version).to_owned(), &[][..]),
    };
    match rest {
        [] => Rest::ThirdParty {
            group: Some((*group).to_owned()),
            version: Some(version),
        },
        rest => Rest::Resource(ObjectPath {
            third_party: true,
            ..resource(group, &version, rest)
        }),
    }
}

/// Parses a path to objects as Kubernetes' `RequestInfo`: `namespaces/<ns>/<resource>/…` is a
/// namespaced path, except for the namespace's own `status` and `finalize`.
fn resource(group: &str, version: &str, mut parts: &[&str]) -> ObjectPath {
    let mut path = ObjectPath {
        group: group.into(),
        version: version.into(),
        ..ObjectPath::default()
    };
    if let ["watch", rest @ ..] = parts
        && !rest.is_empty()
    {
        path.watch_prefix = true;
        parts = rest;
    }
    if let ["namespaces", namespace, rest @ ..] = parts {
        match rest {
            [] | ["status" | "finalize"] if group.is_empty() => {}
            [] => {}
            rest => {
                path.namespace = Some((*namespace).to_owned());
                parts = rest;
            }
        }
    }
    let at = |i: usize| parts.get(i).map(|part| (*part).to_owned());
    path.resource = at(0).unwrap_or_default();
    path.name = at(1);
    path.subresource = (parts.len() > 2).then(|| parts[2..].join("/"));
    path
}

#[cfg(test)]
mod tests;
