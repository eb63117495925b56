//! Row 21: bytes that a proxy and the server could parse as different requests (request smuggling).
//! The server reads them as one request or none, and never reads another request behind them on the
//! connection.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

use super::*;

/// Sends bytes on a connection of their own and returns the answer, until the server ends it.
fn answered(server: &Server, bytes: &str) -> String {
    let mut config = insula_e2e::tls(&server.data_dir(), &Who::Anonymous);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(bytes.as_bytes()).unwrap();
    // The server may have ended it already.
    let _ = stream.flush();
    let mut read = Vec::new();
    match stream.read_to_end(&mut read) {
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ) =>
        {
            panic!(
                "the connection stays open: {bytes:?}\n{}",
                String::from_utf8_lossy(&read)
            )
        }
        _ => String::from_utf8_lossy(&read).into_owned(),
    }
}

const HOST: &str = "Host: a\r\n";
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
const END: &str = "0\r\n\r\n";

/// Returns a GET by alice with more header fields.
fn get(maps: &str, fields: &str) -> String {
    format!("GET {maps} HTTP/1.1\r\nAuthorization: Bearer alice-token\r\n{fields}\r\n")
}

/// Returns requests that the server answers with 400, and the fault of each.
fn malformed(maps: &str) -> Vec<(&'static str, String)> {
    let get = |fields: &str| get(maps, fields);
    vec![
        (
            "an unknown encoding",
            get(&format!("{HOST}Transfer-Encoding: xchunked\r\n")),
        ),
        ("no encoding", get(&format!("{HOST}Transfer-Encoding: identity\r\n"))),
        (
            "chunks within",
            get(&format!("{HOST}Transfer-Encoding: chunked, identity\r\n")),
        ),
        (
            "a second encoding",
            get(&format!("{HOST}{CHUNKED}Transfer-Encoding: identity\r\n")),
        ),
        (
            "chunks in quotes",
            get(&format!("{HOST}Transfer-Encoding: \"chunked\"\r\n")),
        ),
        (
            "chunks in HTTP/1.0",
            get(&format!("{HOST}{CHUNKED}")).replace("HTTP/1.1", "HTTP/1.0") + END,
        ),
        (
            "two lengths",
            get(&format!("{HOST}Content-Length: 0\r\nContent-Length: 9\r\n")),
        ),
        ("a list of lengths", get(&format!("{HOST}Content-Length: 0, 0\r\n"))),
        ("a signed length", get(&format!("{HOST}Content-Length: +0\r\n"))),
        ("a negative length", get(&format!("{HOST}Content-Length: -1\r\n"))),
        ("another base", get(&format!("{HOST}Content-Length: 0x0\r\n"))),
        (
            "a length beyond numbers",
            get(&format!("{HOST}Content-Length: 18446744073709551616\r\n")),
        ),
        ("space before the colon", get(&format!("{HOST}Content-Length : 9\r\n"))),
        (
            "a folded field",
            get(&format!("{HOST}X-A: b\r\n Content-Length: 9\r\n")),
        ),
        (
            "a return within a field",
            get(&format!("{HOST}X-A: b\rContent-Length: 9\r\n")),
        ),
        ("a NUL", get(&format!("{HOST}X-A: b\0c\r\n"))),
        ("two hosts", get(&format!("{HOST}Host: b\r\n"))),
        ("no host", get("")),
        (
            "another host in the URL",
            get(HOST).replace(maps, &format!("https://b{maps}")),
        ),
        ("no path", get(HOST).replace(maps, "b\\c")),
        ("another version", get(HOST).replace("HTTP/1.1", "HTTP/1.9")),
        ("two versions", get(HOST).replace("HTTP/1.1", "HTTP/1.1 HTTP/1.1")),
    ]
}

/// Returns requests that end their connection. Each is one request, read by its chunks (RFC 9112,
/// 6.3).
fn last_requests(maps: &str) -> Vec<(&'static str, String)> {
    let get = |fields: &str| get(maps, fields);
    vec![
        (
            "a length, then chunks",
            get(&format!("{HOST}Content-Length: 5\r\n{CHUNKED}")) + END,
        ),
        (
            "chunks, then a length",
            get(&format!("{HOST}{CHUNKED}Content-Length: 5\r\n")) + END,
        ),
        ("chunks that end wrongly", get(&format!("{HOST}{CHUNKED}")) + "0\n\n"),
        (
            "bare line feeds",
            get(&format!("{HOST}Connection: close\r\n")).replace("\r\n", "\n"),
        ),
    ]
}

#[test]
fn smuggled_requests_are_not_served() {
    let scene = Scene::new();
    let before = scene.settle();
    let maps = format!("/clusters/{}{MAPS}", scene.mine.path);
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"smuggled"}}"#;
    // Alice may send this request; bytes smuggled into her connection must not.
    let hidden = format!(
        "POST {maps} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer alice-token\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let refused = malformed(&maps);
    for (what, bytes) in refused {
        let answer = answered(&scene.server, &(bytes + &hidden));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: {answer}");
    }
    let last = last_requests(&maps);
    for (what, bytes) in last {
        let answer = answered(&scene.server, &(bytes + &hidden));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: {answer}");
    }
    assert_eq!(
        scene.settle(),
        before,
        "nothing behind a request was taken for another one"
    );
    let log = std::fs::read_to_string(scene.server.data_dir().join("audit/audit.log")).unwrap();
    assert!(log.contains("the Host header is not the request's authority"));
}
