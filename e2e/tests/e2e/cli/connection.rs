//! Connections that break, and credentials that a server refuses.

use insula_e2e::{Hostile, Then};

use super::Shell;

/// Runs of a command against a server that hangs up. Which write or read of the client meets the
/// closed connection is a matter of chance.
const RUNS: usize = 60;

/// A connection that the server closes is an error, and not a reader of the output that is gone:
/// writes to both fail with EPIPE.
#[test]
fn a_dropped_connection_is_an_error() {
    let server = Hostile::start("127.0.0.1", |_| (Vec::new(), Then::Drop));
    let shell = Shell::with("{}");
    for _ in 0..RUNS {
        let error = shell.fails(&[
            "access",
            "grant",
            "bob",
            "-s",
            &format!("{}/clusters/root:a", server.url()),
            "--insecure-skip-tls-verify",
            "--token",
            "t",
        ]);
        assert!(error.starts_with("error: "), "{error}");
    }
    assert!(server.requests() > 0, "no request reached the server");
}
