//! `insula apis request`, `requests`, `approve` and `deny`: requests for the right to bind an API.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;
use insula_proto::admin::v1::{
    ApiBindRequest, ApiRequestDecision, ApiRequestState, DecideApiRequestRequest, DecideApiRequestResponse,
    ListApiRequestsRequest, ListApiRequestsResponse, RequestApiRequest, RequestApiResponse,
};

use super::parts;
use crate::{
    admin::{Admin, Answer, Etag, PAGE_ITEMS, Service, Write, object, of_list, pages, time},
    print::{Cell, Output, Table, Tone},
};

/// Longest wait for the right after an approval.
const GRANT_WAIT: Duration = Duration::from_secs(10);
/// Pause between two looks at an approved request.
const PAUSE: Duration = Duration::from_millis(50);
/// Columns of the table that is not wide.
const NARROW_COLUMNS: usize = 6;

/// Asks the owner of an API for the right to bind it in the workspace. Asking again shows the same
/// request.
#[derive(clap::Args)]
pub(super) struct Request {
    /// The export, with the absolute path of its workspace: root:provider:widgets.
    #[arg(value_name = "WORKSPACE:NAME")]
    export: String,
    /// The reason, for the owner of the export.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    write: Write,
}

/// Lists the requests for the exports of the workspace.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  printed
  1  there is nothing to list
  2  the server refuses or cannot be reached, or a flag is wrong")]
pub(super) struct List {
    /// List the requests that you made from the workspace, for exports of others.
    #[arg(long)]
    mine: bool,
    /// List only the requests for this export.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    export: String,
}

/// A decision on a request for an export of the workspace.
#[derive(clap::Args)]
pub(super) struct Decide {
    /// The request, by its name in `insula apis requests`.
    #[arg(value_name = "REQUEST")]
    name: String,
    /// A note to the user who asks.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,
    #[command(flatten)]
    etag: Etag,
    #[command(flatten)]
    write: Write,
}

/// An approval.
#[derive(clap::Args)]
pub(super) struct Approve {
    #[command(flatten)]
    decide: Decide,
    /// Give the right to this group of the user, and so to all its members, in place of the user
    /// alone. `insula apis requests -o wide` lists the groups.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    group: String,
}

pub(super) fn request(admin: &Admin, output: Output, arguments: &Request) -> anyhow::Result<ExitCode> {
    let (path, name) = parts(&arguments.export)?;
    let request = RequestApiRequest {
        workspace: admin.workspace(),
        export_workspace: path.to_owned(),
        export: name.to_owned(),
        reason: arguments.reason.clone(),
        request_id: arguments.write.request_id.clone(),
        validate_only: arguments.write.dry_run,
    };
    let answer: RequestApiResponse = admin.call((Service::Api, "RequestApi"), &request)?;
    let request = answer.request.unwrap_or_default();
    let (name, api, end) = (&request.name, api(&request), time(request.expire_time));
    let text = match (arguments.write.dry_run && answer.created, answer.created) {
        (true, _) => format!("you may ask for {api}"),
        (_, true) => format!("request {name} asks for {api}; it waits for a decision until {end}"),
        (_, false) => format!(
            "request {name} for {api} exists since you asked before: {}",
            state(&request).1
        ),
    };
    let answer = Answer::new(object(&request)).text(text);
    answer.print(output, NARROW_COLUMNS)
}

pub(super) fn list(admin: &Admin, output: Output, arguments: &List) -> anyhow::Result<ExitCode> {
    let found = all(admin, arguments)?;
    // Who asks reads the answer; the owner of the export reads who asks, and why.
    let (columns, narrow) = match arguments.mine {
        true => (
            ["REQUEST", "API", "STATE", "EXPIRES", "MESSAGE", "REASON"],
            NARROW_COLUMNS - 1,
        ),
        false => (
            ["REQUEST", "API", "REQUESTER", "WORKSPACE", "STATE", "REASON"],
            NARROW_COLUMNS,
        ),
    };
    let more = match arguments.mine {
        true => ["REQUESTER", "WORKSPACE"],
        false => ["EXPIRES", "MESSAGE"],
    };
    let groups = if arguments.mine { &[][..] } else { &["GROUPS"] };
    let columns = [&columns[..], &more, groups].concat();
    let mut table = Table::new(&columns);
    for request in &found {
        table.row(columns.iter().map(|column| cell(request, column)).collect());
    }
    if found.is_empty() {
        let whose = if arguments.mine {
            "of yours from"
        } else {
            "for exports of"
        };
        eprintln!("note: there is no request {whose} {}", admin.workspace());
    }
    Answer::new(of_list(&found)).table(table).print(output, narrow)?;
    Ok(ExitCode::from(u8::from(found.is_empty())))
}

/// Returns the cell of a request in a column.
fn cell(request: &ApiBindRequest, column: &str) -> Cell {
    let text = match column {
        "REQUEST" => &request.name,
        "REQUESTER" => &request.requester,
        "WORKSPACE" => &request.workspace,
        "REASON" => &request.reason,
        "MESSAGE" => &request.message,
        "GROUPS" => return request.requester_groups.join(",").into(),
        "EXPIRES" => return time(request.expire_time).into(),
        "STATE" => {
            let (tone, state) = state(request);
            return Cell::new(tone, state);
        }
        _ => return api(request).into(),
    };
    text.as_str().into()
}

fn all(admin: &Admin, arguments: &List) -> anyhow::Result<Vec<ApiBindRequest>> {
    pages(|page_token| {
        let request = ListApiRequestsRequest {
            workspace: admin.workspace(),
            export: arguments.export.clone(),
            mine: arguments.mine,
            page_size: PAGE_ITEMS,
            page_token,
        };
        let page: ListApiRequestsResponse = admin.call((Service::Api, "ListApiRequests"), &request)?;
        Ok((page.requests, page.next_page_token))
    })
}

pub(super) fn approve(admin: &Admin, output: Output, arguments: &Approve) -> anyhow::Result<ExitCode> {
    let decision = (ApiRequestDecision::Approve, &*arguments.group);
    decide(admin, output, &arguments.decide, decision)
}

pub(super) fn deny(admin: &Admin, output: Output, arguments: &Decide) -> anyhow::Result<ExitCode> {
    decide(admin, output, arguments, (ApiRequestDecision::Deny, ""))
}

fn decide(
    admin: &Admin,
    output: Output,
    arguments: &Decide,
    (decision, group): (ApiRequestDecision, &str),
) -> anyhow::Result<ExitCode> {
    let request = DecideApiRequestRequest {
        workspace: admin.workspace(),
        name: arguments.name.clone(),
        decision: decision.into(),
        group: group.to_owned(),
        message: arguments.message.clone(),
        etag: arguments.etag.etag.clone(),
        request_id: arguments.write.request_id.clone(),
        validate_only: arguments.write.dry_run,
    };
    let answer: DecideApiRequestResponse = admin.call((Service::Api, "DecideApiRequest"), &request)?;
    let mut request = answer.request.unwrap_or_default();
    if !arguments.write.dry_run && request.state() == ApiRequestState::Approved {
        request = granted(admin, request);
    }
    let (user, api) = (&request.requester, api(&request));
    let who = match &*request.group {
        "" => format!("user {user}"),
        group => format!("group {group}"),
    };
    let text = match (arguments.write.dry_run, request.state()) {
        (true, _) => format!("you may decide on request {}", request.name),
        (_, ApiRequestState::Granted) => format!("{who} may bind {api}"),
        (_, ApiRequestState::Denied) => format!("request {} of user {user} for {api} is denied", request.name),
        (_, ApiRequestState::Failed) => bail!("request {} is approved, and failed: {}", request.name, request.message),
        _ => format!("request {} is approved; {who} may bind {api} soon", request.name),
    };
    let answer = Answer::new(object(&request)).text(text);
    answer.print(output, NARROW_COLUMNS)
}

/// Waits until the right of an approved request is there. Who may decide need not be allowed to
/// read: then the request is returned as it was.
fn granted(admin: &Admin, approved: ApiBindRequest) -> ApiBindRequest {
    let arguments = List {
        mine: false,
        export: approved.export.clone(),
    };
    let begin = Instant::now();
    while begin.elapsed() < GRANT_WAIT {
        let Ok(listed) = all(admin, &arguments) else { break };
        let found = listed.into_iter().find(|request| request.name == approved.name);
        match found {
            Some(request) if request.state() == ApiRequestState::Approved => thread::sleep(PAUSE),
            Some(request) => return request,
            None => break,
        }
    }
    approved
}

fn api(request: &ApiBindRequest) -> String {
    format!("{}:{}", request.export_workspace, request.export)
}

/// Returns the state of a request, for people.
pub(super) fn state(request: &ApiBindRequest) -> (Tone, &'static str) {
    match request.state() {
        ApiRequestState::Unspecified => (Tone::Plain, "unknown"),
        ApiRequestState::Pending => (Tone::Warn, "pending"),
        ApiRequestState::Approved => (Tone::Good, "approved"),
        ApiRequestState::Granted => (Tone::Good, "granted"),
        ApiRequestState::Denied => (Tone::Bad, "denied"),
        ApiRequestState::Failed => (Tone::Bad, "failed"),
    }
}
