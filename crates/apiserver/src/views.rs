//! Virtual workspaces: what somebody may see of clusters that they are not in. They are doors like any other: the request
//! passes all stages, and only the question that lets it in is another one, asked where those who look are at home.

use crate::{
    ApiServer,
    negotiate::{self, Offer, Representation},
    path::{ResourcePath, Virtual},
    reply::{self, Reply},
    stage::{self, Authorized, Place},
    status,
};
use insula_api::{ClusterName, Json, LabelSelector};
use insula_auth::{Attributes, UserInfo, forbidden_message};
use insula_registry::{
    Error, Named, Served,
    exports::ExportName,
    view::{Across, Denied, Sight, Through, Wish},
};

/// Parts of an object that a view shows: its other doors are the cluster's own.
const SUBRESOURCES: [&str; 3] = ["", "status", "scale"];

/// What a request looks through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// An export: what its consumers let its provider see.
    Export(ExportName),
    /// None that is served.
    Unknown,
}

/// What a request for objects is about.
pub(crate) struct Found {
    /// The cluster; across all of them, the one of those who look.
    pub(crate) cluster: ClusterName,
    pub(crate) served: Served,
    pub(crate) sight: Sight,
}

impl View {
    /// The view that a path names.
    pub(crate) fn of(workspace: &Virtual) -> View {
        match workspace {
            Virtual::ApiExport { cluster, name } => View::Export(ExportName {
                cluster: cluster.clone(),
                name: name.as_str().into(),
            }),
            Virtual::Initializing(_) | Virtual::Terminating(_) | Virtual::ApiResourceSchemas { .. } => View::Unknown,
        }
    }

    /// The cluster in which those who look are somebody.
    pub(crate) fn home(&self) -> Option<&ClusterName> {
        match self {
            View::Export(export) => Some(&export.cluster),
            View::Unknown => None,
        }
    }

    /// What the chain is asked before anybody may look; nothing where there is no such view.
    pub(crate) fn question(&self, asked: &Attributes) -> Option<Attributes> {
        match self {
            View::Export(export) => Some(Attributes {
                verb: asked.verb.clone(),
                group: "apis.kcp.io".into(),
                resource: "apiexports".into(),
                subresource: "content".into(),
                name: export.name.to_string(),
                cluster: Some(export.cluster.clone()),
                is_resource_request: true,
                ..Attributes::default()
            }),
            View::Unknown => None,
        }
    }

    /// Whether the cluster lets those who look do what they ask for. Asked once more when something is written.
    pub(crate) fn lets(&self, place: &Place, user: &UserInfo, asked: &Attributes) -> Result<(), Reply> {
        let View::Export(export) = self else {
            return Err(Reply::NotFoundPage);
        };
        if !export.exists(&place.snapshot) {
            return Err(Reply::NotFoundPage);
        }
        let (Some(cluster), true) = (&place.cluster, asked.is_resource_request) else {
            return Ok(());
        };
        let wish = Wish {
            group: &asked.group,
            resource: named_alone(&asked.resource),
            verb: &asked.verb,
        };
        // Status of bindings and exports is written by controllers only, whatever was claimed.
        let is_system_status = asked.group == "apis.kcp.io" && !asked.subresource.is_empty() && asked.verb != "get";
        let right = match SUBRESOURCES.contains(&&*asked.subresource) && !is_system_status {
            true => export.right(&place.snapshot, cluster, wish).map(drop),
            false => Err(Denied::NoReason),
        };
        right.map_err(|denied| refusal(user, asked, denied))
    }

    /// The APIs that the view has.
    pub(crate) fn served(&self, server: &ApiServer, place: &Place) -> Vec<Served> {
        match self {
            View::Export(export) => export.served(&server.registry.catalog, &place.snapshot),
            View::Unknown => Vec::new(),
        }
    }

    /// A discovery document as the view shows it: verbs in alphabetical order, and those alone that may be used.
    pub(crate) fn discovered(&self, place: &Place, served: &[Served], document: &mut Json) {
        let View::Export(export) = self else { return };
        let read_only = |served: &&Served| export.only_reads(&place.snapshot, served);
        let read_only: Vec<&str> = served
            .iter()
            .filter(read_only)
            .map(|served| &*served.names().plural)
            .collect();
        sort_verbs(document, &read_only);
    }
}

fn refusal(user: &UserInfo, asked: &Attributes, denied: Denied) -> Reply {
    let why = denied.why();
    tracing::info!(user = user.name, reason = why, "forbidden");
    let message = forbidden_message(user, asked);
    let message = match message.strip_suffix("access denied") {
        Some(message) => format!("{message}{why}"),
        None => message,
    };
    Reply::forbidden(&message, asked)
}

fn sort_verbs(document: &mut Json, read_only: &[&str]) {
    match document {
        Json::Object(fields) => {
            let named = |field: &str| fields.get(field).and_then(Json::as_str);
            let reads = named("name")
                .or(named("resource"))
                .is_some_and(|name| read_only.contains(&named_alone(name.split('/').next().unwrap_or(name))));
            if let Some(Json::Array(verbs)) = fields.get_mut("verbs") {
                verbs.retain(|verb| !reads || matches!(verb.as_str(), Some("get" | "list" | "watch")));
                verbs.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            }
            fields.values_mut().for_each(|value| sort_verbs(value, read_only));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| sort_verbs(item, read_only)),
        _ => {}
    }
}

/// A resource without the identity that may stand behind it.
fn named_alone(resource: &str) -> &str {
    resource.split_once(':').map_or(resource, |(name, _)| name)
}

/// Finds what serves a request for objects, and what of it the request sees.
pub(crate) fn find(server: &ApiServer, request: &Authorized, path: &ResourcePath) -> Result<Found, Reply> {
    let unknown = || match path.group.is_empty() && path.version == "v1" {
        true => Reply::error(&Error::UnknownResource),
        false => Reply::NotFoundPage,
    };
    let verb = stage::verb(&request.parsed, path);
    let (catalog, snapshot) = (&server.registry.catalog, &request.place.snapshot);
    let (plural, identity) = match path.resource.split_once(':') {
        Some((plural, "")) => {
            let why = format!("invalid resource {plural:?}: missing identity");
            return Err(Reply::error(&Error::Internal(why)));
        }
        Some((plural, identity)) => (plural, Some(identity)),
        None => (&*path.resource, None),
    };
    let meant = |served: &Served| identity.is_none_or(|identity| *served.identity == *identity);
    let (view, cluster) = (&request.place.view, &request.place.cluster);
    if cluster.is_none() && !matches!(verb, "list" | "watch") {
        return Err(across_only_reads(path, plural, verb));
    }
    let found = match (view, cluster) {
        (None, Some(cluster)) => catalog
            .resolve(snapshot, cluster, &path.group, plural)
            .map(|served| (cluster.clone(), served, Sight::Within)),
        (Some(View::Export(export)), cluster) => {
            let through = Through {
                export: export.clone(),
                verb,
            };
            match cluster {
                Some(cluster) => {
                    let wish = Wish {
                        group: &path.group,
                        resource: plural,
                        verb,
                    };
                    let asked = request.permit.attributes();
                    let denied = |denied| refusal(&request.user, asked, denied);
                    let right = export.right(snapshot, cluster, wish).map_err(denied)?;
                    let served = export.resolve_in((catalog, snapshot), cluster, (&path.group, plural), &right);
                    let served = served.map_err(denied)?;
                    served.map(|served| (cluster.clone(), served, Sight::Through(through)))
                }
                None => export
                    .resolve(catalog, snapshot, &path.group, plural)
                    .map(|served| (export.cluster.clone(), served, Across::consumers(through))),
            }
        }
        (None, None) => everywhere(server, request, (&path.group, plural), identity).map(|served| {
            (
                ClusterName::root(),
                served,
                Across::everywhere(LabelSelector::default()),
            )
        }),
        (Some(View::Unknown), _) => None,
    };
    let found = found.filter(|(_, served, _)| meant(served)).ok_or_else(unknown)?;
    let (cluster, served, sight) = found;
    Ok(Found { cluster, served, sight })
}

/// What all clusters are asked for at once: a built-in, an API by its exporter's identity, or, of any other, metadata.
fn everywhere(
    server: &ApiServer,
    request: &Authorized,
    (group, plural): (&str, &str),
    identity: Option<&str>,
) -> Option<Served> {
    let (catalog, snapshot) = (&server.registry.catalog, &request.place.snapshot);
    if let Some(served) = catalog.system().get(group, plural) {
        return Some(served.clone());
    }
    let header = reply::accept_header(&request.parsed.headers);
    let metadata_alone = || {
        let form = negotiate::accept(header.as_deref(), Offer::Watch).ok();
        form.is_some_and(|form| {
            matches!(
                form.representation,
                Representation::PartialMetadata(_) | Representation::PartialMetadataList(_)
            )
        })
    };
    (identity.is_some() || metadata_alone()).then(|| catalog.claimed_by(snapshot, (group, plural), identity))?
}

/// Kubernetes' refusal, as kcp says it of all clusters; an object that is asked for has none.
fn across_only_reads(path: &ResourcePath, plural: &str, verb: &str) -> Reply {
    let named = Named {
        group: path.group.as_str().into(),
        resource: plural.into(),
    };
    match (verb, &path.name) {
        ("get", Some(name)) => Reply::error(&Error::NotFound {
            resource: named,
            name: name.clone(),
        }),
        _ => status::across_not_supported(&named, verb).into(),
    }
}

/// The prefix of a view's paths, for documents that name paths.
pub(crate) fn base(place: &Place) -> String {
    let cluster = place.cluster.as_ref().map_or("*", ClusterName::as_str);
    match (&place.view, &place.path) {
        (Some(View::Export(export)), _) => {
            format!(
                "/services/apiexport/{}/{}/clusters/{cluster}",
                export.cluster, export.name
            )
        }
        (None, Some(path)) => format!("/clusters/{path}"),
        (Some(View::Unknown), _) | (None, None) => String::new(),
    }
}
