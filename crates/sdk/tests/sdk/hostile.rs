//! Mistakes of authors and hostile clients: hooks that panic or block, types narrower than their
//! schemas, conversions that fail, and large bodies.

use insula_sdk::{
    Action, Call, Context, Controller, FieldError, ObjectMeta, ReconcileResult, Reconciler, Refusal, Reply, Request,
    Resource, Server, Strategy, Subresource, Verb,
    kube::{
        self, Api, Client,
        api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
        core::{ApiResource, GroupVersionKind, Status},
    },
    schemars::JsonSchema,
    serde::{Deserialize, Deserializer, Serialize, de::Error as _},
    serde_json::{Value, from_value, json},
    testing::{TestServer, runtime},
};
use std::{
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

/// A gate for code that blocks until its test opens it.
struct Gate {
    waiting: AtomicUsize,
    open: Mutex<bool>,
    opened: Condvar,
}

static REQUESTS: Gate = Gate::new();
static RECONCILIATIONS: Gate = Gate::new();

impl Gate {
    const fn new() -> Self {
        Gate {
            waiting: AtomicUsize::new(0),
            open: Mutex::new(false),
            opened: Condvar::new(),
        }
    }

    /// Blocks the thread.
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    async fn until_waiting(&self, count: usize) {
        while self.waiting.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

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
            REQUESTS.pass();
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
    block: bool,
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
        if order.block {
            REQUESTS.pass();
        }
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

const DIG: &str = "/apis/mines.example.com/v1/namespaces/default/mines/good/dig";

async fn dig(client: &Client, order: Value) -> Result<Value, kube::Error> {
    let request = http::Request::post(DIG).header("content-type", "application/json");
    let request = request.body(order.to_string().into_bytes()).unwrap();
    client.request(request).await
}

async fn subresources_that_fail(client: &Client) {
    let post = |order: Value| dig(client, order);
    is_internal(post(json!({"panic": true})).await.unwrap_err());
    // Codes that are no success of an answer with a body.
    for code in [7, 101, 204, 304, 404, 999] {
        is_internal(post(json!({"code": code})).await.unwrap_err());
    }
    assert_eq!(status(post(json!({"code": "x"})).await.unwrap_err()).code, 400);
    assert_eq!(status(post(json!({"code": 70_000})).await.unwrap_err()).code, 400);
    assert_eq!(status(post(json!("dig")).await.unwrap_err()).code, 400);
    // The handler's own object is not valid.
    assert_eq!(status(post(json!({"depth": "abyss"})).await.unwrap_err()).code, 422);
    let large = "x".repeat(8 << 20);
    match post(json!({"depth": large})).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 413, "{status:?}"),
        // The server closes the connection of a client that goes on sending.
        Err(_) => {}
        Ok(answer) => panic!("{answer}"),
    }
    let deep = "[".repeat(100_000);
    let request = http::Request::post(DIG).header("content-type", "application/json");
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

/// More hooks and subresources block than there are threads; the server answers others meanwhile.
#[test]
fn hooks_and_subresources_that_block_stop_nobody_else() {
    const BLOCKED: usize = 12;
    runtime().block_on(async {
        let server = TestServer::start(Server::builder().resource::<Mine>()).await;
        let client = server.client("root").await;
        let mines: Api<Mine> = Api::namespaced(client.clone(), "default");
        mines.create(&PostParams::default(), &mine("good", "")).await.unwrap();
        let mut blocked = tokio::task::JoinSet::new();
        for number in 0..BLOCKED {
            let (client, mines) = (client.clone(), mines.clone());
            let sent = mine(&format!("blocked-{number}"), "block");
            blocked.spawn(async move {
                mines.create(&PostParams::default(), &sent).await.unwrap();
            });
            blocked.spawn(async move {
                dig(&client, json!({"block": true})).await.unwrap();
            });
        }
        let others = async {
            REQUESTS.until_waiting(2 * BLOCKED).await;
            mines.create(&PostParams::default(), &mine("free", "")).await.unwrap();
            let ready = http::Request::get("/readyz").body(Vec::new()).unwrap();
            client.request_text(ready).await.unwrap()
        };
        let ready = tokio::time::timeout(Duration::from_secs(50), others).await;
        REQUESTS.open();
        assert_eq!(ready.as_deref(), Ok("ok"));
        while let Some(answered) = blocked.join_next().await {
            answered.unwrap();
        }
        server.shutdown().await;
    });
}

struct Stuck;

impl Reconciler for Stuck {
    type Object = Mine;
    const NAME: &'static str = "stuck.mines.example.com";

    async fn reconcile(&self, _: &Request<Mine>) -> ReconcileResult {
        RECONCILIATIONS.pass();
        Ok(Action::await_change())
    }
}

/// The server's own controllers make a workspace ready meanwhile.
#[test]
fn reconciliations_that_block_stop_no_other_controller() {
    const BLOCKED: usize = 12;
    runtime().block_on(async {
        let controller = Controller::new(Stuck).workers(BLOCKED);
        let server = TestServer::start(Server::builder().resource::<Mine>().controller(controller)).await;
        let client = server.client("root").await;
        let mines: Api<Mine> = Api::namespaced(client.clone(), "default");
        for number in 0..BLOCKED {
            let sent = mine(&format!("stuck-{number}"), "");
            mines.create(&PostParams::default(), &sent).await.unwrap();
        }
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("tenancy.kcp.io", "v1alpha1", "Workspace"));
        let workspaces: Api<DynamicObject> = Api::all_with(client, &kind);
        let sent = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "free"}});
        let others = async {
            RECONCILIATIONS.until_waiting(BLOCKED).await;
            let sent = from_value(sent).unwrap();
            workspaces.create(&PostParams::default(), &sent).await.unwrap();
            while workspaces.get("free").await.unwrap().data["status"]["phase"] != "Ready" {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let ready = tokio::time::timeout(Duration::from_secs(50), others).await;
        RECONCILIATIONS.open();
        assert!(ready.is_ok(), "the workspace is not ready");
        server.shutdown().await;
    });
}
