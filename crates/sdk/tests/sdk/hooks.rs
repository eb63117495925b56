//! The hooks of apiserver-builder's concepts, one by one.
//!
//! Storage:
//! - DefaultingFunction: [`defaults_are_those_of_the_version_and_are_stored`]
//! - PrepareForCreate: [`prepare_for_create_completes_and_drops_the_status`]
//! - PrepareForUpdate: [`prepare_for_update_sees_the_old_object`]
//! - Validate: [`validate_refuses_a_create_and_an_update`]
//! - ValidateUpdate: [`validate_update_compares_with_the_old_object`]
//! - Canonicalize: [`canonicalize_is_last`]
//! - status and spec apart: [`status_and_spec_have_paths_of_their_own`]
//! - finalizers: [`a_finalizer_of_prepare_for_create_holds_a_deleted_object`]
//! - owner references: [`dependents_go_with_their_owner`]
//! - subresources: `versions.rs` for scale, `storage.rs` and `subresources.rs` for others
//!
//! Reconciliation: `watches.rs` for levels and for watches of other kinds (Init), `controllers.rs`
//! for finalizers, owned objects and the status.

use insula_sdk::{
    Context, FieldError, FieldPath, ObjectMeta, Resource, Server, Strategy,
    k8s_openapi::api::core::v1::ConfigMap,
    kube::{
        self, Api, Client, ResourceExt,
        api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
        core::{ApiResource, GroupVersionKind, Status},
    },
    schemars::JsonSchema,
    serde::{Deserialize, Serialize},
    serde_json::{Value, from_value, json},
    testing::{TestServer, runtime},
};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

const FINALIZER: &str = "hooks.example.com/held";

/// The hooks that ran since the last look.
static RAN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

fn ran(hook: &'static str) {
    RAN.lock().unwrap_or_else(PoisonError::into_inner).push(hook);
}

fn take() -> Vec<&'static str> {
    std::mem::take(&mut *RAN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// An object that shows which hooks saw it.
#[derive(Resource, Clone, Debug)]
#[resource(group = "hooks.example.com", version = "v1", strategy = Hooks)]
#[resource(versions(v1beta1::Probe(strategy = v1beta1::Defaults)))]
pub(crate) struct Probe {
    metadata: ObjectMeta,
    spec: ProbeSpec,
    status: Option<ProbeStatus>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub(crate) struct ProbeSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(default)]
    items: Vec<String>,
    /// Hooks that saw the object, as they leave it.
    #[serde(default)]
    seen: String,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub(crate) struct ProbeStatus {
    ready: bool,
}

pub(crate) struct Hooks;

impl Strategy<Probe> for Hooks {
    fn default(&self, new: &mut Probe) {
        ran("default v1");
        new.spec.mode.get_or_insert("hub".into());
    }

    fn prepare_for_create(&self, new: &mut Probe, context: &Context) {
        ran("prepare_for_create");
        assert!(context.now.to_string().ends_with('Z'));
        new.spec.seen = format!("created, status {}", new.status.is_some());
        if new.spec.mode.as_deref() == Some("held") {
            new.finalizers_mut().push(FINALIZER.into());
        }
    }

    fn prepare_for_update(&self, new: &mut Probe, old: &Probe, _: &Context) {
        ran("prepare_for_update");
        let items = |probe: &Probe| probe.spec.items.len();
        new.spec.seen = format!("{} after {}", items(new), items(old));
    }

    fn validate(&self, new: &Probe) -> Vec<FieldError> {
        ran("validate");
        let at = FieldPath::new("spec").child("items");
        let empty = new.spec.items.iter().position(String::is_empty);
        let refused = empty.map(|index| FieldError::required(&at.index(index), "an item has a text"));
        refused.into_iter().collect()
    }

    fn validate_update(&self, new: &Probe, old: &Probe) -> Vec<FieldError> {
        ran("validate_update");
        if new.spec.mode == old.spec.mode {
            return Vec::new();
        }
        vec![FieldError::forbidden(
            &FieldPath::new("spec").child("mode"),
            "the mode stays",
        )]
    }

    fn canonicalize(&self, new: &mut Probe) {
        ran("canonicalize");
        // Validation is over: a last form may be any.
        new.spec.items.sort();
        new.spec.seen += ", canonical";
    }
}

pub(crate) mod v1beta1 {
    use super::*;

    /// The probe as it was first.
    #[derive(Resource, Clone, Debug)]
    #[resource(group = "hooks.example.com", version = "v1beta1")]
    pub(crate) struct Probe {
        pub(crate) metadata: ObjectMeta,
        pub(crate) spec: ProbeSpec,
        pub(crate) status: Option<ProbeStatus>,
    }

    pub(crate) struct Defaults;

    impl Strategy<Probe> for Defaults {
        fn default(&self, new: &mut Probe) {
            ran("default v1beta1");
            new.spec.mode.get_or_insert("beta".into());
        }
    }

    impl From<super::Probe> for Probe {
        fn from(probe: super::Probe) -> Self {
            let super::Probe { metadata, spec, status } = probe;
            Self { metadata, spec, status }
        }
    }

    impl From<Probe> for super::Probe {
        fn from(probe: Probe) -> Self {
            let Probe { metadata, spec, status } = probe;
            Self { metadata, spec, status }
        }
    }
}

insula_sdk::roundtrip!(probes_lose_nothing: Probe);

fn probe(name: &str, mode: Option<&str>, items: &[&str]) -> Probe {
    Probe {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: ProbeSpec {
            mode: mode.map(str::to_owned),
            items: items.iter().map(|item| (*item).to_owned()).collect(),
            seen: String::new(),
        },
        status: None,
    }
}

fn refusal(error: kube::Error) -> Box<Status> {
    match error {
        kube::Error::Api(status) => status,
        other => panic!("{other}"),
    }
}

async fn merge(probes: &Api<Probe>, name: &str, patch: Value) -> Result<Probe, kube::Error> {
    probes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
}

#[test]
fn each_hook_does_what_the_concepts_say() {
    runtime().block_on(async {
        let server = TestServer::start(Server::builder().resource::<Probe>()).await;
        let client = server.client("root").await;
        let probes: Api<Probe> = Api::namespaced(client.clone(), "default");
        defaults_are_those_of_the_version_and_are_stored(&client, &probes).await;
        prepare_for_create_completes_and_drops_the_status(&probes).await;
        validate_refuses_a_create_and_an_update(&probes).await;
        canonicalize_is_last(&probes).await;
        validate_update_compares_with_the_old_object(&probes).await;
        prepare_for_update_sees_the_old_object(&probes).await;
        status_and_spec_have_paths_of_their_own(&probes).await;
        a_finalizer_of_prepare_for_create_holds_a_deleted_object(&probes).await;
        dependents_go_with_their_owner(&client, &probes).await;
        server.shutdown().await;
    });
}

async fn defaults_are_those_of_the_version_and_are_stored(client: &Client, probes: &Api<Probe>) {
    take();
    let made = probes
        .create(&PostParams::default(), &probe("hub", None, &[]))
        .await
        .unwrap();
    assert_eq!(made.spec.mode.as_deref(), Some("hub"));
    let order = ["default v1", "prepare_for_create", "validate", "canonicalize"];
    assert_eq!(take(), order);
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("hooks.example.com", "v1beta1", "Probe"));
    let beta: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let sent =
        json!({"apiVersion": "hooks.example.com/v1beta1", "kind": "Probe", "metadata": {"name": "beta"}, "spec": {}});
    beta.create(&PostParams::default(), &from_value(sent).unwrap())
        .await
        .unwrap();
    assert_eq!(
        take(),
        ["default v1beta1", "prepare_for_create", "validate", "canonicalize"]
    );
    // The default is stored: the other version shows that of the version which was written.
    let stored = probes.get("beta").await.unwrap();
    assert_eq!(stored.spec.mode.as_deref(), Some("beta"));
    assert_eq!(take(), [""; 0], "a read runs no hook");
}

async fn prepare_for_create_completes_and_drops_the_status(probes: &Api<Probe>) {
    let mut sent = probe("made", None, &[]);
    sent.status = Some(ProbeStatus { ready: true });
    let made = probes.create(&PostParams::default(), &sent).await.unwrap();
    assert_eq!(made.spec.seen, "created, status false, canonical");
    assert!(made.status.is_none());
}

async fn validate_refuses_a_create_and_an_update(probes: &Api<Probe>) {
    take();
    let refused = probes
        .create(&PostParams::default(), &probe("bad", None, &["a", ""]))
        .await;
    let status = refusal(refused.unwrap_err());
    assert_eq!((status.code, &*status.reason), (422, "Invalid"));
    let cause = &status.details.as_ref().unwrap().causes[0];
    assert_eq!((&*cause.field, &*cause.reason), ("spec.items[1]", "FieldValueRequired"));
    assert!(!take().contains(&"canonicalize"), "nothing follows a refusal");
    assert!(probes.get_opt("bad").await.unwrap().is_none());
    let refused = merge(probes, "made", json!({"spec": {"items": [""]}})).await;
    assert_eq!(refusal(refused.unwrap_err()).code, 422);
}

async fn canonicalize_is_last(probes: &Api<Probe>) {
    take();
    let changed = merge(probes, "made", json!({"spec": {"items": ["b", "a"]}}))
        .await
        .unwrap();
    assert_eq!(changed.spec.items, ["a", "b"]);
    assert!(changed.spec.seen.ends_with(", canonical"));
    assert_eq!(take().last(), Some(&"canonicalize"));
}

async fn validate_update_compares_with_the_old_object(probes: &Api<Probe>) {
    let refused = merge(probes, "made", json!({"spec": {"mode": "other"}})).await;
    let status = refusal(refused.unwrap_err());
    assert!(
        status.message.contains("spec.mode: Forbidden: the mode stays"),
        "{}",
        status.message
    );
    take();
    probes
        .create(&PostParams::default(), &probe("fresh", Some("other"), &[]))
        .await
        .unwrap();
    assert!(!take().contains(&"validate_update"), "a create has no old object");
}

async fn prepare_for_update_sees_the_old_object(probes: &Api<Probe>) {
    take();
    let changed = merge(probes, "made", json!({"spec": {"items": ["a", "b", "c"]}}))
        .await
        .unwrap();
    assert_eq!(changed.spec.seen, "3 after 2, canonical");
    let hooks = take();
    assert!(!hooks.contains(&"prepare_for_create"), "{hooks:?}");
    let place = |hook| hooks.iter().position(|ran| *ran == hook).unwrap();
    assert!(place("default v1") < place("prepare_for_update"));
    assert!(place("prepare_for_update") < place("validate"));
    assert!(place("validate") < place("validate_update"));
}

async fn status_and_spec_have_paths_of_their_own(probes: &Api<Probe>) {
    let both = json!({"spec": {"items": ["z"]}, "status": {"ready": true}});
    let shown = merge(probes, "made", both.clone()).await.unwrap();
    assert_eq!((shown.spec.items, shown.status), (vec!["z".to_owned()], None));
    let items = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"items": ["y"]}, "status": {"ready": true}});
    let patch = Patch::Merge(&items);
    let shown = probes
        .patch_status("made", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(shown.spec.items, ["z"]);
    assert_eq!(shown.status, Some(ProbeStatus { ready: true }));
    assert_eq!(shown.labels()["a"], "b", "metadata changes by both");
}

async fn a_finalizer_of_prepare_for_create_holds_a_deleted_object(probes: &Api<Probe>) {
    probes
        .create(&PostParams::default(), &probe("held", Some("held"), &[]))
        .await
        .unwrap();
    probes.delete("held", &DeleteParams::default()).await.unwrap();
    let held = probes.get("held").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    assert_eq!(held.finalizers(), [FINALIZER]);
    merge(probes, "held", json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    assert!(probes.get_opt("held").await.unwrap().is_none());
}

async fn dependents_go_with_their_owner(client: &Client, probes: &Api<Probe>) {
    let owner = probes.get("made").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some("dependent".into()),
            owner_references: Some(vec![kube::Resource::controller_owner_ref(&owner, &()).unwrap()]),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await.unwrap();
    probes.delete("made", &DeleteParams::default()).await.unwrap();
    for _ in 0..600 {
        if maps.get_opt("dependent").await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the dependent is still there after a minute");
}
