//! Kinds that cannot be served: the start ends with the reason, and without a panic.

use crate::hostile::{Dig, Mine, v1beta1};
use insula_sdk::{
    Kind, ObjectMeta, Resource, Server, ServerBuilder,
    kube::CustomResource,
    schemars::JsonSchema,
    serde::{Deserialize, Serialize},
    serde_json::json,
    testing::runtime,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

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
