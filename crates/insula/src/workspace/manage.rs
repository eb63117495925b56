//! `insula workspace freeze`, `thaw`, `undelete`, `limits` and `usage`.

use std::process::ExitCode;

use crate::{
    admin::{Admin, Answer, Etag, PAGE_ITEMS, Service, Write, object, of_list, pages, time},
    connection::Connection,
    print::{Output, Table},
};
use anyhow::bail;
use insula_proto::{
    FieldMask,
    admin::v1::{
        Freeze as Frozen, FreezeWorkspaceRequest, FreezeWorkspaceResponse, GetLimitsRequest, GetLimitsResponse,
        GetUsageRequest, GetUsageResponse, Limits as Values, ListUsageRequest, ListUsageResponse, MeteredUsage,
        ResourceUsage, SetLimitsRequest, SetLimitsResponse, ThawWorkspaceRequest, ThawWorkspaceResponse,
        UndeleteWorkspaceRequest, UndeleteWorkspaceResponse,
    },
};

/// Stops all writes to a workspace; everybody can still read it, and delete it. Needs the verb
/// freeze on the Workspace in its parent.
#[derive(clap::Args)]
pub(super) struct Freeze {
    /// The workspace [default: the current one].
    #[arg(value_name = "WORKSPACE")]
    path: Option<String>,
    /// The reason, which refusals of writes repeat.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Freeze the workspaces below it, too.
    #[arg(long)]
    subtree: bool,
    #[command(flatten)]
    etag: Etag,
    #[command(flatten)]
    write: Write,
    #[command(flatten)]
    output: Output,
}

/// Allows writes to a frozen workspace again, and to those that were frozen with it.
#[derive(clap::Args)]
pub(super) struct Thaw {
    /// The workspace [default: the current one].
    #[arg(value_name = "WORKSPACE")]
    path: Option<String>,
    #[command(flatten)]
    etag: Etag,
    #[command(flatten)]
    write: Write,
    #[command(flatten)]
    output: Output,
}

/// Takes the deletion of a workspace back, within the grace period that the server gives it.
#[derive(clap::Args)]
pub(super) struct Undelete {
    /// The workspace.
    #[arg(value_name = "WORKSPACE")]
    path: String,
    #[command(flatten)]
    etag: Etag,
    #[command(flatten)]
    write: Write,
    #[command(flatten)]
    output: Output,
}

/// Shows the limits of a workspace, or sets them. A limit of 0 is the server's again, and -1
/// objects or storage bytes means no limit.
#[derive(clap::Args)]
pub(super) struct Limits {
    /// The workspace [default: the current one].
    #[arg(value_name = "WORKSPACE")]
    path: Option<String>,
    /// Objects, without events.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    objects: Option<i64>,
    /// Requests in flight.
    #[arg(long, value_name = "N")]
    requests_in_flight: Option<i64>,
    /// Requests in a second.
    #[arg(long, value_name = "N")]
    requests_per_second: Option<i64>,
    /// Open watches.
    #[arg(long, value_name = "N")]
    watches: Option<i64>,
    /// Bytes in flight of requests and answers.
    #[arg(long, value_name = "BYTES")]
    bytes_in_flight: Option<i64>,
    /// Bytes of stored objects in memory, with their keys.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    storage_bytes: Option<i64>,
    #[command(flatten)]
    etag: Etag,
    #[command(flatten)]
    write: Write,
    #[command(flatten)]
    output: Output,
}

/// Shows what a workspace stores, and its requests by the hour; with --children, a line for each
/// workspace below it.
#[derive(clap::Args)]
pub(super) struct Usage {
    /// The workspace [default: the current one].
    #[arg(value_name = "WORKSPACE")]
    path: Option<String>,
    /// Show each workspace directly below it, by its path.
    #[arg(long)]
    children: bool,
    /// Hours to look back for requests, up to 840.
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    hours: i32,
    #[command(flatten)]
    output: Output,
}

fn frozen(freeze: Option<&Frozen>) -> Vec<(&'static str, String)> {
    let Some(freeze) = freeze else {
        return vec![("frozen", "no".to_owned())];
    };
    let subtree = if freeze.subtree {
        " and the workspaces below"
    } else {
        ""
    };
    vec![
        ("frozen", format!("{}{subtree}", freeze.workspace)),
        ("reason", freeze.reason.clone()),
        ("by", freeze.by.clone()),
        ("since", time(freeze.time)),
    ]
}

pub(super) fn freeze(connection: &Connection, arguments: &Freeze) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(connection)?;
    let workspace = admin.workspace_at(arguments.path.as_deref())?;
    let request = FreezeWorkspaceRequest {
        workspace: workspace.clone(),
        reason: arguments.reason.clone(),
        subtree: arguments.subtree,
        validate_only: arguments.write.dry_run,
        request_id: arguments.write.request_id.clone(),
        etag: arguments.etag.etag.clone(),
    };
    let answer: FreezeWorkspaceResponse = admin.call((Service::Workspace, "FreezeWorkspace"), &request)?;
    let mut document = object(&answer);
    document["path"] = workspace.into();
    let mut lines = frozen(answer.freeze.as_ref());
    lines.push(("changed", format!("{} workspaces", answer.changed)));
    lines.push(("etag", answer.freeze_etag));
    Answer::new(document).lines(lines).print(arguments.output, usize::MAX)
}

pub(super) fn thaw(connection: &Connection, arguments: &Thaw) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(connection)?;
    let workspace = admin.workspace_at(arguments.path.as_deref())?;
    let request = ThawWorkspaceRequest {
        workspace: workspace.clone(),
        validate_only: arguments.write.dry_run,
        request_id: arguments.write.request_id.clone(),
        etag: arguments.etag.etag.clone(),
    };
    let answer: ThawWorkspaceResponse = admin.call((Service::Workspace, "ThawWorkspace"), &request)?;
    let mut document = object(&answer);
    document["path"] = workspace.into();
    let mut lines = frozen(answer.freeze.as_ref());
    lines.push(("changed", format!("{} workspaces", answer.changed)));
    lines.push(("etag", answer.freeze_etag));
    Answer::new(document).lines(lines).print(arguments.output, usize::MAX)
}

pub(super) fn undelete(connection: &Connection, arguments: &Undelete) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(connection)?;
    let request = UndeleteWorkspaceRequest {
        workspace: admin.workspace_at(Some(&arguments.path))?,
        etag: arguments.etag.etag.clone(),
        request_id: arguments.write.request_id.clone(),
        validate_only: arguments.write.dry_run,
    };
    let answer: UndeleteWorkspaceResponse = admin.call((Service::Workspace, "UndeleteWorkspace"), &request)?;
    let workspace = answer.workspace.unwrap_or_default();
    let text = match arguments.write.dry_run {
        true => format!(
            "{} would be back; its grace period ends {}",
            workspace.path,
            time(answer.delete_time)
        ),
        false => format!("{} is back", workspace.path),
    };
    Answer::new(object(&workspace))
        .text(text)
        .print(arguments.output, usize::MAX)
}

pub(super) fn limits(connection: &Connection, arguments: &Limits) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(connection)?;
    let workspace = admin.workspace_at(arguments.path.as_deref())?;
    set_limits(&admin, &workspace, arguments)?;
    let request = GetLimitsRequest {
        workspace: workspace.clone(),
    };
    let answer: GetLimitsResponse = admin.call((Service::Quota, "GetLimits"), &request)?;
    let mut table = Table::new(&["LIMIT", "EFFECTIVE", "OWN", "SERVER"]);
    let each = |limits: &Option<Values>| rows(&limits.unwrap_or_default());
    let sides = [&answer.effective, &answer.own, &answer.server].map(each);
    for index in 0..sides[0].len() {
        let mut row = vec![sides[0][index].0.into()];
        row.extend(sides.iter().map(|side| side[index].1.to_string().into()));
        table.row(row);
    }
    let mut document = object(&answer);
    document["path"] = workspace.into();
    Answer::new(document).table(table).print(arguments.output, usize::MAX)
}

fn rows(limits: &Values) -> [(&'static str, i64); 6] {
    [
        ("objects", limits.objects),
        ("requests in flight", limits.requests_in_flight),
        ("requests per second", limits.requests_per_second),
        ("watches", limits.watches),
        ("bytes in flight", limits.bytes_in_flight),
        ("storage bytes", limits.storage_bytes),
    ]
}

/// Sets the limits that flags name.
fn set_limits(admin: &Admin, workspace: &str, arguments: &Limits) -> anyhow::Result<()> {
    let given = [
        ("objects", arguments.objects),
        ("requests_in_flight", arguments.requests_in_flight),
        ("requests_per_second", arguments.requests_per_second),
        ("watches", arguments.watches),
        ("bytes_in_flight", arguments.bytes_in_flight),
        ("storage_bytes", arguments.storage_bytes),
    ];
    let paths = given.iter().filter(|(_, value)| value.is_some());
    let paths: Vec<String> = paths.map(|(field, _)| (*field).to_owned()).collect();
    if paths.is_empty() {
        let write = &arguments.write;
        if write.dry_run || !write.request_id.is_empty() || !arguments.etag.etag.is_empty() {
            bail!("nothing to set: give a limit, such as --objects");
        }
        return Ok(());
    }
    let request = SetLimitsRequest {
        workspace: workspace.to_owned(),
        limits: Some(Values {
            objects: arguments.objects.unwrap_or_default(),
            requests_in_flight: arguments.requests_in_flight.unwrap_or_default(),
            requests_per_second: arguments.requests_per_second.unwrap_or_default(),
            watches: arguments.watches.unwrap_or_default(),
            bytes_in_flight: arguments.bytes_in_flight.unwrap_or_default(),
            storage_bytes: arguments.storage_bytes.unwrap_or_default(),
        }),
        update_mask: Some(FieldMask { paths }),
        etag: arguments.etag.etag.clone(),
        validate_only: arguments.write.dry_run,
        request_id: arguments.write.request_id.clone(),
    };
    let _: SetLimitsResponse = admin.call((Service::Quota, "SetLimits"), &request)?;
    Ok(())
}

pub(super) fn usage(connection: &Connection, arguments: &Usage) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(connection)?;
    let workspace = admin.workspace_at(arguments.path.as_deref())?;
    if arguments.children {
        return children(&admin, &workspace, arguments);
    }
    let request = GetUsageRequest {
        workspace: workspace.clone(),
        hours: arguments.hours,
    };
    let answer: GetUsageResponse = admin.call((Service::Quota, "GetUsage"), &request)?;
    let mut stored = Table::new(&["RESOURCE", "OBJECTS", "BYTES"]);
    for usage in &answer.resources {
        stored.row(vec![
            resource(usage).into(),
            usage.objects.to_string().into(),
            usage.bytes.to_string().into(),
        ]);
    }
    let mut hours = Table::new(&["HOUR", "REQUESTS", "BYTES OUT", "CONVERSIONS"]);
    for hour in &answer.metered {
        hours.row(vec![
            time(hour.hour).into(),
            requests(hour).to_string().into(),
            hour.bytes_out.to_string().into(),
            hour.conversions.to_string().into(),
        ]);
    }
    let mut document = object(&answer);
    document["path"] = workspace.into();
    let view = Answer::new(document).lines([
        ("requests in flight", answer.requests_in_flight.to_string()),
        ("watches", answer.watches.to_string()),
        ("bytes in flight", answer.bytes_in_flight.to_string()),
    ]);
    let view = view.text("").table(stored);
    view.text("").table(hours).print(arguments.output, usize::MAX)
}

fn children(admin: &Admin, parent: &str, arguments: &Usage) -> anyhow::Result<ExitCode> {
    let usages = pages(|page_token| {
        let request = ListUsageRequest {
            parent: parent.to_owned(),
            hours: arguments.hours,
            by_resource: true,
            page_size: PAGE_ITEMS,
            page_token,
        };
        let page: ListUsageResponse = admin.call((Service::Quota, "ListUsage"), &request)?;
        Ok((page.workspaces, page.next_page_token))
    })?;
    let mut table = Table::new(&["WORKSPACE", "OBJECTS", "BYTES", "REQUESTS", "BYTES OUT", "CONVERSIONS"]);
    for usage in &usages {
        let metered = usage.metered.clone().unwrap_or_default();
        table.row(vec![
            usage.path.as_str().into(),
            usage.objects.to_string().into(),
            usage.bytes.to_string().into(),
            requests(&metered).to_string().into(),
            metered.bytes_out.to_string().into(),
            metered.conversions.to_string().into(),
        ]);
    }
    Answer::new(of_list(&usages)).table(table).print(arguments.output, 4)
}

fn requests(usage: &MeteredUsage) -> i64 {
    usage.requests.values().sum()
}

fn resource(usage: &ResourceUsage) -> String {
    match usage.group.as_str() {
        "" => usage.resource.clone(),
        group => format!("{}.{group}", usage.resource),
    }
}
