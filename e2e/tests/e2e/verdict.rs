//! One verdict about rules: a server and `insula conversion test` search the same cases, and find
//! the same.

use insula_e2e::{Client, Kubectl, shared, workspace};
use serde_json::{Value, json};

use crate::tools::ran;

/// Rule sets: a name, the fields of v1 and v2, and the rules from v1 to v2.
fn table() -> Vec<(&'static str, Value, Value, Value)> {
    let text = json!({"type": "string"});
    let bounded = json!({"type": "string", "enum": ["a", "b"]});
    let pair = |field: Value| json!({"a": field, "c": text});
    let computed = |expression: &str| json!([{"from": expression, "to": "spec.b"}]);
    // Wrong for one pair of texts only: the later a case shows it, the likelier a clock hides it.
    let rare = |a: &str, c: &str| format!("v1.spec.a == '{a}' && v1.spec.c == '{c}' ? 'other' : 'a'");
    let group = |name: &str| json!({"type": "object", "properties": {name: text, "name": text}});
    vec![
        (
            "moved",
            json!({"a": text}),
            json!({"b": text}),
            json!([{"field": ".spec.a", "destination": ".spec.b"}]),
        ),
        (
            "fails",
            json!({"a": text}),
            json!({"b": {"type": "integer"}}),
            computed("int(v1.spec.a)"),
        ),
        (
            "common",
            pair(text.clone()),
            json!({"b": bounded}),
            computed("v1.spec.a == 'b' ? 'other' : 'a'"),
        ),
        (
            "rare",
            pair(text.clone()),
            json!({"b": bounded}),
            computed(&rare("10Mi", "1h30m")),
        ),
        (
            "rarer",
            pair(text.clone()),
            json!({"b": bounded}),
            computed(&rare("None", "true")),
        ),
        (
            "never",
            pair(text.clone()),
            json!({"b": bounded}),
            computed(&rare("no such", "text")),
        ),
        (
            "read",
            json!({"r": group("x")}),
            json!({"r": group("group")}),
            json!([{"field": ".spec.r", "destination": ".spec.r.group", "transformation": "self.x"}]),
        ),
    ]
}

fn manifests(name: &str, v1: &Value, v2: &Value, rules: &Value) -> [Value; 2] {
    let version = |version: &str, fields: &Value| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        json!({"name": version, "served": true, "storage": version == "v1", "schema": {"openAPIV3Schema": schema}})
    };
    let group = format!("{name}.verdict.example.io");
    let names = json!({"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"});
    let versions = [version("v1", v1), version("v2", v2)];
    let definition = json!({"group": group, "scope": "Namespaced", "names": names, "versions": versions});
    let conversions = json!({"validation": "Refuse", "conversions": [{"from": "v1", "to": "v2", "rules": rules}]});
    let object = |api: &str, kind: &str, spec: Value| {
        let metadata = json!({"name": format!("widgets.{group}")});
        json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})
    };
    [
        object("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition),
        object("apis.kcp.io/v1alpha1", "APIConversion", conversions),
    ]
}

/// Returns the server's refusal; empty if it admits the rules.
fn refusal(client: &Client, [definition, rules]: &[Value; 2]) -> String {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(definitions, definition).expect(201);
    let answer = client.post("/apis/apis.kcp.io/v1alpha1/apiconversions", rules);
    match answer.code {
        201 => String::new(),
        422 => answer.body["message"].as_str().unwrap_or_default().to_owned(),
        other => panic!("{other}: {}", answer.text),
    }
}

#[test]
fn server_and_tool_have_one_verdict() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "verdict").0);
    let (mut admitted, mut refused) = (0, 0);
    for (name, v1, v2, rules) in table() {
        let manifests = manifests(name, &v1, &v2, &rules);
        let refusal = refusal(&client, &manifests);
        let text = manifests.each_ref().map(ToString::to_string).join("\n---\n");
        let (code, out, error) = ran(&["conversion", "test", "-f", "-", "-o", "json"], &text);
        assert_eq!(
            code,
            i32::from(!refusal.is_empty()),
            "{name}: server {refusal:?}, tool {out}{error}"
        );
        let report: Value = serde_json::from_str(&out).unwrap();
        let found = &report[0]["search"]["counterexample"];
        if found.is_object() {
            let same = format!("{}; shown by", found["finding"].as_str().unwrap());
            let case = format!("case {})", found["case"]);
            assert!(
                refusal.contains(&same) && refusal.contains(&case),
                "{name}: server {refusal}, tool {found}"
            );
        }
        for one in report[0]["search"]["unfitting"].as_array().into_iter().flatten() {
            let same = format!("would refuse {}; shown by", one["error"].as_str().unwrap());
            assert!(refusal.contains(&same), "{name}: server {refusal}, tool {one}");
        }
        *(if refusal.is_empty() {
            &mut admitted
        } else {
            &mut refused
        }) += 1;
    }
    assert!(admitted >= 3 && refused >= 3, "{admitted} admitted, {refused} refused");
}

/// Each violation says how it was found, as data: nobody has to know the words of its message.
#[test]
fn a_violation_says_how_it_was_found() {
    let server = shared();
    let text = json!({"type": "string"});
    let short = json!({"type": "string", "maxLength": 3});
    let moved = |from: &str| json!([{"field": from, "destination": ".spec.b"}]);
    let computed = json!([{"from": "int(v1.spec.a)", "to": "spec.b"}]);
    let number = json!({"type": "integer"});
    for (kind, to, rules) in [
        ("FINDING_KIND_MISTAKE", &text, &moved(".spec.nothing")),
        ("FINDING_KIND_COUNTEREXAMPLE", &number, &computed),
        ("FINDING_KIND_MISFIT", &short, &moved(".spec.a")),
    ] {
        let manifests = manifests("found", &json!({"a": text}), &json!({"b": to}), rules);
        let body = json!({"manifests": manifests}).to_string();
        let headers = [("content-type", "application/json")];
        let path = "/insula.admin.v1.ConversionService/Validate";
        let answer = server.admin().try_send("POST", path, &headers, body.into()).unwrap();
        let kinds: Vec<&str> = answer.body["violations"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|violation| violation["kind"].as_str())
            .collect();
        assert!(
            kinds.contains(&kind) && kinds.iter().all(|other| *other == kind),
            "{kind}: {}",
            answer.text
        );
    }
}

/// A definition whose hub has the first item of a list that two other versions have, and its rules;
/// `item` is the one that the rules from v3 name.
fn with_lists(group: &str, item: usize) -> [Value; 2] {
    let text = json!({"type": "string"});
    let list = json!({"l": {"type": "array", "items": text}});
    let [mut definition, mut rules] = manifests(group, &json!({"one": text}), &list, &json!([]));
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    let mut third = versions[1].clone();
    third["name"] = json!("v3");
    versions.push(third);
    let way = |from: &str, to: &str, field: &str, destination: &str| {
        let rule = json!({"field": field, "destination": destination});
        json!({"from": from, "to": to, "rules": [rule]})
    };
    let third = format!("spec.l[{item}]");
    rules["spec"] = json!({"hub": "v1", "conversions": [
        way("v1", "v2", "spec.one", "spec.l[0]"),
        way("v2", "v1", "spec.l[0]", "spec.one"),
        way("v1", "v3", "spec.one", "spec.l[0]"),
        way("v3", "v1", &third, "spec.one"),
    ]});
    [definition, rules]
}

/// Lists that look like one list in several versions, and are not, are told by `kubectl apply` and
/// by the tool; those that are one list are not.
#[test]
fn lists_that_are_not_one_list_are_told_by_server_and_tool() {
    let server = shared();
    let admin = server.admin();
    let (name, _) = workspace(&admin, "lists");
    let kubectl = Kubectl::for_server(&server);
    let apart = ".spec.l is not one list in v2 and v3: the hub v1 lacks it, rules name an item of it, and each \
                 version keeps for itself what no rule moves; with the same rules in each all of it is one list";
    for (group, item) in [("alike", 0), ("apart", 1)] {
        let manifests = with_lists(group, item);
        let text = manifests.each_ref().map(ToString::to_string).join("\n---\n");
        let (code, out, error) = ran(&["conversion", "test", "-f", "-"], &text);
        assert_eq!(code, 0, "{out}{error}");
        assert_eq!(out.contains(&format!("  warning: {apart}\n")), item == 1, "{out}");
        assert_eq!(out.matches("is not one list").count(), item, "{out}");
        let Some(kubectl) = &kubectl else { continue };
        let [definition, rules] = manifests.each_ref().map(ToString::to_string);
        let applied = kubectl.run(&name, &["apply", "-f", "-"], &definition);
        assert_eq!(applied.code, 0, "{}", applied.text);
        let applied = kubectl.run(&name, &["apply", "-f", "-"], &rules);
        assert_eq!(applied.code, 0, "{}", applied.text);
        assert_eq!(
            applied.text.contains(&format!("Warning: {apart}\n")),
            item == 1,
            "{}",
            applied.text
        );
        assert_eq!(
            applied.text.matches("is not one list").count(),
            item,
            "{}",
            applied.text
        );
    }
}
