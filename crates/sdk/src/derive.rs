//! The derive macro [`Resource`](macro@crate::Resource): a tutorial, and all its arguments.
//!
//! This module has no items. It is the documentation of the macro.
//!
//! # A type becomes a kind
//!
//! A resource is a struct with `metadata: ObjectMeta` and any other fields; by custom these are
//! `spec`, the desired state, and `status`, the observed one. Group and version are all that the
//! macro has to be told:
//!
//! ```
//! use insula_sdk::{Kind, ObjectMeta, Resource, serde_json::json};
//! use insula_sdk::{schemars::JsonSchema, serde::{Deserialize, Serialize}};
//!
//! /// A lamp that shines.
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "lamps.example.com", version = "v1")]
//! struct Lamp {
//!     metadata: ObjectMeta,
//!     /// The wanted light.
//!     spec: LampSpec,
//! }
//!
//! #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! #[serde(rename_all = "camelCase")]
//! struct LampSpec {
//!     /// Brightness in per cent.
//!     #[schemars(range(max = 100))]
//!     brightness: u8,
//!     /// Colour, such as `warm`.
//!     light_color: Option<String>,
//! }
//!
//! let kind = Kind::<Lamp>::new();
//! assert_eq!(kind.name(), "lamps.lamps.example.com");
//! let spec = &kind.definition()["spec"];
//! assert_eq!(spec["names"]["kind"], "Lamp");
//! assert_eq!(spec["scope"], "Namespaced");
//! // The comments are what `kubectl explain` shows, and the types are the schema.
//! let schema = &spec["versions"][0]["schema"]["openAPIV3Schema"];
//! assert_eq!(schema["description"], "A lamp that shines.");
//! let brightness = &schema["properties"]["spec"]["properties"]["brightness"];
//! assert_eq!(brightness["description"], "Brightness in per cent.");
//! assert_eq!((&brightness["type"], &brightness["maximum"]), (&json!("integer"), &json!(100.0)));
//! // An Option may be left out.
//! assert_eq!(schema["properties"]["spec"]["required"], json!(["brightness"]));
//! ```
//!
//! The macro implements `Serialize` and `Deserialize`, with `apiVersion` and `kind`, and kube-rs'
//! `Resource`. So the type works with clients and controllers of kube-rs, too:
//!
//! ```
//! # use insula_sdk::{ObjectMeta, Resource, serde_json::{from_value, json, to_value}};
//! # use insula_sdk::{schemars::JsonSchema, serde::{Deserialize, Serialize}};
//! # #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! # struct LampSpec { brightness: u8 }
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "lamps.example.com", version = "v1")]
//! struct Lamp { metadata: ObjectMeta, spec: LampSpec }
//!
//! let sent = json!({"metadata": {"name": "a"}, "spec": {"brightness": 5}});
//! let lamp: Lamp = from_value(sent).unwrap();
//! assert_eq!(to_value(&lamp).unwrap()["apiVersion"], "lamps.example.com/v1");
//! ```
//!
//! # A status, and columns
//!
//! A field `status` makes the subresource `/status`: the status cannot be written elsewhere, and a
//! write to `/status` changes nothing else. Columns are those of `kubectl get`; their types are
//! those of the schema.
//!
//! ```
//! # use insula_sdk::{Kind, ObjectMeta, Resource};
//! # use insula_sdk::{schemars::JsonSchema, serde::{Deserialize, Serialize}};
//! # #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! # struct LampSpec { brightness: u8 }
//! # #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! # struct LampStatus { watts: i32 }
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "lamps.example.com", version = "v1", short = "lm", category = "home")]
//! #[resource(columns(Light = ".spec.brightness", Watts(path = ".status.watts", priority = 1)))]
//! struct Lamp { metadata: ObjectMeta, spec: LampSpec, status: Option<LampStatus> }
//!
//! let kind = Kind::<Lamp>::new();
//! let version = &kind.definition()["spec"]["versions"][0];
//! assert_eq!(version["additionalPrinterColumns"][0]["type"], "integer");
//! assert!(version["subresources"]["status"].is_object());
//! ```
//!
//! # Another version
//!
//! The first type stays the hub. A second one names nothing of the first, and conversions are
//! `From` or `TryFrom` both ways:
//!
//! ```
//! # use insula_sdk::{ObjectMeta, Resource, roundtrip};
//! # use insula_sdk::{schemars::JsonSchema, serde::{Deserialize, Serialize}};
//! # #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
//! # struct LampSpec { brightness: u8 }
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "lamps.example.com", version = "v1", versions(v1alpha1::Lamp))]
//! struct Lamp { metadata: ObjectMeta, spec: LampSpec }
//!
//! mod v1alpha1 {
//! #   use insula_sdk::{ObjectMeta, Resource};
//! #   use insula_sdk::{schemars::JsonSchema, serde::{Deserialize, Serialize}};
//!     #[derive(Resource, Clone, Debug)]
//!     #[resource(group = "lamps.example.com", version = "v1alpha1", deprecated = "use v1")]
//!     pub struct Lamp { pub metadata: ObjectMeta, pub spec: LampSpec }
//!
//!     #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
//!     pub struct LampSpec { pub percent: u8 }
//! }
//!
//! impl From<Lamp> for v1alpha1::Lamp {
//!     fn from(hub: Lamp) -> Self {
//!         let spec = v1alpha1::LampSpec { percent: hub.spec.brightness };
//!         Self { metadata: hub.metadata, spec }
//!     }
//! }
//!
//! impl From<v1alpha1::Lamp> for Lamp {
//!     fn from(own: v1alpha1::Lamp) -> Self {
//!         let spec = LampSpec { brightness: own.spec.percent };
//!         Self { metadata: own.metadata, spec }
//!     }
//! }
//!
//! // A test: objects made from the schemas lose nothing on their way.
//! roundtrip!(lamps_lose_nothing: Lamp);
//! # insula_sdk::testing::check_roundtrip(<Lamp as insula_sdk::Described>::described());
//! ```
//!
//! # Arguments of `#[resource(…)]`
//!
//! - `group = "fleet.example.com"`, required: no capitals, with a domain of your own.
//! - `version = "v1"`, required: `v1alpha1`, `v1beta1` or `v1`.
//! - `kind = "Robot"`: UpperCamel; the name of the struct without it.
//! - `plural = "robots"`: the plural of the kind without it.
//! - `short = "rb"` or `short("rb", "bot")`: short names for kubectl.
//! - `category = "all"` or `category("all", "fleet")`: categories for kubectl.
//! - `scope = "Cluster"`: objects without a namespace; `Namespaced` without it.
//! - `columns(Mode = ".spec.mode", …)`: columns of `kubectl get`, of the types in the schema. A
//!   column may say more: `Mode(path = ".spec.mode", kind = "string", priority = 1)`, with
//!   `description = "…"`, and `name = "…"` for a header that is no word.
//! - `selectable(".spec.mode")`: fields for `--field-selector`.
//! - `subresources(scale(spec = ".spec.replicas", status = ".status.replicas"))`: `/scale`, with
//!   `selector = ".status.selector"` if there is one.
//! - `subresources(charge = Charge)`: a subresource that a [`Subresource`](crate::Subresource)
//!   answers.
//! - `strategy = RobotStrategy`: a value that implements [`Strategy`](crate::Strategy).
//! - `versions(v1alpha1::Robot)`: other versions, converted by `From` or `TryFrom`
//!   ([`Kind::version`](crate::Kind::version)); `versions(v1alpha1::Robot(strategy = Alpha))` gives
//!   one defaults of its own ([`Kind::version_with`](crate::Kind::version_with)).
//! - `deprecated = "use v2"`: a warning for clients of this version.
//! - `unserved`: a version for the store alone, a hub that no client sees; it may have any name.
//!
//! `#[resource(…)]` may repeat. Of `serde`'s attributes on the fields of the struct itself,
//! `default` and those that the field's type needs are taken over; names are in camel case.
//!
//! # Mistakes that do not compile
//!
//! A group has no capital letters:
//!
//! ```compile_fail
//! # use insula_sdk::{ObjectMeta, Resource};
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "Fleet.example.com", version = "v1")]
//! struct Robot { metadata: ObjectMeta }
//! ```
//!
//! It has a domain, which is not one of Kubernetes:
//!
//! ```compile_fail
//! # use insula_sdk::{ObjectMeta, Resource};
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "fleet", version = "v1")]
//! struct Robot { metadata: ObjectMeta }
//! ```
//!
//! ```compile_fail
//! # use insula_sdk::{ObjectMeta, Resource};
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "fleet.k8s.io", version = "v1")]
//! struct Robot { metadata: ObjectMeta }
//! ```
//!
//! A version is alpha, beta or stable, unless nobody is served it:
//!
//! ```compile_fail
//! # use insula_sdk::{ObjectMeta, Resource};
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "fleet.example.com", version = "one")]
//! struct Robot { metadata: ObjectMeta }
//! ```
//!
//! ```
//! # use insula_sdk::{ObjectMeta, Resource};
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "fleet.example.com", version = "one", unserved)]
//! struct Robot { metadata: ObjectMeta }
//! ```
//!
//! A kind is UpperCamel:
//!
//! ```compile_fail
//! # use insula_sdk::{ObjectMeta, Resource};
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "fleet.example.com", version = "v1", kind = "robot")]
//! struct Robot { metadata: ObjectMeta }
//! ```
//!
//! A subresource that answers is a type with the trait:
//!
//! ```compile_fail
//! # use insula_sdk::{ObjectMeta, Resource};
//! struct Charge;
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "fleet.example.com", version = "v1", subresources(charge = Charge))]
//! struct Robot { metadata: ObjectMeta }
//! ```
//!
//! A version converts both ways:
//!
//! ```compile_fail
//! # use insula_sdk::{ObjectMeta, Resource};
//! # mod v1beta1 {
//! #   use insula_sdk::{ObjectMeta, Resource};
//! #   #[derive(Resource, Clone, Debug)]
//! #   #[resource(group = "fleet.example.com", version = "v1beta1")]
//! #   pub struct Robot { pub metadata: ObjectMeta }
//! # }
//! #[derive(Resource, Clone, Debug)]
//! #[resource(group = "fleet.example.com", version = "v1", versions(v1beta1::Robot))]
//! struct Robot { metadata: ObjectMeta }
//! ```
