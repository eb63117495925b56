//! `UploadBackup`: backups that a client sends. A file is listed once it has come whole, with the
//! hash that was announced, and every checksum in it is right. Dropping it removes it.

use super::{describe, once};
use crate::{
    backups::{self, io_failure, read_failure},
    host::{BackupFile, NewBackup, blocking},
    pages::hash,
    session::{AdminService, Session},
    status::{self, Fault},
};
use data_encoding::HEXLOWER;
use insula_proto::admin::v1::{ErrorReason, UploadBackupRequest, UploadBackupResponse};
use insula_store::backup::{BackupError, Summary};
use sha2::{Digest as _, Sha256};
use std::{io::Write, sync::Arc, time::Duration};
use tonic::{Code, Status, Streaming};

/// Hexadecimal digits of a SHA-256.
const HASH_DIGITS: usize = 64;
/// Longest pause between two messages.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Seconds after which a client may try again while another upload runs.
const RETRY_SECONDS: u32 = 10;

/// A file that is being received.
struct Receiving {
    file: Box<dyn NewBackup>,
    hash: Sha256,
    /// Bytes that are still to come.
    left: u64,
}

impl AdminService {
    /// Receives a backup from an administrator.
    pub(super) async fn upload(
        &self,
        session: &Session,
        mut messages: Streaming<UploadBackupRequest>,
    ) -> Result<UploadBackupResponse, Status> {
        let mut first = next(&mut messages).await?.unwrap_or_default();
        let is_hash = first.sha256.len() == HASH_DIGITS && first.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hash {
            return Err(status::invalid("sha256", "is required: 64 hexadecimal digits"));
        }
        first.sha256.make_ascii_lowercase();
        let bytes = u64::try_from(first.bytes).ok().filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or_else(|| status::invalid("bytes", "is required: the size of the file"))?;
        let data = std::mem::take(&mut first.data);
        // Others wait outside: the file of one that runs must not be taken for one of a killed run.
        let _permit = self.uploads.try_acquire().map_err(|_| {
            let text = "another upload runs on this server: wait until it has ended";
            Fault::new(Code::ResourceExhausted, ErrorReason::LimitReached, text)
                .retry(Some(RETRY_SECONDS))
                .status()
        })?;
        let request = once(&first.request_id, first.validate_only);
        let work = async {
            let now = self.registry().clock.now();
            let digits = now
                .to_string()
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect::<String>();
            let end = hash([first.sha256.as_str(), first.request_id.as_str()].into_iter());
            let name = format!("{}-{end:016x}", digits.to_ascii_lowercase());
            let (host, of) = (Arc::clone(&self.host), name.clone());
            let file = blocking(&*self.host, move || host.backups().receive(&of, bytes)).await?;
            let file = file.map_err(|error| io_failure(&error))?;
            let mut answer = UploadBackupResponse {
                header: session.header(),
                backup: None,
            };
            if !first.validate_only {
                let receiving = Receiving {
                    file,
                    hash: Sha256::new(),
                    left: bytes,
                };
                let summary = self.received(receiving, data, &mut messages, &first.sha256).await?;
                let file = BackupFile { name, bytes, summary };
                answer.backup = Some(describe(&file));
            }
            Ok(answer)
        };
        self.once(session, request, &first, work).await
    }

    /// Receives the rest of a file, verifies it and gives it its name.
    async fn received(
        &self,
        mut receiving: Receiving,
        mut data: Vec<u8>,
        messages: &mut Streaming<UploadBackupRequest>,
        sha256: &str,
    ) -> Result<Summary, Status> {
        loop {
            if data.len() as u64 > receiving.left {
                return Err(status::invalid("data", "more bytes came than the first message said"));
            }
            if !data.is_empty() {
                let written = blocking(&*self.host, move || {
                    receiving.left -= data.len() as u64;
                    receiving.hash.update(&data);
                    receiving.file.write_all(&data).map(|()| receiving)
                });
                receiving = written.await?.map_err(|error| io_failure(&error))?;
            }
            match next(messages).await? {
                Some(message) => data = message.data,
                None => break,
            }
        }
        let Receiving { file, hash, left } = receiving;
        if left > 0 || HEXLOWER.encode(&hash.finalize()) != sha256 {
            let text = "the bytes that came do not have the SHA-256 of the first message: send the file again";
            return Err(Status::data_loss(text));
        }
        let kept = blocking(&*self.host, move || {
            let summary = backups::check(file.read_back()?)?;
            file.finish()?;
            Ok::<_, BackupError>(summary)
        });
        kept.await?.map_err(|error| match error {
            BackupError::Foreign | BackupError::Format => status::invalid("data", error),
            damaged => read_failure(damaged).into(),
        })
    }
}

/// Returns the next message, or `None` after the last one.
async fn next(messages: &mut Streaming<UploadBackupRequest>) -> Result<Option<UploadBackupRequest>, Status> {
    let message = tokio::time::timeout(PAUSE_MAX, messages.message()).await;
    message.map_err(|_| {
        let text = format!("nothing came for {} seconds", PAUSE_MAX.as_secs());
        Status::deadline_exceeded(text)
    })?
}
