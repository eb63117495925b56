//! `config/packaging`: the unit, the image and the chart name flags and settings that the program
//! has, and the server speaks to the service manager and takes shared keys as they expect.

mod dist;
mod notify;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use insula_e2e::{binary, insula, run_bounded};
use serde_json::Value;
use tempfile::TempDir;

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../config/packaging")
        .join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the refusal of a settings file or variables, if the program refuses them. A wrong flag,
/// which is read last, keeps the server from starting.
fn refusal(settings: &str, variables: &[(String, String)]) -> Option<String> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("insula.yaml");
    fs::write(&file, settings).unwrap();
    let mut command = insula(&["start", "--drain-seconds", "never", "--config"]);
    command.arg(file).envs(variables.iter().cloned());
    let output = run_bounded(&mut command, "", insula_e2e::PATIENCE);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    (!text.contains("`drainSeconds` in the command line")).then_some(text)
}

/// Returns the names of settings in a text: `INSULA_LISTEN`.
fn variables(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_part(c));
    words
        .filter(|word| word.starts_with("INSULA_"))
        .map(str::to_owned)
        .collect()
}

/// Asserts that the program knows each variable. Its value need not fit.
fn assert_known(variables: BTreeSet<String>, file: &Path) {
    for name in variables {
        let refusal = refusal("", &[(name.clone(), "1".to_owned())]);
        let unknown = refusal.is_some_and(|text| text.contains("unknown key"));
        assert!(!unknown, "{}: the program has no setting {name}", file.display());
    }
}

/// Asserts that `insula start` has each flag of a command line.
fn assert_flags(words: &[&str], file: &Path) {
    let help = insula(&["start", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        let name = flag.split('=').next().unwrap_or_default();
        let has = help.split_whitespace().any(|word| word == name);
        assert!(has, "{}: `insula start` has no flag {name}", file.display());
    }
}

#[test]
fn wrong_names_are_found() {
    assert!(refusal("listne: x", &[]).is_some_and(|text| text.contains("unknown key")));
    let wrong = ("INSULA_LISTNE".to_owned(), "1".to_owned());
    assert!(refusal("", &[wrong]).is_some_and(|text| text.contains("unknown key")));
    assert_eq!(refusal("drainSeconds: 3", &[]), None);
}

/// Returns the settings of a unit as (section, key, value).
fn unit(text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("no key: {line}"));
        found.push((section.clone(), key.to_owned(), value.to_owned()));
    }
    found
}

#[test]
fn the_unit_starts_the_program_as_it_is() {
    let path = packaging("systemd/insula.service");
    let settings = unit(&read(&path));
    let value = |key: &str| {
        settings
            .iter()
            .find(|(_, name, _)| name == key)
            .map(|(_, _, value)| value.as_str())
    };
    let words: Vec<&str> = value("ExecStart").unwrap().split_whitespace().collect();
    assert_eq!(words[..2], ["/usr/bin/insula", "start"]);
    assert_flags(&words, &path);
    for (key, want) in [
        ("Type", "notify"),
        ("DynamicUser", "yes"),
        ("StateDirectory", "insula"),
        ("StateDirectoryMode", "0700"),
        ("ProtectSystem", "strict"),
        ("NoNewPrivileges", "yes"),
    ] {
        assert_eq!(value(key), Some(want), "{key}");
    }
    // Where systemd is installed it has the last word, about the program of this test.
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("insula.service");
    let text = read(&path)
        .replace("/usr/bin/insula", binary().to_str().unwrap())
        // The manual pages are not installed here.
        .replace("Documentation=man:insula(1)\n", "");
    fs::write(&copy, text).unwrap();
    for arguments in [&["verify"][..], &["security", "--offline=true", "--threshold=20"]] {
        let mut command = Command::new("systemd-analyze");
        match command.args(arguments).arg(&copy).output() {
            Err(_) => return eprintln!("skipped: no systemd-analyze"),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{arguments:?}: {text}");
            }
        }
    }
}

#[test]
fn the_chart_sets_settings_that_exist() {
    let chart = packaging("helm/insula");
    let values: Value = serde_saphyr::from_str(&read(&chart.join("values.yaml"))).unwrap();
    let settings = serde_saphyr::to_string(&values["settings"]).unwrap();
    assert_eq!(refusal(&settings, &[]), None, "settings of values.yaml");
    let about: Value = serde_saphyr::from_str(&read(&chart.join("Chart.yaml"))).unwrap();
    for key in ["version", "appVersion"] {
        assert_eq!(about[key], env!("CARGO_PKG_VERSION"), "{key} of Chart.yaml");
    }
    // Helm checks values by the schema; each key stands there, so that a typo is refused.
    let schema: Value = serde_json::from_str(&read(&chart.join("values.schema.json"))).unwrap();
    assert_eq!(unknown(&values, &schema, ""), Vec::<String>::new());
    for file in fs::read_dir(chart.join("templates")).unwrap() {
        let path = file.unwrap().path();
        let text = read(&path);
        assert_known(variables(&text), &path);
        let opened = text.matches("{{").count();
        assert_eq!(opened, text.matches("}}").count(), "{}", path.display());
        for value in used_values(&text) {
            let pointer = format!("/{}", value.replace('.', "/"));
            assert!(
                values.pointer(&pointer).is_some(),
                "{}: values.yaml has no {value}",
                path.display()
            );
        }
        if let Some(arguments) = text.lines().find_map(|line| line.trim().strip_prefix("args: ")) {
            let arguments: Vec<String> = serde_json::from_str(arguments).unwrap();
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            assert_flags(&words, &path);
        }
    }
}

/// With a certificate of their own, replicas hand its CA to clients: the Secret's key that the
/// values name.
#[test]
fn the_chart_passes_the_ca_of_the_serving_certificate() {
    let text = read(&packaging("helm/insula/templates/statefulset.yaml"));
    let (_, serving) = text.split_once("{{- if .Values.certificates.servingSecret }}").unwrap();
    let (_, with_ca) = serving
        .split_once("{{- with .Values.certificates.servingCa }}")
        .unwrap();
    let (with_ca, _) = with_ca.split_once("{{- end }}").unwrap();
    let lines: Vec<&str> = with_ca
        .split('\n')
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(
        lines,
        ["- name: INSULA_TLS_CA_FILE", "value: /etc/insula/serving/{{ . }}"]
    );
    // The folder is where the Secret is mounted.
    let (_, mount) = text.split_once("- name: serving\n").unwrap();
    assert_eq!(
        mount.lines().next().map(str::trim),
        Some("mountPath: /etc/insula/serving")
    );
    // The server takes the three files together.
    let folder = TempDir::new().unwrap();
    let file = |name: &str| (folder.path().join(name)).display().to_string();
    let variables = [
        ("INSULA_TLS_CERT_FILE", file("tls.crt")),
        ("INSULA_TLS_KEY_FILE", file("tls.key")),
        ("INSULA_TLS_CA_FILE", file("ca.crt")),
    ];
    assert_eq!(
        refusal("", &variables.map(|(name, value)| (name.to_owned(), value))),
        None
    );
    let values: Value = serde_saphyr::from_str(&read(&packaging("helm/insula/values.yaml"))).unwrap();
    assert_eq!(values["certificates"]["servingCa"], "");
}

/// Returns the values that the schema does not describe.
fn unknown(values: &Value, schema: &Value, path: &str) -> Vec<String> {
    let Some(fields) = values.as_object().filter(|_| schema["properties"].is_object()) else {
        return Vec::new();
    };
    let of_field = |(name, value): (&String, &Value)| {
        let path = format!("{path}.{name}");
        match &schema["properties"][name] {
            Value::Null => vec![path],
            schema => unknown(value, schema, &path),
        }
    };
    fields.iter().flat_map(of_field).collect()
}

/// Returns the values that a template uses: `service.port` for `.Values.service.port`.
fn used_values(template: &str) -> BTreeSet<&str> {
    let uses = template.split(".Values.").skip(1);
    uses.map(|rest| {
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
            .unwrap_or(rest.len());
        rest[..end].trim_end_matches('.')
    })
    .collect()
}
