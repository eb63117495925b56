use super::*;
use insula_api::ClusterName;

#[test]
fn names_and_kinds_convert_both_ways() {
    for (name, kind, plural) in [
        ("cron-tab", "CronTab", "crontabs"),
        ("camel-case-kind", "CamelCaseKind", "camelcasekinds"),
        ("foo", "Foo", "foos"),
        ("c-r-d", "CRD", "crds"),
        ("web2-app", "Web2App", "web2apps"),
        ("h-t-t-p-proxy", "HTTPProxy", "httpproxies"),
        ("network-policy", "NetworkPolicy", "networkpolicies"),
        ("glass", "Glass", "glasses"),
        ("x", "X", "xs"),
    ] {
        assert_eq!(kind_of(name).as_deref(), Ok(kind));
        assert_eq!(name_of(kind), name);
        assert_eq!(plural_of(kind), plural);
        assert_eq!(registration_of(kind, "example.com"), format!("{name}.example.com"));
    }
}

#[test]
fn names_of_no_kind_are_refused() {
    for (name, why) in [
        ("cron-2tab", "\"Cron2tab\", whose name is \"cron2tab\""),
        ("2cron", "the kind \"2cron\""),
        ("cron--tab", "\"CronTab\", whose name is \"cron-tab\""),
        ("-cron", "\"Cron\", whose name is \"cron\""),
        ("cron-", "\"Cron\", whose name is \"cron\""),
        ("cronTab", "\"CronTab\", whose name is \"cron-tab\""),
        ("", "the kind \"\""),
    ] {
        let refused = kind_of(name).expect_err(name);
        assert!(refused.contains(why), "{name}: {refused}");
    }
}

/// Every kind of letters and digits that begins with a capital has a name, and comes back from it.
#[test]
fn every_kind_survives_the_round_trip() {
    let seed = 21;
    let mut state: u64 = seed;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    const LETTERS: &[u8] = b"ABCXYZabcxyz0189";
    for _ in 0..5_000 {
        let mut kind = String::from(char::from(LETTERS[next(6) as usize]));
        for _ in 0..next(12) {
            kind.push(char::from(LETTERS[next(LETTERS.len() as u64) as usize]));
        }
        let name = name_of(&kind);
        assert_eq!(kind_of(&name).as_deref(), Ok(&*kind), "seed {seed}, {name}");
    }
}

#[test]
fn registrations_are_definitions_of_any_json() {
    let first = json!({
        "apiVersion": "extensions/v1beta1", "metadata": {"name": "cron-tab.example.com"},
        "versions": [{"name": "stable/v1"}, {"name": "v2", "apiGroup": "experimental"}],
    });
    let wanted = wanted(&first).expect("names a kind");
    assert_eq!(wanted["group"], "example.com");
    assert_eq!(
        wanted["names"],
        json!({"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "listKind": "CronTabList"})
    );
    let versions: Vec<_> = wanted["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|version| (version["name"].as_str().unwrap_or_default(), version["storage"] == true))
        .collect();
    assert_eq!(versions, [("stable/v1", true), ("experimental/v2", false)]);
}

#[test]
fn routes_name_the_kind_of_their_definition() {
    for kind in DefinitionKind::ALL {
        assert_eq!(DefinitionKind::read(kind.written()), Some(kind));
        let name = DefinitionName {
            kind,
            name: "a.b".into(),
        };
        assert_eq!(DefinitionName::of_key(&name.key(&ClusterName::root())), Some(name));
    }
    assert_eq!(DefinitionKind::read(Some("of a later server")), None);
}
