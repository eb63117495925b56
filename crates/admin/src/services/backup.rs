//! `BackupService`: backups in the directory of the server, and their restore.

mod upload;

use super::header_after;
use crate::{
    backups::{self, CREATE, Links, RESTORE, VERIFY, Wanted, io_failure, precondition},
    host::{BackupFile, blocking},
    operations::{Failure, Start},
    pages::Page,
    requests::Once,
    session::{AdminService, Located, Session, workspace_path},
    status::{self, Fault},
};
use data_encoding::HEXLOWER;
use insula_api::{ClusterName, ClusterPath, Timestamp};
use insula_auth::RoleVerb;
use insula_catalog::locate;
use insula_proto::admin::v1::{
    Backup, CreateBackupRequest, CreateBackupResponse, DeleteBackupRequest, DeleteBackupResponse,
    DownloadBackupRequest, DownloadBackupResponse, ErrorReason, GetBackupRequest, GetBackupResponse,
    ListBackupsRequest, ListBackupsResponse, Operation, ResponseHeader, RestoreBackupRequest, RestoreBackupResponse,
    RestoreChanges, UploadBackupRequest, UploadBackupResponse, VerifyBackupRequest, VerifyBackupResponse,
    backup_service_server::BackupService,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::{
    io::Read,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

/// The path whose right is that to backups: the endpoint over HTTP.
const PATH: &str = "/backup";
/// The type of backups in the details of refusals.
const RESOURCE: &str = "backups.admin.insula.io";
/// Bytes of a message of a download.
const CHUNK_BYTES: usize = 1 << 20;
/// Workspaces in an answer.
const WORKSPACES_MAX: usize = 1000;

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        Status::new(failure.code, failure.message)
    }
}

#[tonic::async_trait]
impl BackupService for AdminService {
    async fn create_backup(
        &self,
        request: Request<CreateBackupRequest>,
    ) -> Result<Response<CreateBackupResponse>, Status> {
        let session = self.begin(&request).await?;
        session.administer("post", PATH)?;
        let request = request.into_inner();
        let located = match (request.workspace.as_str(), request.installation) {
            ("", true) => None,
            ("", false) => return Err(status::invalid("workspace", "or installation is required")),
            (_, true) => return Err(status::invalid("workspace", "excludes installation")),
            (path, false) => Some(self.locate_for_backup(&session, path)?),
        };
        let of = |text: fn(&Located) -> String| located.as_ref().map(text).unwrap_or_default();
        let start = Start {
            kind: CREATE,
            input: json!({"workspace": of(|l| l.path.to_string()), "cluster": of(|l| l.cluster.to_string())}),
            located: located.as_ref(),
            is_cancellable: true,
            request_id: &request.request_id,
        };
        let once = once(&request.request_id, request.validate_only);
        let started = async {
            Ok(CreateBackupResponse {
                operation: self.started(&session, start, request.validate_only).await?,
                header: header_after(&session),
            })
        };
        self.once(&session, once, &request, started).await.map(Response::new)
    }

    async fn list_backups(
        &self,
        request: Request<ListBackupsRequest>,
    ) -> Result<Response<ListBackupsResponse>, Status> {
        let session = self.begin(&request).await?;
        session.administer("get", PATH)?;
        let request = request.into_inner();
        if !request.workspace.is_empty() {
            parse_path(&request.workspace)?;
        }
        let page = Page::read(&session, &[&request.workspace], request.page_size, &request.page_token)?;
        let revision = page.snapshot(&session).await?.revision();
        let after = page.after.as_ref().map(|(_, name)| name.as_str());
        let files = self.host.backups();
        let listed = blocking(&*self.host, move || files.list()).await?;
        let mut found = listed.map_err(|error| io_failure(&error))?;
        found.retain(|file| request.workspace.is_empty() || file.summary.header.workspace == request.workspace);
        // Names begin with the time.
        found.sort_unstable_by(|one, other| other.name.cmp(&one.name));
        let mut rest = found
            .iter()
            .filter(|file| after.is_none_or(|after| *file.name < *after));
        let shown: Vec<&BackupFile> = rest.by_ref().take(page.size).collect();
        let next = shown.last().filter(|_| rest.next().is_some());
        Ok(Response::new(ListBackupsResponse {
            header: session.header_at(revision),
            next_page_token: next.map_or_else(String::new, |last| page.next(revision, &last.name)),
            backups: shown.into_iter().map(describe).collect(),
        }))
    }

    async fn get_backup(&self, request: Request<GetBackupRequest>) -> Result<Response<GetBackupResponse>, Status> {
        let session = self.begin(&request).await?;
        let file = self.backup(&session, "get", &request.into_inner().name).await?;
        Ok(Response::new(GetBackupResponse {
            header: session.header(),
            backup: Some(describe(&file)),
        }))
    }

    async fn verify_backup(
        &self,
        request: Request<VerifyBackupRequest>,
    ) -> Result<Response<VerifyBackupResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        session.administer("post", PATH)?;
        let once = once(&request.request_id, request.validate_only);
        let started = async {
            let file = self.backup(&session, "post", &request.name).await?;
            let start = Start {
                kind: VERIFY,
                located: None,
                input: json!({"name": file.name}),
                is_cancellable: true,
                request_id: &request.request_id,
            };
            Ok(VerifyBackupResponse {
                operation: self.started(&session, start, request.validate_only).await?,
                header: header_after(&session),
            })
        };
        self.once(&session, once, &request, started).await.map(Response::new)
    }

    async fn delete_backup(
        &self,
        request: Request<DeleteBackupRequest>,
    ) -> Result<Response<DeleteBackupResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        session.administer("delete", PATH)?;
        let once = once(&request.request_id, request.validate_only);
        let deleted = async {
            let file = self.backup(&session, "delete", &request.name).await?;
            precondition::is_unused(&session.snapshot, &file.name)?;
            if !request.validate_only {
                let files = self.host.backups();
                let deleted = blocking(&*self.host, move || files.delete(&file.name)).await?;
                deleted.map_err(|error| io_failure(&error))?;
            }
            Ok(DeleteBackupResponse {
                header: session.header(),
            })
        };
        self.once(&session, once, &request, deleted).await.map(Response::new)
    }

    async fn restore_backup(
        &self,
        request: Request<RestoreBackupRequest>,
    ) -> Result<Response<RestoreBackupResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        session.administer("post", PATH)?;
        let once = once(&request.request_id, request.validate_only);
        let started = async {
            let file = self.backup(&session, "post", &request.name).await?;
            let path = self.restorable(&session, &file, &request)?;
            let mut response = RestoreBackupResponse {
                header: session.header(),
                ..RestoreBackupResponse::default()
            };
            if request.validate_only {
                response.changes = Some(self.changes(&session, &file.name, path, request.overwrite).await?);
                return Ok(response);
            }
            let start = Start {
                kind: RESTORE,
                located: None,
                input: json!({"name": file.name, "workspace": path, "overwrite": request.overwrite}),
                is_cancellable: true,
                request_id: &request.request_id,
            };
            response.operation = Some(self.start(&session, start).await?);
            response.header = header_after(&session);
            Ok(response)
        };
        self.once(&session, once, &request, started).await.map(Response::new)
    }

    type DownloadBackupStream = Pin<Box<dyn Stream<Item = Result<DownloadBackupResponse, Status>> + Send>>;

    async fn download_backup(
        &self,
        request: Request<DownloadBackupRequest>,
    ) -> Result<Response<Self::DownloadBackupStream>, Status> {
        let session = self.begin(&request).await?;
        let file = self.backup(&session, "get", &request.into_inner().name).await?;
        let files = self.host.backups();
        let opened = blocking(&*self.host, move || files.open(&file.name)).await?;
        let sending = Sending {
            service: self.clone(),
            header: session.header(),
            file: Arc::new(Mutex::new((opened.map_err(|error| io_failure(&error))?, Sha256::new()))),
        };
        let stream = futures_util::stream::unfold(Some(sending), |sending| async {
            let sending = sending?;
            match sending.next().await {
                Ok(message) if message.sha256.is_empty() => Some((Ok(message), Some(sending))),
                last => Some((last, None)),
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn upload_backup(
        &self,
        request: Request<Streaming<UploadBackupRequest>>,
    ) -> Result<Response<UploadBackupResponse>, Status> {
        let session = self.begin(&request).await?;
        session.administer("post", PATH)?;
        self.upload(&session, request.into_inner()).await.map(Response::new)
    }
}

/// A file that is being read, and the hash of the bytes so far.
type Hashed = (Box<dyn Read + Send>, Sha256);

/// A download.
struct Sending {
    service: AdminService,
    header: Option<ResponseHeader>,
    file: Arc<Mutex<Hashed>>,
}

impl Sending {
    /// Reads the next message: the hash after the last bytes.
    async fn next(&self) -> Result<DownloadBackupResponse, Status> {
        let file = Arc::clone(&self.file);
        let read = blocking(&*self.service.host, move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let (file, hash) = &mut *file;
            let mut data = Vec::with_capacity(CHUNK_BYTES);
            file.take(CHUNK_BYTES as u64).read_to_end(&mut data)?;
            hash.update(&data);
            let sha256 = match data.is_empty() {
                true => HEXLOWER.encode(&hash.clone().finalize()),
                false => String::new(),
            };
            Ok::<_, std::io::Error>((data, sha256))
        });
        let (data, sha256) = read.await?.map_err(|error| io_failure(&error))?;
        Ok(DownloadBackupResponse {
            header: self.header.clone(),
            data,
            sha256,
        })
    }
}

impl AdminService {
    /// Starts an operation, unless the caller wants a check alone.
    async fn started(
        &self,
        session: &Session,
        start: Start<'_>,
        validate_only: bool,
    ) -> Result<Option<Operation>, Status> {
        match validate_only {
            true => Ok(None),
            false => self.start(session, start).await.map(Some),
        }
    }

    /// Finds the workspace of a backup. Administrators learn whether it exists.
    fn locate_for_backup(&self, session: &Session, path: &str) -> Result<Located, Status> {
        let path = parse_path(path)?;
        let cluster = locate::locate(&session.snapshot, &path)
            .map_err(|_| Status::not_found(format!("workspace {path} not found, or not available")))?;
        if cluster == ClusterName::root() || cluster.is_system() {
            return Err(status::invalid(
                "workspace",
                format!("{path} is the installation: set installation instead"),
            ));
        }
        let path = locate::path_of(&session.snapshot, &cluster);
        Ok(Located { cluster, path })
    }

    /// Finds a backup by a name that a caller gives.
    async fn backup(&self, session: &Session, verb: impl Into<RoleVerb>, name: &str) -> Result<BackupFile, Status> {
        session.administer(verb, PATH)?;
        if !backups::is_name(name) {
            return Err(status::invalid(
                "name",
                "is required, and has lower-case letters, digits and -",
            ));
        }
        let (host, name) = (Arc::clone(&self.host), name.to_owned());
        let asked = name.clone();
        let found = blocking(&*self.host, move || backups::find(&*host, &name)).await?;
        found.map_err(|failure| match failure.code {
            Code::NotFound => Fault::new(failure.code, ErrorReason::NotFound, failure.message)
                .resource(RESOURCE, &asked)
                .status(),
            _ => failure.into(),
        })
    }

    /// Returns the path of the workspace to restore, `root` for the installation, after the checks
    /// that take no reading.
    fn restorable(
        &self,
        session: &Session,
        file: &BackupFile,
        request: &RestoreBackupRequest,
    ) -> Result<String, Status> {
        let header = &file.summary.header;
        precondition::of_this_installation(header, &session.snapshot)?;
        let path = match (request.workspace.as_str(), header.workspace.as_str()) {
            ("", "") => ClusterPath::from(&ClusterName::root()),
            ("", path) | (path, _) => parse_path(path)?,
        };
        if !request.overwrite && locate::locate(&session.snapshot, &path).is_ok() {
            return Err(precondition::exists(path.as_str()).into());
        }
        Ok(path.to_string())
    }

    /// Compares the store with a backup.
    async fn changes(
        &self,
        session: &Session,
        name: &str,
        path: String,
        overwrite: bool,
    ) -> Result<RestoreChanges, Status> {
        let (snapshot, host, name) = (session.snapshot.clone(), Arc::clone(&self.host), name.to_owned());
        let compared = blocking(&*self.host, move || {
            let wanted = Wanted::read(|| host.backups().open(&name), &path, &snapshot)?;
            precondition::check(&snapshot, &wanted.tree, overwrite)?;
            let now = Links::of_snapshot(&snapshot);
            let changes = wanted.compare(&snapshot, &now, |_| true);
            let deleted = wanted.superfluous(&now).into_iter();
            let deleted: Vec<String> = deleted
                .map(|name| locate::path_of(&snapshot, name).to_string())
                .collect();
            Ok::<_, Failure>((wanted, changes, deleted))
        });
        let (wanted, changes, deleted) = compared.await??;
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let first = |mut paths: Vec<String>| {
            paths.sort_unstable();
            paths.truncate(WORKSPACES_MAX);
            paths
        };
        Ok(RestoreChanges {
            workspaces: first(wanted.tree.clusters.values().map(ToString::to_string).collect()),
            deleted_workspaces: first(deleted),
            created: count(changes.counts.created),
            updated: count(changes.counts.updated),
            deleted: count(changes.counts.deleted),
            unchanged: count(changes.counts.unchanged),
        })
    }
}

fn once(request_id: &str, validate_only: bool) -> Once<'_> {
    Once {
        request_id,
        validate_only,
    }
}

fn parse_path(path: &str) -> Result<ClusterPath, Status> {
    workspace_path("workspace", path)
}

fn describe(file: &BackupFile) -> Backup {
    let summary = &file.summary;
    let header = &summary.header;
    let time = Timestamp::parse(&header.created);
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Backup {
        name: file.name.clone(),
        workspace: header.workspace.clone(),
        cluster: header.cluster.clone(),
        create_time: time.map(|time| prost_types::Timestamp {
            seconds: time.0,
            nanos: 0,
        }),
        revision: header.revision.0,
        version: header.version.clone(),
        installation: header.installation.clone(),
        objects: count(summary.objects),
        bytes: count(file.bytes),
        sha256: summary.hash.to_string(),
    }
}
