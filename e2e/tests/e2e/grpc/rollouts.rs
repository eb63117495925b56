//! Rollouts and retirement of APIs.

use super::{
    apis::{BOATS, Scene, boats, definition, message, refused},
    bad_fields, channel,
    conventions::resource,
    origin,
};
use insula_e2e::{Server, Who, runtime, shared, until};
use insula_proto::admin::v1::{
    AbortRolloutRequest, CheckRolloutRequest, DiffApiRequest, GetExportRequest, GetVersionUsageRequest,
    GetVersionUsageResponse, ListConversionFailuresRequest, PauseRolloutRequest, PublishApiRequest,
    ResumeRolloutRequest, RetireVersionRequest, RetirementStep, UnreadableObject, api_service_client::ApiServiceClient,
    conversion_service_client::ConversionServiceClient,
};
use serde_json::json;
use tonic::Code;

/// Returns what a client reads of a failure: API, workspace, object, version and field.
fn reported(failure: &UnreadableObject) -> [String; 5] {
    [
        &failure.api,
        &failure.workspace,
        &failure.name,
        &failure.version,
        &failure.field,
    ]
    .map(String::clone)
}

/// Returns the failure of the one object without a number.
fn grace(scene: &Scene) -> [String; 5] {
    ["boats.grpc.example.io", &scene.tenant, "grace", "v3", ".spec.title"].map(str::to_owned)
}

fn failures_in(scene: &Scene, version: &str) -> ListConversionFailuresRequest {
    ListConversionFailuresRequest {
        workspace: scene.provider.clone(),
        export: "boats".to_owned(),
        group: "grpc.example.io".to_owned(),
        resource: "boats".to_owned(),
        version: version.to_owned(),
        ..ListConversionFailuresRequest::default()
    }
}

/// Publishes and binds boats, of which one has a number and one has none.
fn with_grace(server: &Server) -> Scene {
    let scene = Scene::new(server);
    scene.publish_and_bind();
    scene.post("v2", "seven", &json!({"title": "7"}));
    scene.post("v2", "grace", &json!({"title": "Grace"}));
    scene
}

#[test]
fn a_release_is_compared_and_tried() {
    let server = shared();
    let scene = with_grace(&server);
    let mut apis = scene.apis.clone();
    let failures = runtime().block_on(async {
        let diff = DiffApiRequest {
            workspace: scene.provider.clone(),
            manifests: boats(true),
            export: "boats".to_owned(),
            ..DiffApiRequest::default()
        };
        let diff = apis.diff_api(diff).await.unwrap().into_inner();
        let changes: Vec<(&str, &str)> = diff.changes.iter().map(|it| (&*it.version, &*it.change)).collect();
        assert_eq!((changes, diff.breaking), (vec![("v3", "added")], 0));
        let mut less = definition(false);
        less["spec"]["versions"].as_array_mut().unwrap().remove(0);
        let diff = DiffApiRequest {
            workspace: scene.provider.clone(),
            manifests: vec![message(&less)],
            old_manifests: boats(true),
            ..DiffApiRequest::default()
        };
        assert_eq!(apis.diff_api(diff).await.unwrap().into_inner().breaking, 2);

        // The dry run finds the object that the release cannot show, in pages of one.
        let (mut failures, mut examined, mut page_token) = (Vec::new(), 0, String::new());
        loop {
            let check = CheckRolloutRequest {
                workspace: scene.provider.clone(),
                export: "boats".to_owned(),
                manifests: boats(true),
                page_size: 1,
                page_token,
            };
            let page = apis.check_rollout(check).await.unwrap().into_inner();
            failures.extend(page.failures);
            examined += page.examined;
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(examined, 2);
        let on_offer = CheckRolloutRequest {
            workspace: scene.provider.clone(),
            export: "boats".to_owned(),
            ..CheckRolloutRequest::default()
        };
        let fine = apis.check_rollout(on_offer).await.unwrap().into_inner();
        assert_eq!((fine.failures.len(), fine.examined, fine.workspaces), (0, 2, 0));
        failures
    });
    assert_eq!(failures.iter().map(reported).collect::<Vec<_>>(), [grace(&scene)]);
}

#[test]
fn a_rollout_is_paused_held_and_taken_back() {
    let server = shared();
    let scene = with_grace(&server);
    let mut apis = scene.apis.clone();
    // A paused rollout comes to nobody; a continued one is held by the object.
    let name = || (scene.provider.clone(), "boats".to_owned());
    runtime().block_on(async {
        let (workspace, export) = name();
        let pause = PauseRolloutRequest {
            workspace,
            export,
            ..PauseRolloutRequest::default()
        };
        let paused = apis.pause_rollout(pause).await.unwrap().into_inner().export.unwrap();
        assert!(paused.rollout.unwrap().paused);
    });
    let before = scene.export("has its schema", |_| true).resources[0].schema.clone();
    scene.release();
    let waits = scene.consumer("waits", |consumer| !consumer.up_to_date);
    assert!(waits.message.contains("paused"), "{waits:?}");
    assert_eq!(waits.resources[0].schema, before);
    runtime().block_on(async {
        let (workspace, export) = name();
        let resume = ResumeRolloutRequest {
            workspace,
            export,
            ..ResumeRolloutRequest::default()
        };
        apis.resume_rollout(resume).await.unwrap();
    });
    let held = scene.export("is held", |export| {
        export.rollout.as_ref().is_some_and(|it| it.held == 1)
    });
    let rollout = held.rollout.unwrap();
    let binding = scene
        .at_tenant
        .get("/apis/apis.kcp.io/v1alpha2/apibindings")
        .expect(200);
    let cluster = &binding["items"][0]["metadata"]["annotations"]["kcp.io/cluster"];
    assert_eq!(json!(rollout.held_bindings[0].workspace), *cluster);
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    runtime().block_on(async {
        let all = conversions
            .list_conversion_failures(failures_in(&scene, ""))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(all.failures.iter().map(reported).collect::<Vec<_>>(), [grace(&scene)]);
        let v1 = conversions
            .list_conversion_failures(failures_in(&scene, "v1"))
            .await
            .unwrap()
            .into_inner();
        assert_eq!((v1.failures.len(), v1.examined), (0, 2));
        let unknown = conversions.list_conversion_failures(failures_in(&scene, "v9")).await;
        refused(unknown, Code::InvalidArgument, "there are v1, v2, v3");

        let (workspace, export) = name();
        let abort = AbortRolloutRequest {
            workspace,
            export,
            ..AbortRolloutRequest::default()
        };
        let aborted = apis.abort_rollout(abort.clone()).await.unwrap().into_inner();
        assert_eq!(aborted.restored[0].schema, before);
        assert_eq!(aborted.export.unwrap().resources[0].schema, before);
        refused(apis.abort_rollout(abort).await, Code::FailedPrecondition, "no binding");
    });
    scene.consumer("is up to date", |consumer| consumer.up_to_date);
}

/// Returns the use of each version.
fn usage(scene: &Scene) -> (Vec<(String, i64)>, GetVersionUsageResponse) {
    let request = GetVersionUsageRequest {
        workspace: scene.provider.clone(),
        export: "boats".to_owned(),
    };
    let usage = runtime().block_on(scene.apis.clone().get_version_usage(request));
    let usage = usage.unwrap().into_inner();
    let versions = usage.versions.iter().map(|it| {
        let version = it.version.strip_prefix("boats.grpc.example.io/").unwrap();
        (version.to_owned(), it.workspaces)
    });
    (versions.collect(), usage)
}

fn counts(v1: i64, v2: i64) -> Vec<(String, i64)> {
    vec![("v1".to_owned(), v1), ("v2".to_owned(), v2)]
}

/// Uses count as soon as their requests are answered: the decision on a version takes them in.
#[test]
fn a_use_counts_at_once() {
    let server = shared();
    let scene = Scene::new(&server);
    let mut apis = scene.apis.clone();
    let publication = PublishApiRequest {
        workspace: scene.provider.clone(),
        export: "boats".to_owned(),
        manifests: boats(false),
        ..PublishApiRequest::default()
    };
    runtime().block_on(apis.publish_api(publication)).unwrap();
    assert_eq!(usage(&scene).0, counts(0, 0));
    scene.publish_and_bind();
    let path = format!("/apis/grpc.example.io/v1/{BOATS}");
    until("boats are served", || {
        (scene.at_tenant.get(&path.replace("v1", "v2")).code == 200).then_some(())
    });
    let unused = RetireVersionRequest {
        validate_only: true,
        ..scene.retirement(RetirementStep::Remove)
    };
    let removals = |apis: &mut ApiServiceClient<_>| {
        let planned = runtime().block_on(apis.retire_version(unused.clone())).unwrap();
        let removals = planned.into_inner().removals.into_iter();
        removals.map(|removal| removal.workspaces).collect::<Vec<_>>()
    };
    assert_eq!(removals(&mut apis), [0]);
    scene.at_tenant.get(&path).expect(200);
    assert_eq!(removals(&mut apis), [1]);
    assert_eq!(usage(&scene).0, counts(1, 1));
    let remove = scene.retirement(RetirementStep::Remove);
    let refusal = runtime().block_on(apis.retire_version(remove));
    refused(refusal, Code::FailedPrecondition, "1 workspace used it");
    let missing = RetireVersionRequest {
        version: "boats/v9".to_owned(),
        ..unused.clone()
    };
    let missing = runtime().block_on(apis.retire_version(missing)).unwrap_err();
    assert_eq!(
        (missing.code(), resource(&missing)),
        (
            Code::NotFound,
            ("versions.apis.kcp.io".to_owned(), "boats/v9".to_owned())
        )
    );
    for (step, problem) in [(0, "is required"), (9, "9 is no known value")] {
        let request = RetireVersionRequest { step, ..unused.clone() };
        let refusal = runtime().block_on(apis.retire_version(request)).unwrap_err();
        assert_eq!(
            (refusal.code(), bad_fields(&refusal)),
            (Code::InvalidArgument, vec!["step".to_owned()])
        );
        assert!(refusal.message().contains(problem), "{refusal}");
    }
}

/// Publishes an API of its own for each number, all at once, to one export.
fn publish_at_once(scene: &Scene, count: usize) {
    let publish = |index: usize| {
        let plural = format!("ships{index}");
        let mut ship = definition(false);
        ship["metadata"]["name"] = format!("{plural}.grpc.example.io").into();
        ship["spec"]["names"] = json!({"plural": plural, "singular": format!("ship{index}"),
            "kind": format!("Ship{index}"), "listKind": format!("Ship{index}List")});
        let publication = PublishApiRequest {
            workspace: scene.provider.clone(),
            export: "ships".to_owned(),
            manifests: vec![message(&ship)],
            accept_incompatible: true,
            ..PublishApiRequest::default()
        };
        let mut apis = scene.apis.clone();
        runtime().spawn(async move { apis.publish_api(publication).await })
    };
    let sent: Vec<_> = (0..count).map(publish).collect();
    for sent in sent {
        let answer = runtime().block_on(sent).unwrap().unwrap().into_inner();
        assert_eq!(answer.steps[0].action, "create", "{answer:?}");
    }
}

fn pause(scene: &Scene, etag: &str) -> PauseRolloutRequest {
    PauseRolloutRequest {
        workspace: scene.provider.clone(),
        export: "ships".to_owned(),
        etag: etag.to_owned(),
        ..PauseRolloutRequest::default()
    }
}

/// Changes of one export that are made at once are all made: a conflict is only that of an etag.
#[test]
fn changes_of_an_export_at_once_are_all_made() {
    const COUNT: usize = 12;
    let server = shared();
    let scene = Scene::new(&server);
    publish_at_once(&scene, COUNT);
    let get = GetExportRequest {
        workspace: scene.provider.clone(),
        export: "ships".to_owned(),
    };
    let export = runtime().block_on(scene.apis.clone().get_export(get)).unwrap();
    let export = export.into_inner().export.unwrap();
    assert_eq!(export.resources.len(), COUNT, "{export:?}");
    let change = |index: usize| {
        let mut apis = scene.apis.clone();
        let pause = pause(&scene, "");
        runtime().spawn(async move {
            if index.is_multiple_of(2) {
                return apis.pause_rollout(pause).await.map(drop);
            }
            let resume = ResumeRolloutRequest {
                workspace: pause.workspace,
                export: pause.export,
                ..ResumeRolloutRequest::default()
            };
            apis.resume_rollout(resume).await.map(drop)
        })
    };
    let sent: Vec<_> = (0..COUNT).map(change).collect();
    for sent in sent {
        runtime().block_on(sent).unwrap().unwrap();
    }
    let mut apis = scene.apis.clone();
    let stale = runtime().block_on(apis.pause_rollout(pause(&scene, "1"))).unwrap_err();
    let ships = ("apiexports.apis.kcp.io".to_owned(), "ships".to_owned());
    assert_eq!((stale.code(), resource(&stale)), (Code::Aborted, ships));
}

/// An etag of an export that is not there is stale: it is created without one.
#[test]
fn an_export_is_created_without_an_etag() {
    let server = shared();
    let scene = Scene::new(&server);
    let request = PublishApiRequest {
        workspace: scene.provider.clone(),
        export: "none".to_owned(),
        manifests: boats(false),
        etag: "9999".to_owned(),
        ..PublishApiRequest::default()
    };
    let missing = runtime().block_on(scene.apis.clone().publish_api(request)).unwrap_err();
    let named = resource(&missing).1;
    assert_eq!((missing.code(), &*named), (Code::Aborted, "none"));
    assert!(missing.message().contains("send none"), "{missing}");
}

/// Checks that the use of v1 by one workspace is counted.
fn check_use(scene: &Scene) {
    let (versions, usage) = usage(scene);
    assert_eq!(versions, counts(1, 1));
    assert_eq!(usage.days, 30);
    assert!(usage.counted_since.is_some(), "{usage:?}");
    let used = scene.consumer("used v1", |consumer| {
        consumer.versions.iter().any(|it| it.version.ends_with("/v1"))
    });
    assert!(used.versions.iter().all(|it| it.last_used.is_some()), "{used:?}");
}

#[test]
fn a_version_is_retired_in_steps() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.publish_and_bind();
    scene.post("v2", "ada", &json!({"title": "Ada"}));
    let v1 = format!("/apis/grpc.example.io/v1/{BOATS}/ada");
    scene.at_tenant.get(&v1).expect(200);
    let mut apis = scene.apis.clone();
    check_use(&scene);
    runtime().block_on(async {
        let mut deprecate = scene.retirement(RetirementStep::Deprecate);
        let done = apis.retire_version(deprecate.clone()).await.unwrap().into_inner();
        assert!(done.removals.is_empty() && done.steps.len() == 3, "{done:?}");
        deprecate.step = RetirementStep::Unspecified.into();
        refused(
            apis.retire_version(deprecate.clone()).await,
            Code::InvalidArgument,
            "step",
        );
        deprecate.version = "boats/v2".to_owned();
        deprecate.step = RetirementStep::Remove.into();
        refused(
            apis.retire_version(deprecate).await,
            Code::FailedPrecondition,
            "stored in v2",
        );
    });
    until("users are warned", || {
        let answer = scene.at_tenant.get(&v1);
        let warning = answer.headers.get("warning")?.to_str().unwrap().to_owned();
        warning.contains("ends in May").then_some(())
    });
    runtime().block_on(async {
        let remove = scene.retirement(RetirementStep::Remove);
        let plan = RetireVersionRequest {
            validate_only: true,
            ..remove.clone()
        };
        let plan = apis.retire_version(plan).await.unwrap().into_inner();
        let removals: Vec<_> = plan
            .removals
            .iter()
            .map(|it| (&*it.version, it.workspaces, it.deprecated))
            .collect();
        assert_eq!(removals, [("boats.grpc.example.io/v1", 1, true)]);
        refused(
            apis.retire_version(remove.clone()).await,
            Code::FailedPrecondition,
            "1 workspace used it",
        );
        let confirmed = RetireVersionRequest {
            confirm: true,
            ..remove
        };
        apis.retire_version(confirmed).await.unwrap();
    });
    until("v1 is gone", || (scene.at_tenant.get(&v1).code == 404).then_some(()));
    scene.at_tenant.get(&v1.replace("v1", "v2")).expect(200);
}
