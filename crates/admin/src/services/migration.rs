//! `MigrationService`: migrations of ThirdPartyResources, a step at a time.

use super::{api::required, conversion::object, header_after, or_root};
use crate::{
    pages::Page,
    requests::Once,
    session::{AdminService, Located, Session, right},
};
use insula_api::{Json, Verb, names::groups};
use insula_catalog::{
    Error,
    exports::ExportName,
    registration::{self, DefinitionKind, DefinitionName, Step},
};
use insula_proto::{
    admin::v1::{
        AdvanceMigrationRequest, AdvanceMigrationResponse, BeginMigrationRequest, BeginMigrationResponse,
        ListMigrationsRequest, ListMigrationsResponse, Migration, MigrationSource, MigrationStep, NewBinding,
        PlanMigrationRequest, PlanMigrationResponse, UndoMigrationRequest, UndoMigrationResponse,
        migration_service_server::MigrationService, migration_source,
    },
    value,
};
use insula_registry::{
    FieldValidation, SentKeys, WriteOptions,
    registration_migration::{self as migrations, Planned, Replacement},
};
use serde_json::json;
use tonic::{Request, Response, Status};

/// Field manager of what a migration creates.
const MANAGER: &str = "insula-migration";

#[tonic::async_trait]
impl MigrationService for AdminService {
    async fn plan_migration(
        &self,
        request: Request<PlanMigrationRequest>,
    ) -> Result<Response<PlanMigrationResponse>, Status> {
        let session = self.begin(&request).await?;
        let source = Source::read(&session, request.into_inner().source)?;
        let entered = self.enter(&session, &source.located.cluster).await?;
        let planned = entered.run(self.planned(&session, &source)).await?;
        Ok(Response::new(PlanMigrationResponse {
            header: session.header(),
            manifest: Some(structure(&planned.manifest)?),
            objects: planned.objects as i64,
            problems: planned.problems,
            migration: Some(answer(&planned.migration)),
        }))
    }

    async fn begin_migration(
        &self,
        request: Request<BeginMigrationRequest>,
    ) -> Result<Response<BeginMigrationResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        // The rest is read with the effect: a repetition may come when the registration is gone.
        let cluster = Source::locate(&session, request.source.as_ref())?.cluster;
        let entered = self.enter(&session, &cluster).await?;
        let begun = entered.run(async {
            let source = Source::read(&session, request.source.clone())?;
            let under_way = migrations::list(&session.snapshot, &cluster);
            let under_way = under_way.into_iter().find(|known| known.concerns(&source.registration));
            let migration = match under_way {
                Some(known) => known,
                None => {
                    let planned = self.planned(&session, &source).await?;
                    let migration = planned.migration.clone();
                    let options = (&options(&session)?, session.caller.work());
                    let begun = migrations::begin(self.registry(), &cluster, planned, options).await;
                    begun.map_err(failed)?;
                    migration
                }
            };
            Ok(BeginMigrationResponse {
                header: header_after(&session),
                migration: Some(answer(&migration)),
            })
        });
        let begun = Box::pin(self.once(&session, once(&request.request_id), &request, begun)).await?;
        Ok(Response::new(begun))
    }

    async fn advance_migration(
        &self,
        request: Request<AdvanceMigrationRequest>,
    ) -> Result<Response<AdvanceMigrationResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let (located, plural, group) = locate_objects(&session, &request.workspace, &request.resource)?;
        let entered = self.enter(&session, &located.cluster).await?;
        let advanced = entered.run(async {
            let key = registration::Migration::key(&located.cluster, group, plural);
            let advanced = migrations::advance(self.registry(), &key, session.caller.work()).await;
            Ok(AdvanceMigrationResponse {
                header: header_after(&session),
                migration: advanced.map_err(failed)?.as_ref().map(answer),
            })
        });
        let advanced = self.once(&session, once(&request.request_id), &request, advanced);
        advanced.await.map(Response::new)
    }

    async fn undo_migration(
        &self,
        request: Request<UndoMigrationRequest>,
    ) -> Result<Response<UndoMigrationResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let (located, plural, group) = locate_objects(&session, &request.workspace, &request.resource)?;
        let entered = self.enter(&session, &located.cluster).await?;
        let undone = entered.run(async {
            let key = registration::Migration::key(&located.cluster, group, plural);
            let undone = migrations::undo(self.registry(), &key, session.caller.work()).await;
            undone.map_err(failed).map(|()| UndoMigrationResponse {
                header: header_after(&session),
            })
        });
        let undone = self.once(&session, once(&request.request_id), &request, undone);
        undone.await.map(Response::new)
    }

    async fn list_migrations(
        &self,
        request: Request<ListMigrationsRequest>,
    ) -> Result<Response<ListMigrationsResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let list = right(Verb::List, groups::EXTENSIONS, "thirdpartyresources", "");
        let located = session.locate(or_root(&request.workspace), &list)?;
        let filter = [located.cluster.as_str()];
        let page = Page::read(&session, &filter, request.page_size, &request.page_token)?;
        let entered = self.enter(&session, &located.cluster).await?;
        let snapshot = page.snapshot(&session).await?;
        let listed = async { migrations::list(&snapshot, &located.cluster) };
        let mut found: Vec<Migration> = entered.run(listed).await.iter().map(answer).collect();
        if let Some((_, last)) = &page.after {
            found.retain(|migration| migration.resource > *last);
        }
        found.sort_unstable_by(|one, other| one.resource.cmp(&other.resource));
        let more = found.len() > page.size;
        found.truncate(page.size);
        let last = found.last().filter(|_| more);
        let next = last.map(|last| page.next(snapshot.revision(), &last.resource));
        Ok(Response::new(ListMigrationsResponse {
            header: session.header_at(snapshot.revision()),
            next_page_token: next.unwrap_or_default(),
            migrations: found,
        }))
    }
}

/// Returns the parameters of a write. PlanMigration tries one.
fn once(request_id: &str) -> Once<'_> {
    Once {
        request_id,
        validate_only: false,
    }
}

/// Finds the workspace of objects that the caller may update.
fn locate_objects<'a>(
    session: &Session,
    workspace: &str,
    resource: &'a str,
) -> Result<(Located, &'a str, &'a str), Status> {
    let (plural, group) = resource
        .split_once('.')
        .ok_or_else(|| Status::invalid_argument("resource: write <plural>.<group>"))?;
    let located = session.locate(or_root(workspace), &right(Verb::Update, group, plural, ""))?;
    Ok((located, plural, group))
}

/// The registration of a request, and its replacement.
struct Source {
    located: Located,
    registration: DefinitionName,
    replacement: Replacement,
}

impl Source {
    /// Finds the workspace of a registration that the caller may delete.
    fn locate(session: &Session, source: Option<&MigrationSource>) -> Result<Located, Status> {
        let source = source.ok_or_else(|| Status::invalid_argument("source: is required"))?;
        if source.name.is_empty() {
            return Err(Status::invalid_argument("source.name: is required"));
        }
        let delete = right(Verb::Delete, &source.group, "thirdpartyresources", &source.name);
        session.locate(or_root(&source.workspace), &delete)
    }

    /// Reads a source, and asks for the rights that the migration takes.
    fn read(session: &Session, source: Option<MigrationSource>) -> Result<Self, Status> {
        let located = Source::locate(session, source.as_ref())?;
        let source = source.unwrap_or_default();
        let missing = |field: &str| Status::invalid_argument(format!("source.{field}: is required"));
        let kind = match &*source.group {
            groups::EXTENSIONS => DefinitionKind::FirstRegistration,
            groups::APIEXTENSION => DefinitionKind::SecondRegistration,
            "" => return Err(missing("group")),
            other => {
                let why = format!("source.group: {other:?} has no ThirdPartyResources");
                return Err(Status::invalid_argument(why));
            }
        };
        let registration = DefinitionName {
            kind,
            name: source.name.as_str().into(),
        };
        let (group, plural) = objects_of(session, &located, &registration)?;
        for verb in ["list", "update"] {
            session.permit(&located.cluster, right(verb, &group, &plural, ""))?;
        }
        let create = |group, resource| session.permit(&located.cluster, right(Verb::Create, group, resource, ""));
        let replacement = match source.replacement.ok_or_else(|| missing("replacement"))? {
            migration_source::Replacement::Definition(new) => {
                create("apiextensions.k8s.io", "customresourcedefinitions")?;
                Replacement::Definition(object("source.definition.manifest", new.manifest)?)
            }
            migration_source::Replacement::Registration(_) => {
                create(groups::APIEXTENSION, "thirdpartyresources")?;
                Replacement::Registration
            }
            migration_source::Replacement::Binding(new) => {
                create(groups::APIS, "apibindings")?;
                binding(session, &located, &new, &format!("{plural}.{group}"))?
            }
        };
        Ok(Source {
            located,
            registration,
            replacement,
        })
    }
}

/// Returns group and plural of a registration's objects.
fn objects_of(session: &Session, located: &Located, name: &DefinitionName) -> Result<(String, String), Status> {
    let entry = session.snapshot.get(&name.key(&located.cluster));
    let wanted = entry.and_then(|entry| registration::wanted(&entry.object.body_value()));
    let wanted = wanted.ok_or_else(|| {
        Status::not_found(format!(
            "thirdpartyresources.{} {:?} not found in workspace {}",
            name.kind.resource().group,
            name.name,
            located.path
        ))
    })?;
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    Ok((text(&wanted["group"]), text(&wanted["names"]["plural"])))
}

/// Returns the APIBinding that replaces a registration. The caller needs the right to bind.
fn binding(session: &Session, located: &Located, new: &NewBinding, name: &str) -> Result<Replacement, Status> {
    let workspace = ("source.binding.export_workspace", new.export_workspace.as_str());
    required(workspace.0, workspace.1)?;
    required("source.binding.export", &new.export)?;
    let export = ExportName {
        cluster: session.exporter(&located.cluster, workspace, &new.export)?.cluster,
        name: new.export.as_str().into(),
    };
    let name = if new.name.is_empty() { name } else { &new.name };
    let manifest = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": name},
        "spec": {"reference": {"export": {"path": new.export_workspace, "name": new.export}}},
    });
    Ok(Replacement::Binding(manifest, export))
}

impl AdminService {
    async fn planned(&self, session: &Session, source: &Source) -> Result<Planned, Status> {
        let options = options(session)?;
        let from = (&source.located.cluster, &source.registration);
        let planned = migrations::plan(self.registry(), &session.snapshot, from, &source.replacement, &options);
        planned.await.map_err(failed)
    }
}

fn options(session: &Session) -> Result<WriteOptions<'_>, Status> {
    Ok(WriteOptions {
        user: session.user()?,
        dry_run: false,
        field_validation: FieldValidation::Strict,
        body_bytes: 0,
        keys: SentKeys::default(),
        manager: MANAGER.into(),
        record: session.caller.record().clone(),
    })
}

fn structure(manifest: &Json) -> Result<prost_types::Struct, Status> {
    let map = manifest.as_object().cloned().unwrap_or_default();
    value::from_json(&map).map_err(|error| Status::out_of_range(error.to_string()))
}

fn answer(migration: &registration::Migration) -> Migration {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&migration.registration["apiVersion"]);
    Migration {
        resource: format!("{}.{}", migration.plural, migration.group),
        registration_group: insula_api::names::group_of(&api_version).to_owned(),
        registration: text(&migration.registration["metadata"]["name"]),
        replacement_kind: text(&migration.replacement["kind"]),
        replacement: text(&migration.replacement["metadata"]["name"]),
        step: step(migration.step).into(),
        undo: migration.undo,
        objects: migration.before.objects as i64,
        hash: match migration.step {
            Step::Export => String::new(),
            _ => migration.before.hex(),
        },
        seen: migration.seen.objects as i64,
        message: migration.message.clone(),
        former_api_version: migration.stored.0.clone(),
        api_version: migration.stored.1.clone(),
    }
}

fn step(step: Step) -> MigrationStep {
    match step {
        Step::Export => MigrationStep::Export,
        Step::Replace => MigrationStep::Replace,
        Step::Serve => MigrationStep::Serve,
        Step::Recreate => MigrationStep::Recreate,
        Step::Adopt => MigrationStep::Adopt,
        Step::Verify => MigrationStep::Verify,
        Step::Thaw => MigrationStep::Thaw,
    }
}

/// Returns the status for a refusal of the registry.
fn failed(error: Error) -> Status {
    let message = error.to_string();
    match error {
        Error::NotFound { .. } => Status::not_found(message),
        Error::Forbidden { .. } => Status::permission_denied(message),
        Error::Conflict { .. } => Status::aborted(message),
        Error::BadRequest(_) | Error::Invalid { .. } | Error::AlreadyExists { .. } => {
            Status::failed_precondition(message)
        }
        _ => Status::unavailable(message),
    }
}
