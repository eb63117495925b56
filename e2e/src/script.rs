//! Scripts of requests and commands with their expected answers.
//!
//! ```text
//! # the subject of the script
//! workspaces: provider tenant        created first; `${provider}` is a path,
//!                                    `${cluster.provider}` the cluster's name
//! include: widgets                   the steps of scripts/setup/widgets.txt come first
//!
//! === a widget is made
//! POST /apis/example.io/v1/widgets   below /clusters/${first workspace}
//! @ in: tenant                       or of this one; `none`: a path from the server's root
//! @ through: tenant                  or of this one or `*`, through the export `widgets` of
//!                                    `provider`
//! @ as: alice-token                  or `anonymous`, `shard-admin`; default: the platform's
//!                                    administrator
//! @ Accept: application/json         a header
//! {metadata: {name: a}}              a body in YAML, sent as JSON; `@ raw: true`: sent as is
//! --> 201 eventually                 the code; `eventually` repeats until everything matches
//! @ ETag: <etag>                     a header of the answer, see [`crate::matches`]
//! spec: {a: 1}                       the expected part of the answer, see [`crate::matches`]
//!
//! === kubectl sees it
//! kubectl get widgets                with `--> 0`, the exit code; then lines that the output
//!                                    contains; `! line`: does not contain
//! --> 0
//! ```
//! Methods beyond HTTP's: `MERGE` and `JSON` are patches of that kind, `WATCH` reads as many events
//! as are expected, `TEXT` is a GET whose answer is compared like the output of a command.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{Attempts, Captures, Client, Kubectl, Server, Who, matches, ready_workspace, shared, unique};

struct Script {
    workspaces: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Default)]
struct Step {
    location: String,
    title: String,
    command: String,
    options: BTreeMap<String, String>,
    headers: Vec<(String, String)>,
    body: String,
    code: i32,
    eventually: bool,
    wanted_headers: Vec<(String, String)>,
    wanted: String,
}

/// A control plane that scripts run against: the program, or its parts in this process.
pub trait ControlPlane {
    /// Returns a client with this identity.
    fn client(&self, who: Who) -> Client;

    /// Returns the URL that the control plane tells of itself.
    fn url(&self) -> &str;

    /// Returns kubectl for the control plane. Without it, steps that run kubectl are skipped.
    fn kubectl(&self) -> Option<Kubectl>;

    /// Returns the log so far.
    fn log(&self) -> String;
}

impl ControlPlane for Server {
    fn client(&self, who: Who) -> Client {
        self.client(who)
    }

    fn url(&self) -> &str {
        self.url()
    }

    fn kubectl(&self) -> Option<Kubectl> {
        Kubectl::for_server(self)
    }

    fn log(&self) -> String {
        self.log()
    }
}

/// Runs the script `scripts/NAME.txt` against the shared server.
///
/// # Panics
/// Panics at the first step whose answer is not the expected one.
pub fn run_script(name: &str) {
    run_script_on(&*shared(), name);
}

/// Runs the script `scripts/NAME.txt` against a control plane.
///
/// # Panics
/// Panics at the first step whose answer is not the expected one.
pub fn run_script_on(plane: &dyn ControlPlane, name: &str) {
    let script = read(&folder().join(format!("{name}.txt")));
    let mut runner = ScriptRunner::new(plane, &script.workspaces);
    for step in &script.steps {
        if let Err(error) = runner.run(step) {
            let recent: Vec<String> = plane.log().lines().rev().take(3).map(str::to_owned).collect();
            panic!(
                "{}: {}\n  {}\n{error}\nlog: {recent:#?}",
                step.location,
                step.title,
                runner.fill(&step.command)
            );
        }
    }
}

/// Names of all scripts, such as `kinds/life`.
pub fn scripts_on_disk() -> Vec<String> {
    let mut found = Vec::new();
    for group in std::fs::read_dir(folder()).unwrap().map(Result::unwrap) {
        let group_name = group.file_name().into_string().unwrap();
        if group_name == "setup" {
            continue;
        }
        for file in std::fs::read_dir(group.path()).unwrap().map(Result::unwrap) {
            let name = file.file_name().into_string().unwrap();
            found.push(format!("{group_name}/{}", name.trim_end_matches(".txt")));
        }
    }
    found.sort();
    found
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

fn read(path: &Path) -> Script {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let name = path.strip_prefix(folder()).unwrap().display().to_string();
    let mut script = Script {
        workspaces: vec!["ws".to_owned()],
        steps: Vec::new(),
    };
    let mut answer = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("=== ") {
            let location = format!("{name}:{}", index + 1);
            script.steps.push(Step {
                location,
                title: title.to_owned(),
                ..Step::default()
            });
            answer = false;
            continue;
        }
        let Some(step) = script.steps.last_mut().filter(|step| step.location.starts_with(&name)) else {
            head(line, &mut script);
            continue;
        };
        if let Some(code) = line.strip_prefix("--> ") {
            let mut words = code.split_whitespace();
            step.code = words
                .next()
                .and_then(|code| code.parse().ok())
                .unwrap_or_else(|| panic!("{}: {line}", step.location));
            step.eventually = words.next() == Some("eventually");
            answer = true;
        } else if let Some((key, value)) = line.strip_prefix("@ ").and_then(|option| option.split_once(": ")) {
            let pair = (key.to_owned(), value.to_owned());
            match key {
                _ if answer => step.wanted_headers.push(pair),
                "in" | "as" | "raw" | "through" => drop(step.options.insert(pair.0, pair.1)),
                _ => step.headers.push(pair),
            }
        } else if answer {
            step.wanted += &format!("{line}\n");
        } else if step.command.is_empty() {
            line.clone_into(&mut step.command);
        } else {
            step.body += &format!("{line}\n");
        }
    }
    script
}

fn head(line: &str, script: &mut Script) {
    if let Some(names) = line.strip_prefix("workspaces: ") {
        script.workspaces = names.split_whitespace().map(str::to_owned).collect();
    } else if let Some(name) = line.strip_prefix("include: ") {
        script
            .steps
            .extend(read(&folder().join(format!("setup/{name}.txt"))).steps);
    }
}

/// Runs the steps of one script: the control plane, the workspaces, and values captured from
/// answers.
struct ScriptRunner<'a> {
    plane: &'a dyn ControlPlane,
    admin: Client,
    clients: BTreeMap<String, Client>,
    kubectl: Option<Kubectl>,
    default: String,
    variables: Captures,
}

impl<'a> ScriptRunner<'a> {
    fn new(plane: &'a dyn ControlPlane, workspaces: &[String]) -> Self {
        let (admin, master) = (plane.client(Who::KcpAdmin), plane.client(Who::ShardAdmin));
        let mut variables = Captures::new();
        for name in workspaces {
            // `tenant@alice` is administered by alice.
            let (name, owner) = name.split_once('@').unwrap_or((name, ""));
            let owner = match owner {
                "" => json!({}),
                user => json!({"experimental.tenancy.kcp.io/owner": json!({"username": user}).to_string()}),
            };
            // Only masters create workspaces for others.
            let (path, cluster) = ready_workspace(&master, "root", &unique(name), owner);
            variables.insert(format!("name.{name}"), path.trim_start_matches("root:").to_owned());
            variables.insert(name.to_owned(), path);
            variables.insert(format!("cluster.{name}"), cluster);
        }
        let default = workspaces[0].split('@').next().unwrap_or_default().to_owned();
        variables.insert("url".to_owned(), plane.url().to_owned());
        Self {
            plane,
            admin,
            clients: BTreeMap::new(),
            kubectl: plane.kubectl(),
            default,
            variables,
        }
    }

    fn fill(&self, text: &str) -> String {
        let replace = |text: String, (name, value): (&String, &String)| text.replace(&format!("${{{name}}}"), value);
        self.variables.iter().fold(text.to_owned(), replace)
    }

    fn run(&mut self, step: &Step) -> Result<(), String> {
        let mut attempts = Attempts::begin();
        loop {
            let result = if step.command.starts_with("kubectl ") {
                self.command(step)
            } else {
                self.request(step)
            };
            if result.is_ok() || !step.eventually || attempts.are_over() {
                return result;
            }
            attempts.pause();
        }
    }

    fn location(&self, step: &Step) -> String {
        let name = step.options.get("in").unwrap_or(&self.default);
        // A path captured from an earlier answer, or a literal one.
        self.variables.get(name).cloned().unwrap_or_else(|| self.fill(name))
    }

    fn client(&mut self, step: &Step) -> Client {
        let who = match step.options.get("as").map(String::as_str) {
            None => return self.in_workspace(self.admin.clone(), step),
            Some("anonymous") => Who::Anonymous,
            Some("shard-admin") => Who::ShardAdmin,
            Some(token) => Who::Token(self.fill(token)),
        };
        let client = self
            .clients
            .entry(format!("{who:?}"))
            .or_insert_with(|| self.plane.client(who))
            .clone();
        self.in_workspace(client, step)
    }

    /// Returns the path of the virtual workspace that a step uses.
    fn view(&self, step: &Step) -> Option<String> {
        let cluster = match step.options.get("through")?.as_str() {
            "*" => "*".to_owned(),
            name => self.fill(&format!("${{cluster.{name}}}")),
        };
        let export = "/services/apiexport/${cluster.provider}/widgets/clusters/";
        Some(self.fill(export) + &cluster)
    }

    fn in_workspace(&self, client: Client, step: &Step) -> Client {
        if self.view(step).is_some() {
            return client;
        }
        match step.options.get("in").map(String::as_str) {
            Some("none") => client,
            _ => client.in_workspace(&self.location(step)),
        }
    }

    fn request(&mut self, step: &Step) -> Result<(), String> {
        let command = self.fill(&step.command);
        let (method, path) = command.split_once(' ').ok_or("a request is METHOD PATH")?;
        let path = &(self.view(step).unwrap_or_default() + path);
        let client = self.client(step);
        if method == "WATCH" {
            let separator = if path.contains('?') { '&' } else { '?' };
            return self.watch(&client, &format!("{path}{separator}watch=true"), step);
        }
        let body = self.body(step)?;
        let (method, content_type) = match method {
            "MERGE" => ("PATCH", "application/merge-patch+json"),
            "JSON" => ("PATCH", "application/json-patch+json"),
            "TEXT" => ("GET", "application/json"),
            method => (method, "application/json"),
        };
        let mut headers: Vec<(String, String)> = step
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), self.fill(value)))
            .collect();
        if !body.is_empty()
            && !headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            headers.push(("Content-Type".to_owned(), content_type.to_owned()));
        }
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let answer = client.try_send(method, path, &headers, body)?;
        let shown: String = answer.text.chars().take(3000).collect();
        if i32::from(answer.code) != step.code {
            return Err(format!("want {}, got {}: {shown}", step.code, answer.code));
        }
        for (name, want) in &step.wanted_headers {
            let got = answer
                .headers
                .get(name)
                .map(|got| String::from_utf8_lossy(got.as_bytes()).into());
            let want = self.fill(want).into();
            matches(&want, got.as_ref(), &mut self.variables).map_err(|error| format!("header {name}{error}"))?;
        }
        if step.command.starts_with("TEXT ") {
            return self.fragments(&answer.text, step);
        }
        self.part(step, &answer.body)
            .map_err(|error| format!("{error}\nin {shown}"))
    }

    fn body(&self, step: &Step) -> Result<Bytes, String> {
        let text = self.fill(&step.body);
        if text.trim().is_empty() {
            return Ok(Bytes::new());
        }
        if step.options.contains_key("raw") {
            return Ok(text.trim_end().to_owned().into());
        }
        let value: Value = serde_saphyr::from_str(&text).map_err(|error| format!("the body is no YAML: {error}"))?;
        Ok(value.to_string().into())
    }

    fn part(&mut self, step: &Step, got: &Value) -> Result<(), String> {
        let wanted = self.fill(&step.wanted);
        if wanted.lines().all(|line| line.is_empty() || line.starts_with('#')) {
            return Ok(());
        }
        let wanted: Value =
            serde_saphyr::from_str(&wanted).map_err(|error| format!("what is wanted is no YAML: {error}"))?;
        matches(&wanted, Some(got), &mut self.variables)
    }

    fn watch(&mut self, client: &Client, path: &str, step: &Step) -> Result<(), String> {
        let wanted: Vec<Value> = serde_saphyr::from_str(&self.fill(&step.wanted)).map_err(|error| error.to_string())?;
        let mut events = Vec::new();
        let headers: Vec<(&str, &str)> = step
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        client.watch_with(Duration::from_secs(10), path, &headers, &mut |event| {
            events.push(event);
            (events.len() == wanted.len()).then_some(())
        });
        let got = Value::from(events);
        matches(&wanted.into(), Some(&got), &mut self.variables).map_err(|error| format!("{error}\nin {got}"))
    }

    fn command(&mut self, step: &Step) -> Result<(), String> {
        let Some(kubectl) = &self.kubectl else { return Ok(()) };
        let words = shell_words(&self.fill(&step.command));
        let view = self
            .view(step)
            .map(|view| format!("--server={}{view}", self.plane.url()));
        let arguments: Vec<&str> = words.iter().skip(1).chain(&view).map(String::as_str).collect();
        // kubectl reads input that begins with a brace as JSON.
        let input = self.body(step)?;
        let ran = kubectl.run(&self.location(step), &arguments, &String::from_utf8_lossy(&input));
        if ran.code != step.code {
            return Err(format!("want exit code {}, got {}: {}", step.code, ran.code, ran.text));
        }
        self.fragments(&ran.text, step)
    }

    fn fragments(&self, text: &str, step: &Step) -> Result<(), String> {
        let squeezed = squeeze(text);
        for line in self
            .fill(&step.wanted)
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let (fragment, is_wanted) = match line.strip_prefix("! ") {
                Some(fragment) => (fragment, false),
                None => (line, true),
            };
            if squeezed.contains(&squeeze(fragment)) != is_wanted {
                let verb = if is_wanted { "lacks" } else { "has" };
                return Err(format!("the output {verb} `{fragment}`:\n{text}"));
            }
        }
        Ok(())
    }
}

/// Collapses runs of blanks, because the columns of tables grow with their content.
fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Splits a line like a shell does. Quotes of both kinds group text.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut open) = (String::new(), None, false);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(end), _) if end == letter => quote = None,
            (Some(_), _) => word.push(letter),
            (None, '\'' | '"') => (quote, open) = (Some(letter), true),
            (None, ' ') => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (None, _) => word.push(letter),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_splits_as_in_a_shell() {
        assert_eq!(
            shell_words(r#"kubectl patch  a -p '{"a": "b c"}' "" "it's""#),
            ["kubectl", "patch", "a", "-p", r#"{"a": "b c"}"#, "", "it's"]
        );
    }
}
