//! Connections: limits of addresses, idle time, file descriptors, half-open peers.

use insula_e2e::{Client, Http1, Http2, PATIENCE, Server, Setup, Who, until};
use std::{
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

const MAPS: &str = "/clusters/root/api/v1/namespaces/default/configmaps";

fn carol() -> Who {
    Who::Token("carol-token".into())
}

/// Opens anonymous connections that stay open: HTTP/2 with one answered request, so that no timeout
/// ends them.
fn strangers(server: &Server, count: usize) -> Vec<Http2> {
    let connect = |_| Http2::connect(server, &Who::Anonymous, None).ok();
    (0..count).map_while(connect).collect()
}

fn open(connections: &[Http2]) -> usize {
    connections.iter().filter(|connection| connection.is_open()).count()
}

fn closed(admin: &Client, reason: &str) -> u64 {
    let text = admin.get("/metrics").text;
    let name = format!("insula_connections_closed_total{{reason=\"{reason}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&name));
    count.map_or(0, |count| count.parse().unwrap())
}

/// 20 connections without a credential lock nobody out at a limit of 20, and close no connection
/// that has shown a credential.
#[test]
fn unauthenticated_connections_are_evicted_first() {
    let server = Server::with(Setup::limits(&[("CONNECTIONS", "20")]));
    let before = Http2::connect(&server, &carol(), None).unwrap();
    assert_eq!(before.get(MAPS).unwrap().status(), 200);
    let idle = strangers(&server, 30);
    let new = Http2::connect(&server, &carol(), None).expect("somebody with a credential gets a place");
    assert_eq!(new.get(MAPS).unwrap().status(), 200);
    assert_eq!(server.admin().get(MAPS).code, 200);
    assert_eq!(before.get(MAPS).unwrap().status(), 200, "who showed a credential stays");
    until("the oldest strangers are closed", || (open(&idle) <= 18).then_some(()));
    assert!(closed(&server.admin(), "Full") >= 12);
}

/// Idle connections of one account do not lock out others either.
#[test]
fn connections_of_one_user_are_evicted_for_other_users() {
    let server = Server::with(Setup::limits(&[("CONNECTIONS", "20")]));
    let dave = Http2::connect(&server, &Who::Token("dave-token".into()), None).unwrap();
    assert_eq!(dave.get(MAPS).unwrap().status(), 200);
    let idle: Vec<Http2> = (0..30)
        .map(|_| {
            let connection = Http2::connect(&server, &carol(), None).unwrap();
            assert_eq!(connection.get(MAPS).unwrap().status(), 200);
            connection
        })
        .collect();
    assert_eq!(server.admin().get(MAPS).code, 200);
    assert_eq!(
        dave.get(MAPS).unwrap().status(),
        200,
        "the account with most connections loses one"
    );
    until("carol has less than all places", || (open(&idle) < 19).then_some(()));
}

/// Sockets that send nothing or stop within a TLS handshake lock nobody out. A client that resets
/// its requests at once costs other clients no request.
#[test]
fn half_open_and_reset_connections_do_not_exhaust_the_limit() {
    let server = Server::with(Setup::limits(&[("CONNECTIONS", "100")]));
    let begun = Instant::now();
    let silent: Vec<TcpStream> = (0..800)
        .map(|n| {
            let mut socket = TcpStream::connect(server.address()).unwrap();
            if n % 2 == 0 {
                // The first bytes of a handshake; the server may have closed it by now.
                let _ = socket.write_all(&[0x16, 3, 1, 1, 0, 1]);
            }
            socket
        })
        .collect();
    assert_eq!(server.admin().get(MAPS).code, 200);
    assert!(
        begun.elapsed() < PATIENCE,
        "it waited for the time of handshakes to end"
    );
    drop(silent);
    let resets = Http2::connect(&server, &Who::Anonymous, None).unwrap();
    let taken_back = (0..5_000).take_while(|_| resets.ask_and_reset(MAPS)).count();
    assert!(taken_back > 0);
    assert_eq!(server.admin().get(MAPS).code, 200);
}

/// An address has a share of the limit for anonymous connections. Beyond it, the server closes the
/// oldest idle connection of the address for the new one.
#[test]
fn connections_of_one_address_have_a_limit() {
    let server = Server::with(Setup::limits(&[("CONNECTIONS_PER_ADDRESS", "5")]));
    let known = Http2::connect(&server, &carol(), None).unwrap();
    assert_eq!(known.get(MAPS).unwrap().status(), 200);
    let all = strangers(&server, 15);
    assert_eq!(all.len(), 15, "each of them is let in at first");
    until("five are left", || (open(&all) == 5).then_some(()));
    assert!(all[10..].iter().all(Http2::is_open), "the newest stay");
    assert_eq!(known.get(MAPS).unwrap().status(), 200);
    assert!(closed(&server.admin(), "Address") >= 10);
}

/// An idle connection ends after a while, in both versions of HTTP. A quiet watch is not idle.
#[test]
fn idle_connections_end() {
    let server = Server::with(Setup::limits(&[("IDLE_SECONDS", "1")]));
    let mut http1 = Http1::connect(&server, &carol()).unwrap();
    assert_eq!(http1.get(MAPS).unwrap(), 200);
    let http2 = Http2::connect(&server, &carol(), None).unwrap();
    drop(http2.get(MAPS).unwrap());
    let watching = Http2::connect(&server, &carol(), None).unwrap();
    let watch = watching.get(&format!("{MAPS}?watch=true")).unwrap();
    assert!(http1.ends_within(Duration::from_secs(30)));
    until("the idle one is closed", || (!http2.is_open()).then_some(()));
    let begun = Instant::now();
    until("more than the idle time has passed", || {
        (begun.elapsed() > Duration::from_secs(2)).then_some(())
    });
    assert!(watching.is_open());
    drop(watch);
    until("it is idle when its watch has ended", || {
        (!watching.is_open()).then_some(())
    });
    assert!(closed(&server.admin(), "Idle") >= 3);
}

/// Headers that arrive byte by byte end their connection, on the second request as on the first.
#[test]
fn slow_headers_end_their_connection() {
    let server = Server::with(Setup::limits(&[("HEADER_SECONDS", "1")]));
    let trickles = |mut connection: Http1| {
        for byte in b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "
            .iter()
            .chain(&[b'x'; 1000])
        {
            if connection.write(&[*byte]).is_err() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        true
    };
    assert!(!trickles(Http1::connect(&server, &carol()).unwrap()));
    let mut second = Http1::connect(&server, &carol()).unwrap();
    assert_eq!(second.get(MAPS).unwrap(), 200);
    // Between requests the idle timeout of connections applies.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(second.get(MAPS).unwrap(), 200);
    assert!(!trickles(second));
    // The first request has no longer timeout.
    assert!(
        Http1::connect(&server, &carol())
            .unwrap()
            .ends_within(Duration::from_secs(30))
    );
}

/// A process with few file descriptors accepts fewer connections, logs it, and always answers
/// health requests.
#[test]
fn out_of_file_descriptors_health_answers() {
    let server = Server::with(Setup {
        descriptors: Some(64),
        ..Setup::default()
    });
    let held = strangers(&server, 100);
    for path in ["/livez", "/readyz"] {
        let health = Http2::connect(&server, &Who::Anonymous, None).expect("there is a descriptor for health");
        assert_eq!(health.get(path).unwrap().status(), 200, "{path}");
    }
    let admin = server.admin();
    let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(admin.post(MAPS, &map).code, 201, "the store has its descriptors");
    drop(held);
    let log = server.log();
    assert!(
        log.contains("may have only 64 file descriptors: it takes 32 connections"),
        "{log}"
    );
}

/// The same when other parts of the process use the descriptors, which the connection limit does
/// not count.
#[test]
#[cfg(target_os = "linux")]
fn health_answers_on_the_spare_descriptor() {
    let server = Server::start();
    let pid = server.pid().to_string();
    let known = Http2::connect(&server, &carol(), None).unwrap();
    assert_eq!(known.get(MAPS).unwrap().status(), 200);
    // The first free number: only the spare one remains.
    let in_use = |number: &u64| std::fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_ok();
    let free = (0..).find(|number| !in_use(number)).unwrap();
    let limit = format!("--nofile={free}");
    let limited = std::process::Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status();
    if !limited.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no prlimit on this machine");
        return;
    }
    let mut all = Vec::new();
    // Other parts of the process may close theirs meanwhile.
    while open(&all) == all.len() && all.len() < 500 {
        let health = Http2::connect(&server, &Who::Anonymous, None).expect("there is a descriptor for health");
        assert_eq!(health.get("/livez").unwrap().status(), 200);
        all.push(health);
    }
    assert!(open(&all) < all.len(), "strangers give theirs up");
    assert_eq!(known.get(MAPS).unwrap().status(), 200);
}
