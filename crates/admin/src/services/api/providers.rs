//! Writes of providers: publication, import, retirement and rollouts.

use super::{
    manifests,
    objects::{check_etag, export_message, or_root},
    publication::{self, Options, Plan, Retirement},
    rollout,
};
use crate::session::{AdminService, Located, Session, right};
use insula_api::{Json, names::groups};
use insula_proto::admin::v1::{
    AbortRolloutRequest, AbortRolloutResponse, ImportDefinitionsRequest, ImportDefinitionsResponse, OfferedResource,
    PublishApiRequest, PublishApiResponse, PublishedExport, RetireVersionRequest, RetireVersionResponse,
};
use std::sync::Arc;
use tonic::Status;

impl Session {
    /// Finds a workspace in which the caller may publish.
    pub(super) fn locate_publication(&self, workspace: &str) -> Result<Located, Status> {
        let create = right("create", groups::APIS, "apiresourceschemas", "");
        let located = self.locate(or_root(workspace), &create)?;
        self.may_read_published(&located)?;
        Ok(located)
    }

    /// Pauses a rollout, or continues it.
    pub(super) async fn set_pause(
        &self,
        located: &Located,
        (name, etag): (&str, &str),
        paused: bool,
        dry_run: bool,
    ) -> Result<(Json, PublishedExport), Status> {
        let (_, mut value) = self.find_export(located, name)?;
        check_etag(etag, Some(&value))?;
        if let Some(new) = rollout::with_pause(&value, paused) {
            value = self.write(located, &new, dry_run).await?;
        }
        let message = export_message(&located.path, &value);
        Ok((value, message))
    }
}

impl AdminService {
    /// Publishes manifests.
    pub(super) async fn publish(
        &self,
        session: &Session,
        located: &Located,
        request: PublishApiRequest,
    ) -> Result<PublishApiResponse, Status> {
        let dry_run = request.validate_only;
        let options = Options {
            export: request.export,
            accept_incompatible: request.accept_incompatible,
            confirm_removals: request.confirm_removals,
            etag: request.etag,
            validate_only: dry_run,
        };
        let (snapshot, cluster) = (session.snapshot.clone(), located.cluster.clone());
        let plan = move || {
            let published = manifests::published("manifests", request.manifests)?;
            publication::publish(&snapshot, &cluster, published, &options)
        };
        let plan = self.run_blocking(session, located, plan).await?;
        let export = session.write_plan(located, &plan, dry_run).await?;
        Ok(PublishApiResponse {
            header: session.header_of(export.as_ref().unwrap_or(&Json::Null)),
            steps: plan.steps,
            removals: plan.removals,
            notes: plan.notes,
            export: export.map(|export| export_message(&located.path, &export)),
        })
    }

    /// Makes schemas of definitions.
    pub(super) async fn import(
        &self,
        session: &Session,
        located: &Located,
        request: ImportDefinitionsRequest,
    ) -> Result<ImportDefinitionsResponse, Status> {
        let (snapshot, cluster) = (session.snapshot.clone(), located.cluster.clone());
        let plan = move || {
            let mut published = manifests::published("definitions", request.definitions)?;
            let plan = publication::import(&snapshot, &cluster, &mut published)?;
            let resources = published.iter().map(|api| OfferedResource {
                group: api.group.clone(),
                resource: api.plural.clone(),
                schema: api.name().to_owned(),
            });
            Ok((plan, resources.collect()))
        };
        let (plan, resources): (Plan, Vec<OfferedResource>) = self.run_blocking(session, located, plan).await?;
        session.write_plan(located, &plan, request.validate_only).await?;
        Ok(ImportDefinitionsResponse {
            header: session.header(),
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
        let (_, value) = session.find_export(located, &request.export)?;
        let dry_run = request.validate_only;
        let retirement = Retirement {
            step: request.step(),
            version: request.version,
            warning: request.warning,
            confirm: request.confirm,
        };
        let options = Options {
            export: request.export,
            etag: request.etag,
            validate_only: dry_run,
            ..Options::default()
        };
        let (snapshot, cluster) = (session.snapshot.clone(), located.cluster.clone());
        let plan = move || publication::retire(&snapshot, &cluster, &value, &retirement, options);
        let plan = self.run_blocking(session, located, plan).await?;
        let export = session.write_plan(located, &plan, dry_run).await?;
        Ok(RetireVersionResponse {
            header: session.header_of(export.as_ref().unwrap_or(&Json::Null)),
            steps: plan.steps,
            removals: plan.removals,
            export: export.map(|export| export_message(&located.path, &export)),
        })
    }

    /// Takes a release back.
    pub(super) async fn abort(
        &self,
        session: &Session,
        located: &Located,
        request: AbortRolloutRequest,
    ) -> Result<AbortRolloutResponse, Status> {
        let (name, value) = session.find_export(located, &request.export)?;
        check_etag(&request.etag, Some(&value))?;
        let dry_run = request.validate_only;
        let options = Options {
            confirm_removals: request.confirm_removals,
            validate_only: dry_run,
            ..Options::default()
        };
        let snapshot = session.snapshot.clone();
        let registry = Arc::clone(&self.api.registry);
        let aborted = move || rollout::aborted(&registry, &snapshot, &name, &value, &options);
        let (new, restored): (Json, Vec<OfferedResource>) = self.run_blocking(session, located, aborted).await?;
        let written = session.write(located, &new, dry_run).await?;
        Ok(AbortRolloutResponse {
            header: session.header_of(&written),
            export: Some(export_message(&located.path, &written)),
            restored,
        })
    }
}
