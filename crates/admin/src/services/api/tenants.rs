//! Writes of tenants: bindings and decisions on permission claims.

use super::{
    claims::{self, Decision},
    consumers,
    objects::{binding_message, check_etag, items, moment, not_found},
};
use crate::{
    fields,
    requests::Once,
    services::{
        header_after,
        retry::retried,
        workspace::{delete_time, not_undeleted},
    },
    session::{AdminService, Located, Session},
};
use insula_api::{Json, ObjectKey, Verb};
use insula_catalog::{Error, ids};
use insula_proto::admin::v1::{
    BindApiRequest, BindApiResponse, UnbindApiRequest, UnbindApiResponse, UndeleteBindingRequest,
    UndeleteBindingResponse,
};
use insula_registry::undelete::undelete;
use serde_json::json;
use tonic::Status;

impl AdminService {
    /// Takes the deletion of a binding back. Who may delete it may do that.
    pub(super) async fn undeleted_binding(
        &self,
        session: &Session,
        request: UndeleteBindingRequest,
    ) -> Result<UndeleteBindingResponse, Status> {
        let located = session.locate_binding(&request.workspace, &request.binding, Verb::Delete)?;
        let etag = fields::etag(&request.etag)?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let entered = self.enter(session, &located.cluster).await?;
        let work = entered.run(async {
            let key = ObjectKey::cluster_scoped(ids::apibindings(), located.cluster.clone(), &request.binding);
            let undeleted = undelete(self.registry(), &key, etag, request.validate_only).await;
            let undeleted = undeleted.map_err(|error| match error {
                Error::NotFound { .. } => not_found("apibindings", &request.binding, &located.path),
                error => not_undeleted(error),
            })?;
            let revision = session.snapshot.revision().max(undeleted.object.revision);
            Ok(UndeleteBindingResponse {
                header: session.header_at(revision),
                binding: Some(binding_message(
                    &undeleted.object.object.value(undeleted.object.revision),
                )),
                delete_time: Some(moment(undeleted.deadline)),
            })
        });
        self.once(session, once, &request, work).await
    }
}

impl Session {
    /// Binds an export of the provider's workspace.
    pub(super) async fn bind(
        &self,
        located: &Located,
        provider: &Located,
        request: &BindApiRequest,
    ) -> Result<BindApiResponse, Status> {
        let (_, export) = self.find_export(&self.snapshot, provider, &request.export)?;
        let requested: Vec<&Json> = items(&export, "/spec/permissionClaims").collect();
        let accepted = &request.accept_claims;
        let claims = claims::decided(&requested, &Json::Null, accepted, Decision::Accepted, "accept_claims")?;
        let name = match request.binding.as_str() {
            "" => &request.export,
            name => name,
        };
        let mut binding = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": name},
            "spec": {"reference": {"export": {"path": request.export_workspace, "name": request.export}}},
        });
        if claims.as_array().is_some_and(|claims| !claims.is_empty()) {
            binding["spec"]["permissionClaims"] = claims;
        }
        let made = self.write(located, &binding, request.validate_only).await?;
        Ok(BindApiResponse {
            header: self.header_of(&made),
            binding: Some(binding_message(&made)),
        })
    }

    /// Removes a binding.
    pub(super) async fn unbind(
        &self,
        located: &Located,
        request: &UnbindApiRequest,
    ) -> Result<UnbindApiResponse, Status> {
        let binding = self.find_binding(&self.snapshot, located, &request.binding)?;
        check_etag(&request.etag, ("apibindings", &request.binding), Some(&binding))?;
        let removed = consumers::removed(&self.snapshot, &located.cluster, &binding);
        let grace = request.immediately.then_some(0);
        let deleted = self
            .delete(located, &binding, (&request.etag, grace), request.validate_only)
            .await?;
        let has_objects = removed.iter().any(|removed| removed.objects > 0);
        Ok(UnbindApiResponse {
            header: header_after(self),
            binding: Some(binding_message(&binding)),
            removed,
            delete_time: delete_time(&deleted).filter(|_| has_objects),
        })
    }

    /// Decides on claims of a binding. Returns the binding.
    pub(super) async fn decide(
        &self,
        located: &Located,
        (name, etag): (&str, &str),
        names: &[String],
        (decision, dry_run): (Decision, bool),
    ) -> Result<Json, Status> {
        retried(self, etag, move |snapshot| async move {
            let mut binding = self.find_binding(&snapshot, located, name)?;
            check_etag(etag, ("apibindings", name), Some(&binding))?;
            if names.is_empty() {
                return Err(Status::invalid_argument("claims: is required"));
            }
            let before = &binding["spec"]["permissionClaims"];
            let decided = claims::decided(&claims::requested(&binding), before, names, decision, "claims")?;
            if decided == *before || before.is_null() && decided == json!([]) {
                return Ok(binding);
            }
            binding["spec"]["permissionClaims"] = decided;
            self.write(located, &binding, dry_run).await
        })
        .await
    }
}
