//! Virtual workspaces: what somebody may see of clusters that they are not in. They are doors like
//! any other: the request passes all stages, and only the question that lets it in is another one,
//! asked where those who look are at home.

use crate::{
    ApiServer, lifecycle,
    negotiate::{self, Offer, Representation},
    path::{ResourcePath, Virtual},
    reply::{self, Reply},
    stage::{self, Authorized, RequestScope},
    status,
};
use insula_api::{ClusterName, Json, LabelSelector};
use insula_auth::{
    Attributes, EXTRA_CLUSTER, EXTRA_SCOPES, EXTRA_WARRANT, GROUP_KCP_ADMIN, UserInfo, forbidden_message,
};
use insula_registry::{
    Error, Named, Served,
    exports::ExportName,
    lifecycle::{LifecycleController, LifecyclePhase},
    view::{AccessRequest, AllClusters, Denied, ViaExport, ViewScope, schemas_behind},
};
use serde_json::json;
use std::{borrow::Cow, sync::Arc};

/// Parts of an object that a view shows: its other doors are the cluster's own.
const SUBRESOURCES: [&str; 3] = ["", "status", "scale"];

/// What a request looks through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VirtualWorkspace {
    /// An export: what its consumers let its provider see.
    Export(ExportName),
    /// The bindings of a cluster: the schemas behind them, to read.
    Schemas(ClusterName),
    /// An initializer or terminator: the workspaces that wait for it.
    LifecycleController(LifecycleController),
    /// None that is served.
    Unknown,
}

/// Why a view is closed.
#[derive(Debug, Clone)]
pub(crate) enum Closed {
    /// There is no such view.
    Absent,
    /// It does not let this happen, for a reason that tells nothing of the cluster.
    Denied(Cow<'static, str>),
}

impl Closed {
    /// The reason.
    pub(crate) fn why(&self) -> &str {
        match self {
            Closed::Absent => "there is no such virtual workspace",
            Closed::Denied(why) => why,
        }
    }

    /// What the client reads.
    pub(crate) fn reply(&self, user: &UserInfo, asked: &Attributes) -> Reply {
        let Closed::Denied(why) = self else {
            return Reply::NotFoundPage;
        };
        let message = forbidden_message(user, asked);
        let message = match message.strip_suffix("access denied") {
            Some(message) => format!("{message}{why}"),
            None => message,
        };
        Reply::forbidden(&message, asked)
    }
}

/// What a request for objects is about.
pub(crate) struct Found {
    /// The cluster; across all of them, the one of those who look.
    pub(crate) cluster: ClusterName,
    pub(crate) served: Served,
    pub(crate) view_scope: ViewScope,
}

impl VirtualWorkspace {
    /// The view that a path names.
    pub(crate) fn of(workspace: &Virtual) -> VirtualWorkspace {
        match workspace {
            Virtual::ApiExport { cluster, name } => VirtualWorkspace::Export(ExportName {
                cluster: cluster.clone(),
                name: name.as_str().into(),
            }),
            Virtual::ApiResourceSchemas { cluster } => VirtualWorkspace::Schemas(cluster.clone()),
            Virtual::Initializing(name) => LifecycleController::parse(LifecyclePhase::Initializing, name)
                .map_or(VirtualWorkspace::Unknown, VirtualWorkspace::LifecycleController),
            Virtual::Terminating(name) => LifecycleController::parse(LifecyclePhase::Terminating, name)
                .map_or(VirtualWorkspace::Unknown, VirtualWorkspace::LifecycleController),
        }
    }

    /// The cluster in which those who look are somebody.
    pub(crate) fn home(&self) -> Option<&ClusterName> {
        match self {
            VirtualWorkspace::Export(export) => Some(&export.cluster),
            VirtualWorkspace::Schemas(consumer) => Some(consumer),
            VirtualWorkspace::LifecycleController(lifecycle) => Some(&lifecycle.cluster),
            VirtualWorkspace::Unknown => None,
        }
    }

    /// What the chain is asked before anybody may look; nothing where there is no such view.
    pub(crate) fn question(&self, asked: &Attributes) -> Option<Attributes> {
        match self {
            VirtualWorkspace::Export(export) => Some(Attributes {
                verb: asked.verb.clone(),
                group: "apis.kcp.io".into(),
                resource: "apiexports".into(),
                subresource: "content".into(),
                name: export.name.to_string(),
                cluster: Some(export.cluster.clone()),
                is_resource_request: true,
                ..Attributes::default()
            }),
            // Who may read bindings may read what they bind.
            VirtualWorkspace::Schemas(consumer) => Some(Attributes {
                verb: "get".into(),
                group: "apis.kcp.io".into(),
                resource: "apibindings".into(),
                cluster: Some(consumer.clone()),
                is_resource_request: true,
                ..Attributes::default()
            }),
            VirtualWorkspace::LifecycleController(lifecycle) => Some(lifecycle::question(lifecycle)),
            VirtualWorkspace::Unknown => None,
        }
    }

    /// Whether the cluster lets those who look do what they ask for. Asked once more when something
    /// is written.
    pub(crate) fn lets(&self, place: &RequestScope, user: &UserInfo, asked: &Attributes) -> Result<(), Closed> {
        let export = match self {
            VirtualWorkspace::Export(export) => export,
            VirtualWorkspace::Schemas(_) if matches!(&*asked.verb, "get" | "list" | "watch") => return Ok(()),
            VirtualWorkspace::Schemas(_) => {
                return Err(Closed::Denied(
                    "only read-only access is allowed to apiresourceschemas".into(),
                ));
            }
            VirtualWorkspace::LifecycleController(lifecycle) => return lifecycle::lets(lifecycle, place, user, asked),
            VirtualWorkspace::Unknown => return Err(Closed::Absent),
        };
        if !export.exists(&place.snapshot) {
            return Err(Closed::Absent);
        }
        let (Some(cluster), true) = (&place.cluster, asked.is_resource_request) else {
            return Ok(());
        };
        let wish = AccessRequest {
            group: &asked.group,
            resource: &asked.resource,
            verb: &asked.verb,
        };
        // Status of bindings and exports is written by controllers only, whatever was claimed.
        let is_system_status = asked.group == "apis.kcp.io" && !asked.subresource.is_empty() && asked.verb != "get";
        let through = ViaExport {
            export: export.clone(),
            verb: "",
            user: Arc::new(user.clone()),
            asked: Arc::new(asked.clone()),
        };
        let right = match SUBRESOURCES.contains(&&*asked.subresource) && !is_system_status {
            true => through.right(&place.snapshot, cluster, wish),
            false => Err(Denied::NoReason),
        };
        match right {
            Ok(_) => Ok(()),
            Err(denied) => Err(Closed::Denied(denied.why().into())),
        }
    }

    /// The user as the clusters see them that let them in: with a warrant of each, since what they
    /// may do there was asked of its bindings, and its roles know nothing of them. Whoever has a
    /// duty there is who the duty makes them.
    pub(crate) fn warranted(&self, place: &RequestScope, user: &UserInfo, asked: &Attributes) -> UserInfo {
        if let VirtualWorkspace::LifecycleController(lifecycle) = self {
            return lifecycle::user(lifecycle, place, user, asked);
        }
        let mut user = user.clone();
        if let (VirtualWorkspace::Export(_), Some(cluster)) = (self, &place.cluster) {
            let warrant = json!({
                "user": "system:serviceaccount:default:rest",
                "groups": [GROUP_KCP_ADMIN],
                "extra": {EXTRA_CLUSTER: [cluster.as_str()], EXTRA_SCOPES: [format!("cluster:{cluster}")]},
            });
            let warrants = user.extra.entry(EXTRA_WARRANT.to_owned()).or_default();
            warrants.push(warrant.to_string());
        }
        user
    }

    /// The APIs that the view has.
    pub(crate) fn served(&self, server: &ApiServer, place: &RequestScope) -> Vec<Served> {
        match self {
            VirtualWorkspace::Export(export) => export.served(&server.registry.catalog, &place.snapshot),
            VirtualWorkspace::Schemas(_) => schemas(server).into_iter().collect(),
            VirtualWorkspace::LifecycleController(_) => lifecycle::served(server, place),
            VirtualWorkspace::Unknown => Vec::new(),
        }
    }

    /// A discovery document as the view shows it: verbs in alphabetical order, and those alone that
    /// may be used.
    pub(crate) fn discovered(&self, place: &RequestScope, served: &[Served], document: &mut Json) {
        // Within a cluster it looks as from within.
        if matches!(self, VirtualWorkspace::LifecycleController(_)) && place.cluster.is_some() {
            return;
        }
        let read_only = |served: &&Served| match self {
            VirtualWorkspace::Export(export) => export.only_reads(&place.snapshot, served),
            VirtualWorkspace::Schemas(_) | VirtualWorkspace::LifecycleController(_) | VirtualWorkspace::Unknown => true,
        };
        let read_only: Vec<&str> = served
            .iter()
            .filter(read_only)
            .map(|served| &*served.names().plural)
            .collect();
        sort_verbs(document, &read_only);
    }
}

fn schemas(server: &ApiServer) -> Option<Served> {
    server
        .registry
        .catalog
        .system()
        .get("apis.kcp.io", "apiresourceschemas")
        .cloned()
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
pub(crate) fn named_alone(resource: &str) -> &str {
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
    let reads_many = matches!(verb, "list" | "watch") || matches!(view, Some(VirtualWorkspace::Schemas(_)));
    if cluster.is_none() && !reads_many {
        return Err(across_only_reads(path, plural, verb, view.as_ref()));
    }
    let found = match (view, cluster) {
        (None, Some(cluster)) => catalog
            .resolve(snapshot, cluster, &path.group, plural)
            .map(|served| (cluster.clone(), served, ViewScope::Within)),
        (Some(VirtualWorkspace::Export(export)), cluster) => {
            let through = ViaExport {
                export: export.clone(),
                verb,
                user: request.user.clone(),
                asked: Arc::new(stage::attributes(&request.parsed, cluster.clone())),
            };
            match cluster {
                Some(cluster) => {
                    let wish = AccessRequest {
                        group: &path.group,
                        resource: plural,
                        verb,
                    };
                    let asked = request.permit.attributes();
                    let denied = |denied: Denied| Closed::Denied(denied.why().into()).reply(&request.user, asked);
                    let right = through.right(snapshot, cluster, wish).map_err(denied)?;
                    let served = export.resolve_in((catalog, snapshot), cluster, (&path.group, plural), &right);
                    let served = served.map_err(denied)?;
                    served.map(|served| (cluster.clone(), served, ViewScope::ViaExport(through)))
                }
                None => export
                    .resolve(catalog, snapshot, &path.group, plural)
                    .map(|served| (export.cluster.clone(), served, AllClusters::consumers(through))),
            }
        }
        (None, None) => everywhere(server, request, (&path.group, plural), identity).map(|served| {
            (
                ClusterName::root(),
                served,
                AllClusters::everywhere(LabelSelector::default()),
            )
        }),
        (Some(VirtualWorkspace::Schemas(consumer)), _) => {
            let served = schemas(server)
                .filter(|served| *path.group == *served.api.group && plural == &*served.api.names.plural);
            served.map(|served| match &path.name {
                // It is read where it is.
                Some(name) => {
                    let mut behind = schemas_behind(snapshot, consumer).into_iter();
                    let cluster = behind.find(|key| *key.name == **name).map(|key| key.cluster);
                    match cluster {
                        Some(cluster) => (cluster, served, ViewScope::Within),
                        None => (consumer.clone(), served, AllClusters::schemas_of(consumer.clone())),
                    }
                }
                None => (consumer.clone(), served, AllClusters::schemas_of(consumer.clone())),
            })
        }
        (Some(VirtualWorkspace::LifecycleController(lifecycle)), _) => {
            let found = lifecycle::find(server, lifecycle, &request.place, path);
            found.map(
                |Found {
                     cluster,
                     served,
                     view_scope,
                 }| (cluster, served, view_scope),
            )
        }
        (Some(VirtualWorkspace::Unknown), _) => None,
    };
    let found = found.filter(|(_, served, _)| meant(served)).ok_or_else(unknown)?;
    let (cluster, served, view_scope) = found;
    Ok(Found {
        cluster,
        served,
        view_scope,
    })
}

/// What all clusters are asked for at once: a built-in, an API by its exporter's identity, or, of
/// any other, metadata.
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
    let is_metadata = |offer: &Offer| {
        let form = negotiate::accept(header.as_deref(), *offer).ok();
        form.is_some_and(|form| {
            matches!(
                form.representation,
                Representation::PartialMetadata(_) | Representation::PartialMetadataList(_)
            )
        })
    };
    // Lists and watches ask for it by different names.
    let metadata_alone = || [Offer::List, Offer::Watch].iter().any(is_metadata);
    (identity.is_some() || metadata_alone()).then(|| catalog.claimed_by(snapshot, (group, plural), identity))?
}

/// Kubernetes' refusal, as kcp says it of all clusters; in views there is no object of that name.
fn across_only_reads(path: &ResourcePath, plural: &str, verb: &str, view: Option<&VirtualWorkspace>) -> Reply {
    let named = Named {
        group: path.group.as_str().into(),
        resource: plural.into(),
    };
    match (verb, &path.name, view) {
        ("get", Some(name), Some(_)) => Reply::error(&Error::NotFound {
            resource: named,
            name: name.clone(),
        }),
        _ => status::across_not_supported(&named, verb).into(),
    }
}

/// The prefix of a view's paths, for documents that name paths.
pub(crate) fn base(place: &RequestScope) -> String {
    let cluster = place.cluster.as_ref().map_or("*", ClusterName::as_str);
    match (&place.view, &place.path) {
        (Some(VirtualWorkspace::Export(export)), _) => {
            format!(
                "/services/apiexport/{}/{}/clusters/{cluster}",
                export.cluster, export.name
            )
        }
        (Some(VirtualWorkspace::Schemas(consumer)), _) => format!("/services/apiresourceschema/{consumer}/clusters/*"),
        (Some(VirtualWorkspace::LifecycleController(lifecycle)), _) => format!(
            "/services/{}/{}/clusters/{cluster}",
            lifecycle.service(),
            lifecycle.name()
        ),
        (None, Some(path)) => format!("/clusters/{path}"),
        (Some(VirtualWorkspace::Unknown), _) | (None, None) => String::new(),
    }
}
