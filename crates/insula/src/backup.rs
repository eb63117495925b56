//! `insula backup …`: creation of backups of a running or stopped server, verification, and restore
//! into a new data directory. Backups that a server keeps are in [`kept`].

mod kept;
mod upload;

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Write},
    ops::ControlFlow,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Subcommand;
use insula_api::{ClusterName, ObjectKey, ResourceId, Revision, Scope};
use insula_catalog::earlier_names::{present_key, present_object};
use insula_meter::ServerWork;
use insula_store::{
    Entry, Store,
    backup::{self, BackupError, Encoder, Header, Summary},
    embedded::{EmbeddedStore, Options, Restore},
};

use crate::{
    admin::Answer,
    print::{Output, Progress},
};

/// Directory of the store below a data directory.
const STORE: &str = "store";

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a program parses one command")]
pub(crate) enum Command {
    /// Create a backup of a running server with any store, or of the data directory of a stopped
    /// one.
    Create(Create),
    /// Restore a backup into a new data directory with the embedded store, or on a running server.
    Restore(Restoring),
    /// Verify a backup, and print its contents.
    Verify(Verify),
    /// List the backups that a server keeps.
    List(kept::List),
    /// Show a backup that a server keeps.
    Show(kept::Named),
    /// Delete a backup that a server keeps.
    Delete(kept::Delete),
    /// Write a backup that a server keeps to a file.
    Download(kept::Download),
    /// Send the file of a backup to a server, which keeps it.
    Upload(upload::Arguments),
}

#[derive(clap::Args)]
#[command(after_help = "\
The backup holds every object of every workspace at one revision, Secrets included: protect it like \
a key. It does not hold the keys of the data directory (pki): copy that folder, too.")]
pub(crate) struct Create {
    /// The backup to write; the file must not exist.
    #[arg(required_unless_present_any = ["on_server", "server"], conflicts_with = "on_server")]
    file: Option<PathBuf>,
    /// The data directory of a stopped server, in place of a running one.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "on_server")]
    data_dir: Option<PathBuf>,
    /// With --on-server, a workspace and all below it [default: the installation].
    #[arg(long, short = 'W', value_name = "PATH")]
    workspace: Option<String>,
    #[command(flatten)]
    kept: kept::Kept,
}

#[derive(clap::Args)]
#[command(after_help = "\
Revisions continue above all that clients may have seen, so that their watches and lists get 410 Gone and start \
again. The directory gets no keys: copy pki of the old data directory into it before the first start; otherwise all \
earlier certificates, kubeconfigs and tokens are refused.")]
pub(crate) struct Restoring {
    /// The file of the backup; with --on-server, the name that the server gave it.
    file: PathBuf,
    /// The new data directory: missing or empty.
    #[arg(
        long,
        value_name = "DIRECTORY",
        required_unless_present_any = ["on_server", "server"],
        conflicts_with = "on_server"
    )]
    to: Option<PathBuf>,
    /// Number to add to the revision of the backup; choose more than the writes since then.
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
    bump_revision: u64,
    /// With --on-server, the workspace to restore [default: all of the backup].
    #[arg(long, short = 'W', value_name = "PATH")]
    workspace: Option<String>,
    /// With --on-server, replace a workspace that exists; objects that the backup lacks go.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    kept: kept::Kept,
}

#[derive(clap::Args)]
pub(crate) struct Verify {
    /// The file of the backup; with --on-server, the name that the server gave it.
    file: PathBuf,
    #[command(flatten)]
    kept: kept::Kept,
}

/// Source of the URL of the server, which is the place of the backups where no file is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerUrl {
    /// The flag `--server`.
    Given,
    /// A variable, a kubeconfig, or nothing.
    Found,
}

impl ServerUrl {
    /// Reads it from the matches of the command line.
    pub(crate) fn of_matches(mut matches: &clap::ArgMatches) -> Self {
        while let Some((_, sub)) = matches.subcommand() {
            matches = sub;
        }
        let is_known = matches.ids().any(|id| id == "server");
        let source = is_known.then(|| matches.value_source("server")).flatten();
        match source {
            Some(clap::parser::ValueSource::CommandLine) => ServerUrl::Given,
            _ => ServerUrl::Found,
        }
    }
}

pub(crate) fn main(command: &Command, url: ServerUrl) -> ExitCode {
    let is_given = url == ServerUrl::Given;
    let done = match command {
        Command::Create(arguments) => match arguments.kept.on_server || is_given && arguments.file.is_none() {
            true => kept::create(arguments.workspace.as_deref(), &arguments.kept),
            false => with_files(&arguments.kept, &[("--workspace", arguments.workspace.is_some())])
                .and_then(|()| create(arguments)),
        },
        Command::Restore(arguments) => match arguments.kept.on_server || is_given && arguments.to.is_none() {
            true => {
                let name = arguments.file.to_string_lossy();
                kept::restore(
                    &name,
                    arguments.workspace.as_deref(),
                    arguments.overwrite,
                    &arguments.kept,
                )
            }
            false => {
                let flags = [
                    ("--workspace", arguments.workspace.is_some()),
                    ("--overwrite", arguments.overwrite),
                ];
                with_files(&arguments.kept, &flags).and_then(|()| restore(arguments))
            }
        },
        Command::Verify(Verify { file, kept }) => match kept.on_server || is_given {
            true => kept::verify(&file.to_string_lossy(), kept),
            false => with_files(kept, &[])
                .and_then(|()| verify(file))
                .and_then(|summary| print_summary(file, &summary, kept.call.output)),
        },
        Command::List(arguments) => kept::list(arguments),
        Command::Show(arguments) => kept::show(arguments),
        Command::Delete(arguments) => kept::delete(arguments),
        Command::Download(arguments) => kept::download(arguments),
        Command::Upload(arguments) => upload::run(arguments),
    };
    crate::ended(done)
}

/// Refuses flags that are about backups on the server, for a command that works with files.
fn with_files(kept: &kept::Kept, flags: &[(&str, bool)]) -> anyhow::Result<()> {
    let given = flags.iter().find(|(_, is_given)| *is_given).map(|(flag, _)| *flag);
    match given.or(kept.no_wait.then_some("--no-wait")) {
        Some(flag) => bail!("{flag} is about backups that a server keeps: add --on-server"),
        None => Ok(()),
    }
}

fn print_summary(file: &Path, summary: &Summary, output: Output) -> anyhow::Result<ExitCode> {
    let Summary { header, objects, hash } = summary;
    let Revision(revision) = header.revision;
    let document = serde_json::json!({
        "name": file.display().to_string(), "revision": revision, "objects": objects,
        "createTime": header.created, "version": header.version, "sha256": hash.to_string(),
    });
    let taken = format!("taken {} by version {}", header.created, header.version);
    Answer::new(document)
        .text(format!("revision {revision}, {objects} objects, {taken}"))
        .text(format!("sha256 {hash}"))
        .print(output, usize::MAX)
}

fn verify(file: &Path) -> anyhow::Result<Summary> {
    each(file, "verified", |_, _| Ok::<_, BackupError>(()))
}

/// Reads a backup. `done` is the word for what happens to it.
fn each<E>(
    file: &Path,
    done: &'static str,
    visit: impl FnMut(&Header, Entry) -> Result<(), E>,
) -> anyhow::Result<Summary>
where
    E: From<BackupError> + std::error::Error + Send + Sync + 'static,
{
    let unreadable = || format!("cannot read {}", file.display());
    let opened = File::open(file).with_context(unreadable)?;
    let bytes = opened.metadata().with_context(unreadable)?.len();
    let counted = CountedReader {
        inner: opened,
        bytes: 0,
        total: bytes,
        done,
        progress: Progress::stderr(),
    };
    backup::read(BufReader::with_capacity(1 << 20, counted), visit).with_context(|| file.display().to_string())
}

/// A reader that shows how much of a file it has read.
struct CountedReader {
    inner: File,
    bytes: u64,
    total: u64,
    done: &'static str,
    progress: Progress,
}

impl Read for CountedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.bytes += count as u64;
        let what = format!("MiB {}", self.done);
        self.progress.share(self.bytes >> 20, self.total >> 20, &what);
        Ok(count)
    }
}

/// Writes a backup to a temporary file, verifies it, and renames it.
fn create(arguments: &Create) -> anyhow::Result<ExitCode> {
    let file = arguments.file.as_ref().context("a file is required")?;
    if file.exists() {
        bail!("{} is there already", file.display());
    }
    let mut name = file.clone().into_os_string();
    name.push(".partial");
    let partial = PathBuf::from(name);
    let written = write(arguments, &partial).and_then(|()| {
        let summary = verify(&partial)?;
        fs::rename(&partial, file)?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(summary)
    });
    if written.is_err() {
        // The file may not exist; the error that matters is reported.
        let _ = fs::remove_file(&partial);
    }
    print_summary(file, &written?, arguments.kept.call.output)
}

fn write(arguments: &Create, partial: &Path) -> anyhow::Result<()> {
    let mut options = File::options();
    let opened = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(partial);
    let opened = opened.with_context(|| format!("cannot write {}", partial.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, opened);
    match &arguments.data_dir {
        Some(data_dir) => of_stopped(&data_dir.join(STORE), &mut out)?,
        None => {
            let client = arguments.kept.call.server.client()?.at_path("");
            let mut counted = Counted {
                out: &mut out,
                bytes: 0,
                progress: Progress::stderr(),
            };
            crate::runtime()?.block_on(client.download("/backup", &mut counted))?;
        }
    }
    out.into_inner()
        .context("cannot write")?
        .sync_all()
        .context("cannot write")
}

/// A writer that shows how much it has taken.
struct Counted<W> {
    out: W,
    bytes: usize,
    progress: Progress,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.bytes += count;
        self.progress.show(&format!("{} MiB received", self.bytes >> 20));
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a backup of the store of a stopped server, which is verified and locked meanwhile.
fn of_stopped(store: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    if !store.join("objects.redb").exists() {
        bail!("{} holds no store", store.display());
    }
    let options = Options {
        holder: "insula backup create".into(),
        ..Options::default()
    };
    let opened = EmbeddedStore::open(store, options)?;
    let snapshot = opened.latest().for_server(ServerWork::Tool);
    let root = ResourceId::local("core.kcp.io", "logicalclusters");
    let root = snapshot.get(&ObjectKey::cluster_scoped(root, ClusterName::root(), "cluster"));
    let header = Header {
        revision: snapshot.revision(),
        created: crate::now().to_string(),
        version: insula_server::VERSION.to_owned(),
        installation: root.map_or_else(String::new, |root| root.object.meta.uid.to_string()),
        workspace: String::new(),
        cluster: String::new(),
    };
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(header, &mut bytes);
    let mut written = Ok(());
    snapshot.for_each(&Scope::everything(), |entry| {
        encoder.object(entry, &mut bytes);
        written = out.write_all(&bytes);
        bytes.clear();
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    written?;
    encoder.finish(&mut bytes);
    Ok(out.write_all(&bytes)?)
}

/// Restores a backup. Verifies all of it first, so that nothing is written from a backup that is
/// damaged at its end.
fn restore(arguments: &Restoring) -> anyhow::Result<ExitCode> {
    let Restoring {
        file, bump_revision, ..
    } = arguments;
    let to = arguments.to.as_ref().context("--to is required")?;
    let summary = verify(file)?;
    if !summary.header.workspace.is_empty() {
        bail!(
            "{} holds the workspace {} alone: a running server restores it by BackupService.RestoreBackup",
            file.display(),
            summary.header.workspace
        );
    }
    let revision = summary.header.revision.0.checked_add(*bump_revision);
    let revision = Revision(revision.context("--bump-revision is too large")?);
    let mut restored = Restore::begin(to, STORE)?;
    let again = each(file, "restored", |_, entry| {
        restored.put(Entry {
            key: present_key(&entry.key),
            object: present_object(&entry.key, entry.object),
            ..entry
        })
    });
    match again {
        Ok(again) if again == summary => restored.finish(revision)?,
        other => {
            restored.abandon()?;
            other?;
            bail!("{} changed while it was read", file.display());
        }
    }
    let done = print_summary(file, &summary, arguments.kept.call.output)?;
    eprintln!("restored into {} at revision {revision}", to.display());
    Ok(done)
}
