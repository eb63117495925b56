//! Effects of a release that hurt no object: values that rules give, and names of commands that go.

use super::*;

/// Rules that show a value where there was none are told, and need no word.
#[test]
fn a_value_that_rules_give_is_told() {
    let scene = Scene::new();
    let ([size_there, _], [size_back, _]) = (there(), back());
    let only_size = rules(&[size_there], &[size_back]);
    let flags = ["--apply", "--wait", "--accept", "value-hidden"];
    let (code, text) = scene.publish("color", &only_size, &flags);
    assert_eq!(code, 0, "{text}");
    let whole = rules(&there(), &back());
    let added = effect("value-added", "v2", ".spec.tag", 2);
    let written = effect("write-added", "v1", ".spec.label", 2);
    assert_eq!(scene.effects("color", &whole), [added.clone(), written]);
    let (code, text) = scene.publish("color", &whole, &["--check"]);
    let line = format!(
        "  {}: 2 objects in 1 workspace; a value is read where none was shown",
        added.0
    );
    assert!(code == 0 && text.contains(&line), "{line} in {code} {text}");
    let path = format!("{}?dryRun=All", scene.stored_rules());
    let told = scene.provider().merge(&path, &json!({"spec": whole["spec"]}));
    let warnings = format!("{:?}", told.headers.get_all("warning").iter().collect::<Vec<_>>());
    assert!(told.code == 200 && !warnings.contains("value-added"), "{told:?}");
    scene.publish_over_grpc("color", &whole, &[]).unwrap();
    until("the rules are in force", || {
        (scene.spec("v2", "first")["tag"] == "L").then_some(())
    });
}

/// Publishes a definition with other names than before.
fn publish(scene: &Scene, definition: &Value, flags: &[&str]) -> (i32, String) {
    let file = |name: &str, document: &Value| {
        let path = scene.dir.path().join(name);
        fs::write(&path, document.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files = [
        file("named.yaml", definition),
        file("rules.yaml", &rules(&there(), &back())),
    ];
    let arguments = [&["publish", "-f", &files[0], "-f", &files[1]], flags].concat();
    providers::export(&scene.server, &scene.provider, &arguments)
}

/// A short name, the singular and a category that go break commands, and no object.
#[test]
fn a_name_that_goes_is_told() {
    let scene = Scene::new();
    let mut named = definition("color");
    named["spec"]["names"]["shortNames"] = json!(["gd", "gg"]);
    named["spec"]["names"]["categories"] = json!(["tools"]);
    let (code, text) = publish(&scene, &named, &["--apply", "--wait"]);
    assert!(code == 0 && !text.contains("name-removed"), "{text}");
    let mut renamed = named;
    renamed["spec"]["names"]["shortNames"] = json!(["gg", "gt"]);
    renamed["spec"]["names"]["categories"] = json!([]);
    renamed["spec"]["names"]["singular"] = json!("gizmo");
    let (code, text) = publish(&scene, &renamed, &["--check"]);
    assert_eq!(code, 0, "{text}");
    for (name, detail) in [
        ("short name gd", ""),
        ("category tools", ""),
        ("singular", "gadget → gizmo; "),
    ] {
        let id = format!("name-removed:gadgets.{GROUP}:{name}");
        let line = format!("  {id}: 2 objects in 1 workspace; {detail}not found by commands that say the name");
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert_eq!(text.matches("name-removed").count(), 3, "{text}");
    let (code, text) = publish(&scene, &renamed, &["--apply", "--wait"]);
    assert_eq!(code, 0, "{text}");
}

/// A rule about changes refuses no value that is there, and is not told as one that does.
#[test]
fn a_rule_about_changes_is_told_as_that() {
    let scene = Scene::new();
    let mut fixed = definition("color");
    for version in fixed["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]["x-kubernetes-validations"] =
            json!([{"rule": "self == oldSelf"}]);
    }
    let (code, text) = publish(&scene, &fixed, &["--check"]);
    let id = format!("change-refused:gadgets.{GROUP}/v1:.spec.color");
    assert!(
        code == 1 && text.contains(&format!("refused: {id}: 2 objects")) && !text.contains("value-refused"),
        "{text}"
    );
    assert!(
        text.contains("rule added: self == oldSelf") && text.contains("shown as it is, and valid"),
        "{text}"
    );
    let (code, text) = publish(&scene, &fixed, &["--apply", "--wait", "--accept", "change-refused=2"]);
    assert_eq!(code, 0, "{text}");
    let path = format!("{}/first", objects("v1"));
    until("the rule is in force", || {
        let changed = scene.tenant.merge(&path, &json!({"spec": {"color": "blue"}}));
        (changed.code == 422).then_some(())
    });
    scene.tenant.merge(&path, &json!({"spec": {"more": "m"}})).expect(200);
}
