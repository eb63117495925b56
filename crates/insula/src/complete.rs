//! Completions: candidates for the last word of a command line. Shells and kubectl ask for them.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Arg, Command};
use serde_json::Value;

use crate::{
    client::Client,
    connection::{Connection, ServerFlags},
    files::text,
    kubeconfig::{Kubeconfig, Paths, Section},
};

/// The hidden command that prints candidates.
pub(crate) const COMPLETE: &str = "__complete";
/// Longest wait for the names of workspaces. A person waits, too.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Answer to kubectl that there are no files to add (cobra's ShellCompDirectiveNoFileComp).
const NO_FILES: &str = ":4";
const FILES: &str = ":0";

/// A word that may stand there, and its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    word: String,
    help: String,
}

/// Prints candidates. The first word names the reader: `kubectl` and `fish` get meanings, too,
/// `plain` does not.
pub(crate) fn main(root: Command, words: &[String]) -> ExitCode {
    let Some((reader, words)) = words.split_first() else {
        return ExitCode::from(2);
    };
    let found = candidates(root, words);
    let mut out = String::new();
    for Candidate { word, help } in &found.words {
        let first = help.lines().next().unwrap_or_default();
        match (reader.as_str(), first) {
            ("plain", _) | (_, "") => out += &format!("{word}\n"),
            (_, first) => out += &format!("{word}\t{first}\n"),
        }
    }
    if reader == "kubectl" {
        out += if found.files { FILES } else { NO_FILES };
        out.push('\n');
    }
    // A shell that has closed the pipe needs no answer.
    let _ = io::stdout().write_all(out.as_bytes());
    ExitCode::SUCCESS
}

#[derive(Debug, Default)]
struct Found {
    words: Vec<Candidate>,
    /// True if a file may stand there.
    files: bool,
}

/// Returns the candidates for the last word.
fn candidates(mut root: Command, words: &[String]) -> Found {
    root.build();
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let mut command = &root;
    let (mut given, mut positional) = (BTreeMap::new(), 0);
    let mut waiting: Option<&Arg> = None;
    for word in before {
        if let Some(flag) = waiting.take() {
            given.insert(flag.get_id().to_string(), word.clone());
        } else if let Some(name) = word.strip_prefix('-').filter(|_| word.len() > 1) {
            let (name, value) = name
                .split_once('=')
                .map_or((name, None), |(name, value)| (name, Some(value)));
            let flag = flag(command, name);
            match (flag, value) {
                (Some(flag), Some(value)) => drop(given.insert(flag.get_id().to_string(), value.to_owned())),
                (Some(flag), None) if flag.get_action().takes_values() => waiting = Some(flag),
                (Some(_) | None, _) => {}
            }
        } else if let Some(below) = command.find_subcommand(word) {
            (command, positional) = (below, 0);
        } else {
            positional += 1;
        }
    }
    if let Some(flag) = waiting {
        return values(flag, last, &given);
    }
    if last.starts_with('-') {
        return flags(command, last);
    }
    let mut found = match command.get_positionals().nth(positional) {
        Some(argument) => values(argument, last, &given),
        None => Found::default(),
    };
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    let named = shown.filter(|below| positional == 0 && below.get_name().starts_with(last));
    found.words.extend(named.map(|below| Candidate {
        word: below.get_name().to_owned(),
        help: below.get_about().map(ToString::to_string).unwrap_or_default(),
    }));
    found
}

fn flag<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let long = name.strip_prefix('-');
    let fits = |argument: &&Arg| match long {
        Some(long) => argument.get_long() == Some(long),
        None => argument.get_short().is_some_and(|short| name.starts_with(short)),
    };
    command.get_arguments().find(fits)
}

fn flags(command: &Command, last: &str) -> Found {
    let mut found = Found::default();
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let Some(long) = argument.get_long() else { continue };
        let word = format!("--{long}");
        if word.starts_with(last) {
            found.words.push(Candidate {
                word,
                help: argument.get_help().map(ToString::to_string).unwrap_or_default(),
            });
        }
    }
    found
}

/// Returns the values that an argument takes.
fn values(argument: &Arg, last: &str, given: &BTreeMap<String, String>) -> Found {
    let plain = |words: Vec<String>| Found {
        words: words
            .into_iter()
            .filter(|word| word.starts_with(last))
            .map(|word| Candidate {
                word,
                help: String::new(),
            })
            .collect(),
        files: false,
    };
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        return plain(possible.iter().map(|value| value.get_name().to_owned()).collect());
    }
    let value_name = argument.get_value_names().and_then(|names| names.first());
    let value_name = value_name.map(|name| name.as_str()).unwrap_or_default();
    match (argument.get_id().as_str(), value_name) {
        ("context", "NAME") => plain(names(given, Section::Contexts)),
        ("cluster", "NAME") => plain(names(given, Section::Clusters)),
        ("user", "NAME") => plain(names(given, Section::Users)),
        ("workspace", _) | (_, "WORKSPACE") => plain(workspaces(given, last).unwrap_or_default()),
        (_, "FILE" | "FOLDER" | "DIRECTORY") => Found {
            words: Vec::new(),
            files: true,
        },
        (_, _) => Found::default(),
    }
}

fn names(given: &BTreeMap<String, String>, section: Section) -> Vec<String> {
    let kubeconfig = given.get("kubeconfig").map(PathBuf::from);
    let kubeconfig = kubeconfig.or(std::env::var_os("INSULA_KUBECONFIG").map(PathBuf::from));
    let loaded = Paths::find(kubeconfig.as_deref()).and_then(|paths| Kubeconfig::load(&paths));
    match loaded {
        Ok(kubeconfig) => kubeconfig.names(section).into_iter().map(str::to_owned).collect(),
        Err(_) => Vec::new(),
    }
}

/// Returns the workspaces below the path that is typed so far: `a:` gives `a:b` and `a:c`.
fn workspaces(given: &BTreeMap<String, String>, last: &str) -> anyhow::Result<Vec<String>> {
    let flag = |name: &str, variable: &str| given.get(name).cloned().or_else(|| std::env::var(variable).ok());
    let connection = Connection {
        server: ServerFlags {
            kubeconfig: flag("kubeconfig", "INSULA_KUBECONFIG").map(PathBuf::from),
            context: flag("context", "INSULA_CONTEXT"),
            server: flag("server", "INSULA_SERVER"),
            token: flag("token", "INSULA_TOKEN"),
            request_timeout: Some(ANSWER_TIMEOUT),
            ..ServerFlags::default()
        },
        workspace: None,
    };
    let resolved = connection.resolve()?;
    let typed = last.rsplit_once(':').map(|(before, _)| before);
    let path = match typed {
        None => resolved.url.current()?.to_owned(),
        Some("") => return Ok(vec![":root".to_owned()]),
        Some(before) => resolved.url.resolve(before)?,
    };
    let client = Client::new(&resolved)?.at_url(&resolved.url.for_workspace(&path));
    let (_, list) = crate::runtime()?.block_on(client.get("/apis/tenancy.kcp.io/v1alpha1/workspaces"))?;
    let items = list["items"].as_array().into_iter().flatten();
    let name = |item: &Value| match typed {
        Some(before) => format!("{before}:{}", text(item, "/metadata/name")),
        None => text(item, "/metadata/name").to_owned(),
    };
    Ok(items.map(name).collect())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn words_for(line: &[&str]) -> Vec<String> {
        let line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let found = candidates(crate::Cli::command(), &line);
        found.words.into_iter().map(|candidate| candidate.word).collect()
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        assert_eq!(words_for(&["bac"]), ["backup"]);
        assert_eq!(words_for(&["ws", "--sh"]), ["--short"]);
        assert_eq!(words_for(&["ws", "tree", "--output", "j"]), ["json"]);
        assert_eq!(words_for(&["ws", "--kubeconfig", "/nowhere", "tr"]), ["tree"]);
        let shells = words_for(&["completion", ""]);
        assert_eq!(shells, ["bash", "zsh", "fish", "powershell"]);
        assert!(words_for(&["bind", "--req"]).contains(&"--request-timeout".to_owned()));
        assert!(words_for(&["__"]).is_empty());
    }

    #[test]
    fn contexts_come_from_the_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, "contexts: [{name: one}, {name: other}, {name: two}]").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(
            words_for(&["ws", "--kubeconfig", file, "--context", "o"]),
            ["one", "other"]
        );
        let found = candidates(crate::Cli::command(), &["ws", "--kubeconfig", ""].map(str::to_owned));
        assert!(found.files && found.words.is_empty());
    }
}
