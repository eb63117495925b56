//! Publication, rollout, binding and retirement of APIs.

use super::{Channel, as_user, channel, origin};
use insula_e2e::{Client, Server, Who, runtime, shared, until, workspace, workspace_owned_by};
use insula_proto::{
    admin::v1::{
        AbortRolloutRequest, AcceptClaimsRequest, BindApiRequest, CheckRolloutRequest, Consumer, DiffApiRequest,
        GetExportRequest, GetVersionUsageRequest, ImportDefinitionsRequest, LintApiRequest, LintSeverity,
        ListClaimsRequest, ListConsumersRequest, ListExportsRequest, PauseRolloutRequest, PublishApiRequest,
        PublishedExport, RejectClaimsRequest, ResumeRolloutRequest, RetireVersionRequest, RetirementStep,
        UnbindApiRequest, api_service_client::ApiServiceClient,
    },
    value::{Struct, from_json},
};
use serde_json::{Value, json};
use tonic::{Code, Status};

pub(super) const BOATS: &str = "namespaces/default/boats";

pub(super) fn message(value: &Value) -> Struct {
    from_json(value.as_object().unwrap()).unwrap()
}

fn version(name: &str, stored: bool, spec: &Value) -> Value {
    json!({"name": name, "served": true, "storage": stored, "schema": {"openAPIV3Schema": {"type": "object",
        "properties": {"spec": {"type": "object", "properties": spec}}}}})
}

/// A definition of boats: v1 has their name, v2 moves it, and v3, if it is there, wants a number.
pub(super) fn definition(with_v3: bool) -> Value {
    let mut versions = vec![
        version("v1", false, &json!({"name": {"type": "string"}})),
        version("v2", true, &json!({"title": {"type": "string"}})),
    ];
    if with_v3 {
        versions.push(version("v3", false, &json!({"number": {"type": "integer"}})));
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.grpc.example.io"},
        "spec": {
            "group": "grpc.example.io", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
        },
    })
}

pub(super) fn rules(with_v3: bool) -> Value {
    let rules = |from: &str, to: &str, rule: Value| json!({"from": from, "to": to, "rules": [rule]});
    let moved = |from: &str, to: &str| json!({"field": from, "destination": to});
    let mut conversions = vec![
        rules("v1", "v2", moved(".spec.name", ".spec.title")),
        rules("v2", "v1", moved(".spec.title", ".spec.name")),
    ];
    if with_v3 {
        let number = json!({"field": ".spec.title", "destination": ".spec.number", "transformation": "int(self)",
            "mayFail": true});
        let text = json!({"field": ".spec.number", "destination": ".spec.title", "transformation": "string(self)"});
        conversions.extend([rules("v2", "v3", number), rules("v3", "v2", text)]);
    }
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
        "metadata": {"name": "boats.grpc.example.io"}, "spec": {"conversions": conversions},
    })
}

pub(super) fn boats(with_v3: bool) -> Vec<Struct> {
    vec![message(&definition(with_v3)), message(&rules(with_v3))]
}

/// A provider's and a tenant's workspace, and a client of the administrator.
pub(super) struct Scene {
    pub(super) provider: String,
    pub(super) tenant: String,
    pub(super) at_provider: Client,
    pub(super) at_tenant: Client,
    pub(super) apis: ApiServiceClient<Channel>,
}

impl Scene {
    pub(super) fn new(server: &Server) -> Self {
        let admin = server.admin();
        let (provider, _) = workspace(&admin, "grpc-provider");
        let (tenant, _) = workspace(&admin, "grpc-tenant");
        Scene {
            at_provider: admin.in_workspace(&provider),
            at_tenant: admin.in_workspace(&tenant),
            provider,
            tenant,
            apis: ApiServiceClient::with_origin(channel(server, &Who::KcpAdmin), origin(server)),
        }
    }

    pub(super) fn publication(&self, manifests: Vec<Struct>) -> PublishApiRequest {
        PublishApiRequest {
            workspace: self.provider.clone(),
            export: "boats".to_owned(),
            manifests,
            ..PublishApiRequest::default()
        }
    }

    /// Publishes boats, binds them, and waits until they are served.
    pub(super) fn publish_and_bind(&self) {
        let mut apis = self.apis.clone();
        runtime().block_on(async {
            apis.publish_api(self.publication(boats(false))).await.unwrap();
            let bound = apis
                .bind_api(self.binding())
                .await
                .unwrap()
                .into_inner()
                .binding
                .unwrap();
            assert_eq!((bound.name.as_str(), bound.export.as_str()), ("boats", "boats"));
        });
        self.consumer("is bound", |consumer| consumer.phase == "Bound" && consumer.up_to_date);
        let is_counted = |export: &PublishedExport| export.rollout.as_ref().is_some_and(|it| it.current == 1);
        let rollout = self.export("counts its binding", is_counted).rollout.unwrap();
        assert_eq!((rollout.bindings, &*rollout.reason), (1, "Complete"));
    }

    fn binding(&self) -> BindApiRequest {
        BindApiRequest {
            workspace: self.tenant.clone(),
            export_workspace: self.provider.clone(),
            export: "boats".to_owned(),
            ..BindApiRequest::default()
        }
    }

    /// Publishes boats of another shape, whether stored boats can be read in it or not.
    pub(super) fn release(&self) {
        let mut apis = self.apis.clone();
        let mut release = self.publication(boats(true));
        release.accepted_effects = vec!["unreadable".to_owned()];
        runtime().block_on(async {
            apis.publish_api(release).await.unwrap();
        });
    }

    /// Waits until the one consumer is in a state.
    pub(super) fn consumer(&self, what: &str, is_so: impl Fn(&Consumer) -> bool) -> Consumer {
        let mut apis = self.apis.clone();
        let request = || ListConsumersRequest {
            workspace: self.provider.clone(),
            export: "boats".to_owned(),
            ..ListConsumersRequest::default()
        };
        until(&format!("the consumer {what}"), || {
            let listed = runtime().block_on(apis.list_consumers(request())).unwrap().into_inner();
            listed.consumers.into_iter().find(|consumer| is_so(consumer))
        })
    }

    /// Waits until the export is in a state.
    pub(super) fn export(&self, what: &str, is_so: impl Fn(&PublishedExport) -> bool) -> PublishedExport {
        let mut apis = self.apis.clone();
        let request = || GetExportRequest {
            workspace: self.provider.clone(),
            export: "boats".to_owned(),
        };
        until(&format!("the export {what}"), || {
            let found = runtime().block_on(apis.get_export(request())).unwrap().into_inner();
            found.export.filter(&is_so)
        })
    }

    pub(super) fn post(&self, version: &str, name: &str, spec: &Value) {
        let boat = json!({"apiVersion": format!("grpc.example.io/{version}"), "kind": "Boat",
            "metadata": {"name": name}, "spec": spec});
        let path = format!("/apis/grpc.example.io/{version}/{BOATS}");
        self.at_tenant.post(&path, &boat).expect(201);
    }

    pub(super) fn retirement(&self, step: RetirementStep) -> RetireVersionRequest {
        RetireVersionRequest {
            workspace: self.provider.clone(),
            export: "boats".to_owned(),
            version: "boats.grpc.example.io/v1".to_owned(),
            step: step.into(),
            warning: "grpc.example.io/v1 Boat ends in May".to_owned(),
            ..RetireVersionRequest::default()
        }
    }
}

pub(super) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, text: &str) {
    let status = answer.unwrap_err();
    assert!(status.code() == code && status.message().contains(text), "{status:?}");
}

#[test]
fn a_publication_is_planned_and_repeated() {
    let server = shared();
    let scene = Scene::new(&server);
    let mut apis = scene.apis.clone();
    runtime().block_on(async {
        // Nothing is written by a plan.
        let plan = PublishApiRequest {
            validate_only: true,
            ..scene.publication(boats(false))
        };
        let plan = apis.publish_api(plan).await.unwrap().into_inner();
        let steps = |steps: &[insula_proto::admin::v1::PublishStep]| -> Vec<(String, String)> {
            steps
                .iter()
                .map(|step| (step.kind.clone(), step.action.clone()))
                .collect()
        };
        let of = |action: &str| {
            ["APIResourceSchema", "APIConversion", "APIExport"].map(|kind| (kind.to_owned(), action.to_owned()))
        };
        assert_eq!(steps(&plan.steps), of("create"));
        let export = || GetExportRequest {
            workspace: scene.provider.clone(),
            export: "boats".to_owned(),
        };
        refused(apis.get_export(export()).await, Code::NotFound, "\"boats\" not found");

        // A repetition of a write has its answer, and no other effect.
        let publication = || PublishApiRequest {
            request_id: "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b11".to_owned(),
            ..scene.publication(boats(false))
        };
        let first = apis.publish_api(publication()).await.unwrap().into_inner();
        let again = apis.publish_api(publication()).await.unwrap().into_inner();
        assert_eq!(
            (steps(&first.steps), &first.export),
            (of("create").to_vec(), &again.export)
        );
        let now = apis
            .publish_api(scene.publication(boats(false)))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(steps(&now.steps), of("unchanged"));
        let stale = PublishApiRequest {
            etag: "1".to_owned(),
            ..scene.publication(boats(true))
        };
        refused(apis.publish_api(stale).await, Code::Aborted, "etag");
    });
}

#[test]
fn versions_that_break_need_rules_or_consent() {
    let server = shared();
    let scene = Scene::new(&server);
    let mut apis = scene.apis.clone();
    runtime().block_on(async {
        apis.publish_api(scene.publication(boats(false))).await.unwrap();
        let alone = || scene.publication(vec![message(&definition(false))]);
        let other = PublishApiRequest {
            export: "others".to_owned(),
            ..alone()
        };
        apis.publish_api(other)
            .await
            .expect("the rules that are published are kept");
        let mut breaking = definition(false);
        breaking["spec"]["group"] = "other.example.io".into();
        breaking["metadata"]["name"] = "boats.other.example.io".into();
        let breaking = |accept_incompatible| PublishApiRequest {
            export: "breaking".to_owned(),
            accept_incompatible,
            validate_only: true,
            ..scene.publication(vec![message(&breaking)])
        };
        refused(
            apis.publish_api(breaking(false)).await,
            Code::FailedPrecondition,
            "fields break",
        );
        let accepted = apis.publish_api(breaking(true)).await.unwrap().into_inner();
        assert!(
            accepted.notes.iter().any(|note| note.contains("accepted")),
            "{accepted:?}"
        );
    });
}

/// Returns a publication of a definition with a webhook, in a workspace where it has no rules.
fn webhook_publication(scene: &Scene) -> PublishApiRequest {
    let mut definition = definition(false);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://converter.example.io/convert"}}});
    scene.publication(vec![message(&definition)])
}

#[test]
fn a_guessed_draft_is_served_only_by_consent() {
    let server = shared();
    let scene = Scene::new(&server);
    let mut apis = scene.apis.clone();
    runtime().block_on(async {
        let publication = || webhook_publication(&scene);
        let refusal = "v2 .spec.title";
        refused(
            apis.publish_api(publication()).await,
            Code::FailedPrecondition,
            "set accept_draft",
        );
        refused(apis.publish_api(publication()).await, Code::FailedPrecondition, refusal);
        // An import stores the draft, which changes nothing for a publication.
        let import = ImportDefinitionsRequest {
            workspace: scene.provider.clone(),
            definitions: publication().manifests,
            ..ImportDefinitionsRequest::default()
        };
        apis.import_definitions(import).await.unwrap();
        refused(apis.publish_api(publication()).await, Code::FailedPrecondition, refusal);
        let plan = PublishApiRequest {
            validate_only: true,
            ..publication()
        };
        let notes = apis.publish_api(plan).await.unwrap().into_inner().notes;
        assert!(notes.iter().any(|note| note.contains(refusal)), "{notes:?}");
        let accepted = PublishApiRequest {
            accept_draft: true,
            ..publication()
        };
        apis.publish_api(accepted).await.unwrap();
        let again = apis.publish_api(publication()).await.unwrap().into_inner();
        assert!(
            again.notes.iter().any(|note| note.contains("keeps the rules")),
            "{again:?}"
        );
    });
}

#[test]
fn exports_are_listed_in_pages_of_one_revision() {
    let server = shared();
    let scene = Scene::new(&server);
    let mut apis = scene.apis.clone();
    runtime().block_on(async {
        apis.publish_api(scene.publication(boats(false))).await.unwrap();
        let other = PublishApiRequest {
            export: "others".to_owned(),
            ..scene.publication(boats(false))
        };
        apis.publish_api(other).await.unwrap();
        let exports = |page_token: String| ListExportsRequest {
            workspace: scene.provider.clone(),
            page_size: 1,
            page_token,
        };
        let first = apis.list_exports(exports(String::new())).await.unwrap().into_inner();
        let second = apis
            .list_exports(exports(first.next_page_token))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(second.header.unwrap().revision, first.header.unwrap().revision);
        let names: Vec<&str> = first
            .exports
            .iter()
            .chain(&second.exports)
            .map(|it| &*it.name)
            .collect();
        assert_eq!((names, second.next_page_token.as_str()), (vec!["boats", "others"], ""));
    });
}

#[test]
fn a_binding_serves_and_goes_with_its_objects() {
    let server = shared();
    let scene = Scene::new(&server);
    let mut apis = scene.apis.clone();
    scene.publish_and_bind();
    scene.post("v1", "ada", &json!({"name": "Ada"}));
    scene.post("v2", "grace", &json!({"title": "Grace"}));
    let ada = scene
        .at_tenant
        .get(&format!("/apis/grpc.example.io/v2/{BOATS}/ada"))
        .expect(200);
    assert_eq!(ada["spec"], json!({"title": "Ada"}));

    let unbind = |validate_only, etag: &str| UnbindApiRequest {
        workspace: scene.tenant.clone(),
        binding: "boats".to_owned(),
        etag: etag.to_owned(),
        validate_only,
        ..UnbindApiRequest::default()
    };
    runtime().block_on(async {
        let preview = apis.unbind_api(unbind(true, "")).await.unwrap().into_inner();
        let objects: Vec<(&str, i64)> = preview.removed.iter().map(|it| (&*it.resource, it.objects)).collect();
        assert_eq!(objects, [("boats", 2)]);
        refused(apis.unbind_api(unbind(false, "1")).await, Code::Aborted, "etag");
    });
    scene
        .at_tenant
        .get(&format!("/apis/grpc.example.io/v2/{BOATS}/ada"))
        .expect(200);
    runtime().block_on(apis.unbind_api(unbind(false, ""))).unwrap();
    until("the boats are gone", || {
        let answer = scene.at_tenant.get(&format!("/apis/grpc.example.io/v2/{BOATS}/ada"));
        (answer.code == 404).then_some(())
    });
}

#[test]
fn definitions_are_imported_and_schemas_linted() {
    let server = shared();
    let scene = Scene::new(&server);
    let mut apis = scene.apis.clone();
    let import = |validate_only| ImportDefinitionsRequest {
        workspace: scene.provider.clone(),
        definitions: boats(false),
        validate_only,
        ..ImportDefinitionsRequest::default()
    };
    let plan = runtime()
        .block_on(apis.import_definitions(import(true)))
        .unwrap()
        .into_inner();
    let schema = format!(
        "/apis/apis.kcp.io/v1alpha1/apiresourceschemas/{}",
        plan.resources[0].schema
    );
    scene.at_provider.get(&schema).expect(404);
    let done = runtime()
        .block_on(apis.import_definitions(import(false)))
        .unwrap()
        .into_inner();
    assert_eq!((done.steps.len(), &done.resources), (2, &plan.resources));
    let schema = scene.at_provider.get(&schema).expect(200);
    let written = schema["metadata"]["resourceVersion"].as_str().unwrap();
    let revision = done.header.unwrap().revision;
    assert!(revision >= written.parse().unwrap(), "{revision} is before {written}");
    runtime().block_on(async {
        let none = ListExportsRequest {
            workspace: scene.provider.clone(),
            ..ListExportsRequest::default()
        };
        assert!(apis.list_exports(none).await.unwrap().into_inner().exports.is_empty());
        let mut wrong = definition(false);
        wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = "strange".into();
        let lint = LintApiRequest {
            workspace: scene.provider.clone(),
            manifests: vec![message(&wrong)],
        };
        let found = apis.lint_api(lint).await.unwrap().into_inner().findings;
        assert!(
            found
                .iter()
                .any(|it| it.severity() == LintSeverity::Error && it.finding == "invalid"),
            "{found:?}"
        );
    });
}

/// Every call about another's workspace is refused in the same words.
#[test]
fn a_caller_without_rights_gets_nothing() {
    let server = shared();
    let (theirs, _) = workspace_owned_by(&server, "alice");
    let mut apis = ApiServiceClient::with_origin(channel(&server, &Who::Anonymous), origin(&server));
    macro_rules! refusals {
        ($($method:ident($request:ident { $($field:ident),* })),* $(,)?) => {
            vec![$({
                let mut request = $request::default();
                request.workspace = theirs.clone();
                $(request.$field = "boats/v1".to_owned();)*
                (stringify!($method), apis.$method(as_user("bob-token", request)).await.map(drop))
            }),*]
        };
    }
    let refusals: Vec<(&str, Result<(), Status>)> = runtime().block_on(async {
        refusals![
            list_exports(ListExportsRequest {}),
            get_export(GetExportRequest { export }),
            publish_api(PublishApiRequest { export }),
            diff_api(DiffApiRequest { export }),
            check_rollout(CheckRolloutRequest { export }),
            pause_rollout(PauseRolloutRequest { export }),
            resume_rollout(ResumeRolloutRequest { export }),
            abort_rollout(AbortRolloutRequest { export }),
            import_definitions(ImportDefinitionsRequest {}),
            bind_api(BindApiRequest {
                export,
                export_workspace
            }),
            unbind_api(UnbindApiRequest { binding }),
            list_claims(ListClaimsRequest { binding }),
            accept_claims(AcceptClaimsRequest { binding }),
            reject_claims(RejectClaimsRequest { binding }),
            list_consumers(ListConsumersRequest { export }),
            get_version_usage(GetVersionUsageRequest { export }),
            lint_api(LintApiRequest {}),
            retire_version(RetireVersionRequest { export, version }),
        ]
    });
    assert_eq!(refusals.len(), 18);
    for (method, refusal) in refusals {
        assert_eq!(refusal.unwrap_err().code(), Code::PermissionDenied, "{method}");
    }
}
