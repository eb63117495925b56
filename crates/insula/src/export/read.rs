//! `insula export list`, `show` and `consumers`.

use std::process::ExitCode;

use insula_proto::admin::v1::{
    Consumer, GetExportRequest, GetExportResponse, ListConsumersRequest, ListConsumersResponse, ListExportsRequest,
    ListExportsResponse, OfferedResource, PublishedExport, Rollout,
};

use crate::{
    admin::{Admin, Answer, InWorkspace, PAGE_ITEMS, Service, object, of_list, pages, time},
    print::{Cell, Table, Tone},
};

/// Lists the exports of the workspace with the state of their rollouts.
#[derive(clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    call: InWorkspace,
}

/// Shows an export: what it offers, where the rollout of the present release stands, which bindings
/// stay behind, and the releases before.
#[derive(clap::Args)]
pub(crate) struct Show {
    /// The export.
    #[arg(value_name = "EXPORT")]
    name: String,
    #[command(flatten)]
    call: InWorkspace,
}

/// Lists the bindings of an export in all workspaces, with the versions that each of them used.
/// Needs the verb list on apiexports/content.
#[derive(clap::Args)]
pub(crate) struct Consumers {
    /// The export.
    #[arg(value_name = "EXPORT")]
    name: String,
    /// Only bindings that do not serve what is on offer.
    #[arg(long)]
    behind: bool,
    /// Count the objects of each binding by the version in which they are stored.
    #[arg(long)]
    stored: bool,
    #[command(flatten)]
    call: InWorkspace,
}

pub(super) fn list(arguments: &List) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(&arguments.call.connection)?;
    let exports = pages(|page_token| {
        let request = ListExportsRequest {
            workspace: admin.workspace(),
            page_size: PAGE_ITEMS,
            page_token,
        };
        let page: ListExportsResponse = admin.call((Service::Api, "ListExports"), &request)?;
        Ok((page.exports, page.next_page_token))
    })?;
    let header = [
        "NAME",
        "RESOURCES",
        "ROLLOUT",
        "CURRENT",
        "HELD",
        "WAITING",
        "STEP",
        "STRATEGY",
        "IDENTITY",
    ];
    let mut table = Table::new(&header);
    for export in &exports {
        let rollout = export.rollout.clone().unwrap_or_default();
        table.row(vec![
            export.name.as_str().into(),
            Cell::list(Tone::Plain, &resources(&export.resources)),
            state(&rollout),
            format!("{}/{}", rollout.current, rollout.bindings).into(),
            rollout.held.to_string().into(),
            rollout.waiting.to_string().into(),
            format!("{}/{}", rollout.step, rollout.steps).into(),
            rollout.strategy.as_str().into(),
            export.identity_hash.as_str().into(),
        ]);
    }
    Answer::new(of_list(&exports))
        .table(table)
        .print(arguments.call.output, 5)
}

pub(super) fn show(arguments: &Show) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(&arguments.call.connection)?;
    let request = GetExportRequest {
        workspace: admin.workspace(),
        export: arguments.name.clone(),
    };
    let answer: GetExportResponse = admin.call((Service::Api, "GetExport"), &request)?;
    view(&answer.export.unwrap_or_default()).print(arguments.call.output, usize::MAX)
}

/// Returns the view of an export.
pub(super) fn view(export: &PublishedExport) -> Answer {
    let rollout = export.rollout.clone().unwrap_or_default();
    let step = match rollout.steps {
        0 => String::new(),
        steps => format!("{} of {steps}", rollout.step),
    };
    let counts = format!(
        "{} of {} serve the release, {} held, {} waiting",
        rollout.current, rollout.bindings, rollout.held, rollout.waiting
    );
    let conditions = export.conditions.iter().filter(|condition| condition.status != "True");
    let conditions: Vec<String> = conditions.map(|it| format!("{}: {}", it.r#type, it.message)).collect();
    let mut view = Answer::new(object(export)).lines([
        ("name", export.name.clone()),
        ("workspace", export.workspace.clone()),
        ("identity", export.identity_hash.clone()),
        ("resources", resources(&export.resources).join(", ")),
        ("release", rollout.release.clone()),
        ("strategy", rollout.strategy.clone()),
        ("max held", rollout.max_held.clone()),
        ("rollout", state_text(&rollout)),
        ("bindings", counts),
        ("step", step),
        ("conditions", conditions.join("; ")),
        ("etag", export.etag.clone()),
    ]);
    if !rollout.held_bindings.is_empty() {
        let mut table = Table::new(&["HELD IN", "BINDING", "REASON"]);
        for held in &rollout.held_bindings {
            table.row(vec![
                held.workspace.as_str().into(),
                held.binding.as_str().into(),
                held.message.as_str().into(),
            ]);
        }
        view = view.text("").table(table);
    }
    if !rollout.history.is_empty() {
        let mut table = Table::new(&["RELEASE BEFORE", "UNTIL", "SCHEMAS"]);
        for former in &rollout.history {
            let schemas: Vec<String> = former.resources.iter().map(|it| it.schema.clone()).collect();
            table.row(vec![
                former.release.as_str().into(),
                time(former.end_time).into(),
                Cell::list(Tone::Plain, &schemas),
            ]);
        }
        view = view.text("").table(table);
    }
    view
}

pub(super) fn consumers(arguments: &Consumers) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(&arguments.call.connection)?;
    let request = ListConsumersRequest {
        export: arguments.name.clone(),
        count_objects: arguments.stored,
        ..ListConsumersRequest::default()
    };
    let mut consumers = all_consumers(&admin, &request)?;
    consumers.retain(|consumer| !arguments.behind || !consumer.up_to_date);
    let mut header = vec![
        "WORKSPACE",
        "BINDING",
        "PHASE",
        "UP TO DATE",
        "VERSIONS",
        "SCHEMAS",
        "REASON",
    ];
    if arguments.stored {
        header.insert(4, "STORED");
    }
    let mut table = Table::new(&header);
    for consumer in &consumers {
        let versions: Vec<String> = consumer.versions.iter().map(|used| used.version.clone()).collect();
        let schemas: Vec<String> = consumer.resources.iter().map(|it| it.schema.clone()).collect();
        let (tone, word) = match consumer.up_to_date {
            true => (Tone::Good, "yes"),
            false => (Tone::Warn, "no"),
        };
        let mut row = vec![
            consumer.workspace.as_str().into(),
            consumer.binding.as_str().into(),
            consumer.phase.as_str().into(),
            Cell::new(tone, word),
            Cell::list(Tone::Plain, &versions),
            Cell::list(Tone::Plain, &schemas),
            match consumer.delete_time {
                Some(end) => format!("deleted, and its objects are kept until {}", time(Some(end))).into(),
                None => consumer.message.as_str().into(),
            },
        ];
        if arguments.stored {
            let stored = consumer.stored_versions.iter();
            let stored: Vec<String> = stored.map(|it| format!("{}: {}", it.version, it.objects)).collect();
            row.insert(4, Cell::list(Tone::Plain, &stored));
        }
        table.row(row);
    }
    // A consumer has no name of its own: -o name prints its workspace.
    let mut document = of_list(&consumers);
    for item in document.as_array_mut().into_iter().flatten() {
        item["path"] = item["workspace"].clone();
    }
    Answer::new(document).table(table).print(arguments.call.output, 5)
}

/// Reads all bindings of an export of the workspace.
pub(super) fn all_consumers(admin: &Admin, request: &ListConsumersRequest) -> anyhow::Result<Vec<Consumer>> {
    pages(|page_token| {
        let request = ListConsumersRequest {
            workspace: admin.workspace(),
            page_size: PAGE_ITEMS,
            page_token,
            ..request.clone()
        };
        let page: ListConsumersResponse = admin.call((Service::Api, "ListConsumers"), &request)?;
        Ok((page.consumers, page.next_page_token))
    })
}

fn resources(offered: &[OfferedResource]) -> Vec<String> {
    let name = |it: &OfferedResource| match it.group.as_str() {
        "" => it.resource.clone(),
        group => format!("{}.{group}", it.resource),
    };
    offered.iter().map(name).collect()
}

fn state_text(rollout: &Rollout) -> String {
    let state = if rollout.paused {
        "Paused"
    } else {
        rollout.reason.as_str()
    };
    match rollout.message.as_str() {
        "" => state.to_owned(),
        message => format!("{state}: {message}"),
    }
}

fn state(rollout: &Rollout) -> Cell {
    match rollout.reason.as_str() {
        _ if rollout.paused => Cell::new(Tone::Warn, "Paused"),
        "" => Cell::new(Tone::Dim, "-"),
        "Complete" => Cell::new(Tone::Good, "Complete"),
        "Progressing" => "Progressing".into(),
        other => Cell::new(Tone::Warn, other),
    }
}
