//! `config/packaging`: the unit and the image name flags and settings that the program
//! has, and the server speaks to the service manager and takes shared keys as they expect.

mod notify;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use insula_e2e::{binary, insula, run_bounded};
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
fn the_image_runs_the_program_without_root() {
    let path = packaging("docker/Dockerfile");
    let text = read(&path);
    let lines: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("no arguments: {line}")))
        .collect();
    let known = [
        "FROM",
        "RUN",
        "ARG",
        "COPY",
        "ENV",
        "VOLUME",
        "EXPOSE",
        "USER",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    ];
    for (instruction, _) in &lines {
        assert!(known.contains(instruction), "{instruction}");
    }
    let last = lines
        .iter()
        .rposition(|(instruction, _)| *instruction == "FROM")
        .unwrap();
    assert_eq!(lines[last].1, "scratch");
    let of = |name: &str| {
        lines[last..]
            .iter()
            .find(|(instruction, _)| *instruction == name)
            .map(|(_, rest)| *rest)
    };
    assert_eq!(of("RUN"), None, "nothing can run on an empty file system");
    let user: u32 = of("USER").unwrap().split(':').next().unwrap().parse().unwrap();
    assert_ne!(user, 0);
    let list = |name: &str| serde_json::from_str::<Vec<String>>(of(name).unwrap()).unwrap();
    assert_eq!(
        (list("ENTRYPOINT"), list("CMD")),
        (vec!["/insula".to_owned()], vec!["start".to_owned()])
    );
    assert!(
        text.contains("/insula /insula\n"),
        "the program is copied to its entry point"
    );
    let environment = of("ENV").unwrap().split_whitespace();
    let settings: Vec<(String, String)> = environment
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(refusal("", &settings), None);
    let data = settings.iter().find(|(name, _)| name == "INSULA_DATA_DIR").unwrap();
    assert!(Path::new(&data.1).starts_with(of("VOLUME").unwrap()));
}
