//! `insula server audit`: the audit log of the server that answers, the newest request first.

use std::process::ExitCode;

use insula_proto::{
    admin::v1::{ListAuditEventsRequest, ListAuditEventsResponse},
    value,
};
use serde_json::Value;

use crate::{
    admin::{Admin, Answer, OnServer, PAGE_ITEMS, Service},
    files::text,
    print::Table,
};

/// Shows who did what: the events that the audit policy keeps, as far back as the files of the log
/// go. Those of other servers are in their logs.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The workspace of the requests, as a path or the name of its logical cluster [default: all].
    #[arg(value_name = "WORKSPACE", default_value = "", hide_default_value = true)]
    workspace: String,
    /// Requests of a user, or as this user.
    #[arg(long, value_name = "USER", default_value = "", hide_default_value = true)]
    actor: String,
    /// Requests with a verb: create, get and so on.
    #[arg(long, default_value = "", hide_default_value = true)]
    verb: String,
    /// Requests about a resource, such as configmaps.
    #[arg(long, default_value = "", hide_default_value = true)]
    resource: String,
    /// Requests about objects with a name.
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// Requests that were refused or that failed.
    #[arg(long)]
    failed: bool,
    /// Events at most.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    call: OnServer,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&arguments.call.server)?;
    let (mut events, mut page_token) = (Vec::new(), String::new());
    while events.len() < arguments.limit {
        let left = i32::try_from(arguments.limit - events.len()).unwrap_or(PAGE_ITEMS);
        let request = ListAuditEventsRequest {
            workspace: arguments.workspace.clone(),
            user: arguments.actor.clone(),
            verb: arguments.verb.clone(),
            resource: arguments.resource.clone(),
            name: arguments.name.clone(),
            failed: arguments.failed,
            page_size: left.min(PAGE_ITEMS),
            page_token,
        };
        let page: ListAuditEventsResponse = admin.call((Service::Maintenance, "ListAuditEvents"), &request)?;
        for event in page.events {
            events.push(Value::Object(value::to_json(event)?));
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let mut table = Table::new(&["TIME", "USER", "VERB", "OBJECT", "CODE", "WORKSPACE", "REASON"]);
    for event in &mut events {
        table.row(row(event).map(Into::into).to_vec());
        event["name"] = event["auditID"].clone();
    }
    Answer::new(events.into())
        .table(table)
        .print(arguments.call.output, NARROW)
}

/// Columns of a table that is not wide.
const NARROW: usize = 6;

fn row(event: &Value) -> [String; 7] {
    let field = |at: &str| text(event, at).to_owned();
    let user = match field("/impersonatedUser/username") {
        other if other.is_empty() => field("/user/username"),
        other => format!("{} as {other}", field("/user/username")),
    };
    let parts = ["resource", "subresource", "namespace", "name"].map(|part| text(event, &format!("/objectRef/{part}")));
    let object: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let code = event.pointer("/responseStatus/code").and_then(Value::as_u64);
    let place = match field("/annotations/kcp.io~1path") {
        path if path.is_empty() => field("/annotations/kcp.io~1cluster"),
        path => path,
    };
    [
        field("/requestReceivedTimestamp"),
        user,
        field("/verb"),
        match object.is_empty() {
            true => field("/requestURI"),
            false => object.join("/"),
        },
        code.map_or_else(|| "-".to_owned(), |code| code.to_string()),
        place,
        field("/responseStatus/message"),
    ]
}
