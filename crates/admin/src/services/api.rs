//! `ApiService`: publication, rollout, binding and retirement of APIs. Plans are made on one
//! snapshot; their writes are requests as the caller.

mod bind_requests;
mod claims;
mod compare;
mod consumers;
pub(super) mod manifests;
mod objects;
mod offers;
mod providers;
mod publication;
mod retired_fields;
mod rollback;
mod rollout;
mod settings;
mod tenants;
pub(super) mod trial;
mod write;

use crate::{
    fields,
    pages::Page,
    requests::Once,
    session::{AdminService, right},
};
use claims::Decision;
use compare::{change, diff, finding};
use insula_admission::publication::{Difference, lint};
use insula_api::Verb;
use insula_api::names::groups;
use insula_auth::Attributes;
use insula_proto::admin::v1::{
    AbortRolloutRequest, AbortRolloutResponse, AcceptClaimsRequest, AcceptClaimsResponse, BindApiRequest,
    BindApiResponse, CheckRolloutRequest, CheckRolloutResponse, DecideApiRequestRequest, DecideApiRequestResponse,
    DiffApiRequest, DiffApiResponse, GetApiRequest, GetApiResponse, GetExportRequest, GetExportResponse,
    GetVersionUsageRequest, GetVersionUsageResponse, ImportDefinitionsRequest, ImportDefinitionsResponse,
    LintApiRequest, LintApiResponse, LintFinding, ListApiRequestsRequest, ListApiRequestsResponse, ListApisRequest,
    ListApisResponse, ListClaimsRequest, ListClaimsResponse, ListConsumersRequest, ListConsumersResponse,
    ListExportsRequest, ListExportsResponse, PauseRolloutRequest, PauseRolloutResponse, PublishApiRequest,
    PublishApiResponse, RejectClaimsRequest, RejectClaimsResponse, RequestApiRequest, RequestApiResponse,
    ResumeRolloutRequest, ResumeRolloutResponse, RetireFieldRequest, RetireFieldResponse, RetireVersionRequest,
    RetireVersionResponse, RollbackReleaseRequest, RollbackReleaseResponse, UnbindApiRequest, UnbindApiResponse,
    UndeleteBindingRequest, UndeleteBindingResponse, UpdateExportRequest, UpdateExportResponse,
    api_service_server::ApiService,
};
pub(super) use objects::{group_named, not_found, required};
use objects::{list_exports, or_root};
use rollout::Control;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// The right to read the objects of an export's consumers.
const CONTENT: &str = "content";

fn content(export: &str) -> Attributes {
    Attributes {
        subresource: CONTENT.into(),
        ..right(Verb::List, groups::APIS, "apiexports", export)
    }
}

fn once(request_id: &str, validate_only: bool) -> Once<'_> {
    Once {
        request_id,
        validate_only,
    }
}

#[tonic::async_trait]
impl ApiService for AdminService {
    async fn list_exports(
        &self,
        request: Request<ListExportsRequest>,
    ) -> Result<Response<ListExportsResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let list = right(Verb::List, groups::APIS, "apiexports", "");
        let located = session.locate(or_root(&request.workspace), &list)?;
        let page = Page::read(
            &session,
            &[located.cluster.as_str()],
            request.page_size,
            &request.page_token,
        )?;
        let snapshot = page.snapshot(&session).await?;
        let entered = self.enter(&session, &located.cluster).await?;
        let (exports, next_page_token) = entered.run(async { list_exports(&snapshot, &located, &page) }).await;
        Ok(Response::new(ListExportsResponse {
            header: session.header_at(snapshot.revision()),
            exports,
            next_page_token,
        }))
    }

    async fn get_export(&self, request: Request<GetExportRequest>) -> Result<Response<GetExportResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.export_workspace(&request.workspace, &request.export, Verb::Get, "")?;
        let (_, value) = session.find_export(&session.snapshot, &located, &request.export)?;
        let entered = self.enter(&session, &located.cluster).await?;
        let export = entered.run(async { session.export_now(&located, &value) }).await;
        Ok(Response::new(GetExportResponse {
            header: session.header(),
            export: Some(export),
        }))
    }

    async fn publish_api(&self, request: Request<PublishApiRequest>) -> Result<Response<PublishApiResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_publication(&request.workspace)?;
        let once = once(&request.request_id, request.validate_only);
        let work = async { self.publish(&session, &located, request.clone()).await };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn diff_api(&self, request: Request<DiffApiRequest>) -> Result<Response<DiffApiResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_trial(&request.workspace, false)?;
        if request.old_manifests.is_empty() {
            session.may_read_published(&located)?;
        }
        let (snapshot, cluster, path) = (session.snapshot.clone(), located.cluster.clone(), located.path.clone());
        let meter = session.caller.work().clone();
        let compared = move || diff(&snapshot, (&cluster, &path), request, &meter);
        let found: Vec<Difference> = self.run_blocking(&session, &located, compared).await?;
        Ok(Response::new(DiffApiResponse {
            header: session.header(),
            breaking: count(found.iter().filter(|change| change.breaking).count()),
            changes: found.into_iter().map(change).collect(),
        }))
    }

    async fn check_rollout(
        &self,
        request: Request<CheckRolloutRequest>,
    ) -> Result<Response<CheckRolloutResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.export_workspace(&request.workspace, &request.export, Verb::List, CONTENT)?;
        if !request.manifests.is_empty() {
            session.permit(
                &located.cluster,
                right(Verb::Create, groups::APIS, "apiresourceschemas", ""),
            )?;
        }
        let (_, export) = session.find_export(&session.snapshot, &located, &request.export)?;
        let filter = trial::filter(&located.cluster, &request.export, &request.manifests);
        let page = Page::read(&session, &[&filter], request.page_size, &request.page_token)?;
        let snapshot = page.snapshot(&session).await?;
        let registry = Arc::clone(&self.api.registry);
        let (cluster, revision) = (located.cluster.clone(), snapshot.revision());
        let names = session.names(&snapshot)?;
        let meter = session.caller.work().clone();
        let tried = move || {
            let trials = match request.manifests.is_empty() {
                true => trial::of_offer(&registry, &snapshot, &cluster, &export)?,
                false => trial::of_manifests(&registry, &snapshot, (&cluster, &export), request.manifests, &meter)?,
            };
            let state = trial::State::new(&registry, &snapshot, &names);
            trial::run(state, &trials, &page, ("", &meter))
        };
        let tried = self.run_blocking(&session, &located, tried).await?;
        Ok(Response::new(CheckRolloutResponse {
            header: session.header_at(revision),
            failures: tried.failures,
            effects: tried.effects.iter().map(trial::effect_message).collect(),
            examined: tried.examined,
            workspaces: count(tried.clusters.len()),
            next_page_token: tried.next,
        }))
    }

    async fn update_export(
        &self,
        request: Request<UpdateExportRequest>,
    ) -> Result<Response<UpdateExportResponse>, Status> {
        let session = self.begin(&request).await?;
        let answer = self.changed_export(&session, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn pause_rollout(
        &self,
        request: Request<PauseRolloutRequest>,
    ) -> Result<Response<PauseRolloutResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.export_workspace(&request.workspace, &request.export, Verb::Update, "")?;
        let once = once(&request.request_id, request.validate_only);
        let work = async {
            let name = (request.export.as_str(), request.etag.as_str());
            let paused = session
                .control(&located, name, Control::Pause, request.validate_only)
                .await?;
            Ok(PauseRolloutResponse {
                header: session.header_of(&paused.0),
                export: Some(paused.1),
            })
        };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn resume_rollout(
        &self,
        request: Request<ResumeRolloutRequest>,
    ) -> Result<Response<ResumeRolloutResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.export_workspace(&request.workspace, &request.export, Verb::Update, "")?;
        let once = once(&request.request_id, request.validate_only);
        let work = async {
            let name = (request.export.as_str(), request.etag.as_str());
            let control = Control::Resume {
                with_held: request.with_held,
            };
            let paused = session.control(&located, name, control, request.validate_only).await?;
            Ok(ResumeRolloutResponse {
                header: session.header_of(&paused.0),
                export: Some(paused.1),
            })
        };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn abort_rollout(
        &self,
        request: Request<AbortRolloutRequest>,
    ) -> Result<Response<AbortRolloutResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.export_workspace(&request.workspace, &request.export, Verb::Update, "")?;
        session.may_read_published(&located)?;
        session.permit(&located.cluster, content(&request.export))?;
        let once = once(&request.request_id, request.validate_only);
        let work = async { self.abort(&session, &located, request.clone()).await };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn rollback_release(
        &self,
        request: Request<RollbackReleaseRequest>,
    ) -> Result<Response<RollbackReleaseResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_publication(&request.workspace)?;
        let located_export = session.export_workspace(&request.workspace, &request.export, Verb::Update, "")?;
        session.permit(&located_export.cluster, content(&request.export))?;
        let once = once(&request.request_id, request.validate_only);
        let work = async { self.roll_back(&session, &located, request.clone()).await };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn import_definitions(
        &self,
        request: Request<ImportDefinitionsRequest>,
    ) -> Result<Response<ImportDefinitionsResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_publication(&request.workspace)?;
        let once = once(&request.request_id, request.validate_only);
        let work = async { self.import(&session, &located, request.clone()).await };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn bind_api(&self, request: Request<BindApiRequest>) -> Result<Response<BindApiResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let create = right(Verb::Create, groups::APIS, "apibindings", "");
        let located = session.locate(or_root(&request.workspace), &create)?;
        required("export_workspace", &request.export_workspace)?;
        required("export", &request.export)?;
        let provider = ("export_workspace", request.export_workspace.as_str());
        let provider = session.exporter(&located.cluster, provider, &request.export)?;
        let once = once(&request.request_id, request.validate_only);
        let work = async { session.bind(&located, &provider, &request).await };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn list_apis(&self, request: Request<ListApisRequest>) -> Result<Response<ListApisResponse>, Status> {
        let session = self.begin(&request).await?;
        self.list_offers(&session, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn get_api(&self, request: Request<GetApiRequest>) -> Result<Response<GetApiResponse>, Status> {
        let session = self.begin(&request).await?;
        self.get_offer(&session, request.into_inner()).await.map(Response::new)
    }

    async fn request_api(&self, request: Request<RequestApiRequest>) -> Result<Response<RequestApiResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let create = right(Verb::Create, groups::APIS, "apibindings", "");
        let located = session.locate(or_root(&request.workspace), &create)?;
        required("export_workspace", &request.export_workspace)?;
        required("export", &request.export)?;
        let once = once(&request.request_id, request.validate_only);
        let work = async { self.request_bind(&session, &located, &request).await };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn list_api_requests(
        &self,
        request: Request<ListApiRequestsRequest>,
    ) -> Result<Response<ListApiRequestsResponse>, Status> {
        let session = self.begin(&request).await?;
        let listed = self.list_requests(&session, request.into_inner()).await;
        listed.map(Response::new)
    }

    async fn decide_api_request(
        &self,
        request: Request<DecideApiRequestRequest>,
    ) -> Result<Response<DecideApiRequestResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_requests(&request)?;
        let once = once(&request.request_id, request.validate_only);
        let work = async { session.decide_request(&located, &request).await };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn unbind_api(&self, request: Request<UnbindApiRequest>) -> Result<Response<UnbindApiResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_binding(&request.workspace, &request.binding, Verb::Delete)?;
        let once = once(&request.request_id, request.validate_only);
        let work = async { session.unbind(&located, &request).await };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn undelete_binding(
        &self,
        request: Request<UndeleteBindingRequest>,
    ) -> Result<Response<UndeleteBindingResponse>, Status> {
        let session = self.begin(&request).await?;
        let answer = self.undeleted_binding(&session, request.into_inner()).await;
        answer.map(Response::new)
    }

    async fn list_claims(&self, request: Request<ListClaimsRequest>) -> Result<Response<ListClaimsResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_binding(&request.workspace, &request.binding, Verb::Get)?;
        let filter = [located.cluster.as_str(), &request.binding];
        let page = Page::read(&session, &filter, request.page_size, &request.page_token)?;
        let snapshot = page.snapshot(&session).await?;
        let binding = session.find_binding(&snapshot, &located, &request.binding)?;
        let entered = self.enter(&session, &located.cluster).await?;
        let (claims, next_page_token) = entered
            .run(async { claims::page(&binding, &page, snapshot.revision()) })
            .await;
        Ok(Response::new(ListClaimsResponse {
            header: session.header_at(snapshot.revision()),
            claims,
            next_page_token,
            etag: fields::etag_of(&binding),
        }))
    }

    async fn accept_claims(
        &self,
        request: Request<AcceptClaimsRequest>,
    ) -> Result<Response<AcceptClaimsResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_binding(&request.workspace, &request.binding, Verb::Update)?;
        let once = once(&request.request_id, request.validate_only);
        let work = async {
            let name = (request.binding.as_str(), request.etag.as_str());
            let decision = (Decision::Accepted, request.validate_only);
            let binding = session.decide(&located, name, &request.claims, decision).await?;
            Ok(AcceptClaimsResponse {
                header: session.header_of(&binding),
                claims: claims::claims(&binding),
                etag: fields::etag_of(&binding),
            })
        };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn reject_claims(
        &self,
        request: Request<RejectClaimsRequest>,
    ) -> Result<Response<RejectClaimsResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_binding(&request.workspace, &request.binding, Verb::Update)?;
        let once = once(&request.request_id, request.validate_only);
        let work = async {
            let name = (request.binding.as_str(), request.etag.as_str());
            let decision = (Decision::Rejected, request.validate_only);
            let binding = session.decide(&located, name, &request.claims, decision).await?;
            Ok(RejectClaimsResponse {
                header: session.header_of(&binding),
                claims: claims::claims(&binding),
                etag: fields::etag_of(&binding),
            })
        };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn list_consumers(
        &self,
        request: Request<ListConsumersRequest>,
    ) -> Result<Response<ListConsumersResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.export_workspace(&request.workspace, &request.export, Verb::List, CONTENT)?;
        let (export, _) = session.find_export(&session.snapshot, &located, &request.export)?;
        let filter = [located.cluster.as_str(), &request.export];
        let page = Page::read(&session, &filter, request.page_size, &request.page_token)?;
        let snapshot = page.snapshot(&session).await?;
        let revision = snapshot.revision();
        let names = session.names(&snapshot)?;
        let (meter, detail) = (session.caller.work().clone(), consumers::detail(&request));
        let listed = move || consumers::page((&snapshot, &names), &export, &page, (detail, &meter));
        let (consumers, next_page_token) = self.run_blocking(&session, &located, listed).await?;
        Ok(Response::new(ListConsumersResponse {
            header: session.header_at(revision),
            consumers,
            next_page_token,
        }))
    }

    async fn get_version_usage(
        &self,
        request: Request<GetVersionUsageRequest>,
    ) -> Result<Response<GetVersionUsageResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.export_workspace(&request.workspace, &request.export, Verb::Get, "")?;
        let snapshot = self.with_uses(&session).await?;
        let (_, mut value) = session.find_export(&snapshot, &located, &request.export)?;
        let (revision, cluster) = (snapshot.revision(), located.cluster.clone());
        let registry = Arc::clone(&self.api.registry);
        let counted = move || {
            consumers::count_uses(&registry, &snapshot, &cluster, &mut value);
            Ok(consumers::usage(&value))
        };
        let (versions, counted_since, days) = self.run_blocking(&session, &located, counted).await?;
        Ok(Response::new(GetVersionUsageResponse {
            header: session.header_at(revision),
            versions,
            counted_since,
            days,
        }))
    }

    async fn lint_api(&self, request: Request<LintApiRequest>) -> Result<Response<LintApiResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_trial(&request.workspace, false)?;
        let meter = session.caller.work().clone();
        let findings = move || {
            let sources = manifests::sources("manifests", request.manifests, &meter)?;
            let findings = sources.iter().flat_map(|source| lint(source.name(), source.manifest()));
            Ok(findings.map(finding).collect())
        };
        let findings: Vec<LintFinding> = self.run_blocking(&session, &located, findings).await?;
        Ok(Response::new(LintApiResponse {
            header: session.header(),
            findings,
        }))
    }

    async fn retire_version(
        &self,
        request: Request<RetireVersionRequest>,
    ) -> Result<Response<RetireVersionResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.export_workspace(&request.workspace, &request.export, Verb::Update, "")?;
        required("version", &request.version)?;
        session.may_read_published(&located)?;
        let once = once(&request.request_id, request.validate_only);
        let work = async { self.retire(&session, &located, request.clone()).await };
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn retire_field(
        &self,
        request: Request<RetireFieldRequest>,
    ) -> Result<Response<RetireFieldResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let found = session.locate_retired(&request)?;
        let once = once(&request.request_id, request.validate_only);
        let work = self.retired(&session, found, request.clone());
        self.once(&session, once, &request, work).await.map(Response::new)
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
