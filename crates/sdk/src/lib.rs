//! A library to build API servers: kinds as Rust types, with logic of their own, served by Insula.
//!
//! A kind is a struct with `metadata`, `spec` and, if it has one, `status`. The derive macro makes
//! its definition: names, schema, columns, subresources. A [`Strategy`] is its behaviour in the
//! path of every write. [`Server::builder`] serves it in every workspace of a server.
//!
//! ```
//! use insula_sdk::{FieldError, FieldPath, ObjectMeta, Resource, Server, Strategy};
//! use insula_sdk::{schemars::JsonSchema, serde::{Deserialize, Serialize}};
//!
//! /// A machine that moves on its own.
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "fleet.example.com", version = "v1", short = "rb", strategy = RobotStrategy)]
//! #[resource(columns(Mode = ".spec.mode", Charge = ".status.charge"))]
//! pub struct Robot {
//!     pub metadata: ObjectMeta,
//!     pub spec: RobotSpec,
//!     pub status: Option<RobotStatus>,
//! }
//!
//! #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! #[serde(rename_all = "camelCase")]
//! pub struct RobotSpec {
//!     /// Occupation of the robot: `Idle` or `Patrol`.
//!     pub mode: Option<String>,
//!     /// Places to visit, in any order.
//!     #[serde(default)]
//!     pub places: Vec<String>,
//! }
//!
//! #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! pub struct RobotStatus {
//!     /// Per cent of the battery.
//!     pub charge: i32,
//! }
//!
//! pub struct RobotStrategy;
//!
//! impl Strategy<Robot> for RobotStrategy {
//!     fn default(&self, new: &mut Robot) {
//!         new.spec.mode.get_or_insert("Idle".into());
//!     }
//!
//!     fn validate(&self, new: &Robot) -> Vec<FieldError> {
//!         if new.spec.mode.as_deref() != Some("Patrol") || !new.spec.places.is_empty() {
//!             return Vec::new();
//!         }
//!         let at = FieldPath::new("spec").child("places");
//!         vec![FieldError::required(&at, "a patrol visits at least one place")]
//!     }
//!
//!     fn canonicalize(&self, new: &mut Robot) {
//!         new.spec.places.sort();
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     let server = Server::builder().resource::<Robot>();
//! #   return std::process::ExitCode::SUCCESS;
//!     server.run()
//! }
//! ```
//!
//! The program takes the flags of `insula start` and serves on `https://127.0.0.1:6443`:
//!
//! ```text
//! $ robots --data-dir /tmp/robots &
//! $ export KUBECONFIG=/tmp/robots/admin.kubeconfig
//! $ kubectl explain robot.spec
//! $ kubectl apply -f robot.yaml
//! ```
//!
//! [`mod@derive`] is the tutorial of the derive macro, with all its arguments.
//!
//! The derive macros of `serde` and `schemars` name their own crates, so a program depends on these
//! two as well.
//!
//! Types made by `#[derive(CustomResource)]` of kube-rs are resources, too: [`Kind::new`] takes
//! them, and [`ServerBuilder::kind`] serves them.
//!
//! # Versions
//!
//! The type that `resource::<T>()` names is the **hub**: objects are stored in its version, and the
//! strategy sees it. Each other version has `From` or `TryFrom` both ways. What one type has and
//! the other cannot carry is not lost: the server keeps it beside the object, and the next reader
//! of that version gets it back. [`roundtrip!`] tests that.
//!
//! # Controllers
//!
//! A [`Reconciler`] moves the world towards an object's spec and shows in its status what it finds.
//! [`ServerBuilder::controller`] runs it in all workspaces of the server:
//!
//! ```
//! # use insula_sdk::{ObjectMeta, Resource, Server};
//! # use insula_sdk::{schemars::JsonSchema, serde::{Deserialize, Serialize}};
//! # #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! # pub struct RobotSpec { pub mode: String }
//! # #[derive(Resource, Clone, Debug)]
//! # #[resource(group = "fleet.example.com", version = "v1")]
//! # pub struct Robot { pub metadata: ObjectMeta, pub spec: RobotSpec }
//! use insula_sdk::{Action, Controller, ReconcileResult, Reconciler, Request};
//! use insula_sdk::{k8s_openapi::api::core::v1::ConfigMap, kube::ResourceExt};
//!
//! struct Robots;
//!
//! impl Reconciler for Robots {
//!     type Object = Robot;
//!     const NAME: &'static str = "robots.fleet.example.com";
//!
//!     async fn reconcile(&self, request: &Request<Robot>) -> ReconcileResult {
//!         let robot = &request.object;
//!         let mut map = ConfigMap::default();
//!         map.metadata.name = Some(format!("{}-orders", robot.name_any()));
//!         map.data = Some([("mode".into(), robot.spec.mode.clone())].into());
//!         request.apply_owned(map).await?;
//!         Ok(Action::await_change())
//!     }
//! }
//!
//! let controller = Controller::new(Robots).owns::<ConfigMap>();
//! let controller = controller.finalizer("fleet.example.com/robots");
//! let server = Server::builder().resource::<Robot>().controller(controller);
//! ```
//!
//! Each object is reconciled after a change of it or of an object that belongs to it, never twice
//! at a time, and after failures with growing pauses. [`Controller::leader_election`] is for
//! several servers on one etcd. [`Controller::run`] works on any Kubernetes server, too, and the
//! controllers of kube-rs run against a server as they are: [`controller::workspace_client`] is
//! their client.
//!
//! # Subresources
//!
//! A [`Subresource`] answers requests below an object: an action, a view, or text that is streamed
//! ([`Reply::stream`]). Its types of request and answer are in the OpenAPI documents.
//!
//! # Users of a Kubernetes cluster
//!
//! [`ServerBuilder::delegate`] asks a Kubernetes server whose a token is and whether a request is
//! allowed, as extension servers do there. A program takes the server from the variable
//! `INSULA_DELEGATE` as well.
//!
//! # Mistakes and limits
//!
//! A hook or a subresource that panics ends its request with 500, and tells the client nothing of
//! the panic; a conversion that panics is one that fails. Hooks, subresources and reconciliations
//! may block their threads: others are served meanwhile, but a request holds its place among those
//! in flight. Bodies have the limit `limits.bodyBytes`. A kind that cannot be served ends the start
//! with the reason.
//!
//! # Stability
//!
//! Versions follow semver. Before 1.0 a new minor version may change anything that this page does
//! not call stable; from 1.0 on, a change that breaks programs takes a new major version. Stable
//! are:
//!
//! - all public items and the arguments of `#[resource(…)]`, except [`__private`] and items that
//!   are hidden here; `tests/sdk/surface.txt` in the repository records them, and a test compares;
//! - the order of the hooks of [`Strategy`], and what each of them may change;
//! - objects that are stored: a new version reads those of older ones. A store is not read by an
//!   older version;
//! - the definition of a type as the derive macro makes it, up to additions.
//!
//! `kube`, `k8s-openapi`, `schemars` and `serde` are part of the interface: a new major version of
//! one of them is a new major version of this library. Texts of errors and logs, the settings in
//! [`Config`], and the minimum version of Rust may change in any minor version.
//!
//! # Tests
//!
//! [`testing::TestServer`] is a real server in memory for one test, with kube-rs' client.

// The derive macro names this crate, in its own tests as well.
extern crate self as insula_sdk;

mod blocking;
pub mod controller;
mod convert;
mod definition;
mod delegation;
pub mod derive;
mod kind;
mod resource;
mod server;
mod strategy;
mod subresource;
pub mod testing;

pub use controller::{Action, Controller, Key, ReconcileResult, Reconciler, Request};
pub use delegation::Delegation;
pub use insula_api::{FieldError, FieldPath, Timestamp};
pub use insula_auth::UserInfo;
pub use insula_sdk_derive::Resource;
pub use insula_server::{Config, Running, StartError, Started};
pub use k8s_openapi::{self, apimachinery::pkg::apis::meta::v1::ObjectMeta};
pub use kind::Kind;
pub use kube;
pub use resource::{Described, Known, Resource};
pub use schemars;
pub use serde;
pub use serde_json;
pub use server::{Server, ServerBuilder};
pub use strategy::{Context, NoStrategy, Strategy};
pub use subresource::{Call, Refusal, Reply, Subresource, Verb};

/// Items that the derive macro names. They are no part of the API.
#[doc(hidden)]
pub mod __private {
    pub use crate::definition::{Column, Description, Field, schema};
    pub use k8s_openapi::{
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        apimachinery::pkg::apis::meta::v1::ObjectMeta,
    };
    pub use kube;
    pub use serde;
}
