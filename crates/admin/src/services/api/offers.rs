//! `ApiService`: the APIs that a caller may bind, and those that their owners list for everybody.
//!
//! A walk over the exports of all workspaces, in pages of limited cost. Exports that the caller may
//! neither bind nor see listed are passed over, and the answer is the same as without them.

use super::{
    bind_requests::{self, Side},
    claims,
    manifests::text,
    objects::{self, items, or_root, required},
};
use crate::{
    pages::Page,
    session::{AdminService, Located, Session, right},
    status::invalid,
};
use insula_api::{
    ClusterName, ClusterPath, Json, Object, ObjectKey, Scope, Verb,
    names::{annotations, groups},
};
use insula_apiserver::call::Caller;
use insula_catalog::{
    exports::{
        ExportName, ExportView,
        bind_request::{self, BindRequest},
    },
    ids, locate,
};
use insula_proto::admin::v1::{
    ApiBindRequest, GetApiRequest, GetApiResponse, ListApisRequest, ListApisResponse, OfferedApi, OfferedVersion,
    VersionedResource,
};
use insula_registry::rewrite;
use insula_store::{Entry, Snapshot};
use std::{ops::ControlFlow, sync::Arc};
use tonic::Status;

/// Cost of a page, in bindings of roles that are looked at. A page with an export that costs more
/// has this one alone.
const PAGE_COST_MAX: usize = 200_000;
/// Cost of an export by itself, and of each schema of one that is shown.
const EXPORT_COST: usize = 8;
const SCHEMA_COST: usize = 1_000;
/// Multiple of bytes to which positions are filled up, so that a token does not show the length of
/// a name.
const POSITION_BYTES: usize = 128;

/// Exports that an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// Those that the caller may bind.
    Bindable,
    /// Those, and the exports that their owners list for everybody.
    Listed,
}

/// The caller, in the workspace where they would bind.
struct Binder {
    caller: Arc<Caller>,
    cluster: ClusterName,
    /// The state that decides what the caller may see: that of the request, on each page.
    now: Snapshot,
}

/// Returns true if the owner of an export lists it for everybody.
fn is_listed(export: &Object) -> bool {
    export.parsed(ExportView::read).is_listed
}

impl Binder {
    fn new(session: &Session, cluster: &ClusterName) -> Self {
        Binder {
            caller: Arc::clone(&session.caller),
            cluster: cluster.clone(),
            now: session.snapshot.clone(),
        }
    }

    /// Returns the name of the workspace's binding to an export; empty without one. It is looked
    /// up: a workspace may have as many bindings as there are exports.
    fn binding(&self, snapshot: &Snapshot, export: &ExportName) -> String {
        let first = ObjectKey::cluster_scoped(ids::apibindings(), self.cluster.clone(), "");
        let mut name = String::new();
        export.for_each_binding_after(snapshot, Some(&first), |binding| {
            if binding.key.cluster == self.cluster {
                name = binding.key.name.to_string();
            }
            ControlFlow::Break(())
        });
        name
    }

    fn may_bind(&self, export: &ExportName) -> bool {
        let bind = right("bind", groups::APIS, "apiexports", &export.name);
        let clusters = (&self.cluster, &export.cluster);
        self.caller.permit_offer(&self.now, clusters, bind).is_ok()
    }

    /// Returns true if the owner of an export lets the caller ask for it.
    fn may_ask(&self, export: &Entry) -> bool {
        let user = self.caller.user().ok();
        user.is_some_and(|user| {
            let groups = bind_requests::groups_of(user, &export.key.cluster);
            bind_requests::is_asked_by(&export.object.parsed(ExportView::read), &groups)
        })
    }

    /// Returns the caller's request for the right to bind an export.
    fn request(&self, snapshot: &Snapshot, export: &Entry) -> Option<ApiBindRequest> {
        let export = ExportName {
            cluster: export.key.cluster.clone(),
            name: export.key.name.clone(),
        };
        let user = self.caller.user().ok()?.name_within(Some(&export.cluster))?;
        let entry = snapshot.get(&bind_request::key(&export, &user))?;
        let is_own = entry.object.parsed(BindRequest::read).user == user;
        is_own.then(|| bind_requests::message(snapshot, &entry, Side::Requester))
    }

    /// Returns an export as the caller sees it.
    fn show(&self, snapshot: &Snapshot, entry: &Entry, bindable: bool) -> OfferedApi {
        let (cluster, value) = (&entry.key.cluster, entry.object.body_value());
        let annotations = &value["metadata"]["annotations"];
        let annotation = |name: &str| annotations[name].as_str().unwrap_or_default().to_owned();
        OfferedApi {
            export: entry.key.name.to_string(),
            workspace: locate::path_of(snapshot, cluster).to_string(),
            title: annotation(annotations::API_TITLE),
            description: annotation(annotations::API_DESCRIPTION),
            docs: annotation(annotations::API_DOCS),
            owner: annotation(annotations::API_OWNER),
            resources: objects::offered(&value)
                .into_iter()
                .map(|offered| {
                    let schema = objects::published(snapshot, cluster, "APIResourceSchema", &offered.schema);
                    VersionedResource {
                        kind: schema
                            .as_ref()
                            .map_or("", |schema| text(schema, "/spec/names/kind"))
                            .to_owned(),
                        versions: schema.iter().flat_map(versions).collect(),
                        group: offered.group,
                        resource: offered.resource,
                    }
                })
                .collect(),
            claims: claims::open(&value),
            bindable,
            binding: self.binding(snapshot, &ExportName::new(cluster, &entry.key.name)),
            requestable: !bindable && self.may_ask(entry),
            request: self.request(snapshot, entry),
        }
    }
}

/// Returns the served versions of a schema.
fn versions(schema: &Json) -> Vec<OfferedVersion> {
    let served = items(schema, "/spec/versions").filter(|version| version["served"] == true);
    let version = |version: &Json| OfferedVersion {
        name: text(version, "/name").to_owned(),
        deprecated: version["deprecated"] == true,
        deprecation_warning: text(version, "/deprecationWarning").to_owned(),
    };
    served.map(version).collect()
}

/// Returns a page of the exports that the caller may see, and the token of the next one.
fn list(snapshot: &Snapshot, binder: &Binder, shown: Shown, page: &Page) -> (Vec<OfferedApi>, String) {
    walk(snapshot, page, |entry| {
        let export = ExportName {
            cluster: entry.key.cluster.clone(),
            name: entry.key.name.clone(),
        };
        let bindable = binder.may_bind(&export);
        let is_listed_now = || binder.now.get(&entry.key).is_some_and(|now| is_listed(&now.object));
        let is_seen = bindable || shown == Shown::Listed && is_listed(&entry.object) && is_listed_now();
        is_seen.then(|| binder.show(snapshot, entry, bindable))
    })
}

/// Passes exports to `see` until a page is full or has cost enough. Returns what `see` gives, and
/// the token of the next page.
fn walk(
    snapshot: &Snapshot,
    page: &Page,
    mut see: impl FnMut(&Entry) -> Option<OfferedApi>,
) -> (Vec<OfferedApi>, String) {
    let after = page.after.as_ref();
    let after = after.and_then(|(_, at)| rewrite::key_at(ids::apiexports(), at.trim_end()));
    let (mut found, mut next, mut cost) = (Vec::new(), String::new(), 0);
    let (mut last, mut bindings) = (None, (None, 0));
    snapshot.for_each_after(&Scope::everywhere(ids::apiexports()), after.as_ref(), |entry| {
        if found.len() == page.size || cost >= PAGE_COST_MAX {
            let last = last.as_ref().map(rewrite::position).unwrap_or_default();
            let filled = last.len().next_multiple_of(POSITION_BYTES);
            next = page.next(snapshot.revision(), &format!("{last:filled$}"));
            return ControlFlow::Break(());
        }
        let cluster = &entry.key.cluster;
        if bindings.0.as_ref() != Some(cluster) {
            let scope = Scope::cluster(ids::clusterrolebindings(), cluster.clone());
            bindings = (Some(cluster.clone()), snapshot.count(&scope));
        }
        cost += EXPORT_COST + bindings.1;
        last = Some(entry.key.clone());
        if entry.object.meta.is_deleting() {
            return ControlFlow::Continue(());
        }
        if let Some(api) = see(entry) {
            cost += SCHEMA_COST * api.resources.len();
            found.push(api);
        }
        ControlFlow::Continue(())
    });
    (found, next)
}

impl AdminService {
    /// Lists what the caller may bind in a workspace where they may read bindings.
    pub(super) async fn list_offers(
        &self,
        session: &Session,
        request: ListApisRequest,
    ) -> Result<ListApisResponse, Status> {
        let located = session.locate_binder(&request.workspace)?;
        let shown = if request.listed { Shown::Listed } else { Shown::Bindable };
        let filter = [located.cluster.as_str(), if request.listed { "listed" } else { "" }];
        let page = Page::read(session, &filter, request.page_size, &request.page_token)?;
        let snapshot = page.snapshot(session).await?;
        let revision = snapshot.revision();
        let binder = Binder::new(session, &located.cluster);
        let work = move || Ok(list(&snapshot, &binder, shown, &page));
        let (apis, next_page_token) = self.run_blocking(session, &located, work).await?;
        Ok(ListApisResponse {
            header: session.header_at(revision),
            apis,
            next_page_token,
        })
    }

    /// Returns one export that the caller may bind or that is listed. Without either, the answer is
    /// that of a binding without the right.
    pub(super) async fn get_offer(&self, session: &Session, request: GetApiRequest) -> Result<GetApiResponse, Status> {
        let located = session.locate_binder(&request.workspace)?;
        required("export_workspace", &request.export_workspace)?;
        required("export", &request.export)?;
        let provider = ("export_workspace", request.export_workspace.as_str());
        let path = ClusterPath::parse(provider.1)
            .map_err(|error| invalid(provider.0, format!("{error}; write a path such as root:org:team")))?;
        let entry = locate::locate_view(&session.snapshot, &path)
            .ok()
            .and_then(|(cluster, _)| {
                let name = request.export.as_str().into();
                session.snapshot.get(&ExportName { cluster, name }.key())
            });
        let listed = entry.filter(|entry| is_listed(&entry.object) && !entry.object.meta.is_deleting());
        let entry = match listed {
            Some(entry) => entry,
            None => {
                let provider = session.exporter(&located.cluster, provider, &request.export)?;
                let (name, _) = session.find_export(&session.snapshot, &provider, &request.export)?;
                let gone = || super::not_found("apiexports", &request.export, &provider.path);
                session.snapshot.get(&name.key()).ok_or_else(gone)?
            }
        };
        let binder = Binder::new(session, &located.cluster);
        let snapshot = session.snapshot.clone();
        let work = move || {
            let name = ExportName {
                cluster: entry.key.cluster.clone(),
                name: entry.key.name.clone(),
            };
            Ok(binder.show(&snapshot, &entry, binder.may_bind(&name)))
        };
        let api = self.run_blocking(session, &located, work).await?;
        Ok(GetApiResponse {
            header: session.header(),
            api: Some(api),
        })
    }
}

impl Session {
    /// Finds a workspace whose bindings the caller may list.
    pub(super) fn locate_binder(&self, workspace: &str) -> Result<Located, Status> {
        self.locate(or_root(workspace), &right(Verb::List, groups::APIS, "apibindings", ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_meter::ServerWork;
    use insula_store::{MemoryStore, Store, Txn, Write};
    use serde_json::json;

    const CLUSTERS: usize = 100;
    const EXPORTS_EACH: usize = 1_000;

    /// Writes of one transaction.
    const WRITES: usize = 100;

    async fn put(store: &MemoryStore, keys: impl Iterator<Item = ObjectKey>) {
        let write = |key: ObjectKey| {
            let value = json!({"apiVersion": "v1", "kind": "Any", "metadata": {"name": &*key.name}});
            Write::Put(key, Arc::new(Object::new(&value, None).expect("an object")))
        };
        let writes: Vec<Write> = keys.map(write).collect();
        for writes in writes.chunks(WRITES) {
            let txn = Txn {
                guards: Vec::new(),
                writes: writes.to_vec(),
            };
            store.commit(txn).await.expect("no guard fails");
        }
    }

    /// Returns the number of exports that each page looks at, for a caller who sees none of 100,000
    /// of workspaces with some bindings of roles.
    async fn looked_at(bindings: usize) -> Vec<usize> {
        let store = MemoryStore::new();
        for index in 0..CLUSTERS {
            let cluster = ClusterName::parse(&format!("c{index}")).expect("a name");
            let key = |resource, number| ObjectKey::cluster_scoped(resource, cluster.clone(), &format!("n{number}"));
            put(&store, (0..EXPORTS_EACH).map(|number| key(ids::apiexports(), number))).await;
            let resource = ids::clusterrolebindings;
            put(&store, (0..bindings).map(|number| key(resource(), number))).await;
        }
        let snapshot = store.latest().for_server(ServerWork::Tool);
        let (mut pages, mut token) = (Vec::new(), String::new());
        loop {
            let page = Page::parse(b"k", "/m", &[], 0, &token).expect("a page");
            let mut seen = 0;
            let (found, next) = walk(&snapshot, &page, |_| {
                seen += 1;
                None
            });
            assert!(found.is_empty());
            pages.push(seen);
            token = next;
            if token.is_empty() {
                return pages;
            }
        }
    }

    #[tokio::test]
    async fn a_page_looks_at_a_bounded_number_of_exports() {
        assert_eq!(looked_at(0).await, [25_000; 4]);
        // Whether a caller may bind an export takes as long as there are bindings beside it.
        assert_eq!(looked_at(42).await, [4_000; 25]);
    }

    #[tokio::test]
    async fn a_page_ends_when_it_is_full() {
        let store = MemoryStore::new();
        let key = |number: usize| {
            let name = format!("n{number:04}");
            ObjectKey::cluster_scoped(ids::apiexports(), ClusterName::root(), &name)
        };
        put(&store, (0..1_000).map(key)).await;
        let page = Page::parse(b"k", "/m", &[], 10, "").expect("a page");
        let mut seen = 0;
        let (found, next) = walk(&store.latest().for_server(ServerWork::Tool), &page, |_| {
            seen += 1;
            Some(OfferedApi::default())
        });
        assert_eq!((found.len(), seen, next.is_empty()), (10, 10, false));
    }
}
