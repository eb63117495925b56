//! `insula access visible`: the workspaces that a subject can enter, with what they may do there.

use std::process::ExitCode;

use anyhow::bail;
use insula_auth::SubjectKind;
use insula_proto::admin::v1::{
    ListVisibleRequest, ListVisibleResponse, Subject as ProtoSubject, SubjectKind as ProtoKind,
};

use super::Subject;
use crate::{
    admin::{Admin, Answer, PAGE_ITEMS, Service, of_list, pages},
    connection::Connection,
    print::{Output, Table},
};

/// Lists the workspaces that a user or a group can enter, from the current workspace downwards, and
/// the resources that they may use there. The caller needs the rights of an administrator.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A user; a service account is system:serviceaccount:NAMESPACE:NAME.
    #[arg(value_name = "USER", required_unless_present = "groups")]
    of_user: Option<String>,
    /// Groups that the user's credential names; without a user, the group to ask for.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Levels below the workspace to look at; 0 means all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    depth: u32,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    /// Returns the subject, and further groups of a user.
    fn subject(&self) -> anyhow::Result<(Subject, Vec<String>)> {
        match (&self.of_user, self.groups.as_slice()) {
            (Some(user), groups) => Ok((Subject::user(user), groups.to_vec())),
            (None, [group]) => Ok((Subject::group(group), Vec::new())),
            (None, _) => bail!("several groups: name a user who is in them, or one group"),
        }
    }
}

pub(super) fn run(connection: &Connection, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (subject, groups) = arguments.subject()?;
    let subject = subject.of_binding();
    let kind = match subject.kind {
        SubjectKind::User => ProtoKind::User,
        SubjectKind::Group => ProtoKind::Group,
        SubjectKind::ServiceAccount => ProtoKind::ServiceAccount,
    };
    let subject = ProtoSubject {
        kind: kind.into(),
        name: subject.name,
        namespace: subject.namespace,
    };
    let admin = Admin::in_workspace(connection)?;
    let workspaces = pages(|page_token| {
        let request = ListVisibleRequest {
            workspace: admin.workspace(),
            subject: Some(subject.clone()),
            groups: groups.clone(),
            max_depth: arguments.depth,
            page_size: PAGE_ITEMS,
            page_token,
        };
        let page: ListVisibleResponse = admin.call((Service::Access, "ListVisible"), &request)?;
        Ok((page.workspaces, page.next_page_token))
    })?;
    let mut table = Table::new(&["WORKSPACE", "RESOURCE", "VERBS", "CLUSTER"]);
    for workspace in &workspaces {
        // The workspace stands in its first row only.
        let mut names = [workspace.path.as_str(), workspace.cluster.as_str()];
        for resource in &workspace.resources {
            let name = match resource.group.as_str() {
                "" => resource.resource.clone(),
                group => format!("{}.{group}", resource.resource),
            };
            let [path, cluster] = std::mem::take(&mut names);
            table.row(vec![
                path.into(),
                name.into(),
                resource.verbs.join(",").into(),
                cluster.into(),
            ]);
        }
        if workspace.resources.is_empty() {
            let [path, cluster] = names;
            table.row(vec![path.into(), "".into(), "".into(), cluster.into()]);
        }
    }
    Answer::new(of_list(&workspaces))
        .table(table)
        .print(arguments.output, 3)
}
