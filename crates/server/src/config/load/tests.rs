use std::collections::BTreeSet;

use super::*;
use crate::config::{Endpoints, LogFormat, StoreChoice};

fn merged(yaml: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<Config, String> {
    let mut merge = Merge::new();
    let mut all = || {
        merge.file(PathBuf::from("/etc/insula.yaml"), yaml)?;
        let environment: Vec<_> = environment
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        merge.environment(&environment)?;
        flags
            .iter()
            .try_for_each(|(key, value)| merge.text(key, key, value, Source::Flags))
    };
    all().map_err(|error: ConfigError| error.to_string())?;
    Ok(merge.config)
}

#[test]
fn the_last_source_wins() {
    let yaml = "listen: 0.0.0.0:1\nlog:\n  level: warn\n  format: json\ndrainSeconds: 1\n";
    let environment = [
        ("INSULA_LISTEN", "0.0.0.0:2"),
        ("INSULA_LOG_LEVEL", "error"),
        ("HOME", "/root"),
    ];
    let got = merged(yaml, &environment, &[("listen", "0.0.0.0:3")]).expect("settings are good");
    let want = Config {
        listen: "0.0.0.0:3".to_owned(),
        drain_seconds: 1,
        log: crate::config::LogConfig {
            format: LogFormat::Json,
            level: "error".to_owned(),
        },
        ..Config::default()
    };
    assert_eq!(got, want);
}

#[test]
fn every_kind_of_value_is_read_from_text() {
    let environment = [
        ("INSULA_STORE", "etcd://127.0.0.1:2379"),
        ("INSULA_TOKEN_FILE", "/tokens.csv"),
        ("INSULA_LIMITS_BODY_BYTES", "17"),
        ("INSULA_TELEMETRY_OTLP_ENDPOINT", "http://localhost:4317"),
        ("INSULA_DATA_DIR", "123"),
        ("INSULA_WORKSPACES_HOMES", "false"),
    ];
    let got = merged("", &environment, &[]).expect("settings are good");
    assert!(!got.workspaces.homes);
    assert_eq!(
        got.store,
        StoreChoice::Etcd(Endpoints {
            tls: false,
            hosts: vec!["127.0.0.1:2379".to_owned()]
        })
    );
    assert_eq!(got.token_file, Some(PathBuf::from("/tokens.csv")));
    assert_eq!(got.limits.body_bytes, 17);
    assert_eq!(got.telemetry.otlp_endpoint.as_deref(), Some("http://localhost:4317"));
    assert_eq!(got.data_dir, PathBuf::from("123"));
}

#[test]
fn refusals_name_the_key_the_place_and_the_nearest() {
    let file = |yaml: &str| merged(yaml, &[], &[]).expect_err(yaml);
    let variable = |name: &str, value: &str| merged("", &[(name, value)], &[]).expect_err(name);
    for (got, want) in [
        (
            file("lisen: x"),
            "unknown key `lisen` in /etc/insula.yaml; did you mean `listen`?",
        ),
        (
            file("log:\n  levle: x"),
            "unknown key `log.levle` in /etc/insula.yaml; did you mean `log.level`?",
        ),
        (
            file("bodyBytes: 3"),
            "unknown key `bodyBytes` in /etc/insula.yaml; did you mean `limits.bodyBytes`?",
        ),
        (
            file("colour: 3"),
            "unknown key `colour` in /etc/insula.yaml; config/insula.yaml lists every key",
        ),
        (
            variable("INSULA_LISTENS", "x"),
            "unknown key `INSULA_LISTENS` in the environment; did you mean `INSULA_LISTEN`?",
        ),
        (
            file("limits:\n  bodyBytes: lots"),
            "`limits.bodyBytes` in /etc/insula.yaml: invalid type: string \"lots\", expected usize",
        ),
        (
            variable("INSULA_DRAIN_SECONDS", "-3"),
            "`INSULA_DRAIN_SECONDS` in the environment: invalid value: integer `-3`, expected u64",
        ),
        (
            variable("INSULA_STORE", "redis"),
            "`INSULA_STORE` in the environment: `redis`: expected `embedded`, `memory` or \
             `etcd://HOST:PORT[,HOST:PORT…]` (`etcds://` with TLS)",
        ),
        (
            file("log: loud"),
            "`log` in /etc/insula.yaml: is a section: its keys go on lines of their own below it, indented",
        ),
        (
            file("- a"),
            "/etc/insula.yaml is not a configuration: expected `key: value` lines",
        ),
    ] {
        assert_eq!(got, want);
    }
    assert!(file("listen: [").starts_with("/etc/insula.yaml is not a configuration: "));
}

#[test]
fn variables_that_only_look_like_ours_are_left_alone() {
    for name in [
        "INSULA_PORT",
        "INSULA_PORT_6443_TCP_ADDR",
        "INSULA_SERVICE_HOST",
        "INSULA_SERVICE_PORT_HTTPS",
        "INSULA_ETCD",
    ] {
        assert_eq!(
            merged("", &[(name, "tcp://10.0.0.1:6443")], &[]),
            Ok(Config::default()),
            "{name}"
        );
    }
}

#[test]
fn limits_cannot_be_zero_and_collectors_are_plain() {
    let refused = |flags: Vec<(&'static str, String)>| {
        load(Sources {
            flags,
            ..Sources::default()
        })
        .map(drop)
        .map_err(|error| error.to_string())
    };
    assert!(refused(vec![("limits.connections", "0".into())]).is_err_and(|e| e.contains("at least 1")));
    let percent = |value: &str| refused(vec![("limits.computePercentPerWorkspace", value.into())]);
    assert!(percent("101").is_err_and(|e| e.contains("limits.computePercentPerWorkspace") && e.contains("all cores")));
    assert_eq!(percent("100"), Ok(()));
    for key in [
        "watches.historySeconds",
        "watches.historyMegabytes",
        "watches.bookmarkSeconds",
    ] {
        assert!(refused(vec![(key, "0".into())]).is_err_and(|e| e.contains(key) && e.contains("at least 1")));
        assert_eq!(refused(vec![(key, "1".into())]), Ok(()));
    }
    assert!(refused(vec![("telemetry.otlpEndpoint", "https://x:1".into())]).is_err_and(|e| e.contains("http://")));
    assert_eq!(refused(Vec::new()), Ok(()));
}

/// `config/insula.yaml` shows every key; taking away the `# ` of all its settings gives the
/// defaults, but for the one setting that it sets.
#[test]
fn the_commented_file_is_the_defaults() {
    let text = include_str!("../../../../../config/insula.yaml");
    let uncommented: String = text
        .lines()
        .filter(|line| !line.starts_with("##"))
        .map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or(line)))
        .collect();
    let mut delivered = Config::default();
    delivered.workspaces.deletion_grace_seconds = 86_400;
    assert_eq!(merged(&uncommented, &[], &[]).as_ref(), Ok(&delivered), "{uncommented}");

    let mut shown = BTreeMap::new();
    let value: Value = serde_saphyr::from_str(&uncommented).expect("is YAML");
    leaves("", &value, &mut shown);
    let known: BTreeSet<String> = Merge::new().known.into_keys().collect();
    assert_eq!(shown.into_keys().collect::<BTreeSet<_>>(), known);
    assert_eq!(merged(text, &[], &[]), Ok(delivered), "as delivered");
}

#[test]
fn settings_of_etcd_fit_together() {
    let load = |settings: &[(&'static str, &str)]| {
        load(Sources {
            flags: settings
                .iter()
                .map(|(key, value)| (*key, (*value).to_owned()))
                .collect(),
            ..Sources::default()
        })
        .map(drop)
        .map_err(|error| error.to_string())
    };
    let (plain, secure) = (("store", "etcd://a:1"), ("store", "etcds://a:1"));
    for (settings, key) in [
        (vec![secure], "etcd.ca"),
        (vec![plain, ("etcd.ca", "/ca")], "etcd.ca"),
        (
            vec![secure, ("etcd.ca", "/ca"), ("etcd.certificate", "/c")],
            "etcd.certificate",
        ),
        (vec![plain, ("etcd.user", "insula")], "etcd.user"),
        (vec![plain, ("etcd.attemptSeconds", "11")], "etcd.attemptSeconds"),
        (vec![plain, ("etcd.attemptSeconds", "0")], "etcd.attemptSeconds"),
    ] {
        let refusal = load(&settings).expect_err(key);
        assert!(refusal.starts_with(&format!("`{key}`")), "{refusal}");
    }
    let all = [
        secure,
        ("etcd.ca", "/ca"),
        ("etcd.certificate", "/c"),
        ("etcd.key", "/k"),
        ("etcd.user", "insula"),
        ("etcd.passwordFile", "/p"),
    ];
    assert_eq!(load(&all), Ok(()));
}
