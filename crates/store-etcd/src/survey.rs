//! Survey of the members of an etcd, for checks of an installation.

use etcd_client::{Client, Error, StatusResponse};

use crate::{
    Options,
    keys::Keys,
    members::connect_options,
    read_header,
    version::{self, Trust},
};

/// State of a member, in its own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// Version of the program, as `3.6.5`.
    pub version: String,
    /// Number of its cluster.
    pub cluster: u64,
    /// True for the leader.
    pub leads: bool,
    /// True for a member that has no vote and serves no reads of the majority.
    pub is_learner: bool,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Bytes of its file that hold data.
    pub used_bytes: u64,
    /// Bytes that the file may have, after which etcd refuses writes; 0 if it does not say so,
    /// which versions before 3.6 do not.
    pub quota_bytes: u64,
    /// Alarms of the cluster and complaints of the member, as etcd words them.
    pub errors: Vec<String>,
    /// The reason why our keys cannot be read through this member from a majority.
    pub unreadable: Option<String>,
}

/// Asks a member for its state, and reads a key under `prefix` through it. A read changes nothing.
///
/// # Errors
/// The credentials cannot be read, or the member refuses or does not answer within the time of an
/// attempt.
pub async fn survey(endpoint: &str, prefix: &str, options: &Options) -> Result<MemberStatus, String> {
    let credentials = (options.credentials)()?;
    let mut connect = connect_options(options, credentials);
    // A member without a leader is to say so itself.
    connect = connect.with_require_leader(false);
    let late = |what: &str| format!("{what} within {:?}", options.attempt_timeout);
    let asked = async {
        let client = Client::connect([endpoint], Some(connect)).await?;
        let status = client.maintenance_client().status().await?;
        Ok::<_, Error>((client.kv_client(), status))
    };
    let (kv, status) = match options.timeout(options.attempt_timeout, Box::pin(asked)).await {
        Ok(answered) => answered.map_err(|error| described(&error))?,
        Err(_) => return Err(late("no answer")),
    };
    let key = Keys::new(prefix).tick();
    let unreadable = match options.timeout(options.attempt_timeout, read_header(kv, key)).await {
        Ok(read) => read.err().map(|error| described(&error)),
        Err(_) => Some(late("no answer of a majority")),
    };
    Ok(MemberStatus {
        unreadable,
        ..read(&status)
    })
}

impl MemberStatus {
    /// Returns the judgement of its version by the settings.
    pub fn trust(&self, accept_old_versions: bool) -> Trust {
        version::trust(&self.version, accept_old_versions)
    }
}

fn read(status: &StatusResponse) -> MemberStatus {
    let bytes = |count: i64| u64::try_from(count).unwrap_or_default();
    let header = status.header();
    let member = header.map_or(0, |header| header.member_id());
    MemberStatus {
        version: status.version().to_owned(),
        cluster: header.map_or(0, |header| header.cluster_id()),
        leads: member != 0 && status.leader() == member,
        is_learner: status.is_learner(),
        file_bytes: bytes(status.db_size()),
        used_bytes: bytes(status.raft_used_db_size()),
        quota_bytes: bytes(status.db_size_quota()),
        errors: status.errors().iter().map(|error| error.trim().to_owned()).collect(),
        unreadable: None,
    }
}

/// Returns the cause of an error in one line.
fn described(error: &Error) -> String {
    if let Error::GRpcStatus(status) = error {
        return status.message().to_owned();
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}
