//! `UndeleteWorkspace`: deletions that are taken back within their grace period.

use super::{describe, writes::Named};
use crate::{
    fields,
    requests::Once,
    session::{AdminService, Session, child_path},
    status::{self, Fault},
};
use insula_api::{ObjectKey, Verb};
use insula_catalog::{Error, ids};
use insula_proto::admin::v1::{ErrorReason, UndeleteWorkspaceRequest, UndeleteWorkspaceResponse};
use insula_registry::undelete::undelete;
use tonic::{Code, Status};

impl AdminService {
    /// Takes the deletion of a workspace back. Who may delete it may do that.
    pub(super) async fn undeleted(
        &self,
        session: &Session,
        request: UndeleteWorkspaceRequest,
    ) -> Result<UndeleteWorkspaceResponse, Status> {
        // The cluster of a deleted workspace has no path that could be found.
        child_path("workspace", &request.workspace)?;
        let named = Named::find(session, &request.workspace, Verb::Delete)?;
        let etag = fields::etag(&request.etag)?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let entered = self.enter(session, &named.parent).await?;
        let work = entered.run(async {
            let key = ObjectKey::cluster_scoped(ids::workspaces(), named.parent.clone(), &named.name);
            let undeleted = undelete(self.registry(), &key, etag, request.validate_only).await;
            let undeleted = undeleted.map_err(|error| match error {
                Error::NotFound { .. } => status::no_workspace(&named.name),
                error => not_undeleted(error),
            })?;
            let workspace = describe(&undeleted.object, &named.parent_path);
            let revision = session.snapshot.revision().max(undeleted.object.revision);
            Ok(UndeleteWorkspaceResponse {
                header: session.header_at(revision),
                workspace: Some(workspace),
                delete_time: Some(prost_types::Timestamp {
                    seconds: undeleted.deadline.0,
                    nanos: 0,
                }),
            })
        });
        self.once(session, once, &request, work).await
    }
}

/// Returns the status of a deletion that is not taken back.
pub(in crate::services) fn not_undeleted(error: Error) -> Status {
    let text = error.to_string();
    match error {
        Error::Conflict { .. } => Fault::new(Code::Aborted, ErrorReason::StaleEtag, format!("etag: {text}")).status(),
        Error::BadRequest(why) => Fault::new(Code::FailedPrecondition, ErrorReason::WrongState, why).status(),
        _ => Status::unavailable(text),
    }
}
