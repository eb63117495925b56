//! Rules guessed from two schemas: the suggestions compile, and cover most of the samples' rules.

use crate::support::suggested::{guessed, lines};
use crate::support::{schema, yaml};
use expect_test::{Expect, expect};
use insula_conversion::SURE;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path as File;

fn check(old: &str, new: &str, want: Expect) {
    let (found, refused) = guessed(&schema(&yaml(old)), &schema(&yaml(new)), ["v1", "v2"]);
    assert!(refused.is_empty(), "{refused:#?}\n{found:#?}");
    want.assert_eq(&(lines(&found).join("\n") + "\n"));
}

/// A field of one name is no evidence where the names beside it tell of another field.
#[test]
fn names_that_change_alike_tell_of_another_field() {
    let old = "{status: {planeInitialized: boolean, planeReady: boolean, hostsReady: boolean}}";
    let sure = |old: &str| {
        let new = "{status: {init: {planeInitialized: boolean, hostsProvisioned: boolean}}}";
        let (mut found, _) = guessed(&schema(&yaml(old)), &schema(&yaml(new)), ["v1", "v2"]);
        found.retain_confident(SURE);
        lines(&found).join("\n")
    };
    let by_name = ".status.planeInitialized → .status.init.planeInitialized";
    assert!(!sure(old).contains(by_name), "{}", sure(old));
    assert!(sure("{status: {planeInitialized: boolean, hostsReady: boolean}}").contains(by_name));
}

#[test]
fn renames_moves_and_types_are_found() {
    check(
        "{spec: {firstName: string, lastName: string, size: string, label: string, hint: string, crew: string, \
            tlsEnabled: boolean}}",
        "{spec: {name: {first: string, last: string}, resources: {size: integer}, label: string, mood: number, \
            crews: [string], tls: {disabled: boolean}}}",
        expect![[r#"
            .spec.crew → .spec.crews[0]
            .spec.firstName → .spec.name.first
            .spec.hint only in old
            .spec.lastName → .spec.name.last
            .spec.mood only in new
            .spec.size → .spec.resources.size by int(self) (may fail)
            .spec.tlsEnabled → .spec.tls.disabled by !self
        "#]],
    );
}

#[test]
fn whole_objects_and_lists_move() {
    check(
        "{spec: {limits: {cpu: string, memory: string}, colors: [{name: string, hue: string}], tags: {'*': string}}}",
        "{spec: {resources: {limits: {cpu: string, memory: string}}, paint: {colors: [{name: string, hue: \
            string}]}, tagMap: {'*': string}}}",
        expect![[r#"
            .spec.colors → .spec.paint.colors
            .spec.limits → .spec.resources.limits
            .spec.tags → .spec.tagMap
        "#]],
    );
}

#[test]
fn fields_of_items_are_renamed() {
    check(
        "{spec: {paints: [{name: string, hue: string}], ports: [{portName: string, number: integer}], nested: \
            {rules: [{hosts: [{hostName: string, ttl: integer}], kind: string}]}}}",
        "{spec: {some: {awesomePaints: [{realName: string, realHue: string}]}, ports: [{name: string, number: \
            integer}], rules: [{hosts: [{name: string, ttl: integer}], kind: string}]}}",
        expect![[r#"
            .spec.nested.rules[i].hosts[i2].hostName → .spec.rules[i].hosts[i2].name
            .spec.paints[i].hue → .spec.some.awesomePaints[i].realHue
            .spec.paints[i].name → .spec.some.awesomePaints[i].realName
            .spec.ports[i].portName → .spec.ports[i].name
        "#]],
    );
}

/// A field that went from an object which both versions have is not another one's of an object
/// beside it, and a general name says nothing about the object that it was in.
#[test]
fn fields_of_objects_apart_are_no_pairs() {
    check(
        "{spec: {vault: {auth: {secretAccessKeyRef: string}, url: string}, ref: {name: string, kind: string}, \
            network: {hostName: string, mtu: integer}}}",
        "{spec: {vault: {url: string}, alibaba: {auth: {accessKeySecretRef: string}}, name: string, network: {dns: \
            {hostName: string}, mtu: integer}}}",
        expect![[r#"
            .spec.alibaba.auth.accessKeySecretRef only in new
            .spec.name only in new
            .spec.network.hostName → .spec.network.dns.hostName
            .spec.ref.kind only in old
            .spec.ref.name only in old
            .spec.vault.auth.secretAccessKeyRef only in old
        "#]],
    );
}

#[test]
fn equal_descriptions_speak_for_a_pair() {
    let field = |name: &str, words: &str| -> Json {
        serde_json::json!({name: {"$": {"type": "string", "description": words}}})
    };
    let old = serde_json::json!({"spec": field("hint", "What the reader should feel.")}).to_string();
    let new = serde_json::json!({"spec": field("mood", "What the reader should feel.")}).to_string();
    check(
        &old,
        &new,
        expect![[r#"
        .spec.hint → .spec.mood
    "#]],
    );
}

/// Collects the paths that rules write, with `[]` for every item.
fn targets(rules: &Json, above: &str, out: &mut BTreeSet<String>) {
    for rule in rules.as_array().into_iter().flatten() {
        let text = |name: &str| rule[name].as_str();
        // In one notation, `field` is the destination.
        let target = text("destination")
            .or_else(|| text("to"))
            .or_else(|| text("field"))
            .unwrap();
        let target = insula_conversion::Path::parse(target).unwrap().to_string();
        let target = target.strip_prefix(".item").unwrap_or(&target);
        let items = target
            .split('[')
            .enumerate()
            .map(|(at, part)| match part.split_once(']') {
                Some((inside, rest)) if at > 0 && !inside.starts_with(['\'', '0']) => format!("[]{rest}"),
                _ if at > 0 => format!("[{part}"),
                _ => part.to_owned(),
            });
        let target = format!("{above}{}", items.collect::<String>());
        match rule.get("itemRules") {
            Some(inner) => targets(inner, &format!("{target}[]"), out),
            None => drop(out.insert(target)),
        }
    }
}

/// Returns for a sample the numbers of paths that its rules write and of those that are guessed.
fn of_sample(folder: &File) -> (usize, usize, usize, Vec<String>) {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| yaml(&text));
    let api = read("schema.yaml").unwrap();
    let rules = read("conversion.yaml").or_else(|| read("rules.yaml")).unwrap();
    let version = |name: &Json| {
        let versions = api["spec"]["versions"].as_array().unwrap();
        let version = versions.iter().find(|version| version["name"] == *name).unwrap();
        let schema = &version["schema"];
        schema.get("openAPIV3Schema").unwrap_or(schema).clone()
    };
    let (mut found, mut all, mut work, mut missed) = (0, 0, 0, Vec::new());
    let hub = &rules["spec"]["hub"];
    let directions = rules["spec"]["conversions"].as_array().unwrap().iter();
    let directions = directions.flat_map(|direction| match &direction["version"] {
        Json::Null => vec![(&direction["from"], &direction["to"], &direction["rules"])],
        other => vec![(hub, other, &direction["fromHub"]), (other, hub, &direction["toHub"])],
    });
    for (from, to, rules) in directions {
        let (mut draft, _) = guessed(
            &version(from),
            &version(to),
            [from.as_str().unwrap(), to.as_str().unwrap()],
        );
        draft.retain_confident(SURE);
        work += draft.pairs.iter().filter(|pair| pair.work.is_some()).count();
        let draft = draft.rules();
        let (mut wanted, mut got) = (BTreeSet::new(), BTreeSet::new());
        targets(rules, "", &mut wanted);
        targets(&draft["conversions"][0]["rules"], "", &mut got);
        all += wanted.len();
        found += wanted.intersection(&got).count();
        missed.extend(
            wanted
                .difference(&got)
                .map(|place| format!("{from} → {to} {place}").replace('"', "")),
        );
    }
    (found, all, work, missed)
}

/// Most paths written by a sample's rules are written by guessed rules. Those without evidence in
/// the schemas are not: constants, labels, types by agreement, another structure.
#[test]
fn most_of_the_samples_rules_are_found() {
    let samples = File::new(env!("CARGO_MANIFEST_DIR")).join("../../config/samples/conversions");
    let mut folders: Vec<_> = fs::read_dir(samples)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    let (mut lines, mut sum, mut all_missed) = (Vec::new(), (0, 0), Vec::new());
    for folder in folders {
        let (found, all, work, missed) = of_sample(&folder);
        sum = (sum.0 + found, sum.1 + all);
        let name = folder.file_name().unwrap().to_str().unwrap();
        let work = if work == 0 {
            String::new()
        } else {
            format!(", {work} need work")
        };
        lines.push(format!("{name} {found} of {all}{work}"));
        all_missed.push(format!("{name}: {}", missed.join(", ")));
    }
    lines.push(format!("all {} of {}", sum.0, sum.1));
    eprintln!("{}", all_missed.join("\n"));
    expect![[r#"
        certificates 71 of 131
        computed 0 of 3
        defaults-and-constants 0 of 3
        durations 2 of 9
        enumerations 4 of 6
        field-to-field 4 of 4
        fields-and-map 0 of 6
        functions 2 of 6
        inverted 4 of 4
        item-rules 4 of 4
        items-by-path 4 of 4
        labels-and-annotations 0 of 8
        list-by-key 4 of 4
        map-to-list 2 of 2
        move-list 2 of 2
        moves 10 of 12
        nested-items 4 of 6
        numbers-and-text 6 of 9
        one-and-many 4 of 4
        outside 1 of 1
        quantities 6 of 6
        renames 12 of 12
        routes 3 of 29
        scalar-and-object 6 of 6
        single-to-list 2 of 2
        split-and-join 8 of 8
        stricter 0 of 2
        trees 0 of 0
        values-from-outside 2 of 6
        all 167 of 299
    "#]]
    .assert_eq(&(lines.join("\n") + "\n"));
}
