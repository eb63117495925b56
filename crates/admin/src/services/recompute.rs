//! `ConversionService.Recompute`: repair of what wrong rules wrote, in all workspaces that bind an
//! export.

use super::{
    api::{group_named, not_found, required},
    conversion::{RULES, object, of_kind},
    header_after,
    positions::{self, Positions},
};
use crate::{
    pages::{Page as PageToken, hash_bytes},
    requests::Once,
    session::{AdminService, Located, Session, right},
};
use insula_access::WorkspaceNames;
use insula_api::{ClusterName, Json, ObjectKey, Revision, names::groups};
use insula_auth::Attributes;
use insula_catalog::{Served, exports::ExportName, ids};
use insula_conversion::{Difference, RULES_UNKNOWN};
use insula_proto::{
    Message,
    admin::v1::{FieldDifference, FormerWriter, RecomputeRequest, RecomputeResponse, RecomputeState, RecomputedObject},
};
use insula_registry::{
    recompute::{self, Former, Limits, Page, State, Verdict},
    rewrite,
};
use insula_store::Snapshot;
use std::sync::Arc;
use tonic::Status;

/// Former rules of one request.
const FORMER_MAX: usize = 16;
/// Maximum number of objects of an answer.
const PAGE_MAX: usize = 500;
/// Bytes of objects to write after which a page ends.
const PAGE_BYTES_MAX: usize = 4 << 20;

impl AdminService {
    /// Examines one page of objects, and stores what is to be recomputed if the request says so:
    /// once for each `request_id`.
    pub(super) async fn recomputed_once(
        &self,
        session: &Session,
        request: RecomputeRequest,
    ) -> Result<RecomputeResponse, Status> {
        let found = session.locate_export(&request)?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: !request.apply,
        };
        let work = self.recomputed(session, found, request.clone());
        self.once(session, once, &request, work).await
    }

    async fn recomputed(
        &self,
        session: &Session,
        (located, export): (Located, ExportName),
        request: RecomputeRequest,
    ) -> Result<RecomputeResponse, Status> {
        let token = token(session, &export, &request)?;
        let max = token.size.min(PAGE_MAX);
        let apply = request.apply;
        let from = token.after.as_ref().map(|(_, position)| position.clone());
        let snapshot = session.snapshot.clone();
        let registry = Arc::clone(&self.api.registry);
        let examine = move || {
            let (group, plural) = (group_named(&request.group), &*request.resource);
            let api = export.resolve(&registry.catalog, &snapshot, group, plural);
            let owned = api.filter(|api| export.owns(&snapshot, api));
            let api = owned
                .ok_or_else(|| Status::not_found(format!("APIExport {:?} offers no {plural}.{group}", export.name)))?;
            let after = from.map(|from| after(&api, &from)).transpose()?;
            let schema = offered(&snapshot, &export, group, plural);
            let given = request.former_rules.into_iter().enumerate().map(|(i, rules)| {
                let field = format!("former_rules[{i}]");
                let rules = object(&field, Some(rules))?.unwrap_or_default();
                of_kind(&field, &rules, &RULES)?;
                let named = schema_named(&snapshot, &export.cluster, rules["metadata"]["name"].as_str());
                let schema = named.or_else(|| schema.clone());
                let schema = schema.ok_or_else(|| Status::not_found(format!("{plural}.{group} has no schema")))?;
                recompute::compile(&registry, &schema, &rules)
                    .map_err(|errors| positions::refused(&Positions::of_rules(&field, &rules).violations(&errors)))
            });
            let given = given.collect::<Result<Vec<_>, Status>>()?;
            let former = Former::new(&registry, &snapshot, &export, given, request.assume_former);
            let page = recompute::scan(
                &registry,
                &snapshot,
                &api,
                &former,
                Limits {
                    after: after.as_ref(),
                    objects: max,
                    bytes: PAGE_BYTES_MAX,
                    to_apply: apply,
                },
            );
            Ok((page, former))
        };
        let (page, former): (Page, Former) = self.run_blocking(session, &located, examine).await?;
        let names = session.names(&session.snapshot)?;
        let mut objects = Vec::with_capacity(page.verdicts.len());
        for mut verdict in page.verdicts {
            if apply {
                let done = recompute::apply(self.registry(), verdict, &former).await;
                verdict = done.map_err(|error| Status::unavailable(error.to_string()))?;
            }
            objects.extend(answer(&names, &verdict));
        }
        Ok(RecomputeResponse {
            header: match apply {
                true => header_after(session),
                false => session.header(),
            },
            objects,
            examined: i64::try_from(page.examined).unwrap_or(i64::MAX),
            next_page_token: page
                .next
                .map(|key| token.next(session.snapshot.revision(), &rewrite::position(&key)))
                .unwrap_or_default(),
        })
    }
}

impl Session {
    /// Finds an export whose consumers' objects the caller may list, or update.
    fn locate_export(&self, request: &RecomputeRequest) -> Result<(Located, ExportName), Status> {
        let found = self.locate_content((&request.workspace, &request.export), request.apply)?;
        for (field, value) in [("group", &request.group), ("resource", &request.resource)] {
            required(field, value)?;
        }
        if request.former_rules.len() > FORMER_MAX {
            return Err(Status::invalid_argument(format!(
                "former_rules: must have at most {FORMER_MAX} items"
            )));
        }
        if request.assume_former && request.former_rules.is_empty() {
            return Err(Status::invalid_argument("assume_former: needs former_rules"));
        }
        Ok(found)
    }

    /// Finds an export, in `root` where no workspace is named, whose consumers' objects the caller
    /// may list, or update to `apply` something.
    pub(super) fn locate_content(
        &self,
        (workspace, name): (&str, &str),
        apply: bool,
    ) -> Result<(Located, ExportName), Status> {
        let content = Attributes {
            subresource: "content".into(),
            ..right(if apply { "update" } else { "list" }, groups::APIS, "apiexports", name)
        };
        let workspace = if workspace.is_empty() { "root" } else { workspace };
        let located = self.locate(workspace, &content)?;
        required("export", name)?;
        let export = ExportName {
            cluster: located.cluster.clone(),
            name: name.into(),
        };
        if !export.exists(&self.snapshot) {
            return Err(not_found("apiexports", name, &located.path));
        }
        Ok((located, export))
    }
}

/// Returns the schema of a resource that the export offers.
fn offered(snapshot: &Snapshot, export: &ExportName, group: &str, plural: &str) -> Option<Json> {
    let value = snapshot.get(&export.key())?.object.body_value();
    let mut resources = value["spec"]["resources"].as_array()?.iter();
    let offered = resources.find(|offered| offered["group"] == group && offered["name"] == plural)?;
    schema_named(snapshot, &export.cluster, offered["schema"].as_str())
}

fn schema_named(snapshot: &Snapshot, cluster: &ClusterName, name: Option<&str>) -> Option<Json> {
    let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), cluster.clone(), name?);
    Some(snapshot.get(&key)?.object.body_value())
}

/// Reads the page of a request. Its token is bound to the objects and to the rules that count as
/// former ones, and not to a revision: a page is of the latest state.
fn token(session: &Session, export: &ExportName, request: &RecomputeRequest) -> Result<PageToken, Status> {
    let former = request.former_rules.iter().flat_map(Message::encode_to_vec);
    let former = format!("{:x} {}", hash_bytes(former), request.assume_former);
    let of = [
        export.cluster.as_str(),
        &export.name,
        &request.group,
        &request.resource,
        &former,
    ];
    PageToken::read(session, &of, request.page_size, &request.page_token)
}

fn after(api: &Served, position: &str) -> Result<ObjectKey, Status> {
    rewrite::key_at(api.resource_id(), position)
        .ok_or_else(|| Status::invalid_argument("page_token: is none that this server gave out"))
}

fn answer(names: &WorkspaceNames, verdict: &Verdict) -> Option<RecomputedObject> {
    let state = match verdict.state {
        State::Current => return None,
        State::Differs => RecomputeState::Differs,
        State::Kept => RecomputeState::Kept,
        State::OtherRules => RecomputeState::OtherRules,
        State::Unknown => RecomputeState::Unknown,
        State::Failed => RecomputeState::Failed,
        State::Recomputed => RecomputeState::Recomputed,
    };
    let key = &verdict.entry.key;
    let Revision(revision) = verdict.entry.revision;
    let writer = |(version, rules): &(String, u64)| FormerWriter {
        version: version.clone(),
        rules: match *rules {
            RULES_UNKNOWN => String::new(),
            rules => format!("{rules:016x}"),
        },
    };
    Some(RecomputedObject {
        workspace: names.name(&key.cluster).to_string(),
        cluster: key.cluster.to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        resource_version: revision.to_string(),
        state: state.into(),
        writers: verdict.writers.iter().map(writer).collect(),
        changes: verdict.changes.iter().map(difference).collect(),
        kept: verdict.kept.iter().map(difference).collect(),
        message: verdict.message.clone(),
    })
}

fn difference(difference: &Difference) -> FieldDifference {
    let text = |value: &Option<Json>| value.as_ref().map(Json::to_string).unwrap_or_default();
    FieldDifference {
        version: difference.version.clone(),
        path: difference.path.clone(),
        was: text(&difference.was),
        is: text(&difference.is),
    }
}
