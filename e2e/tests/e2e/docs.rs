//! The command blocks of the documents, run as they are written.
//!
//! Blocks marked `sh`, `bash` or `console` are run, those of one file in order in one `bash -e`, in
//! a folder with only this repository's `config`, and with `insula` on the path. A block that needs
//! a server starts it. In `console` blocks the lines after `$ ` are run. `cargo run -- X` is run
//! as `insula X`; other `cargo`, `git` and `target/` commands are not run. Other blocks
//! (`text`, `yaml`) are for reading. Files that mention `$PUBLISHED` need the definitions of other
//! projects and are skipped without them. Files with `insula boot` run in the empty folder of a
//! project, and take the library from this repository.

mod site;

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use insula_e2e::{Checkout, run_bounded, unused_port};

/// Longest time that the commands of a file run.
const PATIENCE: Duration = Duration::from_secs(180);
/// Longest time for files that build a project, beside other builds.
const BUILD_PATIENCE: Duration = Duration::from_secs(600);

/// Returns the commands of a file. A line before each block names its position.
fn script(name: &str, text: &str) -> Option<String> {
    let (mut script, mut language, mut found) = (String::new(), None, false);
    for (index, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &language) {
            (Some(tag), None) => {
                let tag = tag.split_whitespace().next().unwrap_or_default().to_owned();
                if ["sh", "bash", "console"].contains(&tag.as_str()) {
                    found = true;
                    writeln!(script, "echo '# {name}:{}'", index + 1).unwrap();
                }
                language = Some(tag);
            }
            (Some(""), Some(_)) => language = None,
            (Some(tag), Some(_)) => panic!("{name}:{}: a {tag} block begins in another block", index + 1),
            (None, Some(tag)) => match tag.as_str() {
                "sh" | "bash" => writeln!(script, "{}", command(line)).unwrap(),
                "console" => {
                    if let Some(typed) = line.strip_prefix("$ ") {
                        writeln!(script, "{}", command(typed)).unwrap();
                    }
                }
                _ => {}
            },
            (None, None) => {}
        }
    }
    assert!(language.is_none(), "{name}: the last block has no end");
    found.then_some(script)
}

/// Returns the word of a command that would end the shell of a reader who pastes it, or change how
/// their shell ends: `exit`, `exec`, `logout`, `set -e`. A block fails by `false` instead.
fn ends_the_shell(line: &str) -> Option<&str> {
    let mut words = line
        .split(|c: char| c.is_whitespace() || ";|&(){}`\"'".contains(c))
        .filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        match word {
            "exit" | "exec" | "logout" => return Some(word),
            "set" => {
                let option = words.next().unwrap_or_default();
                if option.starts_with(['-', '+']) {
                    return Some(option);
                }
            }
            _ => {}
        }
    }
    None
}

fn command(line: &str) -> String {
    for run in [
        "cargo run --profile quick -- ",
        "cargo run -- ",
        "cargo run --release -- ",
    ] {
        if let Some(arguments) = line.strip_prefix(run) {
            return format!("insula {arguments}");
        }
    }
    // Builds, and measurements with a release build.
    let others = ["cargo ", "git ", "cd ", "target/"];
    match others.iter().any(|other| line.starts_with(other)) {
        true => format!(": not run: {}", line.replace('\'', "")),
        false => line.to_owned(),
    }
}

/// Returns the repository, which readers of the documents have checked out.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the folder with definitions of other projects.
fn published() -> PathBuf {
    root().join("../shared/testdata/real")
}

fn run(name: &str, script: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    let checkout = script.contains("insula boot ").then(Checkout::new);
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(insula_e2e::binary(), bin.join("insula")).unwrap();
    let work = match &checkout {
        Some(checkout) => checkout.project(),
        None => dir.path().join("work"),
    };
    if checkout.is_none() {
        fs::create_dir(&work).unwrap();
        std::os::unix::fs::symlink(root().join("config"), work.join("config")).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    // Background processes of a file end with it.
    let ended = format!("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}");
    command.args(["-e", "-o", "pipefail", "-c", &ended]).current_dir(&work);
    command
        .env("PATH", path)
        .env("HOME", dir.path())
        .env("PUBLISHED", published())
        .env_remove("KUBECONFIG");
    // Documents use the default port, which may be taken here.
    command.env("INSULA_LISTEN", format!("127.0.0.1:{}", unused_port()));
    let patience = match &checkout {
        Some(checkout) => {
            checkout.environment(&mut command);
            BUILD_PATIENCE
        }
        None => PATIENCE,
    };
    let output = run_bounded(&mut command, "", patience);
    if output.status.success() {
        return Ok(());
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Err(format!(
        "{name}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    ))
}

/// Returns the documents that have commands.
fn documents() -> Vec<PathBuf> {
    let mut files = vec![root().join("README.md")];
    for folder in ["docs", "docs/for", "docs/guides"] {
        let found = fs::read_dir(root().join(folder)).into_iter().flatten();
        let found = found.map(|entry| entry.unwrap().path());
        files.extend(found.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    files.sort();
    files
}

#[test]
fn no_command_of_the_documents_ends_the_readers_shell() {
    let mut found = Vec::new();
    for file in documents() {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let script = script(&name, &fs::read_to_string(&file).unwrap()).unwrap_or_default();
        let mut at = String::new();
        for line in script.lines() {
            match line.strip_prefix("echo '# ") {
                Some(place) => at = place.trim_end_matches('\'').to_owned(),
                None => found.extend(ends_the_shell(line).map(|word| format!("block {at}: `{word}` in `{line}`"))),
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    for (line, word) in [
        ("if a; then exit 1; fi", Some("exit")),
        ("(exec b)", Some("exec")),
        ("set -euo pipefail", Some("-euo")),
        ("kubectl set image deployment/a a=b", None),
        ("if a; then false; fi", None),
        ("echo the exit-code", None),
    ] {
        assert_eq!(ends_the_shell(line), word, "{line}");
    }
}

#[test]
fn every_command_of_the_documents_works() {
    let files = documents();
    let kubectl = Command::new("kubectl").args(["version", "--client"]).output();
    let has_kubectl = kubectl.is_ok_and(|output| output.status.success());
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    let mut failures = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let name = file.file_name().unwrap().to_str().unwrap();
        let Some(script) = script(name, &text) else { continue };
        if script.contains("kubectl") && !has_kubectl {
            eprintln!("skipped: no kubectl for {name}");
            continue;
        }
        if script.contains("python3 ") && !has_python {
            eprintln!("skipped: no python3 for {name}");
            continue;
        }
        if script.contains("$PUBLISHED") && !published().exists() {
            eprintln!("skipped: no definitions of other projects for {name}");
            continue;
        }
        failures.extend(run(name, &script).err());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// kubectl 1.35 appends a raw path to that of the server's URL; earlier ones replace it. So
/// documents name raw paths of workspaces where that URL has no path. `/readyz` is the same
/// everywhere.
#[test]
fn raw_paths_are_the_same_for_every_kubectl() {
    let mut found = 0;
    for file in documents() {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for line in text.lines().filter(|line| line.contains("kubectl")) {
            let Some((_, path)) = line.split_once(" --raw ") else {
                continue;
            };
            let is_raw = path.starts_with(['/', '$']) && !path.starts_with("/readyz ");
            found += usize::from(is_raw);
            assert!(!is_raw || line.contains("--context base"), "{}: {line}", file.display());
        }
    }
    assert!(found > 3, "{found}");
}

#[test]
fn code_blocks_are_found_by_their_language() {
    let text = "# T\n```sh\necho a\n```\n```text\nrm -rf x\n```\n\
        ```console\n$ cargo run --release -- version\ninsula 1\n```\n\
        ```bash\ngit clone x\ncargo run -- demo\n```\n";
    let wanted =
        "echo '# T:2'\necho a\necho '# T:8'\ninsula version\necho '# T:12'\n: not run: git clone x\ninsula demo\n";
    assert_eq!(script("T", text).as_deref(), Some(wanted));
    assert_eq!(script("T", "no blocks\n```yaml\na: b\n```\n"), None);
}

#[test]
fn a_block_that_fails_is_shown() {
    assert!(run("T", "insula version > out\ntest -s out\n").is_ok());
    let shown = run("T", "echo '# T:7'\necho before\nfalse\necho after\n").unwrap_err();
    assert!(
        shown.contains("# T:7") && shown.contains("before") && !shown.contains("after"),
        "{shown}"
    );
}
