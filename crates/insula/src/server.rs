//! `insula server …`: maintenance of the server that answers, and of its store.

mod audit;

use std::{
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Subcommand;
use insula_proto::admin::v1::{
    CompactRequest, CompactResponse, GetConfigRequest, GetConfigResponse, GetLogLevelRequest, GetLogLevelResponse,
    GetSupportBundleRequest, GetSupportBundleResponse, ListMembersRequest, ListMembersResponse, SetLogLevelRequest,
    SetLogLevelResponse, compact_request::Until,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    admin::{Admin, Answer, OnServer, PAGE_ITEMS, Service, Write, object, of_list, pages, time},
    connection::ServerFlags,
    duration,
    print::{self, Format, Progress, Table},
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Discard history: watches and lists of older revisions start again.
    Compact(Compact),
    /// List the servers on the store, and the members of etcd.
    Members(OnServer),
    /// Show the effective configuration of the server, in the form of its file.
    Config(Config),
    /// Show or change the level of the log. A restart goes back to the configuration.
    LogLevel(Level),
    /// Show who did what: the events of the audit log, the newest first.
    Audit(audit::Arguments),
    /// Write what a defect report needs, as one JSON document.
    SupportBundle(SupportBundle),
}

/// Discards history. Watches and lists of revisions before get 410 Gone, and their clients start
/// again.
#[derive(clap::Args)]
pub(crate) struct Compact {
    /// Discard the revisions before this one.
    #[arg(long, value_name = "N", required_unless_present = "older_than")]
    revision: Option<u64>,
    /// Discard the revisions that are older, to a minute: 30s, 10m.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "revision")]
    older_than: Option<Duration>,
    #[command(flatten)]
    write: Write,
    #[command(flatten)]
    call: OnServer,
}

/// Shows the settings with their keys. Names of files are shown, and never their content.
#[derive(clap::Args)]
pub(crate) struct Config {
    #[command(flatten)]
    server: ServerFlags,
    /// Format of the settings; name prints their keys.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

#[derive(clap::Args)]
pub(crate) struct Level {
    /// The new level: off, error, warn, info, debug, trace, or directives such as
    /// info,insula_store=debug [default: show the present one].
    #[arg(value_name = "LEVEL")]
    level: Option<String>,
    #[command(flatten)]
    write: Write,
    #[command(flatten)]
    call: OnServer,
}

/// Collects versions, the configuration, health, members, metrics and the state of the server. It
/// has no names and no objects of tenants.
#[derive(clap::Args)]
pub(crate) struct SupportBundle {
    #[command(flatten)]
    server: ServerFlags,
    /// The file to write; it must not exist [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn main(command: &Command) -> ExitCode {
    crate::ended(match command {
        Command::Compact(arguments) => compact(arguments),
        Command::Members(arguments) => members(arguments),
        Command::Config(arguments) => config(arguments),
        Command::LogLevel(arguments) => log_level(arguments),
        Command::Audit(arguments) => audit::run(arguments),
        Command::SupportBundle(arguments) => support_bundle(arguments),
    })
}

fn compact(arguments: &Compact) -> anyhow::Result<ExitCode> {
    let Compact { write, call, .. } = arguments;
    let age = |age: Duration| -> anyhow::Result<Until> {
        Ok(Until::Age(insula_proto::Duration {
            seconds: i64::try_from(age.as_secs())?,
            nanos: i32::try_from(age.subsec_nanos())?,
        }))
    };
    let until = match (arguments.revision, arguments.older_than) {
        (Some(revision), _) => Some(Until::Revision(revision)),
        (None, Some(older)) => Some(age(older)?),
        (None, None) => None,
    };
    let request = CompactRequest {
        until,
        validate_only: write.dry_run,
        request_id: write.request_id.clone(),
    };
    let admin = Admin::on_server(&call.server)?;
    let answer: CompactResponse = admin.call((Service::Maintenance, "Compact"), &request)?;
    let mut document = object(&answer);
    document["name"] = answer.revision.to_string().into();
    let view = Answer::new(document).lines([("oldest revision", answer.revision.to_string())]);
    view.print(call.output, usize::MAX)
}

fn members(arguments: &OnServer) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&arguments.server)?;
    let mut etcd = Vec::new();
    let servers = pages(|page_token| {
        let request = ListMembersRequest {
            page_size: PAGE_ITEMS,
            page_token,
        };
        let page: ListMembersResponse = admin.call((Service::Maintenance, "ListMembers"), &request)?;
        etcd.extend(page.etcd_members);
        Ok((page.servers, page.next_page_token))
    })?;
    let mut table = Table::new(&["NAME", "URL", "VERSION", "STARTED", "SEEN", "ANSWERS"]);
    for server in &servers {
        table.row(vec![
            server.name.as_str().into(),
            server.url.as_str().into(),
            server.version.as_str().into(),
            time(server.start_time).into(),
            time(server.seen_time).into(),
            if server.answers { "yes" } else { "no" }.into(),
        ]);
    }
    let mut answer = Answer::new(document_of(of_list(&servers), of_list(&etcd), arguments.output.format)).table(table);
    if !etcd.is_empty() {
        let mut table = Table::new(&["ETCD", "NAME", "URLS", "VOTES"]);
        for member in &etcd {
            table.row(vec![
                member.id.as_str().into(),
                member.name.as_str().into(),
                member.client_urls.join(", ").into(),
                if member.learner { "no" } else { "yes" }.into(),
            ]);
        }
        answer = answer.table(table);
    }
    answer.print(arguments.output, usize::MAX)
}

/// Returns servers and members of etcd as a document; as one list where only names are printed.
fn document_of(servers: Value, etcd: Value, format: Format) -> Value {
    if format != Format::Name {
        return json!({"servers": servers, "etcdMembers": etcd});
    }
    let lists = [servers, etcd];
    let items = lists.iter().filter_map(Value::as_array).flatten();
    items.cloned().collect()
}

fn config(arguments: &Config) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&arguments.server)?;
    let answer: GetConfigResponse = admin.call((Service::Maintenance, "GetConfig"), &GetConfigRequest {})?;
    let document = object(&answer)["config"].take();
    match arguments.output {
        Format::Json => print::line(&serde_json::to_string_pretty(&document)?)?,
        Format::Name => {
            let keys = document.as_object().into_iter().flatten();
            keys.map(|(key, _)| key).try_for_each(|key| print::line(key))?;
        }
        Format::Yaml | Format::Table | Format::Wide => print::raw(&print::yaml(&document)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn log_level(arguments: &Level) -> anyhow::Result<ExitCode> {
    let Level { level, write, call } = arguments;
    let admin = Admin::on_server(&call.server)?;
    let Some(level) = level else {
        let request = GetLogLevelRequest {};
        let answer: GetLogLevelResponse = admin.call((Service::Maintenance, "GetLogLevel"), &request)?;
        let mut document = object(&answer);
        document["name"] = answer.level.as_str().into();
        let view = Answer::new(document).lines([("level", answer.level), ("configured", answer.configured_level)]);
        return view.print(call.output, usize::MAX);
    };
    let request = SetLogLevelRequest {
        level: level.clone(),
        validate_only: write.dry_run,
        request_id: write.request_id.clone(),
    };
    let answer: SetLogLevelResponse = admin.call((Service::Maintenance, "SetLogLevel"), &request)?;
    let mut document = object(&answer);
    document["name"] = answer.level.as_str().into();
    let view = Answer::new(document).lines([("level", answer.level), ("before", answer.former_level)]);
    view.print(call.output, usize::MAX)
}

fn support_bundle(arguments: &SupportBundle) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&arguments.server)?;
    let (mut bundle, mut announced) = (Vec::new(), String::new());
    let mut progress = Progress::stderr();
    let method = (Service::Maintenance, "GetSupportBundle");
    admin.stream(method, &GetSupportBundleRequest {}, |part: GetSupportBundleResponse| {
        bundle.extend(part.data);
        announced = part.sha256;
        progress.show(&format!("{} KiB received", bundle.len() >> 10));
        Ok(())
    })?;
    let hash: String = Sha256::digest(&bundle)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if hash != announced {
        bail!("the bundle is not as the server sent it (its SHA-256 is {hash}, not {announced}): ask for it again");
    }
    match &arguments.output {
        Some(file) => {
            write_new(file, &bundle).with_context(|| format!("cannot write {}", file.display()))?;
            eprintln!("{} has {} bytes, SHA-256 {hash}", file.display(), bundle.len());
        }
        None => print::raw(&String::from_utf8(bundle).context("the bundle is no text")?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a file that must not exist, readable by its owner only.
fn write_new(file: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut options = fs::File::options();
    options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?
        .write_all(content)
}
