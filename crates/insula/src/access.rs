//! `insula access …`: users of a workspace and their roles, without YAML.

pub(crate) mod bind_right;
mod grants;
mod resource;
mod visible;
mod who_can;

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use insula_auth::SubjectKind;
use insula_catalog::digest;
use serde_json::{Value, json};

use crate::{
    admin::DryRun,
    client::{Client, message},
    connection::Connection,
    files::text,
    print::Output,
};

const GROUP: &str = "rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
/// Roles that every workspace has.
const ROLES: [&str; 4] = ["view", "edit", "admin", "cluster-admin"];
/// Bytes of a subject's name up to which it stands in the name of a binding.
const READABLE_BYTES_MAX: usize = 150;
/// Role that lets a user enter a workspace.
const ENTER: &str = "system:kcp:workspace:access";

/// Grants and revokes access to the workspace, by bindings of roles.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Let users enter the workspace, with a role. Another role than before replaces it. With
    /// --bind, let them bind APIs of the workspace in theirs, and not enter it.
    Grant(Grant),
    /// Take all roles of users back, also those that were granted by other means. With --bind, only
    /// the right to bind an API.
    Revoke(Revoke),
    /// List users and groups with their roles.
    List {
        #[command(flatten)]
        output: Output,
    },
    /// List who may do something in the workspace: the server decides for each user that a role is
    /// bound to.
    WhoCan(who_can::Arguments),
    /// List the workspaces that a user or a group can enter, and what they may do there.
    Visible(visible::Arguments),
}

/// Users, groups or service accounts.
#[derive(clap::Args)]
struct Subjects {
    /// Users; a service account is system:serviceaccount:NAMESPACE:NAME.
    #[arg(value_name = "USER", required_unless_present = "groups")]
    users: Vec<String>,
    /// Groups.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
}

#[derive(clap::Args)]
struct Grant {
    #[command(flatten)]
    subjects: Subjects,
    /// A ClusterRole: view, edit, admin, cluster-admin, or one of the workspace.
    #[arg(long, value_name = "ROLE", default_value = "view", conflicts_with = "bind")]
    role: String,
    /// Bind the role in this namespace only.
    #[arg(long, short, value_name = "NAMESPACE", conflicts_with = "bind")]
    namespace: Option<String>,
    /// Grant the right to bind this APIExport of the workspace, and no role in it. May be repeated.
    #[arg(long, value_name = "EXPORT")]
    bind: Vec<String>,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
struct Revoke {
    #[command(flatten)]
    subjects: Subjects,
    /// Take only the right to bind this APIExport back. APIs that are bound stay bound. May be
    /// repeated.
    #[arg(long, value_name = "EXPORT")]
    bind: Vec<String>,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    output: Output,
}

/// A user, a group or a service account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) struct Subject {
    kind: &'static str,
    name: String,
}

impl Subjects {
    fn all(&self) -> Vec<Subject> {
        let subject = |kind, name: &String| Subject {
            kind,
            name: name.clone(),
        };
        let users = self.users.iter().map(|name| subject("User", name));
        users
            .chain(self.groups.iter().map(|name| subject("Group", name)))
            .collect()
    }
}

impl Subject {
    pub(crate) fn group(name: &str) -> Self {
        let name = name.to_owned();
        Self { kind: "Group", name }
    }

    pub(crate) fn user(name: &str) -> Self {
        let name = name.to_owned();
        Self { kind: "User", name }
    }

    /// Returns the subject as the server's crates have it.
    pub(crate) fn of_binding(&self) -> insula_auth::Subject {
        let account = self.name.strip_prefix("system:serviceaccount:");
        let account = account.and_then(|rest| rest.split_once(':'));
        let (kind, namespace, name) = match (self.kind, account) {
            ("Group", _) => (SubjectKind::Group, "", self.name.as_str()),
            (_, Some((namespace, name))) => (SubjectKind::ServiceAccount, namespace, name),
            (_, None) => (SubjectKind::User, "", self.name.as_str()),
        };
        insula_auth::Subject {
            kind,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    /// Reads a subject of a binding. A service account gets the name of its user.
    fn read(value: &Value) -> Option<Self> {
        let name = text(value, "/name");
        let (kind, name) = match text(value, "/kind") {
            "User" => ("User", name.to_owned()),
            "Group" => ("Group", name.to_owned()),
            "ServiceAccount" => {
                let namespace = text(value, "/namespace");
                ("User", format!("system:serviceaccount:{namespace}:{name}"))
            }
            _ => return None,
        };
        Some(Self { kind, name })
    }

    fn manifest(&self) -> Value {
        let account = self
            .name
            .strip_prefix("system:serviceaccount:")
            .and_then(|rest| rest.split_once(':'));
        match account.filter(|_| self.kind == "User") {
            Some((namespace, name)) => json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}),
            None => json!({"kind": self.kind, "apiGroup": GROUP, "name": self.name}),
        }
    }

    /// Returns the name of the binding of a role, as AccessService has it. A name that cannot stand
    /// in a path, or is long, is replaced by its digest.
    fn binding_name(&self, level: &str) -> String {
        let account = self.name.strip_prefix("system:serviceaccount:");
        let (kind, full) = match (self.kind, account) {
            ("Group", _) => ("group", self.name.as_str()),
            (_, Some(account)) => ("serviceaccount", account),
            (_, None) => ("user", self.name.as_str()),
        };
        let is_plain =
            full.len() <= READABLE_BYTES_MAX && full.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '/' | '%'));
        let digest = digest::base62(full);
        let last = if is_plain { full } else { &digest };
        format!("insula:access:{level}:{kind}:{last}")
    }
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Command::Visible(question) = &arguments.command {
        return visible::run(&arguments.connection, question);
    }
    let resolved = arguments.connection.resolve()?;
    let workspace = resolved.url.current()?.to_owned();
    let client = Client::new(&resolved)?;
    crate::runtime()?.block_on(async {
        match &arguments.command {
            Command::Grant(grant) => {
                let client = grant.dry_run.client(&client);
                let granted = match grant.bind.is_empty() {
                    true => grant_all(&client, &workspace, grant).await?,
                    false => bind_right::grant_all(&client, &workspace, grant).await?,
                };
                grant.output.stored(&granted)?;
            }
            Command::Revoke(revoke) => {
                let client = revoke.dry_run.client(&client);
                let revoked = match revoke.bind.is_empty() {
                    true => revoke_all(&client, &workspace, revoke).await?,
                    false => bind_right::revoke_all(&client, &workspace, revoke).await?,
                };
                revoke.output.stored(&revoked)?;
            }
            Command::List { output } => grants::list(&client, *output).await?,
            Command::WhoCan(question) => return who_can::run(&client, question).await,
            Command::Visible(question) => return visible::run(&arguments.connection, question),
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Grants a role, and returns the bindings as they are stored.
async fn grant_all(client: &Client, workspace: &str, grant: &Grant) -> anyhow::Result<Vec<Value>> {
    let role = &grant.role;
    check_role(client, workspace, role).await?;
    let mut granted = Vec::new();
    for subject in grant.subjects.all() {
        granted.push(grants::grant(client, &subject, ENTER, None).await?);
        granted.push(grants::grant(client, &subject, role, grant.namespace.as_deref()).await?);
        let scope = grant.namespace.as_ref().map(|name| format!(" in namespace {name}"));
        let Subject { kind, name } = &subject;
        let kind = kind.to_lowercase();
        grant.output.note(&format!(
            "{kind} {name} may enter {workspace}, with the role {role}{}{}",
            scope.unwrap_or_default(),
            grant.dry_run.remark()
        ))?;
    }
    Ok(granted)
}

/// Takes all roles back, and returns the bindings that had the subjects, as they were.
async fn revoke_all(client: &Client, workspace: &str, revoke: &Revoke) -> anyhow::Result<Vec<Value>> {
    let mut revoked = Vec::new();
    for subject in revoke.subjects.all() {
        let bindings = grants::revoke(client, &subject).await?;
        let Subject { kind, name } = subject;
        let kind = kind.to_lowercase();
        revoke.output.note(&match bindings.is_empty() {
            true => format!("{kind} {name} has no role in {workspace}"),
            false => {
                let remark = revoke.dry_run.remark();
                format!("{kind} {name} may not enter {workspace} any more{remark}")
            }
        })?;
        revoked.extend(bindings);
    }
    Ok(revoked)
}

/// Refuses a role that the workspace does not have: RBAC would take the binding, and it would mean
/// nothing.
async fn check_role(client: &Client, workspace: &str, role: &str) -> anyhow::Result<()> {
    if ROLES.contains(&role) {
        return Ok(());
    }
    let (code, answer) = client.get(&format!("{CLUSTER_ROLES}/{role}")).await?;
    match code.as_u16() {
        200 => Ok(()),
        404 => bail!(
            "{workspace} has no ClusterRole {role:?}: take {}, or create it",
            ROLES.join(", ")
        ),
        _ => bail!("{}", message(&answer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_have_the_names_of_the_access_service() {
        let name = |kind, name: &str| {
            Subject {
                kind,
                name: name.to_owned(),
            }
            .binding_name("edit")
        };
        assert_eq!(
            name("User", "bob@example.com"),
            "insula:access:edit:user:bob@example.com"
        );
        assert_eq!(name("Group", "team"), "insula:access:edit:group:team");
        assert_eq!(
            name("User", "system:serviceaccount:default:robot"),
            "insula:access:edit:serviceaccount:default:robot"
        );
        let hard = name("User", "https://issuer.example.com/#1");
        let digest = hard.strip_prefix("insula:access:edit:user:").unwrap();
        assert!(digest.chars().all(|c| c.is_ascii_alphanumeric()), "{hard}");
        let account = Subject {
            kind: "User",
            name: "system:serviceaccount:default:robot".to_owned(),
        };
        let manifest = account.manifest();
        assert_eq!(manifest["kind"], "ServiceAccount");
        assert_eq!(Subject::read(&manifest), Some(account));
    }
}
