//! Explanation of a request as text: its user, its subject and its outcome.

use serde_json::Value;

use super::advice::{self, Advice};
use crate::files::text;

/// Domain of the annotations with the decisions of authorization steps.
const STEPS: &str = "request.auth.kcp.io/";

/// The request of an event.
pub(super) struct Request<'a>(pub(super) &'a Value);

impl Request<'_> {
    pub(super) fn text(&self, pointer: &str) -> &str {
        text(self.0, pointer)
    }

    pub(super) fn note(&self, key: &str) -> &str {
        self.0["annotations"][key].as_str().unwrap_or_default()
    }

    pub(super) fn code(&self) -> u64 {
        self.0["responseStatus"]["code"].as_u64().unwrap_or_default()
    }

    /// Returns the user for whom access was decided, after impersonation.
    pub(super) fn user(&self) -> &str {
        match self.text("/impersonatedUser/username") {
            "" => self.text("/user/username"),
            name => name,
        }
    }

    /// Returns the workspace as the client wrote it, or else its logical cluster.
    pub(super) fn workspace(&self) -> &str {
        match self.note("kcp.io/path") {
            "" => self.note("kcp.io/cluster"),
            path => path,
        }
    }

    /// Returns true if authorization refused the request.
    pub(super) fn is_forbidden(&self) -> bool {
        self.note("authorization.k8s.io/decision") == "forbid"
    }

    /// Returns the step that refused the request; nothing if no step allowed it.
    pub(super) fn refusing_step(&self) -> Option<&str> {
        self.steps()
            .find_map(|(step, reported)| (reported == "Denied").then_some(step))
    }

    fn steps(&self) -> impl Iterator<Item = (&str, &str)> {
        let notes = self.0["annotations"].as_object().into_iter().flatten();
        notes.filter_map(|(key, value)| {
            let step = key.strip_prefix(STEPS)?.strip_suffix("-decision")?;
            Some((step, value.as_str().unwrap_or_default()))
        })
    }

    /// Returns the subject of the request: `get configmaps "a" in the namespace "n"`.
    pub(super) fn subject(&self) -> String {
        let at = |field: &str| self.text(&format!("/objectRef/{field}"));
        if self.0["objectRef"].is_null() {
            return format!("{} {}", self.text("/verb"), self.text("/requestURI"));
        }
        let mut subject = format!("{} {}", self.text("/verb"), at("resource"));
        if !at("apiGroup").is_empty() {
            subject += &format!(".{}", at("apiGroup"));
        }
        if !at("subresource").is_empty() {
            subject += &format!("/{}", at("subresource"));
        }
        if !at("name").is_empty() {
            subject += &format!(" {:?}", at("name"));
        }
        if !at("namespace").is_empty() {
            subject += &format!(" in the namespace {:?}", at("namespace"));
        }
        subject
    }
}

/// Returns the whole explanation.
pub(super) fn explanation(event: &Value, server: &str) -> String {
    let event = &harmless(event);
    let request = Request(event);
    let mut out = vec![requester(&request), outcome(&request)];
    let steps: Vec<String> = request
        .steps()
        .map(|(step, reported)| {
            let reason = request.note(&format!("{STEPS}{step}-reason"));
            let reported = match reported {
                "NoOpinion" => "no opinion".to_owned(),
                reported => reported.to_lowercase(),
            };
            let colon = if reason.is_empty() { "" } else { ": " };
            format!("  {step:<22} {reported}{colon}{reason}")
        })
        .collect();
    if !steps.is_empty() {
        out.push(format!(
            "\nDecisions of the authorization steps, in order:\n{}",
            steps.join("\n")
        ));
    }
    let causes = event["responseStatus"]["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten();
    for cause in causes {
        out.push(format!("  {} {}", text(cause, "/field"), text(cause, "/message")));
    }
    let notes = event["annotations"].as_object().into_iter().flatten();
    let reported: Vec<String> = notes
        .filter(|(key, _)| !is_ours(key))
        .map(|(key, value)| format!("  {key}: {}", value.as_str().unwrap_or_default()))
        .collect();
    if !reported.is_empty() {
        out.push(format!("\nNotes of policies and webhooks:\n{}", reported.join("\n")));
    }
    if let Some(Advice { message, manifest }) = advice::advice(&request) {
        out.push(format!("\n{message}"));
        if let Some(manifest) = manifest {
            let place = request.workspace();
            out.push(format!(
                "\nkubectl --server {server}/clusters/{place} apply -f - <<'EOF'\n{manifest}EOF"
            ));
        }
    }
    out.join("\n") + "\n"
}

/// Escapes control characters, which a terminal or a shell would obey: many texts of an event come
/// from clients.
fn harmless(event: &Value) -> Value {
    let clean = |text: &str| -> String {
        let escape = |c: char| match c.is_control() {
            true => c.escape_default().collect(),
            false => String::from(c),
        };
        text.chars().map(escape).collect()
    };
    match event {
        Value::String(text) => Value::from(clean(text)),
        Value::Array(items) => items.iter().map(harmless).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, value)| (clean(key), harmless(value)))
                .collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => event.clone(),
    }
}

fn is_ours(key: &str) -> bool {
    key.starts_with(STEPS)
        || key.starts_with("authorization.k8s.io/")
        || key.starts_with("audit.k8s.io/")
        || key.contains("kcp.io/")
        || key == "insula.io/reason"
}

fn requester(request: &Request<'_>) -> String {
    let who = match (
        request.text("/user/username"),
        request.text("/impersonatedUser/username"),
    ) {
        ("", _) => "Somebody".to_owned(),
        (user, "") => user.to_owned(),
        (user, other) => format!("{user}, acting as {other},"),
    };
    let from = request.0["sourceIPs"].as_array().into_iter().flatten();
    let from: Vec<&str> = from.filter_map(Value::as_str).collect();
    let place = match (request.note("kcp.io/path"), request.note("kcp.io/cluster")) {
        ("", "") => String::new(),
        ("", cluster) => format!(" in the logical cluster {cluster}"),
        (path, cluster) => format!(" in the workspace {path} (logical cluster {cluster})"),
    };
    format!(
        "{}: {who} asked from {} to {}{place}.",
        request.text("/requestReceivedTimestamp"),
        from.join(" by way of "),
        request.subject()
    )
}

fn outcome(request: &Request<'_>) -> String {
    let message = match request.text("/responseStatus/message") {
        "" => String::new(),
        message => format!("\nMessage of the response: {message}"),
    };
    let why = match (
        request.note("insula.io/reason"),
        request.note("authorization.k8s.io/reason"),
    ) {
        ("", "") => String::new(),
        ("", reason) | (reason, _) => format!(": {reason}"),
    };
    let outcome = match request.code() {
        0 => "It has no response".to_owned(),
        code @ ..400 => format!("It was answered with {code}, allowed"),
        code => match (request.is_forbidden(), request.refusing_step()) {
            (true, Some(step)) => format!("It was refused with {code} by the step {step}"),
            (true, None) => format!("It was refused with {code}, since no step allowed it"),
            (false, _) => format!("It was refused with {code} {}", request.text("/responseStatus/reason"))
                .trim_end()
                .to_owned(),
        },
    };
    format!("{outcome}{why}.{message}")
}
