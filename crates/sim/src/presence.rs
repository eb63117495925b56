//! Records by which servers know of each other.

use insula_api::{Revision, Timestamp};
use insula_registry::{
    Deps,
    servers::{Server, record},
};
use insula_store::{CommitError, Txn};

/// Returns the name of each run of a server: one that starts again has the clusters that it had.
pub(crate) fn run_name(server: usize) -> String {
    format!("server-{server}")
}

/// Writes the record of a server, as one that is seen for ever: worlds have no time to write it
/// anew each few seconds.
pub(crate) async fn appear(deps: &Deps) -> Result<Revision, CommitError> {
    let own = Server {
        name: deps.team.run().to_owned(),
        url: deps.external_url.clone(),
        version: String::new(),
        started: 0,
        format: insula_store::FORMAT,
    };
    let writes = vec![record(&own, Timestamp(i64::MAX / 2))];
    let guards = Vec::new();
    deps.store.commit(Txn { guards, writes }).await
}
