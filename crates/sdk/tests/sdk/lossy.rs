//! A conversion that loses data, and refuses some objects.

use insula_sdk::{
    Described, ObjectMeta, Resource, Server,
    kube::{
        Api,
        api::{DynamicObject, Patch, PatchParams, PostParams},
        core::{ApiResource, GroupVersionKind},
    },
    schemars::JsonSchema,
    serde::{Deserialize, Serialize},
    serde_json::{from_value, json},
    testing::{TestServer, check_roundtrip, runtime},
};
use std::panic::catch_unwind;

/// A hub that keeps three letters of what both versions have.
#[derive(Resource, Clone, Debug)]
#[resource(group = "lossy.example.com", version = "v1", versions(beta::Label))]
pub(crate) struct Label {
    metadata: ObjectMeta,
    spec: LabelSpec,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub(crate) struct LabelSpec {
    #[serde(default)]
    text: String,
}

pub(crate) mod beta {
    use super::*;

    #[derive(Resource, Clone, Debug)]
    #[resource(group = "lossy.example.com", version = "v1beta1")]
    pub(crate) struct Label {
        metadata: ObjectMeta,
        spec: LabelSpec,
    }

    impl From<super::Label> for Label {
        fn from(super::Label { metadata, spec }: super::Label) -> Self {
            Self { metadata, spec }
        }
    }

    impl TryFrom<Label> for super::Label {
        type Error = &'static str;

        fn try_from(Label { metadata, spec }: Label) -> Result<Self, &'static str> {
            if spec.text.chars().count() == 4 {
                return Err("four letters are no label");
            }
            let text = spec.text.chars().take(3).collect();
            let spec = LabelSpec { text };
            Ok(Self { metadata, spec })
        }
    }
}

#[test]
fn a_conversion_that_refuses_objects_fails_its_test() {
    let checked = catch_unwind(|| check_roundtrip(<Label as Described>::described()));
    let message = checked.unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("labels.lossy.example.com with INSULA_SDK_SEED="),
        "{message}"
    );
    assert!(message.contains("four letters are no label"), "{message}");
}

/// The hub keeps three letters. Clients of the other version get all of theirs back, as long as
/// nobody writes other ones through the hub.
#[test]
fn a_conversion_that_loses_data_loses_none_of_its_clients() {
    runtime().block_on(async {
        let server = TestServer::start(Server::builder().resource::<Label>()).await;
        let client = server.client("root").await;
        let of = |version: &str| {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("lossy.example.com", version, "Label"));
            Api::<DynamicObject>::namespaced_with(client.clone(), "default", &kind)
        };
        let (hub, beta) = (of("v1"), of("v1beta1"));
        let sent = |text: &str| {
            from_value(json!({"apiVersion": "lossy.example.com/v1beta1", "kind": "Label",
                "metadata": {"name": "l"}, "spec": {"text": text}}))
            .unwrap()
        };
        beta.create(&PostParams::default(), &sent("abcdef")).await.unwrap();
        let text = |object: DynamicObject| object.data["spec"]["text"].as_str().unwrap().to_owned();
        assert_eq!(text(beta.get("l").await.unwrap()), "abcdef");
        assert_eq!(text(hub.get("l").await.unwrap()), "abc");
        let label = json!({"metadata": {"labels": {"seen": "yes"}}});
        hub.patch("l", &PatchParams::default(), &Patch::Merge(&label))
            .await
            .unwrap();
        assert_eq!(text(beta.get("l").await.unwrap()), "abcdef");
        let patch = json!({"spec": {"text": "xyz"}});
        hub.patch("l", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        assert_eq!(text(beta.get("l").await.unwrap()), "xyz");
        let patch = json!({"spec": {"text": "????"}});
        let refused = beta.patch("l", &PatchParams::default(), &Patch::Merge(&patch)).await;
        assert!(refused.unwrap_err().to_string().contains("four letters are no label"));
        server.shutdown().await;
    });
}
