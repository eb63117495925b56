//! The tools read the rules of one schema from several APIConversions, as the server does.

use std::fs;

use crate::tools::{ran, sample};

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: carts.parts.example.io}
spec:
  group: parts.example.io
  scope: Cluster
  names: {kind: Cart, listKind: CartList, plural: carts, singular: cart}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      a: {type: string}, b: {type: string}}}}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      p: {type: string}, q: {type: string}}}}}}
";

fn part(name: &str, one: &str, other: &str) -> String {
    format!(
        "---
apiVersion: apis.kcp.dev/v1alpha1
kind: APIConversionRules
metadata: {{name: {name}, labels: {{apis.kcp.dev/apiresourceschema: carts.parts.example.io}}}}
spec:
  conversions:
  - {{from: v1, to: v2, rules: [{{field: .spec.{one}, destination: .spec.{other}}}]}}
  - {{from: v2, to: v1, rules: [{{field: .spec.{other}, destination: .spec.{one}}}]}}
"
    )
}

#[test]
fn rules_in_several_objects_are_tested_together() {
    let good = format!("{DEFINITION}{}{}", part("first", "a", "p"), part("second", "b", "q"));
    let (code, out, error) = ran(&["conversion", "test", "-f", "-"], &good);
    assert!(code == 0 && out.contains("nothing found"), "{out}{error}");
    let (_, out, _) = ran(&["conversion", "coverage", "-f", "-"], &good);
    assert!(out.contains(".spec.q") && out.contains(".spec.p"), "{out}");
    let clash = format!("{DEFINITION}{}{}", part("first", "a", "p"), part("second", "b", "p"));
    let (code, out, error) = ran(&["conversion", "test", "-f", "-"], &clash);
    let why = "second:spec.conversions[0].rules[0].destination: Invalid value: \".spec.p\": \
               first:spec.conversions[0].rules[0] writes .spec.p already";
    assert!(code == 1 && out.contains(why), "{code}: {out}{error}");
}

#[test]
fn rules_in_several_objects_are_published_as_several() {
    let good = format!("{DEFINITION}{}{}", part("first", "a", "p"), part("second", "b", "q"));
    let (code, out, error) = ran(&["export", "publish", "-f", "-"], &good);
    assert_eq!(code, 0, "{out}{error}");
    let schema = out.lines().find_map(|line| line.trim().strip_prefix("name: h"));
    let schema = schema.map(|name| format!("h{name}")).expect("a schema");
    for name in ["first", "second"] {
        assert!(out.contains(&format!("name: {schema}.{name}")), "{out}");
    }
    let label = format!("apis.kcp.io/apiresourceschema: {schema}");
    assert_eq!(out.matches(&label).count(), 2, "{out}");
    // What is printed is read as one rule set again.
    let (code, out, error) = ran(&["conversion", "test", "-f", "-"], &out);
    assert!(code == 0 && out.contains("nothing found"), "{out}{error}");
}

/// An API may lie in folders of a folder, its definition and its rules apart.
#[test]
fn folders_in_folders_are_read_when_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().to_str().unwrap();
    for name in ["computed", "item-rules"] {
        let team = root.path().join("teams").join(name);
        fs::create_dir_all(&team).unwrap();
        for file in ["schema.yaml", "rules.yaml"] {
            fs::copy(sample(&format!("{name}/{file}")), team.join(file)).unwrap();
        }
    }
    let (code, out, error) = ran(&["export", "publish", "-f", folder], "");
    assert_eq!((code, out.as_str()), (2, ""), "{error}");
    let hint = format!("the folders in {folder} were not read: --recursive reads them, too");
    assert!(error.contains(&hint), "{error}");
    for command in [
        &["export", "publish"][..],
        &["conversion", "coverage"],
        &["conversion", "test", "--cases", "1"],
    ] {
        let (_, out, error) = ran(&[command, &["-f", folder, "-R"]].concat(), "");
        let named = |kind: &str| out.contains(&format!("{kind}.samples.example.io"));
        assert!(named("engines") && named("brushes"), "{command:?}: {out}{error}");
    }
}
