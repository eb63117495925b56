//! Creation and verification of backups.

use super::{CREATE, Links, Shared, Tree, VERIFY, counts, installation, io_failure, open, read, result};
use crate::{
    host::NewBackup,
    operations::{Failure, Job, Running},
};
use futures_util::future::BoxFuture;
use insula_api::{Json, Revision, Scope, Timestamp};
use insula_catalog::locate;
use insula_meter::ServerWork;
use insula_store::{
    Snapshot,
    backup::{ContentHash, Encoder, Header},
};
use std::{io::Write as _, ops::ControlFlow, time::Duration};
use tonic::Code;

/// Objects between two looks at the time and at a request to end.
const LOOK_OBJECTS: u64 = 256;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;
/// Longest time of a backup: its snapshot pins the history.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Job of `CreateBackup`.
pub(super) struct Create(pub(super) Shared);

/// Job of `VerifyBackup`.
pub(super) struct Verify(pub(super) Shared);

/// Returns the name of the backup that an operation takes: its time, and the end of its name.
fn name(running: &Running) -> String {
    let time = Timestamp(running.record.created).to_string();
    let digits = time.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>();
    let end = running.name.rsplit('-').next().unwrap_or_default();
    format!("{}-{end}", digits.to_ascii_lowercase())
}

impl Job for Create {
    fn kind(&self) -> &'static str {
        CREATE
    }

    /// A backup begins anew.
    fn resumes(&self, _input: &Json) -> bool {
        true
    }

    fn run(&self, running: Running) -> BoxFuture<'static, Result<Json, Failure>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let snapshot = shared.registry.store.snapshot(Revision(0)).await;
            let snapshot = snapshot.map_err(|error| Failure::new(Code::Unavailable, error.to_string()))?;
            let snapshot = snapshot.for_server(ServerWork::Operation);
            let tree = match running.record.cluster_name() {
                None => None,
                Some(cluster) => {
                    if !locate::exists(&snapshot, &cluster) {
                        let text = format!("workspace {} has been deleted", running.record.workspace);
                        return Err(Failure::new(Code::NotFound, text));
                    }
                    let path = locate::path_of(&snapshot, &cluster);
                    Some(Links::of_snapshot(&snapshot).tree(&cluster, path))
                }
            };
            let of = |text: fn(&Tree) -> String| tree.as_ref().map_or_else(String::new, text);
            let header = Header {
                revision: snapshot.revision(),
                created: shared.registry.clock.now().to_string(),
                version: shared.version.clone(),
                installation: installation(&snapshot),
                workspace: of(|tree| {
                    tree.clusters
                        .get(&tree.root)
                        .map_or_else(String::new, ToString::to_string)
                }),
                cluster: of(|tree| tree.root.to_string()),
            };
            // The next backup removes files that have no name yet.
            let _turn = tokio::select! {
                turn = shared.creating.acquire() => turn,
                () = running.cancelled() => return Err(Failure::cancelled()),
            };
            let worker = shared.clone();
            let written = shared.run(&running, move |running| {
                write(&worker, running, &snapshot, tree.as_ref(), header)
            });
            let (file, result) = written.await?;
            running.begin_effect().await?;
            let finished = shared.run(&running, move |_| file.finish().map_err(|error| io_failure(&error)));
            finished.await.map(|()| result)
        })
    }
}

/// Returns the time since a moment of the clock's microseconds.
fn elapsed(shared: &Shared, begun: i64) -> Duration {
    let micros = shared.registry.clock.monotonic_micros() - begun;
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

/// A backup that is written and not listed yet, and the result of its operation.
type Written = (Box<dyn NewBackup>, Json);

/// Writes the objects of a state to a new file.
fn write(
    shared: &Shared,
    running: &Running,
    snapshot: &Snapshot,
    tree: Option<&Tree>,
    header: Header,
) -> Result<Written, Failure> {
    let (name, begun) = (name(running), shared.registry.clock.monotonic_micros());
    let mut file = shared
        .host
        .backups()
        .create(&name)
        .map_err(|error| io_failure(&error))?;
    let total = match tree {
        None => snapshot.count(&Scope::everything()) as u64,
        Some(_) => 0,
    };
    let mut bytes = Vec::new();
    let (mut encoder, mut content) = (Encoder::begin(header.clone(), &mut bytes), ContentHash::default());
    let (mut written, mut objects) = (Ok(()), 0);
    let wanted = |key: &insula_api::ObjectKey| tree.is_none_or(|tree| tree.contains(key));
    snapshot.for_each_wanted(&Scope::everything(), wanted, |entry| {
        encoder.object(entry, &mut bytes);
        if counts(&entry.key) {
            content.add(&entry.key, &entry.object);
        }
        objects += 1;
        if bytes.len() >= WRITE_BYTES {
            written = file.write_all(&bytes).map_err(|error| io_failure(&error));
            bytes.clear();
        }
        if objects % LOOK_OBJECTS == 0 {
            running.progress(objects, total, "writing objects");
            if running.is_cancelled() {
                written = Err(Failure::cancelled());
            } else if elapsed(shared, begun) > TIME_MAX {
                let text = format!("the backup took longer than {} s", TIME_MAX.as_secs());
                written = Err(Failure::new(Code::DeadlineExceeded, text));
            }
        }
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    written?;
    let summary = encoder.finish(&mut bytes);
    file.write_all(&bytes).map_err(|error| io_failure(&error))?;
    running.progress(objects, objects, "done");
    Ok((file, result(&name, &summary, content.finish())))
}

impl Job for Verify {
    fn kind(&self) -> &'static str {
        VERIFY
    }

    fn resumes(&self, _input: &Json) -> bool {
        true
    }

    fn run(&self, running: Running) -> BoxFuture<'static, Result<Json, Failure>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let name = running.record.input["name"].as_str().unwrap_or_default().to_owned();
            let host = shared.host.clone();
            let verified = shared.run(&running, move |running| {
                let file = open(&*host, &name, running).map_err(|error| io_failure(&error))?;
                let (summary, content) = read(file).map_err(|failure| running.failed(failure))?;
                running.progress(summary.objects, summary.objects, "done");
                Ok(result(&name, &summary, content))
            });
            verified.await
        })
    }
}
