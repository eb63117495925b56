//! Memory that requests and answers hold during transmission.

use insula_e2e::{Client, Http1, Http2, Server, Setup, Who, until};
use serde_json::{Value, json};
use std::time::Duration;

const MAPS: &str = "/clusters/root/api/v1/namespaces/default/configmaps";

fn carol() -> Who {
    Who::Token("carol-token".into())
}

fn dave(server: &Server) -> Client {
    server.client(Who::Token("dave-token".into()))
}

/// Objects of 300 kB; 60 are a list of 18 MB.
fn fill(server: &Server, objects: usize) {
    let admin = server.admin();
    for n in 0..objects {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")},
            "data": {"a": "b".repeat(300_000)}});
        admin.post(MAPS, &map).expect(201);
    }
}

/// Returns the resident memory in MiB.
#[cfg(target_os = "linux")]
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

fn counted(admin: &Client, name: &str) -> u64 {
    let text = admin.get("/metrics").text;
    let count = text.lines().find_map(|line| line.strip_prefix(name));
    count.map_or(0, |count| count.trim().parse().unwrap())
}

/// 100 unread lists of 18 MB hold little memory, and the server resets their streams after a while.
/// The connection and its other streams stay.
#[test]
#[cfg(target_os = "linux")]
fn unread_lists_use_bounded_memory() {
    let server = Server::with(Setup::limits(&[("STALL_SECONDS", "3")]));
    fill(&server, 60);
    let closed = Http2::connect(&server, &carol(), Some(0)).unwrap();
    let before = resident(&server);
    let lists: Vec<_> = (0..100).map(|_| closed.get(MAPS).unwrap()).collect();
    assert!(lists.iter().all(|list| list.status() == 200));
    let grown = resident(&server).saturating_sub(before);
    eprintln!("100 lists of 18 MB with a window of 0: +{grown} MiB");
    assert!(grown < 150, "{before} MiB before, and {grown} MiB more");
    dave(&server).get(&format!("{MAPS}?limit=1")).expect(200);
    let reset = "insula_stalled_streams_reset_total";
    until("the streams are reset", || {
        (counted(&server.admin(), reset) >= 100).then_some(())
    });
    assert!(closed.is_open(), "the connection stays");
    assert_eq!(closed.get("/livez").unwrap().status(), 200);
    drop(lists);
}

/// A slow reader of a large list gets all of it.
#[test]
fn a_large_list_arrives_complete() {
    let server = Server::with(Setup::limits(&[("STALL_SECONDS", "3"), ("BYTES_IN_FLIGHT", "100000")]));
    fill(&server, 20);
    for (accept, wrapped) in [
        ("application/json", "items"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "rows"),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "items",
        ),
        ("application/yaml", ""),
    ] {
        for encoding in ["identity", "gzip"] {
            let asked = [("accept", accept), ("accept-encoding", encoding)];
            // The bytes of the previous answer count until the server has noticed that they are
            // sent.
            let list = until("alone every list is answered", || {
                let list = server.admin().get_with(MAPS, &asked);
                (list.code != 429).then_some(list)
            });
            assert_eq!(list.code, 200, "{accept}");
            let text = match list.headers.get("content-encoding") {
                Some(_) => std::io::read_to_string(flate2::read::GzDecoder::new(&*list.bytes)).unwrap(),
                None => list.text,
            };
            if !wrapped.is_empty() {
                let list: Value = serde_json::from_str(&text).unwrap();
                let items = list[wrapped].as_array().unwrap();
                assert!(items.len() >= 20, "{accept} {encoding}");
            }
        }
    }
    let list = until("alone it is answered", || {
        let list = server.admin().get(MAPS);
        (list.code != 429).then(|| list.expect(200))
    });
    let named = |name: &str| {
        list["items"]
            .as_array()?
            .iter()
            .find(|item| item["metadata"]["name"] == name)
    };
    assert_eq!(named("m7").unwrap()["data"]["a"].as_str().map(str::len), Some(300_000));
    assert_eq!(
        (&list["kind"], named("m7").unwrap().get("kind")),
        (&json!("ConfigMapList"), None)
    );
    let slow = Http2::connect(&server, &carol(), Some(100_000)).unwrap();
    // The list before may still be in flight.
    let body = until("a slow reader is answered", || {
        let answer = slow.get(MAPS).unwrap();
        (answer.status() != 429).then_some(answer)
    });
    let length = insula_e2e::runtime().block_on(async {
        use http_body_util::BodyExt;
        let (mut body, mut length) = (body.into_body(), 0);
        while let Some(frame) = body.frame().await {
            length += frame.unwrap().data_ref().map_or(0, bytes::Bytes::len);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        length
    });
    assert!(length > 20 * 300_000, "{length}");
}

/// A client over HTTP/1.1 that requests a list and reads nothing loses its connection.
#[test]
fn connections_that_read_nothing_are_closed() {
    let server = Server::with(Setup::limits(&[("STALL_SECONDS", "1")]));
    fill(&server, 60);
    let mut stalled = Http1::connect(&server, &carol()).unwrap();
    stalled.send_get(MAPS).unwrap();
    let closed = "insula_connections_closed_total{reason=\"Stalled\"} ";
    until("the connection is closed", || {
        (counted(&server.admin(), closed) == 1).then_some(())
    });
    assert!(stalled.ends_within(Duration::from_secs(30)));
}

/// A request keeps its permit until the last byte of its answer is sent. Otherwise unread answers
/// would have no limit.
#[test]
fn unread_answers_keep_their_permits() {
    let server = Server::with(Setup::limits(&[
        ("REQUESTS_IN_FLIGHT_PER_USER", "5"),
        ("STALL_SECONDS", "3"),
    ]));
    fill(&server, 2);
    let closed = Http2::connect(&server, &carol(), Some(0)).unwrap();
    let unread: Vec<_> = (0..5).map(|_| closed.get(MAPS).unwrap()).collect();
    assert!(unread.iter().all(|list| list.status() == 200));
    let carols = server.client(carol());
    let refused = carols.get(&format!("{MAPS}?limit=1"));
    assert_eq!(
        (refused.code, refused.headers["retry-after"].to_str().unwrap()),
        (429, "1")
    );
    dave(&server).get(&format!("{MAPS}?limit=1")).expect(200);
    until("the places are free again", || {
        (carols.get(&format!("{MAPS}?limit=1")).code == 200).then_some(())
    });
    drop(unread);
}

/// The request bodies and answers of one user that are in memory at once have a limit. The server
/// takes a single one of any size.
#[test]
fn bytes_in_flight_have_limits() {
    let server = Server::with(Setup::limits(&[("BYTES_IN_FLIGHT_PER_USER", "1000000")]));
    fill(&server, 10);
    let length = 2_000_000;
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer carol-token\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut held = Http1::connect(&server, &carol()).unwrap();
    held.write(head.as_bytes()).unwrap();
    held.write(&[b' '; 100_000]).unwrap();
    let yaml = [("accept", "application/yaml")];
    let carols = server.client(carol());
    let refused = until("carol's body is on its way", || {
        let answer = carols.get_with(MAPS, &yaml);
        (answer.code == 429).then_some(answer)
    });
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(
        refused
            .text
            .contains("requests and answers of the user hold 1000000 bytes, and may hold no more at once"),
        "{}",
        refused.text
    );
    assert_eq!(
        carols.get(&format!("{MAPS}/m1")).code,
        429,
        "an object of 300 kB is counted, too"
    );
    carols.get("/clusters/root/api/v1/namespaces/default").expect(200);
    assert_eq!(dave(&server).get_with(MAPS, &yaml).code, 200, "others are not touched");
    drop(held);
    until("carol's body is gone", || {
        (carols.get_with(MAPS, &yaml).code == 200).then_some(())
    });
}
