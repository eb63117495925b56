//! `insula backup upload`: sends the file of a backup to a server, which verifies and keeps it.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use insula_proto::admin::v1::{UploadBackupRequest, UploadBackupResponse};
use sha2::{Digest, Sha256};

use super::kept;
use crate::{
    admin::{Admin, OnServer, Service, Write},
    print::Progress,
};

/// Bytes of one message. The server takes 1 MiB.
const CHUNK_BYTES: usize = 1 << 20;
/// Longest upload. The server takes an hour, too.
const LIMIT: Duration = Duration::from_secs(3600);

#[derive(clap::Args)]
#[command(after_help = "\
The whole file is verified first, and by the server again. Afterwards the server restores it by its \
name: insula backup restore NAME --on-server.")]
pub(crate) struct Arguments {
    /// The file of the backup.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    write: Write,
    #[command(flatten)]
    call: OnServer,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { file, write, call } = arguments;
    super::verify(file)?;
    let (bytes, sha256) = hash(file)?;
    let admin = Admin::on_server(&call.server)?;
    let mut first = Some(UploadBackupRequest {
        sha256,
        bytes: i64::try_from(bytes)?,
        validate_only: write.dry_run,
        request_id: write.request_id.clone(),
        data: Vec::new(),
    });
    let mut opened = open(file)?;
    let (mut sent, mut progress, dry_run) = (0, Progress::stderr(), write.dry_run);
    let next = move || -> io::Result<Option<UploadBackupRequest>> {
        if let Some(first) = first.take() {
            return Ok(Some(first));
        }
        let mut data = Vec::new();
        if !dry_run {
            Read::by_ref(&mut opened)
                .take(CHUNK_BYTES as u64)
                .read_to_end(&mut data)?;
        }
        sent += data.len() as u64;
        progress.share(sent >> 20, bytes >> 20, "MiB sent");
        Ok((!data.is_empty()).then(|| UploadBackupRequest {
            data,
            ..UploadBackupRequest::default()
        }))
    };
    let method = (Service::Backup, "UploadBackup");
    let answer: UploadBackupResponse = admin.upload(method, LIMIT, next)?;
    match answer.backup {
        Some(backup) => kept::shown(&backup).print(call.output, usize::MAX),
        None => kept::allowed(call.output, "the backup would be kept"),
    }
}

fn open(file: &Path) -> anyhow::Result<File> {
    File::open(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Returns the size of a file, and its SHA-256 in hexadecimal digits.
fn hash(file: &Path) -> anyhow::Result<(u64, String)> {
    let (mut opened, mut chunk) = (open(file)?, vec![0; CHUNK_BYTES]);
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    loop {
        let count = opened.read(&mut chunk);
        let count = count.with_context(|| format!("cannot read {}", file.display()))?;
        if count == 0 {
            break;
        }
        hash.update(&chunk[..count]);
        bytes += count as u64;
    }
    let digits = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, digits))
}
