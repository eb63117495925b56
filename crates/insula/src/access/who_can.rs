//! `insula access who-can`: the server's decision for every subject of the workspace.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::bail;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Subject, grants,
    resource::{self, Resource},
};
use crate::{
    client::{Client, message},
    files::text,
    print::{self, Format},
};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

#[derive(clap::Args)]
#[command(after_help = "\
Users who have their rights through a group are not listed; the group is. Exit code 1 says that \
nobody may.")]
pub(super) struct Arguments {
    /// The verb, such as get or create.
    verb: String,
    /// The resource, by any of its names: configmaps, cm, widgets.example.io, widgets/status.
    resource: String,
    /// One object.
    name: Option<String>,
    /// In this namespace [default: in all].
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    subject: Subject,
    reason: String,
}

pub(super) async fn run(client: &Client, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { verb, namespace, .. } = arguments;
    let resource = resource::find(client, verb, &arguments.resource, namespace.as_deref()).await?;
    let mut subjects: BTreeSet<Subject> = BTreeSet::new();
    subjects.extend(grants::all_roles(client).await?.into_iter().map(|held| held.subject));
    subjects.extend(owner(client).await?);
    let mut answers = Vec::new();
    for subject in subjects {
        let (code, review) = client.post(REVIEWS, &review(arguments, &resource, &subject)).await?;
        if !code.is_success() {
            bail!("{}", message(&review));
        }
        if review["status"]["allowed"] == true {
            let reason = text(&review, "/status/reason").to_owned();
            answers.push(Answer { subject, reason });
        }
    }
    match arguments.output {
        Format::Json => print::line(&serde_json::to_string_pretty(&answers)?)?,
        Format::Yaml => print::raw(&print::yaml(&answers)?)?,
        Format::Name => answers
            .iter()
            .try_for_each(|answer| print::line(&answer.subject.name))?,
        Format::Table | Format::Wide if answers.is_empty() => print::line("nobody")?,
        Format::Table | Format::Wide => {
            for Answer { subject, .. } in &answers {
                print::line(&format!("{} {}", subject.kind.to_lowercase(), subject.name))?;
            }
        }
    }
    Ok(ExitCode::from(u8::from(answers.is_empty())))
}

/// Returns the owner of the workspace, if the user may read the LogicalCluster.
async fn owner(client: &Client) -> anyhow::Result<Option<Subject>> {
    let (_, own) = client.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").await?;
    let annotation = &own["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"];
    let owner: Value = serde_json::from_str(annotation.as_str().unwrap_or("null")).unwrap_or_default();
    Ok(match text(&owner, "/username") {
        "" => None,
        name => Some(Subject {
            kind: "User",
            name: name.to_owned(),
        }),
    })
}

fn review(arguments: &Arguments, resource: &Resource, subject: &Subject) -> Value {
    let attributes = json!({
        "verb": arguments.verb,
        "group": resource.group, "resource": resource.name, "subresource": resource.subresource,
        "name": arguments.name, "namespace": arguments.namespace,
    });
    let (user, groups) = match subject.kind {
        "Group" => ("", vec![subject.name.as_str(), "system:authenticated"]),
        _ => (subject.name.as_str(), account_groups(&subject.name)),
    };
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
    })
}

/// Returns the groups that every user, or every service account, is in.
fn account_groups(user: &str) -> Vec<&'static str> {
    match user.starts_with("system:serviceaccount:") {
        true => vec!["system:authenticated", "system:serviceaccounts"],
        false => vec!["system:authenticated"],
    }
}
