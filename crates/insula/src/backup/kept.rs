//! Backups that a running server takes and keeps (`BackupService`).

use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use insula_proto::admin::v1::{
    Backup, CreateBackupRequest, CreateBackupResponse, DeleteBackupRequest, DeleteBackupResponse,
    DownloadBackupRequest, DownloadBackupResponse, GetBackupRequest, GetBackupResponse, ListBackupsRequest,
    ListBackupsResponse, Operation, RestoreBackupRequest, RestoreBackupResponse, VerifyBackupRequest,
    VerifyBackupResponse,
};

use crate::{
    admin::{Admin, Answer, OnServer, PAGE_ITEMS, Service, Write, object, of_list, pages, time},
    operation,
    print::{Output, Progress, Table},
};

/// Longest wait for an operation: a restore of an installation takes as long as its objects need.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Lists the backups that the server keeps, the newest first.
#[derive(clap::Args)]
pub(crate) struct List {
    /// Only backups of this workspace, by its path.
    #[arg(
        long,
        short = 'W',
        value_name = "PATH",
        default_value = "",
        hide_default_value = true
    )]
    workspace: String,
    #[command(flatten)]
    call: OnServer,
}

#[derive(clap::Args)]
pub(crate) struct Named {
    /// The backup, by the name that the server gave it.
    #[arg(value_name = "BACKUP")]
    name: String,
    #[command(flatten)]
    call: OnServer,
}

#[derive(clap::Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    write: Write,
}

#[derive(clap::Args)]
pub(crate) struct Download {
    #[command(flatten)]
    named: Named,
    /// The file to write; it must not exist.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Flags of operations on backups that the server keeps.
#[derive(clap::Args)]
pub(crate) struct Kept {
    /// Work on the server, through BackupService, with backups that it keeps.
    /// `--server URL` says the same where no file is named.
    #[arg(long)]
    pub(super) on_server: bool,
    /// With --on-server, print the operation at once, without waiting for its end.
    #[arg(long)]
    pub(super) no_wait: bool,
    #[command(flatten)]
    write: Write,
    #[command(flatten)]
    pub(super) call: OnServer,
}

pub(super) fn list(arguments: &List) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&arguments.call.server)?;
    let backups = pages(|page_token| {
        let request = ListBackupsRequest {
            workspace: arguments.workspace.trim_start_matches(':').to_owned(),
            page_size: PAGE_ITEMS,
            page_token,
        };
        let page: ListBackupsResponse = admin.call((Service::Backup, "ListBackups"), &request)?;
        Ok((page.backups, page.next_page_token))
    })?;
    let mut table = Table::new(&["NAME", "WORKSPACE", "TAKEN", "OBJECTS", "BYTES", "REVISION", "SHA-256"]);
    for backup in &backups {
        table.row(vec![
            backup.name.as_str().into(),
            scope(backup).into(),
            time(backup.create_time).into(),
            backup.objects.to_string().into(),
            backup.bytes.to_string().into(),
            backup.revision.to_string().into(),
            backup.sha256.as_str().into(),
        ]);
    }
    Answer::new(of_list(&backups))
        .table(table)
        .print(arguments.call.output, 5)
}

fn scope(backup: &Backup) -> String {
    match backup.workspace.as_str() {
        "" => "(installation)".to_owned(),
        workspace => workspace.to_owned(),
    }
}

pub(super) fn show(arguments: &Named) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&arguments.call.server)?;
    view(&admin, &arguments.name)?.print(arguments.call.output, usize::MAX)
}

fn view(admin: &Admin, name: &str) -> anyhow::Result<Answer> {
    let request = GetBackupRequest { name: name.to_owned() };
    let answer: GetBackupResponse = admin.call((Service::Backup, "GetBackup"), &request)?;
    Ok(shown(&answer.backup.unwrap_or_default()))
}

/// Returns the view of a backup.
pub(super) fn shown(backup: &Backup) -> Answer {
    Answer::new(object(backup)).lines([
        ("name", backup.name.clone()),
        ("workspace", scope(backup)),
        ("taken", time(backup.create_time)),
        ("revision", backup.revision.to_string()),
        ("objects", backup.objects.to_string()),
        ("bytes", backup.bytes.to_string()),
        ("version", backup.version.clone()),
        ("sha256", backup.sha256.clone()),
    ])
}

pub(super) fn delete(arguments: &Delete) -> anyhow::Result<ExitCode> {
    let Named { name, call } = &arguments.named;
    let admin = Admin::on_server(&call.server)?;
    let request = DeleteBackupRequest {
        name: name.clone(),
        validate_only: arguments.write.dry_run,
        request_id: arguments.write.request_id.clone(),
    };
    let _: DeleteBackupResponse = admin.call((Service::Backup, "DeleteBackup"), &request)?;
    let text = match arguments.write.dry_run {
        true => format!("{name} would be deleted"),
        false => format!("{name} is deleted"),
    };
    let view = Answer::new(serde_json::json!({"name": name}));
    view.text(text).print(call.output, usize::MAX)
}

pub(super) fn download(arguments: &Download) -> anyhow::Result<ExitCode> {
    let Named { name, call } = &arguments.named;
    let file = &arguments.file;
    let admin = Admin::on_server(&call.server)?;
    let mut options = fs::File::options();
    let opened = options.write(true).create_new(true).mode(0o600).open(file);
    let mut out = opened.with_context(|| format!("cannot write {}", file.display()))?;
    let request = DownloadBackupRequest { name: name.clone() };
    let mut progress = Progress::stderr();
    let mut bytes = 0;
    let received = admin.stream(
        (Service::Backup, "DownloadBackup"),
        &request,
        |part: DownloadBackupResponse| {
            bytes += part.data.len();
            progress.show(&format!("{} MiB received", bytes >> 20));
            Ok(out.write_all(&part.data)?)
        },
    );
    // The file has a checksum of every object: a download that is cut off is found here.
    let verified = received.and_then(|()| {
        out.sync_all()?;
        super::verify(file)
    });
    match verified {
        Ok(summary) => super::print_summary(file, &summary, call.output),
        Err(error) => {
            // The error that matters is reported.
            let _ = fs::remove_file(file);
            Err(error)
        }
    }
}

/// Takes a backup of a workspace, or of the installation without one.
pub(super) fn create(workspace: Option<&str>, kept: &Kept) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&kept.call.server)?;
    let request = CreateBackupRequest {
        workspace: workspace.unwrap_or_default().trim_start_matches(':').to_owned(),
        installation: workspace.is_none(),
        validate_only: kept.write.dry_run,
        request_id: kept.write.request_id.clone(),
    };
    let answer: CreateBackupResponse = admin.call((Service::Backup, "CreateBackup"), &request)?;
    let Some(operation) = followed(&admin, answer.operation, kept)? else {
        return allowed(kept.call.output, "a backup would be taken");
    };
    let result = object(&operation)["result"]["name"].as_str().map(str::to_owned);
    match result {
        Some(name) => view(&admin, &name)?.print(kept.call.output, usize::MAX),
        None => operation::view(&operation).print(kept.call.output, usize::MAX),
    }
}

pub(super) fn verify(name: &str, kept: &Kept) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&kept.call.server)?;
    let request = VerifyBackupRequest {
        name: name.to_owned(),
        request_id: kept.write.request_id.clone(),
        validate_only: kept.write.dry_run,
    };
    let answer: VerifyBackupResponse = admin.call((Service::Backup, "VerifyBackup"), &request)?;
    match followed(&admin, answer.operation, kept)? {
        Some(operation) => operation::view(&operation).print(kept.call.output, usize::MAX),
        None => allowed(kept.call.output, "the backup would be verified"),
    }
}

/// Restores a workspace, or the installation, on the server.
pub(super) fn restore(name: &str, workspace: Option<&str>, overwrite: bool, kept: &Kept) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&kept.call.server)?;
    let request = RestoreBackupRequest {
        name: name.to_owned(),
        workspace: workspace.unwrap_or_default().trim_start_matches(':').to_owned(),
        overwrite,
        validate_only: kept.write.dry_run,
        request_id: kept.write.request_id.clone(),
    };
    let answer: RestoreBackupResponse = admin.call((Service::Backup, "RestoreBackup"), &request)?;
    if let Some(operation) = followed(&admin, answer.operation, kept)? {
        return operation::view(&operation).print(kept.call.output, usize::MAX);
    }
    let changes = answer.changes.unwrap_or_default();
    let mut document = object(&changes);
    document["name"] = name.into();
    let view = Answer::new(document).lines([
        ("workspaces", changes.workspaces.join(", ")),
        ("created", changes.created.to_string()),
        ("updated", changes.updated.to_string()),
        ("deleted", changes.deleted.to_string()),
        ("unchanged", changes.unchanged.to_string()),
        ("deleted workspaces", changes.deleted_workspaces.join(", ")),
    ]);
    view.print(kept.call.output, usize::MAX)
}

/// Waits for the end of an operation, unless it was not asked for; `None` without an operation.
///
/// # Errors
/// The operation has failed.
fn followed(admin: &Admin, operation: Option<Operation>, kept: &Kept) -> anyhow::Result<Option<Operation>> {
    let Some(operation) = operation else { return Ok(None) };
    if kept.no_wait {
        return Ok(Some(operation));
    }
    let ended = operation::ended(admin, &operation.name, LIMIT)?;
    match &ended.error {
        Some(error) => bail!("{}: {}", ended.name, error.message),
        None => Ok(Some(ended)),
    }
}

/// Prints what a call would do that changes nothing.
pub(super) fn allowed(output: Output, text: &str) -> anyhow::Result<ExitCode> {
    let view = Answer::new(serde_json::json!({"name": text}));
    view.text(text).print(output, usize::MAX)
}
