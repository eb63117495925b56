//! Tests of protobuf bodies.

use super::*;
use insula_api::Json;
use insula_catalog::System;
use insula_schema::Node;
use serde_json::json;

fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write::bytes(number, content, &mut out);
    out
}

fn number(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    write::varint(number, value, &mut out);
    out
}

fn envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [
        MAGIC,
        &field(1, &meta),
        &field(2, object),
        &field(3, b""),
        &field(4, b""),
    ]
    .concat()
}

/// Returns true for kinds of Kubernetes, whose messages its Go types have today. Definitions of
/// v1beta1 are shown with the fields of their proposal, too, which have no numbers.
fn has_message(group: &str, version: &str) -> bool {
    let others = [".kcp.io", ".kcp.dev", ".insula.io"];
    !others.iter().any(|other| group.ends_with(other))
        && !["extensions", "apiextension.k8s.io"].contains(&group)
        && (group, version) != ("apiextensions.k8s.io", "v1beta1")
}

/// Adds the paths of a schema's fields that a message has no number for.
fn without_number(node: &Node, kind: messages::Kind, path: &str, found: &mut Vec<String>) {
    let messages::Kind::Message(message) = kind else {
        return;
    };
    let message = messages::all().get(message);
    for (name, node) in node.properties() {
        if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name) {
            continue;
        }
        let path = format!("{path}.{name}");
        match named(message, name) {
            Some(field) => {
                let values = node.items().or(node.additional()).unwrap_or(node);
                without_number(values, field.kind, &path, found);
            }
            None => found.push(path),
        }
    }
}

fn named<'m>(message: &'m messages::Message, name: &str) -> Option<&'m messages::Field> {
    message.fields.iter().find_map(|field| match (field.name, field.kind) {
        (Some(known), _) => (known == name).then_some(field),
        (None, messages::Kind::Message(inner)) => named(messages::all().get(inner), name),
        _ => None,
    })
}

#[test]
fn every_field_of_a_kind_of_kubernetes_has_a_number() {
    let (system, mut found) = (System::load(), Vec::new());
    for served in system.iter() {
        for version in served.served_versions() {
            if !has_message(served.group(), &version.name) {
                continue;
            }
            let (api_version, kind) = (served.api_version(&version.name), &*served.names().kind);
            match messages::all().find(&api_version, kind) {
                Some(message) => {
                    let path = format!("{api_version} {kind}");
                    let (mut missing, kind) = (Vec::new(), messages::Kind::Message(message));
                    without_number(version.schema.root(), kind, "", &mut missing);
                    found.extend(missing.into_iter().map(|field| path.clone() + &field));
                }
                None => found.push(format!("{api_version} {kind}")),
            }
            let list = &*served.names().list_kind;
            if !served.api.strategy.traits().review && !is_written(&api_version, list) {
                found.push(format!("{api_version} {list}"));
            }
        }
    }
    assert_eq!(found, [""; 0]);
}

#[test]
fn fields_of_later_versions_are_refused() {
    let status = field(3, &field(99, b"new"));
    assert_eq!(
        decode(&envelope("v1", "Namespace", &status)),
        Err(ProtobufError::UnknownField {
            message: "core/v1.NamespaceStatus",
            number: 99
        })
    );
}

#[test]
fn values_without_a_number_are_refused() {
    let namespace = |status: Json| encode(&json!({"apiVersion": "v1", "kind": "Namespace", "status": status}));
    let path = |path: &str| Err(format!("Namespace{path} has no form in protobuf"));
    assert_eq!(namespace(json!({"new": 1})), path(".status.new"));
    assert_eq!(namespace(json!({"phase": 1})), path(".status.phase"));
    assert_eq!(
        namespace(json!({"conditions": [{}, {"type": []}]})),
        path(".status.conditions[1].type")
    );
    assert_eq!(
        encode(&json!({"kind": "Pod", "apiVersion": "v1"})),
        Err("kind \"Pod\" is not written in protobuf".to_owned())
    );
}

#[test]
fn metadata_is_the_same_in_both_versions() {
    let object = |api_version: &str| {
        json!({"kind": "PartialObjectMetadata", "apiVersion": api_version,
            "metadata": {"name": "a", "labels": {"k": "v"}}})
    };
    for api_version in ["meta.k8s.io/v1", "meta.k8s.io/v1beta1"] {
        let written = encode(&object(api_version)).expect("is written");
        assert_eq!(decode(&written), Ok(object(api_version)));
    }
}

#[test]
fn events_hold_an_envelope() {
    let object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}});
    let event = event("ADDED", &object).expect("is written");
    let fields: Vec<_> = wire::Fields(&event).map(|field| field.expect("a field")).collect();
    let [(1, wire::Value::Bytes(b"ADDED")), (2, wire::Value::Bytes(raw))] = fields[..] else {
        panic!("{event:?}");
    };
    let Some(Ok((1, wire::Value::Bytes(written)))) = wire::Fields(raw).next() else {
        panic!("{raw:?}");
    };
    assert_eq!(written, encode(&object).expect("is written"));
}

#[test]
fn other_bytes_are_refused() {
    let whole = envelope("v1", "Secret", &field(1, &field(1, b"a")));
    for cut in 0..whole.len() - 5 {
        assert!(decode(&whole[..cut]).is_err() || cut > 4, "{cut}");
    }
    assert!(matches!(
        decode(&envelope("v1", "Pod", b"")),
        Err(ProtobufError::UnknownKind { .. })
    ));
    for bytes in [
        &b""[..],
        b"k8s",
        b"k8s\0\xff",
        b"k8s\0\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"{}",
    ] {
        assert!(decode(bytes).is_err(), "{bytes:?}");
    }
    // A number where a text is expected, and a text that is not UTF-8.
    for object in [number(1, 1), field(1, &number(1, 1)), field(1, &field(1, b"\xff"))] {
        assert!(decode(&envelope("v1", "Secret", &object)).is_err(), "{object:?}");
    }
}

#[test]
fn nested_bodies_have_a_bound() {
    let mut schema = Vec::new();
    for _ in 0..2 * DEPTH_MAX {
        schema = field(28, &schema);
    }
    let version = field(4, &field(1, &schema));
    let object = field(2, &field(7, &version));
    assert_eq!(
        decode(&envelope(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            &object
        )),
        Err(ProtobufError::Malformed("nested too deep"))
    );
}
