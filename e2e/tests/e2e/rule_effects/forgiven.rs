//! Rules of a schema beside values that an update forgives.

use super::*;

/// Returns the definition of gadgets of one version, with one field of a type and with rules.
fn definition(size: &str, rules: &Value) -> Value {
    let text = json!({"type": "string"});
    let spec = json!({"type": "object", "x-kubernetes-validations": rules,
        "properties": {"size": {"type": size}, "color": text, "note": text}});
    let mut definition = super::definition("note");
    definition["spec"]["versions"] = json!([{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]);
    definition
}

/// An object whose value has another type by now is written on, and a new rule refuses that: the
/// release that brings the rule, after the type or with it, counts the object.
#[test]
fn a_rule_reaches_an_object_with_a_value_of_a_wrong_type() {
    let server = shared();
    let admin = server.admin();
    let (provider, _) = workspace(&admin, "gadgets");
    let dir = tempfile::tempdir().unwrap();
    let publish = |size: &str, rules: &Value, flags: &[&str]| {
        let path = dir.path().join("definition.yaml");
        fs::write(&path, definition(size, rules).to_string()).unwrap();
        let arguments = [&["publish", "-f", path.to_str().unwrap()], flags].concat();
        providers::export(&server, &provider, &arguments)
    };
    let (none, rule) = (
        json!([]),
        json!([{"rule": "has(self.note)", "message": "a note is needed"}]),
    );
    let (code, text) = publish("string", &none, &["--apply", "--wait"]);
    assert_eq!(code, 0, "{text}");
    let tenant = providers::tenant(&admin, &provider, (GROUP, "gadgets")).1;
    create(&tenant, "v1", "old", &json!({"size": "x", "color": "red"}));
    let refused = format!("refused: value-refused:gadgets.{GROUP}/v1:.spec: 1 object");
    let (code, text) = publish("integer", &rule, &["--check"]);
    assert!(code == 1 && text.contains(&refused), "{text}");
    let (code, text) = publish("integer", &none, &["--apply", "--wait", "--accept", "value-refused=1"]);
    assert_eq!(code, 0, "{text}");
    for how in ["--check", "--apply"] {
        let (code, text) = publish("integer", &rule, &[how]);
        assert!(code == 1 && text.contains(&refused), "{how}: {text}");
    }
    let word = format!("value-refused:gadgets.{GROUP}/v1:.spec=1");
    let (code, text) = publish("integer", &rule, &["--apply", "--wait", "--accept", &word]);
    assert_eq!(code, 0, "{text}");
    // What the release asked about comes about: the type is forgiven, and the rule is not.
    let path = format!("{}/old", objects("v1"));
    let answer = tenant.merge(&path, &json!({"spec": {"color": "blue"}}));
    assert!(
        answer.code == 422 && answer.text.contains("a note is needed"),
        "{answer:?}"
    );
    let written = tenant
        .merge(&path, &json!({"spec": {"color": "blue", "note": "n"}}))
        .expect(200);
    assert_eq!(written["spec"]["size"], "x");
}
