//! Tests of protobuf bodies.

use super::*;

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

fn envelope(kind: &str, object: &[u8]) -> Vec<u8> {
    envelope_of("v1", kind, object)
}

#[test]
fn objects_are_read() {
    let entry = [field(1, b"k"), field(2, b"v")].concat();
    // Go encodes empty fields: a generateName and a creationTimestamp.
    let meta = [field(1, b"a"), field(2, b""), field(8, b""), field(11, &entry)].concat();
    let config_map = [field(1, &meta), field(2, &entry), field(3, &entry), vec![4 << 3, 1]].concat();
    assert_eq!(
        decode(&envelope("ConfigMap", &config_map)),
        Ok(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"k": "v"}},
            "data": {"k": "v"}, "binaryData": {"k": "dg=="}, "immutable": true})
        )
    );
    let options = [vec![1 << 3, 0], field(4, b"Background"), field(5, b"All")].concat();
    assert_eq!(
        decode(&envelope("DeleteOptions", &options)),
        Ok(
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "propagationPolicy": "Background", "dryRun": ["All"]})
        )
    );
}

/// Decodes an encoded object, by the same tables.
fn again(written: &[u8]) -> Json {
    let Envelope { api_version, kind, raw } = Envelope::open(written).expect("an envelope");
    let fields = messages::written(&api_version, &kind).expect("is written");
    let mut object = message(raw, fields, DEPTH_MAX).expect("a message");
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Json::Object(object)
}

#[test]
fn encoded_objects_decode_to_themselves() {
    let metadata = json!({"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "12", "generation": 300,
        "creationTimestamp": "2026-11-21T09:40:00Z", "deletionGracePeriodSeconds": 0, "labels": {"k": "v", "l": ""},
        "annotations": {"ä": "ö"}, "finalizers": ["x/y", "z"],
        "ownerReferences": [{"kind": "K", "name": "n", "uid": "u", "apiVersion": "g/v", "controller": true}],
        "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "g/v", "fieldsType": "FieldsV1",
            "time": "2026-11-21T09:40:00Z", "fieldsV1": {"f:spec": {"f:a": {}}}, "subresource": "status"}]});
    let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
    assert_eq!(again(&encode(&partial).expect("is written")), partial);
    let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "9", "continue": "abc", "remainingItemCount": 7},
        "items": [{"metadata": {"name": "a"}}, {"metadata": metadata}]});
    assert_eq!(again(&encode(&list).expect("is written")), list);
    let reply = crate::status::bad_request("no");
    let status = again(&encode(&reply.body).expect("is written"));
    assert_eq!((&status["code"], &status["message"]), (&json!(400), &json!("no")));
    assert_eq!(encode(&json!({"kind": "Pod", "apiVersion": "v1"})), None);
    let event = event("ADDED", &partial).expect("is written");
    let fields: Vec<_> = Fields(&event).map(|field| field.expect("a field")).collect();
    let [(1, Value::Bytes(b"ADDED")), (2, Value::Bytes(raw))] = fields[..] else {
        panic!("{event:?}");
    };
    let Some(Ok((1, Value::Bytes(object)))) = Fields(raw).next() else {
        panic!("{raw:?}");
    };
    assert_eq!(again(object), partial);
}

#[test]
fn times_keep_their_fraction() {
    let seconds = [
        &[1 << 3][..],
        &[0x80, 0x92, 0xb8, 0xc3, 0x98, 0xfe, 0xff, 0xff, 0xff, 0x01],
    ]
    .concat();
    assert_eq!(time(&seconds), Ok(Some((-62135596800, 0))), "Go's zero time");
    let moment = [&[1 << 3, 1, 2 << 3][..], &[0xc0, 0xc4, 0x07]].concat();
    let spec = [field(1, b"me"), field(3, &moment)].concat();
    let meta = [field(1, b"coordination.k8s.io/v1"), field(2, b"Lease")].concat();
    let lease = [MAGIC, &field(1, &meta), &field(2, &field(2, &spec))].concat();
    let read = decode(&lease).expect("a Lease");
    assert_eq!(
        read["spec"],
        json!({"holderIdentity": "me", "acquireTime": "1970-01-01T00:00:01.000123Z"})
    );
}

fn envelope_of(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC, &field(1, &meta), &field(2, object)].concat()
}

#[test]
fn empty_values_count_in_lists_and_selectors() {
    let rule = [field(1, b"get"), field(2, b""), field(3, b"secrets")].concat();
    let meta = field(1, &field(1, b"a"));
    let role = [meta.clone(), field(2, &rule)].concat();
    assert_eq!(
        decode(&envelope_of("rbac.authorization.k8s.io/v1", "Role", &role)),
        Ok(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]})
        )
    );
    let rule = field(2, &[field(1, b"CREATE"), field(2, &field(3, b"widgets"))].concat());
    let matches = [field(1, b""), field(3, &rule)].concat();
    let binding = [meta, field(2, &[field(1, b"p"), field(3, &matches)].concat())].concat();
    let kind = "ValidatingAdmissionPolicyBinding";
    assert_eq!(
        decode(&envelope_of("admissionregistration.k8s.io/v1", kind, &binding)).map(|object| object["spec"].clone()),
        Ok(json!({"policyName": "p", "matchResources": {"namespaceSelector": {},
            "resourceRules": [{"operations": ["CREATE"], "resources": ["widgets"]}]}}))
    );
}

#[test]
fn maps_may_hold_lists() {
    let scopes = [field(1, b"cluster:a"), field(1, b"cluster:b")].concat();
    let extra = [field(1, b"scopes"), field(2, &scopes)].concat();
    let review = field(2, &[field(3, b"ada"), field(5, &extra)].concat());
    assert_eq!(
        decode(&envelope_of("authorization.k8s.io/v1", "SubjectAccessReview", &review))
            .map(|review| review["spec"].clone()),
        Ok(json!({"user": "ada", "extra": {"scopes": ["cluster:a", "cluster:b"]}}))
    );
}

#[test]
fn other_bytes_are_refused() {
    let whole = envelope("Secret", &field(1, &field(1, b"a")));
    for cut in 0..whole.len() - 1 {
        assert!(decode(&whole[..cut]).is_err() || cut > 4, "{cut}");
    }
    assert!(matches!(
        decode(&envelope("Pod", b"")),
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
}

/// A field with a tag of two bytes, as tags above 15 have.
fn wide(number: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write::bytes(number, content, &mut out);
    out
}

fn flag(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    write::varint(number, value, &mut out);
    out
}

/// An entry of `properties`.
fn entry(key: &str, schema: Vec<u8>) -> Vec<u8> {
    wide(29, &[field(1, key.as_bytes()), wide(2, &schema)].concat())
}

/// Properties of every form that a schema has.
fn properties() -> Vec<u8> {
    let any = field(2, &[]);
    let limits = [
        &[9 << 3 | 1][..],
        &5f64.to_le_bytes(),
        &[11 << 3 | 1],
        &0.5f64.to_le_bytes(),
    ]
    .concat();
    [
        entry(
            "list",
            [
                field(5, b"array"),
                wide(
                    24,
                    &field(1, &[field(5, b"object"), entry("a", field(5, b"string"))].concat()),
                ),
            ]
            .concat(),
        ),
        entry(
            "map",
            [field(5, b"object"), wide(30, &[vec![1 << 3, 1], any].concat())].concat(),
        ),
        entry("none", wide(30, &[1 << 3, 0])),
        entry("number", [limits, flag(10, 0), flag(18, 0), flag(13, 3)].concat()),
        entry(
            "of",
            [
                field(8, &field(1, b"\"x\"")),
                wide(20, &field(1, b"1")),
                wide(20, &field(1, b"null")),
            ]
            .concat(),
        ),
        entry(
            "either",
            [
                wide(27, &field(5, b"integer")),
                wide(27, &[]),
                flag(37, 0),
                flag(38, 0),
                flag(40, 1),
            ]
            .concat(),
        ),
        entry(
            "tuple",
            wide(24, &[field(2, &[]), field(2, &field(5, b"string"))].concat()),
        ),
        entry("needs", wide(32, &[field(1, b"a"), field(2, &field(2, b"b"))].concat())),
    ]
    .concat()
}

/// A definition as typed Go clients send it, with what their JSON leaves out.
#[test]
fn definitions_are_read() {
    let version = [field(1, b"v1"), vec![2 << 3, 1, 3 << 3, 0, 7 << 3, 0]].concat();
    let version = [version, wide(4, &wide(1, &properties())), field(5, &field(1, &[]))].concat();
    let spec = [field(1, b"example.io"), wide(7, &version), vec![10 << 3, 0]].concat();
    let mut object = Vec::new();
    write::bytes(2, &spec, &mut object);
    let mut body = MAGIC.to_vec();
    body.extend(field(
        1,
        &[
            field(1, b"apiextensions.k8s.io/v1"),
            field(2, b"CustomResourceDefinition"),
        ]
        .concat(),
    ));
    write::bytes(2, &object, &mut body);
    let schema = json!({
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {}},
        "none": {"additionalProperties": false},
        "number": {"maximum": 5, "minimum": 0.5, "maxLength": 3},
        "of": {"default": "x", "enum": [1, null]},
        "either": {"anyOf": [{"type": "integer"}, {}], "x-kubernetes-preserve-unknown-fields": false,
            "x-kubernetes-int-or-string": true},
        "tuple": {"items": [{}, {"type": "string"}]},
        "needs": {"dependencies": {"a": ["b"]}},
    });
    let version = json!({"name": "v1", "served": true, "storage": false, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"properties": schema}}});
    let read = decode(&body).expect("a definition");
    assert_eq!(read["spec"], json!({"group": "example.io", "versions": [version]}));
}
