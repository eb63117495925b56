//! The definition that the derive macro makes of a type.

use crate::kinds::Robot;
use insula_sdk::{
    Described, Kind, ObjectMeta, Resource,
    kube::CustomResourceExt,
    schemars::JsonSchema,
    serde::{Deserialize, Serialize},
    serde_json::{Value, json, to_value},
};

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Stands still.
    Idle,
    /// Walks around.
    Patrol,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Engine {
    Electric { cells: u16 },
    Steam { coal: f64 },
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineSpec {
    mode: Option<Mode>,
    engine: Engine,
    #[serde(default = "three")]
    replicas: i32,
    labels: std::collections::BTreeMap<String, String>,
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self.size() < 5"}]), length(max = 10))]
    parts: Vec<String>,
}

fn three() -> i32 {
    3
}

/// A machine.
///
/// It works.
#[derive(Resource, Clone, Debug)]
#[resource(
    group = "m.example.com",
    version = "v1beta1",
    scope = "Cluster",
    short("m", "mc"),
    deprecated = "go"
)]
#[resource(columns(Size(path = ".spec.replicas", priority = 1, description = "Wanted.")))]
#[resource(subresources(scale(spec = ".spec.replicas", status = ".status.replicas")))]
pub(crate) struct Machine {
    metadata: ObjectMeta,
    /// The wanted state.
    spec: MachineSpec,
    status: MachineStatus,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
pub(crate) struct MachineStatus {
    #[serde(default)]
    replicas: i32,
}

fn version(definition: &Value, at: usize) -> &Value {
    &definition["spec"]["versions"][at]
}

#[test]
fn attributes_become_the_definition() {
    let kind = Kind::<Machine>::new();
    let spec = &kind.definition()["spec"];
    assert_eq!(kind.name(), "machines.m.example.com");
    assert_eq!(
        (&spec["group"], &spec["scope"]),
        (&json!("m.example.com"), &json!("Cluster"))
    );
    let names = json!({"kind": "Machine", "listKind": "MachineList", "plural": "machines", "singular": "machine",
        "shortNames": ["m", "mc"]});
    for (field, value) in names.as_object().unwrap() {
        assert_eq!(spec["names"][field], *value, "{field}");
    }
    let version = version(kind.definition(), 0);
    assert_eq!(version["subresources"]["scale"]["specReplicasPath"], ".spec.replicas");
    assert!(version["subresources"]["status"].is_object());
    assert_eq!(
        (&version["deprecated"], &version["deprecationWarning"]),
        (&json!(true), &json!("go"))
    );
    let column = &version["additionalPrinterColumns"][0];
    assert_eq!(
        (&column["type"], &column["priority"]),
        (&json!("integer"), &json!(1)),
        "{column}"
    );
    assert_eq!(Machine::crd_name(), "machines.m.example.com");
}

#[test]
fn types_become_structural_schemas() {
    let kind = Kind::<Machine>::new();
    let schema = &version(kind.definition(), 0)["schema"]["openAPIV3Schema"];
    assert_eq!(schema["description"], "A machine.\n\nIt works.");
    assert_eq!(schema["required"], json!(["spec"]));
    let spec = &schema["properties"]["spec"];
    assert_eq!(spec["description"], "The wanted state.");
    let fields = &spec["properties"];
    assert_eq!(
        (&fields["mode"]["type"], &fields["mode"]["nullable"]),
        (&json!("string"), &json!(true))
    );
    assert_eq!(fields["replicas"]["default"], 3);
    assert_eq!(fields["labels"]["additionalProperties"]["type"], "string");
    assert_eq!(fields["parts"]["maxItems"], 10);
    assert!(fields["parts"]["x-kubernetes-validations"].is_array());
    let engine = &fields["engine"];
    assert_eq!(engine["type"], "object");
    let cells = &engine["properties"]["electric"]["properties"]["cells"];
    assert_eq!(
        (&cells["type"], cells["minimum"].as_f64(), cells.get("format")),
        (&json!("integer"), Some(0.0), None)
    );
}

#[test]
fn a_kind_with_versions_has_one_storage_version() {
    let kind = Robot::described();
    let all = kind.definition()["spec"]["versions"].as_array().unwrap();
    let stored = all
        .iter()
        .map(|version| (version["name"].as_str().unwrap(), version["storage"] == true));
    assert_eq!(stored.collect::<Vec<_>>(), [("v1", true), ("v1alpha1", false)]);
}

#[test]
fn objects_carry_their_version_and_kind() {
    let sent = json!({"apiVersion": "m.example.com/v1beta1", "kind": "Machine", "metadata": {"name": "a"},
        "spec": {"engine": {"steam": {"coal": 1.5}}, "replicas": 1, "labels": {}, "parts": []}});
    let machine = Machine::deserialize(&sent).unwrap();
    let shown = to_value(&machine).unwrap();
    assert_eq!(
        (&shown["apiVersion"], &shown["kind"]),
        (&sent["apiVersion"], &sent["kind"])
    );
    assert_eq!(shown["spec"]["engine"], sent["spec"]["engine"]);
    assert_eq!(machine.spec.mode, None::<Mode>);
    assert_eq!(machine.status.replicas, 0);
}
