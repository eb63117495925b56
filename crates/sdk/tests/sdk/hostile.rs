//! Mistakes of authors and hostile clients: hooks that panic or block, types narrower than their
//! schemas, conversions that fail or lose data, large bodies, and kinds that cannot be served.

use insula_sdk::{
    Call, Context, Described, FieldError, Kind, ObjectMeta, Refusal, Reply, Resource, Server, ServerBuilder, Strategy,
    Subresource, Verb,
    kube::{
        self, Api, Client, CustomResource,
        api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
        core::{ApiResource, GroupVersionKind, Status},
    },
    schemars::JsonSchema,
    serde::{Deserialize, Deserializer, Serialize, de::Error as _},
    serde_json::{Value, from_value, json},
    testing::{TestServer, check_roundtrip, runtime},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const GROUP: &str = "mines.example.com";

/// An object whose `fault` says what goes wrong with it.
#[derive(Resource, Clone, Debug)]
#[resource(group = "mines.example.com", version = "v1", strategy = Faulty)]
#[resource(versions(v1beta1::Mine), subresources(dig = Dig))]
pub(crate) struct Mine {
    metadata: ObjectMeta,
    spec: MineSpec,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub(crate) struct MineSpec {
    #[serde(default)]
    fault: String,
    /// A text for the schema, and a number between 0 and 9 for the type.
    #[serde(default)]
    depth: Depth,
}

#[derive(Serialize, Clone, Debug, Default, PartialEq)]
pub(crate) struct Depth(String);

impl<'de> Deserialize<'de> for Depth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.len() <= 1 && text.chars().all(|c| c.is_ascii_digit()) {
            true => Ok(Depth(text)),
            false => Err(D::Error::custom("a depth has one digit")),
        }
    }
}

impl JsonSchema for Depth {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Depth".into()
    }

    fn json_schema(generator: &mut insula_sdk::schemars::SchemaGenerator) -> insula_sdk::schemars::Schema {
        String::json_schema(generator)
    }
}

/// Hooks that wait until the test lets them go.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static GO: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

pub(crate) struct Faulty;

fn fault(at: &str, mine: &Mine) {
    assert!(mine.spec.fault != at, "the secret of {at}");
}

impl Strategy<Mine> for Faulty {
    fn default(&self, new: &mut Mine) {
        fault("default", new);
    }

    fn prepare_for_create(&self, new: &mut Mine, _: &Context) {
        fault("prepare", new);
        if new.spec.fault == "steal" {
            new.metadata.name = Some("stolen".into());
            new.metadata.namespace = Some("kube-system".into());
            new.metadata.uid = Some("0".into());
            new.metadata.generation = Some(77);
        }
    }

    fn validate(&self, new: &Mine) -> Vec<FieldError> {
        fault("validate", new);
        if new.spec.fault == "block" {
            WAITING.fetch_add(1, Ordering::SeqCst);
            let mut go = GO.0.lock().unwrap();
            while !*go {
                go = GO.1.wait(go).unwrap();
            }
        }
        Vec::new()
    }

    fn validate_update(&self, new: &Mine, _: &Mine) -> Vec<FieldError> {
        fault("update", new);
        Vec::new()
    }

    fn warnings(&self, new: &Mine, _: Option<&Mine>) -> Vec<String> {
        fault("warnings", new);
        Vec::new()
    }

    fn canonicalize(&self, new: &mut Mine) {
        fault("canonicalize", new);
    }
}

pub(crate) mod v1beta1 {
    use super::*;

    /// A mine whose conversion fails for some.
    #[derive(Resource, Clone, Debug)]
    #[resource(group = "mines.example.com", version = "v1beta1")]
    pub(crate) struct Mine {
        pub(crate) metadata: ObjectMeta,
        pub(crate) spec: MineSpec,
    }

    impl From<super::Mine> for Mine {
        fn from(mine: super::Mine) -> Self {
            fault("convert", &mine);
            let super::Mine { metadata, spec } = mine;
            Self { metadata, spec }
        }
    }

    impl From<Mine> for super::Mine {
        fn from(mine: Mine) -> Self {
            let Mine { metadata, spec } = mine;
            let mine = Self { metadata, spec };
            fault("convert to the hub", &mine);
            mine
        }
    }
}

/// Panics, or answers with what is asked for.
pub(crate) struct Dig;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Order {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    panic: bool,
    #[serde(default)]
    depth: String,
}

impl Subresource<Mine> for Dig {
    type Request = Order;
    type Response = ();
    const VERBS: &'static [Verb] = &[Verb::Create, Verb::Get];

    async fn call(&self, call: Call<Mine, Order>) -> Result<Reply<Mine, ()>, Refusal> {
        let order = call.request.ok_or_else(|| Refusal::BadRequest("an order".into()))?;
        assert!(!order.panic, "the secret of dig");
        let mut mine = call.object;
        mine.spec.depth = Depth(order.depth);
        Ok(Reply::new(()).code(order.code).update(mine))
    }
}

fn mine(name: &str, fault: &str) -> Mine {
    Mine {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: MineSpec {
            fault: fault.to_owned(),
            depth: Depth::default(),
        },
    }
}

fn status(error: kube::Error) -> Box<Status> {
    match error {
        kube::Error::Api(status) => status,
        other => panic!("{other}"),
    }
}

/// A refusal that tells nothing of the panic.
fn is_internal(error: kube::Error) {
    let status = status(error);
    assert_eq!(status.code, 500, "{status:?}");
    assert!(!status.message.contains("secret"), "{}", status.message);
}

fn beta(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1beta1", "Mine"));
    Api::namespaced_with(client.clone(), "default", &kind)
}

#[test]
fn faults_of_an_author_end_their_request_alone() {
    runtime().block_on(async {
        let server = TestServer::start(Server::builder().resource::<Mine>()).await;
        let client = server.client("root").await;
        let mines: Api<Mine> = Api::namespaced(client.clone(), "default");
        mines.create(&PostParams::default(), &mine("good", "")).await.unwrap();
        hooks_that_panic(&mines).await;
        conversions_that_panic(&client, &mines).await;
        types_narrower_than_their_schemas(&client, &mines).await;
        subresources_that_fail(&client).await;
        hooks_change_no_identity(&mines).await;
        assert_eq!(mines.get("good").await.unwrap().spec, MineSpec::default());
        server.shutdown().await;
    });
}

async fn hooks_that_panic(mines: &Api<Mine>) {
    for fault in ["default", "prepare", "validate", "warnings", "canonicalize"] {
        is_internal(
            mines
                .create(&PostParams::default(), &mine("bad", fault))
                .await
                .unwrap_err(),
        );
        let patch = json!({"spec": {"fault": fault}});
        let patched = mines
            .patch("good", &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        if fault != "prepare" {
            is_internal(patched.unwrap_err());
        }
    }
    let patch = json!({"spec": {"fault": "update"}});
    let patched = mines
        .patch("good", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    is_internal(patched.unwrap_err());
    assert!(mines.get_opt("bad").await.unwrap().is_none());
    let patch = json!({"spec": {"fault": ""}});
    mines
        .patch("good", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
}

/// Writes of objects that another served version cannot show, or that cannot be converted at all.
async fn conversions_that_panic(client: &Client, mines: &Api<Mine>) {
    let beta = beta(client);
    let refused = mines.create(&PostParams::default(), &mine("mute", "convert")).await;
    let refused = status(refused.unwrap_err());
    assert_eq!(refused.code, 422);
    let want = "the conversion from v1 to v1beta1 panicked";
    assert!(refused.message.contains(want), "{}", refused.message);
    let patch = json!({"spec": {"fault": "convert"}});
    let refused = mines
        .patch("good", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    assert_eq!(status(refused.unwrap_err()).code, 422);
    let sent = json!({"apiVersion": format!("{GROUP}/v1beta1"), "kind": "Mine", "metadata": {"name": "new"},
        "spec": {"fault": "convert to the hub"}});
    let refused = beta
        .create(&PostParams::default(), &from_value(sent).unwrap())
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("panicked"), "{refused}");
    assert!(!refused.to_string().contains("secret"), "{refused}");
    assert_eq!(beta.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

async fn types_narrower_than_their_schemas(client: &Client, mines: &Api<Mine>) {
    let patch = json!({"spec": {"depth": "abyss"}});
    let refused = mines
        .patch("good", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    let refused = status(refused.unwrap_err());
    assert_eq!(refused.code, 422, "{refused:?}");
    assert!(refused.message.contains("a depth has one digit"), "{}", refused.message);
    let refused = beta(client)
        .patch("good", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("a depth has one digit"), "{refused}");
}

async fn subresources_that_fail(client: &Client) {
    let path = format!("/apis/{GROUP}/v1/namespaces/default/mines/good/dig");
    let post = |body: Value| {
        let request = http::Request::post(&path).header("content-type", "application/json");
        client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap())
    };
    is_internal(post(json!({"panic": true})).await.unwrap_err());
    // Codes that are no success of an answer with a body.
    for code in [7, 101, 204, 304, 404, 999] {
        is_internal(post(json!({"code": code})).await.unwrap_err());
    }
    assert_eq!(status(post(json!({"code": "x"})).await.unwrap_err()).code, 400);
    assert_eq!(status(post(json!({"code": 70_000})).await.unwrap_err()).code, 400);
    assert_eq!(status(post(json!([1])).await.unwrap_err()).code, 400);
    // The handler's own object is not valid.
    assert_eq!(status(post(json!({"depth": "abyss"})).await.unwrap_err()).code, 422);
    let large = "x".repeat(8 << 20);
    assert_eq!(status(post(json!({"depth": large})).await.unwrap_err()).code, 413);
    let deep = "[".repeat(100_000);
    let request = http::Request::post(&path).header("content-type", "application/json");
    let deep = client.request::<Value>(request.body(deep.into_bytes()).unwrap()).await;
    assert_eq!(status(deep.unwrap_err()).code, 400);
    post(json!({})).await.unwrap();
}

async fn hooks_change_no_identity(mines: &Api<Mine>) {
    let made = mines
        .create(&PostParams::default(), &mine("owned", "steal"))
        .await
        .unwrap();
    let metadata = &made.metadata;
    assert_eq!(metadata.name.as_deref(), Some("owned"));
    assert_eq!(metadata.namespace.as_deref(), Some("default"));
    assert_eq!(
        (metadata.generation, metadata.uid.as_deref() == Some("0")),
        (Some(1), false)
    );
}

/// More hooks block than there are threads; the server answers others meanwhile.
#[test]
fn hooks_that_block_stop_nobody_else() {
    const BLOCKED: usize = 24;
    runtime().block_on(async {
        let server = TestServer::start(Server::builder().resource::<Mine>()).await;
        let client = server.client("root").await;
        let mines: Api<Mine> = Api::namespaced(client.clone(), "default");
        let mut blocked = tokio::task::JoinSet::new();
        for number in 0..BLOCKED {
            let mines = mines.clone();
            let sent = mine(&format!("blocked-{number}"), "block");
            blocked.spawn(async move { mines.create(&PostParams::default(), &sent).await });
        }
        let wait = async {
            while WAITING.load(Ordering::SeqCst) < BLOCKED {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            mines.create(&PostParams::default(), &mine("free", "")).await.unwrap();
            let ready = http::Request::get("/readyz").body(Vec::new()).unwrap();
            client.request_text(ready).await.unwrap()
        };
        let ready = tokio::time::timeout(Duration::from_secs(50), wait).await;
        *GO.0.lock().unwrap() = true;
        GO.1.notify_all();
        assert_eq!(
            ready.as_deref(),
            Ok("ok"),
            "{} hooks began",
            WAITING.load(Ordering::SeqCst)
        );
        while let Some(made) = blocked.join_next().await {
            made.unwrap().unwrap();
        }
        server.shutdown().await;
    });
}

/// A hub that keeps three letters of what both versions have.
mod lossy {
    use super::*;

    #[derive(Resource, Clone, Debug)]
    #[resource(group = "lossy.example.com", version = "v1", versions(beta::Label))]
    pub(super) struct Label {
        metadata: ObjectMeta,
        spec: LabelSpec,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
    pub(super) struct LabelSpec {
        #[serde(default)]
        text: String,
    }

    pub(super) mod beta {
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
}

#[test]
fn a_conversion_that_refuses_objects_fails_its_test() {
    let checked = catch_unwind(|| check_roundtrip(<lossy::Label as Described>::described()));
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
        let server = TestServer::start(Server::builder().resource::<lossy::Label>()).await;
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

/// A type of kube-rs, which nothing checks when it is compiled.
macro_rules! foreign {
    ($name:ident, $group:literal, $kind:literal, $plural:literal) => {
        mod $name {
            use super::*;

            #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
            #[kube(group = $group, version = "v1", kind = $kind, plural = $plural, namespaced)]
            pub(super) struct Spec {
                size: u8,
            }
        }
    };
}

foreign!(built_in, "tenancy.kcp.io", "Workspace", "workspaces");
foreign!(capital, "Fleet.example.com", "Boat", "boats");
foreign!(lower, "fleet.example.com", "boat", "boats");

/// A type with itself in it.
#[derive(Resource, Clone, Debug)]
#[resource(group = "tree.example.com", version = "v1")]
pub(crate) struct Tree {
    metadata: ObjectMeta,
    spec: Node,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub(crate) struct Node {
    children: Vec<Node>,
}

fn no_start(builder: ServerBuilder) -> String {
    runtime().block_on(async {
        let directory = insula_sdk::testing::temporary_directory();
        let builder = builder.data_dir(directory.path()).store("memory").listen("127.0.0.1:0");
        match builder.start().await {
            Ok(running) => {
                running.shutdown().await;
                String::new()
            }
            Err(error) => error.to_string(),
        }
    })
}

#[test]
fn kinds_that_cannot_be_served_stop_the_start_with_a_reason() {
    let server = Server::builder;
    let dig = |name: &str| server().kind(Kind::<Mine>::new().subresource(name, Dig));
    for (builder, want) in [
        (
            server().resource::<Mine>().resource::<Mine>(),
            "mines.mines.example.com",
        ),
        (
            server().kind(Kind::<built_in::Workspace>::new()),
            "workspaces.tenancy.kcp.io",
        ),
        (server().kind(Kind::<capital::Boat>::new()), "boats.Fleet.example.com"),
        (server().kind(Kind::<lower::boat>::new()), "boats.fleet.example.com"),
        (server().resource::<Tree>(), "trees.tree.example.com"),
        (
            server().kind(Kind::<Mine>::new().version_by_rules::<v1beta1::Mine>(json!({"spec": 1}))),
            "mines.mines",
        ),
        (
            server().kind(
                Kind::<Mine>::new()
                    .version::<v1beta1::Mine>()
                    .version::<v1beta1::Mine>(),
            ),
            "v1beta1",
        ),
        (dig("Dig"), "the subresource `Dig`"),
        (dig("status"), "the subresource `status`"),
        (dig("scale"), "the subresource `scale`"),
        (dig("a/b"), "the subresource `a/b`"),
        (
            server().kind(Kind::<Mine>::new().subresource("dig", Dig).subresource("dig", Dig)),
            "`dig` twice",
        ),
        (server().resource::<Mine>().store("punch cards"), "store"),
    ] {
        let started = catch_unwind(AssertUnwindSafe(|| no_start(builder)));
        let why = started.unwrap_or_else(|_| panic!("{want}: the start panics"));
        assert!(why.contains(want), "{want}: {why:?}");
    }
}
