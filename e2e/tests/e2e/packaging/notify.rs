//! Service managers and shared keys.

use std::{fs, os::unix::fs::PermissionsExt, os::unix::net::UnixDatagram, path::Path};

use insula_e2e::{PATIENCE, Server, Setup, Who};
use tempfile::TempDir;

fn setup(variables: &[(&str, &str)]) -> Setup {
    let variable = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Setup {
        environment: variables.iter().map(variable).collect(),
        ..Setup::default()
    }
}

#[test]
fn the_service_manager_hears_ready_signs_of_life_and_stopping() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut buffer = [0; 512];
        let length = manager.recv(&mut buffer).expect("a message arrives");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let server = Server::with(setup(&[
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", "200000"),
    ]));
    assert_eq!(next(), format!("READY=1\nSTATUS=Serving {}", server.url()));
    assert_eq!((next(), next()), ("WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned()));
    server.signal("-TERM");
    let last = std::iter::repeat_with(next).find(|message| message != "WATCHDOG=1");
    assert!(last.is_some_and(|message| message.starts_with("STOPPING=1\n")));
    let (code, log) = server.wait();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn a_socket_that_nobody_reads_stops_no_server() {
    let folder = TempDir::new().unwrap();
    let absent = folder.path().join("absent");
    let server = Server::with(setup(&[("NOTIFY_SOCKET", absent.to_str().unwrap())]));
    server.admin().get("/version").expect(200);
    assert!(
        server.log().contains("the service manager cannot be told"),
        "{}",
        server.log()
    );
}

#[test]
fn servers_with_shared_keys_accept_the_same_certificates() {
    let (first, folder) = (Server::start(), TempDir::new().unwrap());
    for name in ["ca.crt", "ca.key", "service-accounts.key"] {
        fs::copy(first.data_dir().join("pki").join(name), folder.path().join(name)).unwrap();
    }
    let keys = [("INSULA_SHARED_KEYS", folder.path().to_str().unwrap())];
    let second = Server::with(setup(&keys));
    let ca = |data: &Path| fs::read_to_string(data.join("pki/ca.crt")).unwrap();
    assert_eq!(ca(&first.data_dir()), ca(&second.data_dir()));
    let of_first = insula_e2e::Client::new(second.url(), &first.data_dir(), Who::KcpAdmin);
    of_first.get("/version").expect(200);

    let key = folder.path().join("ca.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let stopped = second.stopped();
    let refusal = stopped.start().map(drop).unwrap_err();
    assert!(
        refusal.contains("exit status: 5") && refusal.contains("ca.key"),
        "{refusal}"
    );
}
