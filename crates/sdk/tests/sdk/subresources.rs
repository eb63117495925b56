//! Subresources of a program's own: their types in OpenAPI, and answers that are streamed.

use crate::kinds::{Robot, RobotSpec};
use futures_util::AsyncReadExt;
use insula_sdk::{
    Call, Described, ObjectMeta, Refusal, Reply, Server, Subresource, Verb,
    kube::{
        self, Api, Client,
        api::PostParams,
        config::{Config, KubeConfigOptions, Kubeconfig},
    },
    schemars::JsonSchema,
    serde::Serialize,
    serde_json::{Value, json},
    testing::{TestServer, runtime},
};
use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const GROUP: &str = "/apis/fleet.example.com/v1";

/// Sends lines until its client goes.
struct Log {
    open: Arc<AtomicUsize>,
}

/// Counts a stream as long as it lives.
struct Living(Arc<AtomicUsize>);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Serialize, JsonSchema)]
struct Nothing {}

impl Subresource<Robot> for Log {
    type Request = ();
    type Response = Nothing;
    const VERBS: &'static [Verb] = &[Verb::Get];

    async fn call(&self, call: Call<Robot, ()>) -> Result<Reply<Robot, Nothing>, Refusal> {
        self.open.fetch_add(1, Ordering::SeqCst);
        let open = Living(Arc::clone(&self.open));
        let ends = call
            .query
            .iter()
            .find(|(name, _)| name == "end")
            .map(|(_, how)| how.clone());
        let lines = futures_util::stream::unfold((0, open), move |(number, open)| {
            let ends = ends.clone();
            async move {
                match (number, ends.as_deref()) {
                    (3, Some("here")) => return None,
                    (3, Some("error")) => return Some((Err("the disk is full"), (number + 1, open))),
                    (3, Some("panic")) => panic!("the log is gone"),
                    (10.., _) => tokio::time::sleep(Duration::from_millis(20)).await,
                    _ => {}
                }
                Some((Ok(format!("line {number}\n")), (number + 1, open)))
            }
        });
        Ok(Reply::stream(lines))
    }
}

async fn server(open: &Arc<AtomicUsize>) -> TestServer {
    let kind = Robot::described().subresource("log", Log { open: Arc::clone(open) });
    let builder = Server::builder().kind(kind).config(|config| {
        config.limits.watches_per_user = 3;
        config.watches.bookmark_seconds = 1;
    });
    let server = TestServer::start(builder).await;
    let robots: Api<Robot> = Api::namespaced(server.client("root").await, "default");
    let robot = Robot {
        metadata: ObjectMeta {
            name: Some("r1".into()),
            ..ObjectMeta::default()
        },
        spec: RobotSpec::default(),
        status: None,
    };
    robots.create(&PostParams::default(), &robot).await.unwrap();
    server
}

fn log(query: &str) -> http::Request<Vec<u8>> {
    let path = format!("{GROUP}/namespaces/default/robots/r1/log{query}");
    http::Request::get(path).body(Vec::new()).unwrap()
}

/// Returns a client that does not wait where it is told to come later.
async fn impatient(server: &TestServer) -> Client {
    let read = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.cluster_url = format!("{}/clusters/root", server.url()).parse().unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn eventually(what: &str, open: &AtomicUsize, want: usize) {
    for _ in 0..600 {
        if open.load(Ordering::SeqCst) == want {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}: not within a minute");
}

#[test]
fn a_streamed_answer_comes_in_pieces_and_ends() {
    runtime().block_on(async {
        let open = Arc::new(AtomicUsize::new(0));
        let server = server(&open).await;
        let client = server.client("root").await;
        let whole = client.request_text(log("?end=here")).await.unwrap();
        assert_eq!(whole, "line 0\nline 1\nline 2\n");
        for end in ["error", "panic"] {
            let broken = client.request_text(log(&format!("?end={end}"))).await;
            assert!(broken.is_err(), "{end}: {broken:?}");
        }
        eventually("streams end by themselves", &open, 0).await;

        // An endless one is read as it comes, and ends when its client goes.
        let mut stream = Box::pin(client.request_stream(log("")).await.unwrap());
        let mut start = [0; 14];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"line 0\nline 1\n");
        assert_eq!(open.load(Ordering::SeqCst), 1);
        drop(stream);
        eventually("the client has gone", &open, 0).await;

        // As many as watches.
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(client.request_stream(log("")).await.unwrap());
        }
        match impatient(&server).await.request_text(log("")).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, 429, "{status:?}"),
            other => panic!("{other:?}"),
        }
        drop(held);
        eventually("all clients have gone", &open, 0).await;

        // The server ends what goes on.
        let mut last = Box::pin(client.request_stream(log("")).await.unwrap());
        last.read_exact(&mut start).await.unwrap();
        let mut rest = String::new();
        let ((), read) = tokio::join!(server.shutdown(), last.read_to_string(&mut rest));
        read.unwrap();
        assert!(rest.starts_with("line 2\n"));
        assert_eq!(open.load(Ordering::SeqCst), 0);
    });
}

async fn document(client: &Client, path: &str) -> Value {
    client
        .request(http::Request::get(path).body(Vec::new()).unwrap())
        .await
        .unwrap()
}

#[test]
fn subresources_have_their_types_in_openapi() {
    runtime().block_on(async {
        let open = Arc::new(AtomicUsize::new(0));
        let server = server(&open).await;
        let client = server.client("root").await;
        let path = format!("{GROUP}/namespaces/{{namespace}}/robots/{{name}}/charge");

        let index = document(&client, "/openapi/v3").await;
        let url = index["paths"]["apis/fleet.example.com/v1"]["serverRelativeURL"]
            .as_str()
            .unwrap()
            .to_owned();
        let third = document(&client, &url).await;
        let post = &third["paths"][&path]["post"];
        let reference = |value: &Value| value["content"]["application/json"]["schema"]["$ref"].clone();
        let names = ["RobotChargeRequest", "RobotChargeResponse"].map(|kind| format!("com.example.fleet.v1.{kind}"));
        let at = |name: &str| json!(format!("#/components/schemas/{name}"));
        assert_eq!(reference(&post["requestBody"]), at(&names[0]), "{post}");
        assert_eq!(reference(&post["responses"]["201"]), at(&names[1]));
        assert_eq!(post["x-kubernetes-group-version-kind"]["kind"], "Charge");
        assert_eq!(post["operationId"], "createFleetExampleComV1NamespacedRobotCharge");
        let get = &third["paths"][&path]["get"];
        assert_eq!(
            (&get["x-kubernetes-action"], &get["requestBody"]),
            (&json!("connect"), &Value::Null)
        );
        assert!(get["responses"]["200"]["content"]["text/plain"].is_object());
        let request = &third["components"]["schemas"][&names[0]];
        assert_eq!(request["properties"]["percent"]["description"], "Per cent to add.");
        assert_eq!(request["required"], json!(["percent"]));

        let second = document(&client, "/openapi/v2").await;
        let post = &second["paths"][&path]["post"];
        let body = &post["parameters"].as_array().unwrap()[0];
        assert_eq!(body["schema"]["$ref"], format!("#/definitions/{}", names[0]));
        assert_eq!(
            post["responses"]["201"]["schema"]["$ref"],
            format!("#/definitions/{}", names[1])
        );
        let answer = &second["definitions"][&names[1]];
        assert_eq!(answer["properties"]["charge"]["type"], "integer");
        all_references_lead_somewhere(&second, "#/definitions/", &second["definitions"]);
        all_references_lead_somewhere(&third, "#/components/schemas/", &third["components"]["schemas"]);

        let explained = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(server.kubeconfig())
            .args(["explain", "robot.spec.places"])
            .output();
        match explained {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(
                    text.contains("Places to visit"),
                    "{text}{}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            Err(_) => eprintln!("skipped: no kubectl"),
        }
        server.shutdown().await;
    });
}

fn all_references_lead_somewhere(document: &Value, prefix: &str, schemas: &Value) {
    match document {
        Value::Object(map) => {
            if let Some(name) = map
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|at| at.strip_prefix(prefix))
            {
                assert!(schemas[name].is_object(), "{name} is missing");
            }
            map.values()
                .for_each(|value| all_references_lead_somewhere(value, prefix, schemas));
        }
        Value::Array(list) => list
            .iter()
            .for_each(|value| all_references_lead_somewhere(value, prefix, schemas)),
        _ => {}
    }
}
