//! Settings of exports: `UpdateExport`.

use super::{
    apis::{Scene, refused},
    as_user, bad_fields,
};
use insula_e2e::{runtime, shared};
use insula_proto::{
    FieldMask,
    admin::v1::{RolloutRequirement, RolloutSelector, RolloutStep, UpdateExportRequest, rollout_step::Of},
};
use serde_json::{Value, json};
use tonic::Code;

fn share(percentage: i32, pause_seconds: i64) -> RolloutStep {
    RolloutStep {
        of: Some(Of::Percentage(percentage)),
        pause_seconds,
    }
}

fn canaries() -> RolloutStep {
    let selector = RolloutSelector {
        match_labels: [("ring".to_owned(), "canary".to_owned())].into(),
        match_expressions: vec![RolloutRequirement {
            key: "tier".to_owned(),
            operator: "NotIn".to_owned(),
            values: vec!["gold".to_owned()],
        }],
    };
    RolloutStep {
        of: Some(Of::Selector(selector)),
        pause_seconds: 0,
    }
}

fn ring(name: &str) -> RolloutStep {
    let selector = RolloutSelector {
        match_labels: [("ring".to_owned(), name.to_owned())].into(),
        ..RolloutSelector::default()
    };
    RolloutStep {
        of: Some(Of::Selector(selector)),
        pause_seconds: 0,
    }
}

/// An update of the steps of boats.
fn update(scene: &Scene, steps: Vec<RolloutStep>) -> UpdateExportRequest {
    UpdateExportRequest {
        workspace: scene.provider.clone(),
        export: "boats".to_owned(),
        steps,
        ..UpdateExportRequest::default()
    }
}

/// Steps that are set are those of the APIExport, and of every rollout from then on.
#[test]
fn the_steps_of_a_rollout_are_set() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.publish_and_bind();
    let stored = || -> Value {
        let export = scene.at_provider.get("/apis/apis.kcp.io/v1alpha2/apiexports/boats");
        export.expect(200)["spec"]["rollout"].clone()
    };
    let send = |request| runtime().block_on(scene.apis.clone().update_export(request));
    let plan = UpdateExportRequest {
        validate_only: true,
        ..update(&scene, vec![canaries()])
    };
    send(plan).unwrap();
    assert_eq!(stored()["steps"], Value::Null);

    let set = UpdateExportRequest {
        strategy: "AllOrNothing".to_owned(),
        ..update(&scene, vec![canaries(), share(50, 60)])
    };
    let answer = send(set).unwrap().into_inner().export.unwrap();
    assert_eq!(answer.rollout.unwrap().strategy, "AllOrNothing");
    let spec = stored();
    assert_eq!(
        (
            &spec["steps"][0]["selector"]["matchLabels"],
            &spec["steps"][1]["percentage"]
        ),
        (&json!({"ring": "canary"}), &json!(50)),
        "{spec}"
    );
    assert_eq!(spec["steps"].as_array().map(Vec::len), Some(2), "{spec}");

    let stale = UpdateExportRequest {
        etag: "1".to_owned(),
        ..update(&scene, vec![share(10, 0)])
    };
    refused(send(stale), Code::Aborted, "etag");
    // An empty list removes the steps; fields that the mask does not name stay.
    let paths = vec!["steps".to_owned()];
    let none = UpdateExportRequest {
        update_mask: Some(FieldMask { paths }),
        ..update(&scene, Vec::new())
    };
    send(none).unwrap();
    let spec = stored();
    assert_eq!(
        (&spec["steps"], &spec["strategy"]),
        (&Value::Null, &json!("AllOrNothing"))
    );

    // A release goes by the steps, and the last one is for all other bindings.
    send(update(&scene, vec![canaries()])).unwrap();
    scene.release();
    scene.export("has two steps", |export| {
        export.rollout.as_ref().is_some_and(|rollout| rollout.steps == 2)
    });
}

/// The bindings that may stay are set as text, and each text that an APIExport does not take is
/// refused by the name of the field.
#[test]
fn the_bindings_that_may_stay_are_set_as_an_export_has_them() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.publish_and_bind();
    let path = "/apis/apis.kcp.io/v1alpha2/apiexports/boats";
    let stored = || scene.at_provider.get(path).expect(200)["spec"]["rollout"]["maxHeld"].clone();
    let send = |request| runtime().block_on(scene.apis.clone().update_export(request));
    let request = |text: &str| UpdateExportRequest {
        max_held: text.to_owned(),
        ..update(&scene, Vec::new())
    };
    for (text, value) in [
        ("0", json!(0)),
        ("2", json!(2)),
        ("9223372036854775807", json!(i64::MAX)),
        ("0%", json!("0%")),
        ("10%", json!("10%")),
        ("100%", json!("100%")),
    ] {
        let export = send(request(text)).unwrap().into_inner().export.unwrap();
        assert_eq!((export.rollout.unwrap().max_held.as_str(), stored()), (text, value));
    }
    for (text, value) in [
        ("-1", json!(-1)),
        ("1.5", json!(1.5)),
        ("101%", json!("101%")),
        ("05%", json!("05%")),
        ("5 %", json!("5 %")),
        ("a few", json!("a few")),
    ] {
        let admitted = scene
            .at_provider
            .merge(path, &json!({"spec": {"rollout": {"maxHeld": value}}}));
        admitted.expect(422);
        let refusal = send(request(text)).unwrap_err();
        assert_eq!(
            (refusal.code(), bad_fields(&refusal)),
            (Code::InvalidArgument, vec!["max_held".to_owned()]),
            "{refusal:?}"
        );
        assert!(refusal.message().contains(text), "{refusal:?}");
    }
    assert_eq!(stored(), "100%");
    // Other settings leave it, and an empty text with a mask that names it removes it.
    send(update(&scene, vec![share(5, 0)])).unwrap();
    assert_eq!(stored(), "100%");
    let paths = vec!["max_held".to_owned()];
    let none = UpdateExportRequest {
        update_mask: Some(FieldMask { paths }),
        ..request("")
    };
    let export = send(none).unwrap().into_inner().export.unwrap();
    assert_eq!((export.rollout.unwrap().max_held.as_str(), stored()), ("", Value::Null));
}

#[test]
fn wrong_steps_are_refused_with_their_field() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.publish_and_bind();
    let mut apis = scene.apis.clone();
    let near = RolloutSelector {
        match_expressions: vec![RolloutRequirement {
            key: "tier".to_owned(),
            operator: "Near".to_owned(),
            values: Vec::new(),
        }],
        ..RolloutSelector::default()
    };
    runtime().block_on(async {
        for (steps, field) in [
            (vec![canaries(), share(101, 0)], "steps[1].percentage"),
            (vec![share(1, -1)], "steps[0].pause_seconds"),
            (vec![RolloutStep::default()], "steps[0]"),
            (vec![share(1, 0); 21], "steps"),
            (vec![share(1, 0), ring("in valid")], "steps[1].selector"),
            (
                vec![RolloutStep {
                    of: Some(Of::Selector(near)),
                    pause_seconds: 0,
                }],
                "steps[0].selector",
            ),
        ] {
            let refusal = apis.update_export(update(&scene, steps)).await.unwrap_err();
            assert_eq!(
                (refusal.code(), bad_fields(&refusal)),
                (Code::InvalidArgument, vec![field.to_owned()]),
                "{refusal:?}"
            );
        }
        let denied = apis
            .update_export(as_user("bob-token", update(&scene, vec![canaries()])))
            .await;
        assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
    });
    // The APIExport itself takes none either.
    let steps = json!([{"percentage": 1}, {"selector": {"matchLabels": {"ring": "in valid"}}}]);
    let export = json!({"spec": {"rollout": {"steps": steps}}});
    let refused = scene
        .at_provider
        .merge("/apis/apis.kcp.io/v1alpha2/apiexports/boats", &export);
    let message = refused.expect(422)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("spec.rollout.steps[1].selector"), "{message}");
}
