//! Versions of etcd whose watches may lose events.

use insula_e2e::{Etcd, PATIENCE, Server, etcd_programs, insula, run_bounded};
use serde_json::Value;

/// The doctor and the server's log have the same judgement of the etcd that is there: a warning
/// about Debian's, and none about a later one.
#[test]
fn a_version_that_may_lose_events_is_told() {
    for program in etcd_programs() {
        let etcd = Etcd::cluster(&program, 1);
        let store = etcd.store();
        let server = Server::with_flags(&["--store", &store]);
        let mut command = insula(&["doctor", "-o", "json"]);
        let output = run_bounded(command.env("INSULA_STORE", &store), "", PATIENCE);
        let found: Vec<Value> = serde_json::from_slice(&output.stdout).expect("findings");
        let found = found.into_iter().find(|finding| finding["check"] == "etcd");
        let found = found.expect("a finding about etcd");
        let detail = found["detail"].as_str().unwrap_or_default();
        let old = ["version 3.4.2", "version 3.4.30"];
        let is_old = old.iter().any(|version| detail.contains(version));
        let verdict = if is_old { "warning" } else { "ok" };
        assert_eq!(found["verdict"], verdict, "{found}");
        assert_eq!(server.log().contains("may lose events"), is_old, "{found}");
    }
}
