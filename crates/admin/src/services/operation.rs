//! `OperationService`: the operations of the installation and of workspaces.

use super::header_after;
use crate::{
    operations::{self, Operations, Record},
    pages::Page,
    requests::Once,
    session::{AdminService, Session, right},
    status::{self, Fault},
};
use insula_api::Verb;
use insula_proto::admin::v1::{
    CancelOperationRequest, CancelOperationResponse, DeleteOperationRequest, DeleteOperationResponse, ErrorReason,
    GetOperationRequest, GetOperationResponse, ListOperationsRequest, ListOperationsResponse, ResponseHeader,
    WaitOperationRequest, WaitOperationResponse, operation_service_server::OperationService,
};
use insula_store::Entry;
use std::{cmp::Reverse, sync::Arc, time::Duration};
use tonic::{Code, Request, Response, Status};

/// The path whose right is that to all operations of the installation.
const PATH: &str = "/operations";
/// The group and the resource of the rights to operations of a workspace.
const GROUP: &str = "admin.insula.io";
const RESOURCE: &str = "operations";
/// Longest wait of a call.
const WAIT_MAX: Duration = Duration::from_secs(30);

#[tonic::async_trait]
impl OperationService for AdminService {
    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<GetOperationResponse>, Status> {
        let session = self.begin(&request).await?;
        let (entry, record) = find(&session, &request.get_ref().name, Verb::Get)?;
        Ok(Response::new(GetOperationResponse {
            header: session.header(),
            operation: Some(record.describe(&entry.key.name)),
        }))
    }

    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let cluster = match request.workspace.as_str() {
            "" => {
                session.administer("list", PATH)?;
                None
            }
            path => Some(session.locate(path, &right(Verb::List, GROUP, RESOURCE, ""))?.cluster),
        };
        let cluster = cluster.map(|cluster| cluster.to_string());
        self.page(&session, &request, cluster.as_deref())
            .await
            .map(Response::new)
    }

    async fn cancel_operation(
        &self,
        request: Request<CancelOperationRequest>,
    ) -> Result<Response<CancelOperationResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        find(&session, &request.name, Verb::Update)?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let cancelled = async {
            self.operations.cancel(&request.name, request.validate_only).await?;
            // Shows the request to end, which is stored by now.
            let snapshot = self.registry().store.latest();
            let (entry, record) = read_record(&snapshot, &request.name).ok_or_else(|| not_found(&request.name))?;
            Ok(CancelOperationResponse {
                header: session.header_at(snapshot.revision()),
                operation: Some(record.describe(&entry.key.name)),
            })
        };
        self.once(&session, once, &request, cancelled).await.map(Response::new)
    }

    async fn wait_operation(
        &self,
        request: Request<WaitOperationRequest>,
    ) -> Result<Response<WaitOperationResponse>, Status> {
        let session = self.begin(&request).await?;
        let WaitOperationRequest { name, timeout } = request.into_inner();
        find(&session, &name, Verb::Get)?;
        let time = match timeout {
            None => WAIT_MAX,
            Some(timeout) => Duration::try_from(timeout)
                .map_err(|_| status::invalid("timeout", "must not be negative"))?
                .min(WAIT_MAX),
        };
        // A snapshot that is held pins its history.
        let header = session.header();
        drop(session);
        let found = self.operations.wait(&name, time).await;
        let (entry, record) = found.ok_or_else(|| not_found(&name))?;
        Ok(Response::new(WaitOperationResponse {
            header: header.map(|header| ResponseHeader {
                revision: header.revision.max(entry.revision.0),
                ..header
            }),
            operation: Some(record.describe(&name)),
        }))
    }

    async fn delete_operation(
        &self,
        request: Request<DeleteOperationRequest>,
    ) -> Result<Response<DeleteOperationResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        if request.request_id.is_empty() {
            find(&session, &request.name, Verb::Delete)?;
        }
        let deleted = async {
            find(&session, &request.name, Verb::Delete)?;
            self.operations.delete(&request.name, request.validate_only).await?;
            Ok(DeleteOperationResponse {
                header: header_after(&session),
            })
        };
        self.once(&session, once, &request, deleted).await.map(Response::new)
    }
}

impl AdminService {
    /// Returns a page of operations. All pages are read at the revision of the first one.
    async fn page(
        &self,
        session: &Session,
        request: &ListOperationsRequest,
        cluster: Option<&str>,
    ) -> Result<ListOperationsResponse, Status> {
        let done = format!("{:?}", request.done);
        let filter = [&*request.workspace, &*request.kind, &*done];
        let page = Page::read(session, &filter, request.page_size, &request.page_token)?;
        let snapshot = page.snapshot(session).await?;
        let from = page.after.as_ref().and_then(|(_, position)| position.parse().ok());
        let from: usize = from.unwrap_or_default();
        let wanted = |record: &Record| {
            cluster.is_none_or(|cluster| cluster == record.cluster)
                && (request.kind.is_empty() || request.kind == record.kind)
                && request.done.is_none_or(|done| done == record.outcome.is_some())
        };
        let all = Operations::list(&snapshot);
        let read = all
            .iter()
            .filter_map(|entry| Some((entry, Record::read(&entry.object)?)));
        let mut found: Vec<(&Entry, Arc<Record>)> = read.filter(|(_, record)| wanted(record)).collect();
        found.sort_unstable_by_key(|(entry, record)| (Reverse(record.created), Arc::clone(&entry.key.name)));
        let next = from.saturating_add(page.size);
        let shown = found.iter().skip(from).take(page.size);
        Ok(ListOperationsResponse {
            operations: shown.map(|(entry, record)| record.describe(&entry.key.name)).collect(),
            next_page_token: match found.len() > next {
                true => page.next(snapshot.revision(), &next.to_string()),
                false => String::new(),
            },
            header: session.header_at(snapshot.revision()),
        })
    }
}

fn not_found(name: &str) -> Status {
    let message = format!("operation {name:?} not found");
    Fault::new(Code::NotFound, ErrorReason::NotFound, message)
        .resource(&format!("{RESOURCE}.{GROUP}"), name)
        .status()
}

fn read_record(snapshot: &insula_store::Pinned, name: &str) -> Option<(Entry, Arc<Record>)> {
    let entry = snapshot.get(&operations::key(name))?;
    let record = Record::read(&entry.object)?;
    Some((entry, record))
}

/// Finds an operation on which the caller has the right to a verb.
fn find(session: &Session, name: &str, verb: Verb) -> Result<(Entry, Arc<Record>), Status> {
    if name.is_empty() {
        return Err(status::invalid("name", "is required"));
    }
    let found = read_record(&session.snapshot, name);
    let user = session.caller.acting_user();
    if let Some((_, record)) = &found {
        if record.user.name == user.name && record.user.uid == user.uid && session.user().is_ok() {
            return found.ok_or_else(|| not_found(name));
        }
        let right = right(verb, GROUP, RESOURCE, name);
        if let Some(cluster) = record.cluster_name()
            && session.caller.permit(&session.snapshot, &cluster, right).is_ok()
        {
            return found.ok_or_else(|| not_found(name));
        }
    }
    session.administer(verb, PATH)?;
    found.ok_or_else(|| not_found(name))
}
