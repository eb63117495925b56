//! Writes of providers: publication, import, retirement and rollouts.

use super::{
    manifests,
    objects::{check_etag, export_message, or_root},
    publication::{self, Options, Plan, Retirement, UNCHANGED},
    rollback,
    rollout::{self, Control},
    trial,
};
use crate::{
    services::{access::subject_in, header_after, retry::retried},
    session::{AdminService, Located, Session, right},
    status::invalid,
};
use insula_admission::publication::{Effect, add_effects};
use insula_api::{ClusterName, Json, Revision, Verb, names::groups};
use insula_catalog::ids;
use insula_proto::admin::v1::{
    AbortRolloutRequest, AbortRolloutResponse, ImportDefinitionsRequest, ImportDefinitionsResponse, OfferedResource,
    PublishApiRequest, PublishApiResponse, PublishStep, PublishedExport, RetireVersionRequest, RetireVersionResponse,
    RetirementStep, RollbackReleaseRequest, RollbackReleaseResponse, Subject,
};
use insula_registry::Deps;
use insula_store::Snapshot;
use std::sync::{Arc, OnceLock};
use tonic::Status;

/// Subjects that a publication lets bind its export.
const BINDABLE_BY_MAX: usize = 64;
/// Objects that a release is tried on before others of the workspace get their turn: some tens of
/// milliseconds.
const PAGE_OBJECTS: usize = 1_000;

impl Session {
    /// Finds a workspace in which the caller may publish.
    pub(super) fn locate_publication(&self, workspace: &str) -> Result<Located, Status> {
        let create = right(Verb::Create, groups::APIS, "apiresourceschemas", "");
        let located = self.locate(or_root(workspace), &create)?;
        self.may_read_published(&located)?;
        Ok(located)
    }

    /// Returns the message of an export, whose rollout is that of the release on offer now.
    pub(super) fn export_now(&self, located: &Located, value: &Json) -> PublishedExport {
        let mut export = export_message(&located.path, value);
        let registry = &self.api.registry;
        if let Some(state) = &mut export.rollout {
            let latest = registry.store.latest().charged_to(self.caller.work());
            rollout::correct(registry, &latest, &located.cluster, value, state);
        }
        export
    }

    /// Pauses a rollout, or continues it.
    pub(super) async fn control(
        &self,
        located: &Located,
        (name, etag): (&str, &str),
        control: Control,
        dry_run: bool,
    ) -> Result<(Json, PublishedExport), Status> {
        retried(self, etag, move |snapshot| async move {
            let (_, mut value) = self.find_export(&snapshot, located, name)?;
            check_etag(etag, ("apiexports", name), Some(&value))?;
            if let Some(new) = rollout::controlled(&value, control) {
                value = self.write(located, &new, dry_run).await?;
            }
            let message = export_message(&located.path, &value);
            Ok((value, message))
        })
        .await
    }
}

/// Steps of the first plan of a change. A later plan, after a conflict, finds unchanged what the
/// first one has written.
#[derive(Default)]
struct Made(OnceLock<Vec<PublishStep>>);

impl Made {
    /// Returns a plan that reports what the first one wrote.
    fn note(&self, mut plan: Plan) -> Plan {
        let first = self.0.get_or_init(|| plan.steps.clone());
        for step in plan.steps.iter_mut().filter(|step| step.action == UNCHANGED) {
            let made = first.iter().find(|it| it.kind == step.kind && it.name == step.name);
            if let Some(made) = made {
                step.clone_from(made);
            }
        }
        plan
    }
}

/// Reads the step of a retirement.
fn step(step: i32) -> Result<RetirementStep, Status> {
    match RetirementStep::try_from(step) {
        Ok(RetirementStep::Unspecified) => Err(invalid("step", "is required")),
        Ok(step) => Ok(step),
        Err(_) => Err(invalid("step", format!("{step} is no known value"))),
    }
}

/// Reads the subjects that may bind what is published. The plan tells which of their grants are
/// there, so the caller needs the right to read them.
fn binders(session: &Session, located: &Located, given: Vec<Subject>) -> Result<Vec<insula_auth::Subject>, Status> {
    if given.is_empty() {
        return Ok(Vec::new());
    }
    if given.len() > BINDABLE_BY_MAX {
        return Err(invalid(
            "bindable_by",
            format!("must have at most {BINDABLE_BY_MAX} subjects"),
        ));
    }
    for resource in ["clusterroles", "clusterrolebindings"] {
        session.permit(&located.cluster, right(Verb::Get, ids::RBAC, resource, ""))?;
    }
    let mut subjects = Vec::new();
    for (at, subject) in given.into_iter().enumerate() {
        let subject = subject_in(&format!("bindable_by[{at}]"), subject)?;
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    Ok(subjects)
}

impl AdminService {
    /// Stores the uses of versions that this server has noted, and returns the state then.
    pub(super) async fn with_uses(&self, session: &Session) -> Result<Snapshot, Status> {
        insula_registry::store_uses(self.registry()).await;
        let snapshot = self.registry().store.snapshot(Revision(0)).await;
        let snapshot = snapshot.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(snapshot.charged_to(session.caller.work()))
    }

    /// Returns what a plan takes to a thread of its own.
    fn parts_of<T: Clone>(&self, located: &Located, sent: &T) -> (Arc<Deps>, ClusterName, T) {
        (Arc::clone(&self.api.registry), located.cluster.clone(), sent.clone())
    }

    /// Computes a plan and its effects on all stored objects, page by page: others of the workspace
    /// and of the server go on meanwhile, and a caller who is gone ends it before anything is
    /// written.
    async fn planned_release<T: Send + 'static>(
        &self,
        session: &Session,
        located: &Located,
        (snapshot, options): (Snapshot, &Options),
        plan: impl FnOnce(&Snapshot) -> Result<(Plan, T), Status> + Send + 'static,
    ) -> Result<(Plan, T), Status> {
        let state = snapshot.clone();
        let (mut plan, rest) = self.run_blocking(session, located, move || plan(&state)).await?;
        let trials = Arc::new(std::mem::take(&mut plan.trials));
        let examined = async {
            let (mut effects, mut next) = (Vec::new(), Some((0, None)));
            while let Some(from) = next {
                let (state, trials, names) = (snapshot.clone(), Arc::clone(&trials), session.names(&snapshot)?);
                let (meter, registry) = (session.caller.work().clone(), Arc::clone(&self.api.registry));
                let page = move || {
                    let state = trial::State::new(&registry, &state, &names);
                    Ok(trial::walk(state, &trials, from, (PAGE_OBJECTS, ""), &meter))
                };
                let (tried, following) = self.run_blocking(session, located, page).await?;
                add_effects(&mut effects, tried.effects);
                next = following;
            }
            Ok(effects)
        };
        let effects: Result<Vec<Effect>, Status> = tokio::select! {
            examined = examined => examined,
            () = session.caller.gone() => Err(Status::cancelled("the client is gone")),
        };
        let mut effects = effects?;
        effects.sort_by_key(|effect| (std::cmp::Reverse(effect.objects), effect.id()));
        plan.judge(effects, options)?;
        Ok((plan, rest))
    }

    /// Publishes manifests.
    pub(super) async fn publish(
        &self,
        session: &Session,
        located: &Located,
        request: PublishApiRequest,
    ) -> Result<PublishApiResponse, Status> {
        let dry_run = request.validate_only;
        let content = right(Verb::List, groups::APIS, "apiexports/content", &request.export);
        let bindable_by = binders(session, located, request.bindable_by)?;
        let options = Options {
            export: request.export,
            accept_incompatible: request.accept_incompatible,
            accept_draft: request.accept_draft,
            confirm_removals: request.confirm_removals,
            accepted_effects: request.accepted_effects,
            sees_objects: session.permit(&located.cluster, content).is_ok(),
            etag: request.etag,
            validate_only: dry_run,
            bindable_by,
            meter: session.caller.work().clone(),
            ..Options::default()
        };
        let (options, manifests) = (&options, &request.manifests);
        let made = Made::default();
        let published = retried(session, &options.etag, |_| async {
            let (snapshot, given) = (self.with_uses(session).await?, options.clone());
            let (registry, cluster, manifests) = self.parts_of(located, manifests);
            let plan = move |snapshot: &Snapshot| {
                let published = manifests::published("manifests", manifests, &given.meter)?;
                let plan = publication::publish((&registry, snapshot), &cluster, published, &given)?;
                Ok((plan, ()))
            };
            let (plan, ()) = self
                .planned_release(session, located, (snapshot, options), plan)
                .await?;
            let plan = made.note(plan);
            let export = session.write_plan(located, &plan, dry_run).await?;
            Ok((plan, export))
        });
        let (plan, export) = published.await?;
        Ok(PublishApiResponse {
            header: header_after(session),
            steps: plan.steps,
            removals: plan.removals,
            effects: plan.effects,
            notes: plan.notes,
            export: export.map(|export| session.export_now(located, &export)),
        })
    }

    /// Makes schemas of definitions.
    pub(super) async fn import(
        &self,
        session: &Session,
        located: &Located,
        request: ImportDefinitionsRequest,
    ) -> Result<ImportDefinitionsResponse, Status> {
        let definitions = &request.definitions;
        let made = Made::default();
        let imported = retried(session, "", |snapshot| async {
            let (_, cluster, definitions) = self.parts_of(located, definitions);
            let meter = session.caller.work().clone();
            let plan = move || {
                let mut published = manifests::published("definitions", definitions, &meter)?;
                let plan = publication::import(&snapshot, &cluster, &mut published)?;
                let resources = published.iter().map(|api| OfferedResource {
                    group: api.group.clone(),
                    resource: api.plural.clone(),
                    schema: api.name().to_owned(),
                });
                Ok((plan, resources.collect()))
            };
            let (plan, resources): (Plan, Vec<OfferedResource>) = self.run_blocking(session, located, plan).await?;
            let plan = made.note(plan);
            session.write_plan(located, &plan, request.validate_only).await?;
            Ok((plan, resources))
        });
        let (plan, resources) = imported.await?;
        Ok(ImportDefinitionsResponse {
            header: header_after(session),
            steps: plan.steps,
            notes: plan.notes,
            resources,
        })
    }

    /// Retires a version.
    pub(super) async fn retire(
        &self,
        session: &Session,
        located: &Located,
        request: RetireVersionRequest,
    ) -> Result<RetireVersionResponse, Status> {
        let dry_run = request.validate_only;
        let retirement = Retirement {
            step: step(request.step)?,
            version: request.version,
            warning: request.warning,
            confirm: request.confirm,
        };
        let options = Options {
            export: request.export,
            etag: request.etag,
            validate_only: dry_run,
            meter: session.caller.work().clone(),
            ..Options::default()
        };
        let (retirement, options) = (&retirement, &options);
        let made = Made::default();
        let retired = retried(session, &options.etag, |_| async {
            let snapshot = self.with_uses(session).await?;
            let (_, value) = session.find_export(&snapshot, located, &options.export)?;
            let (retirement, given) = (retirement.clone(), options.clone());
            let (registry, cluster, ()) = self.parts_of(located, &());
            let plan = move |snapshot: &Snapshot| {
                let plan = publication::retire((&registry, snapshot), &cluster, &value, &retirement, given)?;
                Ok((plan, ()))
            };
            let (plan, ()) = self
                .planned_release(session, located, (snapshot, options), plan)
                .await?;
            let plan = made.note(plan);
            let export = session.write_plan(located, &plan, dry_run).await?;
            Ok((plan, export))
        });
        let (plan, export) = retired.await?;
        Ok(RetireVersionResponse {
            header: header_after(session),
            steps: plan.steps,
            removals: plan.removals,
            export: export.map(|export| session.export_now(located, &export)),
        })
    }

    /// Takes a release back.
    pub(super) async fn abort(
        &self,
        session: &Session,
        located: &Located,
        request: AbortRolloutRequest,
    ) -> Result<AbortRolloutResponse, Status> {
        let dry_run = request.validate_only;
        let options = Options {
            confirm_removals: request.confirm_removals,
            validate_only: dry_run,
            meter: session.caller.work().clone(),
            ..Options::default()
        };
        let (options, export, etag) = (&options, &*request.export, &*request.etag);
        let aborted = retried(session, etag, |_| async {
            let snapshot = self.with_uses(session).await?;
            let (name, value) = session.find_export(&snapshot, located, export)?;
            check_etag(etag, ("apiexports", export), Some(&value))?;
            let (registry, _, ()) = self.parts_of(located, &());
            let options = options.clone();
            let aborted = move || rollout::aborted(&registry, &snapshot, &name, &value, &options);
            let (new, restored): (Json, Vec<OfferedResource>) = self.run_blocking(session, located, aborted).await?;
            Ok((session.write(located, &new, dry_run).await?, restored))
        });
        let (written, restored) = aborted.await?;
        Ok(AbortRolloutResponse {
            header: session.header_of(&written),
            export: Some(export_message(&located.path, &written)),
            restored,
        })
    }

    /// Offers a former release again.
    pub(super) async fn roll_back(
        &self,
        session: &Session,
        located: &Located,
        request: RollbackReleaseRequest,
    ) -> Result<RollbackReleaseResponse, Status> {
        let dry_run = request.validate_only;
        let options = Options {
            export: request.export,
            confirm_removals: request.confirm_removals,
            accepted_effects: request.accepted_effects,
            sees_objects: true,
            etag: request.etag,
            validate_only: dry_run,
            // It was on offer, and accepted then.
            accept_incompatible: true,
            meter: session.caller.work().clone(),
            ..Options::default()
        };
        let (options, release) = (&options, &request.release);
        let (made, chosen) = (Made::default(), OnceLock::new());
        let rolled_back = retried(session, &options.etag, |_| async {
            let snapshot = self.with_uses(session).await?;
            let (name, value) = session.find_export(&snapshot, located, &options.export)?;
            // After a conflict, the release that the first attempt chose: its writes may have
            // changed what comes before the present one.
            let release = chosen.get().unwrap_or(release).clone();
            let (given, registry) = (options.clone(), Arc::clone(&self.api.registry));
            let plan =
                move |snapshot: &Snapshot| rollback::plan((&registry, snapshot), &name, &value, &release, &given);
            let (plan, release) = self
                .planned_release(session, located, (snapshot, options), plan)
                .await?;
            let release = chosen.get_or_init(|| release).clone();
            let plan = made.note(plan);
            let export = session.write_plan(located, &plan, dry_run).await?;
            Ok((plan, export, release))
        });
        let (plan, export, release) = rolled_back.await?;
        Ok(RollbackReleaseResponse {
            header: header_after(session),
            steps: plan.steps,
            removals: plan.removals,
            effects: plan.effects,
            notes: plan.notes,
            export: export.map(|export| session.export_now(located, &export)),
            release,
        })
    }
}
