//! Records by which servers know of each other.

use crate::{center::Center, dice::Dice};
use insula_api::{Revision, Timestamp};
use insula_registry::{
    Deps,
    servers::{Server, record},
};
use insula_store::{CommitError, Txn, Write};

/// Returns the name of each run of a server: one that starts again has the clusters that it had.
pub(crate) fn run_name(server: usize) -> String {
    format!("server-{server}")
}

/// Writes the records of servers anew, after time has passed. One may be late.
pub(crate) fn give_signs(servers: impl Iterator<Item = usize>, center: &Center, dice: &Dice) {
    for server in servers {
        if dice.chance(80) {
            center.write(sign_of(&run_name(server)));
        }
    }
}

/// Returns the write of a server's record. Its time counts for nobody: each write is a sign.
fn sign_of(run: &str) -> Write {
    let own = Server {
        name: run.to_owned(),
        url: String::new(),
        version: String::new(),
        started: 0,
        format: insula_store::FORMAT,
    };
    record(&own, Timestamp(i64::MAX / 2))
}

/// Writes the record of a server that begins.
pub(crate) async fn appear(deps: &Deps) -> Result<Revision, CommitError> {
    let writes = vec![sign_of(deps.team.run())];
    let guards = Vec::new();
    deps.store.commit(Txn { guards, writes }).await
}
