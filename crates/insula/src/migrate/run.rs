//! The migrations of a command, one after the other.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use insula_proto::{
    admin::v1::{
        AdvanceMigrationRequest, AdvanceMigrationResponse, BeginMigrationRequest, BeginMigrationResponse, Migration,
        MigrationSource, MigrationStep, PlanMigrationRequest, PlanMigrationResponse, UndoMigrationRequest,
        UndoMigrationResponse, migration_source::Replacement,
    },
    value,
};
use serde_json::Value;

use super::{
    Arguments, Step, To, export, import,
    report::{Report, name},
    source::{self, Work},
};
use crate::{
    client::Client,
    print::{Printer, Progress},
};

/// Time between two looks at a step that waits for the server.
const PAUSE: Duration = Duration::from_millis(100);
/// Looks at a step that waits.
const LOOKS_MAX: usize = 600;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.names.is_empty() && !arguments.all && arguments.from.is_empty() {
        anyhow::bail!("name ThirdPartyResources, or give --all or --from");
    }
    let client = arguments.server.client()?;
    let reports = crate::runtime()?.block_on(all(&client, arguments))?;
    let mut printer = Printer::stdout();
    let names = reports.iter().map(|report| &report.registration);
    if !printer.named(arguments.output, &reports, names)? {
        for line in reports.iter().flat_map(Report::lines) {
            printer.text(&line)?;
        }
        if reports.is_empty() {
            printer.text("nothing to migrate")?;
        }
    }
    printer.flush().context("cannot write the answer")?;
    Ok(ExitCode::from(u8::from(reports.iter().any(Report::is_open))))
}

async fn all(client: &Client, arguments: &Arguments) -> anyhow::Result<Vec<Report>> {
    let mut reports = Vec::new();
    for workspace in source::workspaces(client, arguments).await? {
        let mut imported = None;
        if !arguments.from.is_empty() {
            let (names, report) = import::import(client, &workspace, arguments).await?;
            let failed = report.is_open();
            reports.push(report);
            if failed || arguments.dry_run {
                continue;
            }
            imported = Some(names);
        }
        let names = imported.as_ref();
        let mut work = source::work(client, arguments, &workspace, names).await?;
        if !arguments.undo && !arguments.dry_run {
            // Those that go back get there first, and then begin anew.
            let (back, begun): (Vec<_>, Vec<_>) = work.begun.drain(..).partition(|migration| migration.undo);
            let again = !back.is_empty();
            for migration in back {
                let mut report = Report::for_migration(&workspace, &migration);
                follow(client, arguments, &mut report, migration).await?;
            }
            work.begun = begun;
            if again {
                work = source::work(client, arguments, &workspace, names).await?;
            }
        }
        reports.extend(in_workspace(client, arguments, work).await?);
    }
    Ok(reports)
}

async fn in_workspace(client: &Client, arguments: &Arguments, work: Work) -> anyhow::Result<Vec<Report>> {
    let workspace = &work.workspace;
    let mut reports = Vec::new();
    for migration in work.begun {
        let mut report = Report::for_migration(workspace, &migration);
        if arguments.dry_run {
            report.state = name(migration.step()).into();
        } else {
            if arguments.undo {
                let request = UndoMigrationRequest {
                    workspace: workspace.clone(),
                    resource: migration.resource.clone(),
                    ..UndoMigrationRequest::default()
                };
                let method = "/insula.admin.v1.MigrationService/UndoMigration";
                let _: UndoMigrationResponse = client.call(method, &request).await?;
            }
            follow(client, arguments, &mut report, migration).await?;
        }
        reports.push(report);
    }
    for source in work.sources {
        reports.push(migrate(client, arguments, source).await?);
    }
    Ok(reports)
}

/// Plans a migration, and carries it out if nothing stands against it.
async fn migrate(client: &Client, arguments: &Arguments, source: MigrationSource) -> anyhow::Result<Report> {
    let workspace = source.workspace.clone();
    if arguments.to == To::Binding && !arguments.dry_run {
        // The schema of an export that does not exist yet is that of a definition.
        let plain = MigrationSource {
            replacement: Some(Replacement::Definition(
                insula_proto::admin::v1::NewDefinition::default(),
            )),
            ..source.clone()
        };
        let planned = plan(client, plain).await?;
        source::ensure_export(client, arguments, &manifest(planned.manifest)?).await?;
    }
    let planned = plan(client, source.clone()).await?;
    let migration = planned.migration.unwrap_or_default();
    let mut report = Report::for_migration(&workspace, &migration);
    report.objects = planned.objects;
    report.problems = planned.problems;
    report.state = "planned".into();
    if arguments.dry_run || !report.problems.is_empty() {
        report.manifest = Some(manifest(planned.manifest)?);
        return Ok(report);
    }
    let request = BeginMigrationRequest {
        source: Some(source),
        ..BeginMigrationRequest::default()
    };
    let method = "/insula.admin.v1.MigrationService/BeginMigration";
    let begun: BeginMigrationResponse = client.call(method, &request).await?;
    follow(client, arguments, &mut report, begun.migration.unwrap_or_default()).await?;
    Ok(report)
}

fn manifest(manifest: Option<value::Struct>) -> anyhow::Result<Value> {
    Ok(Value::Object(value::to_json(manifest.unwrap_or_default())?))
}

async fn plan(client: &Client, source: MigrationSource) -> anyhow::Result<PlanMigrationResponse> {
    let request = PlanMigrationRequest { source: Some(source) };
    let method = "/insula.admin.v1.MigrationService/PlanMigration";
    client.call(method, &request).await
}

/// Takes the steps of a migration that has begun, to its end or to the step of `--until`.
async fn follow(
    client: &Client,
    arguments: &Arguments,
    report: &mut Report,
    mut migration: Migration,
) -> anyhow::Result<()> {
    let mut progress = Progress::stderr();
    let mut looks = 0;
    loop {
        let step = migration.step();
        report.hash.clone_from(&migration.hash);
        let what = format!("objects of {}: {}", migration.resource, name(step));
        let (seen, all) = (migration.seen.unsigned_abs(), migration.objects.unsigned_abs());
        match seen <= all {
            true => progress.share(seen, all, &what),
            // Not all are counted yet.
            false => progress.show(&format!("{seen} {what}")),
        }
        if let Some(folder) = &arguments.keep
            && step == MigrationStep::Replace
            && !migration.undo
        {
            let kept = export::keep(client, folder, &report.workspace, &migration).await?;
            report.kept_in = kept.display().to_string();
        }
        if arguments.until.is_some_and(|until| is_behind(step, until)) {
            report.state = format!("stopped before {}", name(step));
            return Ok(());
        }
        let request = AdvanceMigrationRequest {
            workspace: report.workspace.clone(),
            resource: migration.resource.clone(),
            ..AdvanceMigrationRequest::default()
        };
        let method = "/insula.admin.v1.MigrationService/AdvanceMigration";
        let advanced: AdvanceMigrationResponse = client.call(method, &request).await?;
        let Some(next) = advanced.migration else {
            report.state = if migration.undo { "undone" } else { "migrated" }.into();
            return ended(client, report, &migration).await;
        };
        if !next.message.is_empty() {
            report.problems.push(format!("{}; --undo turns it back", next.message));
            report.state = "failed".into();
            return Ok(());
        }
        // A step that changes nothing waits for the server.
        if next == migration {
            looks += 1;
            anyhow::ensure!(
                looks < LOOKS_MAX,
                "{}: {} takes too long",
                migration.resource,
                name(step)
            );
            tokio::time::sleep(PAUSE).await;
        }
        report.objects = report.objects.max(next.objects);
        migration = next;
    }
}

/// Deletes the APIBinding of a migration that was turned back.
async fn ended(client: &Client, report: &Report, migration: &Migration) -> anyhow::Result<()> {
    if !migration.undo || migration.replacement_kind != "APIBinding" {
        return Ok(());
    }
    let at = client.at_path(&format!("/clusters/{}", report.workspace));
    let path = format!("/apis/apis.kcp.io/v1alpha2/apibindings/{}", migration.replacement);
    let (code, answer) = at.delete(&path, &serde_json::json!({})).await?;
    if code.as_u16() != 404 {
        source::accepted((code, answer), &format!("APIBinding {}", migration.replacement))?;
    }
    Ok(())
}

fn is_behind(step: MigrationStep, until: Step) -> bool {
    let last = match until {
        Step::Export => MigrationStep::Export,
        Step::Replace => MigrationStep::Replace,
        Step::Serve => MigrationStep::Serve,
        Step::Recreate => MigrationStep::Recreate,
        Step::Adopt => MigrationStep::Adopt,
        Step::Verify => MigrationStep::Verify,
    };
    i32::from(step) > i32::from(last)
}
