//! `insula claims …`: permission claims, with which the provider of an API asks for other objects
//! of a workspace.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::bail;
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    admin::{DryRun, Etag},
    client::{Client, message},
    connection::Connection,
    files::text,
    print::{self, Format, Output},
};

/// Collection of the APIBindings of a workspace.
pub(crate) const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
/// Writes of a binding that others change meanwhile.
const WRITES_MAX: usize = 5;

/// Reads and answers permission claims of the workspace's APIBindings.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List claims and their answers.
    #[command(subcommand)]
    Get(Get),
    /// Accept claims of an APIBinding.
    Accept(Selection),
    /// Reject claims of an APIBinding.
    Reject(Selection),
}

#[derive(Subcommand)]
enum Get {
    /// List the claims of one APIBinding, or of all.
    #[command(alias = "apibindings")]
    Apibinding {
        /// The binding [default: all of the workspace].
        #[arg(value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(clap::Args)]
struct Selection {
    /// The APIBinding.
    #[arg(value_name = "APIBINDING")]
    binding: String,
    /// The claim, as resource or resource.group; * is every claim that the export makes.
    #[arg(long, value_name = "RESOURCE", required_unless_present = "identity_hash")]
    resource: Option<String>,
    /// The claim on an API with this identity.
    #[arg(long, value_name = "HASH")]
    identity_hash: Option<String>,
    #[command(flatten)]
    etag: Etag,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    output: Output,
}

/// Answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Accepted,
    Rejected,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Rejected => "Rejected",
        }
    }
}

/// Selection of claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    Resource(String),
    Identity(String),
}

impl Which {
    pub(crate) fn resource(text: &str) -> Self {
        match text {
            "*" => Self::All,
            text => Self::Resource(text.to_owned()),
        }
    }

    fn selects(&self, claim: &Value) -> bool {
        match self {
            Self::All => true,
            Self::Identity(hash) => text(claim, "/identityHash") == hash,
            Self::Resource(wanted) => {
                let (resource, group) = wanted.split_once('.').unwrap_or((wanted, ""));
                let group = if group == "core" { "" } else { group };
                text(claim, "/resource") == resource && text(claim, "/group") == group
            }
        }
    }
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments).map(|()| ExitCode::SUCCESS))
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let resolved = arguments.connection.resolve()?;
    resolved.url.current()?;
    let client = Client::new(&resolved)?;
    crate::runtime()?.block_on(async {
        match &arguments.command {
            Command::Get(Get::Apibinding { name, output }) => list(&client, name.as_deref(), output.format).await,
            Command::Accept(selection) => decide(&client, selection, State::Accepted).await,
            Command::Reject(selection) => decide(&client, selection, State::Rejected).await,
        }
    })
}

/// A claim of a binding, with its answer.
#[derive(Serialize)]
struct Row<'a> {
    binding: &'a str,
    resource: String,
    verbs: Vec<&'a str>,
    state: &'a str,
}

async fn list(client: &Client, name: Option<&str>, output: Format) -> anyhow::Result<()> {
    let path = name.map_or(BINDINGS.to_owned(), |name| format!("{BINDINGS}/{name}"));
    let (code, answer) = client.get(&path).await?;
    if !code.is_success() {
        let what = if name.is_some() {
            "error finding APIBinding"
        } else {
            "error listing APIBindings"
        };
        bail!("{what}: {}", message(&answer));
    }
    let one = [answer];
    let bindings: &[Value] = match one[0]["items"].as_array() {
        Some(items) => items,
        None => &one,
    };
    let rows: Vec<Row<'_>> = bindings.iter().flat_map(rows).collect();
    match output {
        Format::Table | Format::Wide => print::raw(&table(&rows)?),
        Format::Json => print::line(&serde_json::to_string_pretty(&rows)?),
        Format::Yaml => print::raw(&print::yaml(&rows)?),
        Format::Name => rows.iter().try_for_each(|row| print::line(&row.resource)),
    }
}

/// Returns the answered claims of a binding, and those that wait for an answer.
fn rows(binding: &Value) -> Vec<Row<'_>> {
    let name = text(binding, "/metadata/name");
    let answered = binding["spec"]["permissionClaims"].as_array().into_iter().flatten();
    let asked = binding["status"]["exportPermissionClaims"]
        .as_array()
        .into_iter()
        .flatten();
    let is_open = |claim: &&Value| !answered.clone().any(|answer| is_same(answer, claim));
    let mut rows: Vec<Row<'_>> = answered
        .clone()
        .map(|claim| Row {
            binding: name,
            resource: group_resource(claim),
            verbs: verbs(claim).into_iter().collect(),
            state: text(claim, "/state"),
        })
        .collect();
    rows.extend(asked.filter(is_open).map(|claim| Row {
        binding: name,
        resource: group_resource(claim),
        verbs: verbs(claim).into_iter().collect(),
        state: "Pending",
    }));
    rows
}

/// Draws the table of kcp's plugin.
fn table(rows: &[Row<'_>]) -> anyhow::Result<String> {
    let header = ["APIBINDING", "GROUP-RESOURCE", "VERBS", "STATUS"].map(str::to_owned);
    let cells = |row: &Row<'_>| {
        vec![
            row.binding.to_owned(),
            row.resource.clone(),
            row.verbs.join(","),
            row.state.to_owned(),
        ]
    };
    let lines = std::iter::once(header.to_vec()).chain(rows.iter().map(cells));
    Ok(print::columns(lines)?)
}

async fn decide(client: &Client, selection: &Selection, state: State) -> anyhow::Result<()> {
    let which = match (&selection.identity_hash, &selection.resource) {
        (Some(hash), _) => Which::Identity(hash.clone()),
        (None, Some(resource)) => Which::resource(resource),
        (None, None) => bail!("--resource or --identity-hash names the claim"),
    };
    let name = &selection.binding;
    let client = selection.dry_run.client(client);
    let answered = match answer(&client, name, &[(which, state)], &selection.etag).await {
        Ok(answered) => answered,
        Err(error) => bail!("error updating permission claim for APIBinding {name:?}: {error:#}"),
    };
    let claim = match (&selection.resource, &selection.identity_hash) {
        (Some(resource), _) => format!("claim {resource:?} "),
        (None, Some(hash)) => format!("claim with identity hash {hash:?} "),
        (None, None) => String::new(),
    };
    let verb = state.text().to_lowercase();
    let output = selection.output;
    output.note(&format!(
        "{claim}on APIBinding {name:?} is {verb}{}",
        selection.dry_run.remark()
    ))?;
    output.stored(&answered)
}

/// Answers claims of a binding. A claim that the binding does not have yet is added with the verbs
/// and the identity that the export asks for, for all objects.
///
/// # Errors
/// There is no such binding, its state is another than that of the etag, or the export makes no
/// such claim.
pub(crate) async fn answer(
    client: &Client,
    name: &str,
    answers: &[(Which, State)],
    etag: &Etag,
) -> anyhow::Result<Value> {
    let one = format!("{BINDINGS}/{name}");
    for _ in 0..WRITES_MAX {
        let (code, mut binding) = client.get(&one).await?;
        if !code.is_success() {
            bail!("{}", message(&binding));
        }
        etag.check("the binding", Some(&binding))?;
        for (which, state) in answers {
            set(&mut binding, which, *state)?;
        }
        let (code, answer) = client.put(&one, &binding).await?;
        match code.as_u16() {
            200 => return Ok(answer),
            409 => {}
            _ => bail!("{}", message(&answer)),
        }
    }
    bail!("others change it all the time");
}

/// Refuses answers to claims that are not among those of an export.
pub(crate) fn check(claims: &Value, answers: &[(Which, State)]) -> anyhow::Result<()> {
    let mut unbound = json!({"status": {"exportPermissionClaims": claims}});
    answers
        .iter()
        .try_for_each(|(which, state)| set(&mut unbound, which, *state))
}

fn set(binding: &mut Value, which: &Which, state: State) -> anyhow::Result<()> {
    let asked = binding["status"]["exportPermissionClaims"].as_array().cloned();
    let asked = asked.unwrap_or_default();
    let mut claims = binding["spec"]["permissionClaims"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut found = false;
    for claim in claims.iter_mut().filter(|claim| which.selects(claim)) {
        claim["state"] = json!(state.text());
        found = true;
    }
    for wanted in asked.iter().filter(|claim| which.selects(claim)) {
        found = true;
        if claims.iter().any(|claim| is_same(claim, wanted)) {
            continue;
        }
        let mut claim = wanted.clone();
        claim["state"] = json!(state.text());
        claim["selector"] = json!({"matchAll": true});
        claims.push(claim);
    }
    if !found && *which != Which::All {
        let names: Vec<String> = asked.iter().map(group_resource).collect();
        match names.as_slice() {
            [] => bail!("the export makes no permission claims"),
            names => bail!("the export makes no such claim; it makes {}", names.join(", ")),
        }
    }
    binding["spec"]["permissionClaims"] = json!(claims);
    Ok(())
}

fn is_same(a: &Value, b: &Value) -> bool {
    ["/group", "/resource", "/identityHash"]
        .iter()
        .all(|field| text(a, field) == text(b, field))
}

/// Returns `configmaps`, or `widgets.example.io`.
fn group_resource(claim: &Value) -> String {
    match text(claim, "/group") {
        "" => text(claim, "/resource").to_owned(),
        group => format!("{}.{group}", text(claim, "/resource")),
    }
}

fn verbs(claim: &Value) -> Vec<&str> {
    let verbs = claim["verbs"].as_array().into_iter().flatten();
    verbs.filter_map(Value::as_str).collect()
}

/// Returns warnings, in the words of kcp's plugin, of claims that a binding does not answer as the
/// export asks.
pub(crate) fn unanswered(binding: &Value) -> Vec<String> {
    let name = text(binding, "/metadata/name");
    let answers = binding["spec"]["permissionClaims"].as_array().into_iter().flatten();
    let mut warnings = Vec::new();
    for asked in binding["status"]["exportPermissionClaims"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let claim = match text(asked, "/identityHash") {
            hash if hash.is_empty() || text(asked, "/group").is_empty() => group_resource(asked),
            hash => format!("{}:{hash}", group_resource(asked)),
        };
        let Some(answer) = answers.clone().find(|answer| is_same(answer, asked)) else {
            warnings.push(format!(
                "Warning: claim for {claim} exported but not specified on APIBinding {name}\nAdd this claim to the \
                 APIBinding's Spec."
            ));
            continue;
        };
        if !["Accepted", "Rejected"].contains(&text(answer, "/state")) {
            warnings.push(format!(
                "Warning: claim for {claim} specified on APIBinding {name} but not accepted or rejected."
            ));
        }
        let (allowed, expected): (BTreeSet<&str>, BTreeSet<&str>) =
            (verbs(answer).into_iter().collect(), verbs(asked).into_iter().collect());
        if allowed != expected {
            let list = |verbs: &BTreeSet<&str>| verbs.iter().copied().collect::<Vec<_>>().join(",");
            warnings.push(format!(
                "Warning: allowed verbs ({}) on claim for {claim} on APIBinding {name} do not match expected verbs \
                 ({}).",
                list(&allowed),
                list(&expected)
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding() -> Value {
        json!({"metadata": {"name": "w"}, "spec": {"permissionClaims": [
            {"resource": "secrets", "verbs": ["get"], "state": "Accepted", "selector": {"matchAll": true}}]},
            "status": {"exportPermissionClaims": [
                {"resource": "secrets", "verbs": ["get", "list"]},
                {"group": "example.io", "resource": "widgets", "identityHash": "abc", "verbs": ["*"]}]}})
    }

    #[test]
    fn unanswered_claims_are_warned_of() {
        assert_eq!(
            unanswered(&binding()),
            [
                "Warning: allowed verbs (get) on claim for secrets on APIBinding w do not match expected verbs \
                 (get,list).",
                "Warning: claim for widgets.example.io:abc exported but not specified on APIBinding w\nAdd this claim \
                 to the APIBinding's Spec.",
            ]
        );
    }

    #[test]
    fn answers_keep_what_the_export_asks_for() {
        let mut changed = binding();
        set(&mut changed, &Which::resource("widgets.example.io"), State::Accepted).unwrap();
        set(&mut changed, &Which::resource("secrets.core"), State::Rejected).unwrap();
        let claims = &changed["spec"]["permissionClaims"];
        assert_eq!(claims[0]["state"], "Rejected");
        assert_eq!(
            claims[1],
            json!({"group": "example.io", "resource": "widgets", "identityHash": "abc", "verbs": ["*"],
                "state": "Accepted", "selector": {"matchAll": true}})
        );
        let error = set(&mut changed, &Which::resource("pods"), State::Accepted).unwrap_err();
        assert!(
            error.to_string().ends_with("it makes secrets, widgets.example.io"),
            "{error}"
        );
        let mut all = binding();
        set(&mut all, &Which::resource("*"), State::Rejected).unwrap();
        assert_eq!(rows(&all).iter().filter(|row| row.state == "Rejected").count(), 2);
    }

    #[test]
    fn the_table_is_that_of_kcp() {
        let binding = binding();
        assert_eq!(
            table(&rows(&binding)).unwrap(),
            "APIBINDING   GROUP-RESOURCE       VERBS   STATUS\n\
             w            secrets              get     Accepted\n\
             w            widgets.example.io   *       Pending\n"
        );
    }
}
