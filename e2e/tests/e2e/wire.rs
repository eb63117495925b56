//! What goes over the wire, beside plain JSON.

use std::io::Read;

use http::header;
use insula_e2e::{Answer, shared, workspace};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn unpacked(answer: &Answer) -> Value {
    let mut text = String::new();
    let mut gzip = flate2::read::GzDecoder::new(&answer.bytes[..]);
    gzip.read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A list that is large travels compressed, and is the same list; a small one and a watch travel as they are.
#[test]
fn large_answers_are_compressed() {
    let server = shared();
    let admin = server.admin();
    let client = admin.at(&workspace(&admin, "gzip").0);
    for i in 0..4 {
        let text = format!("{i} all work and no play\n").repeat(4000);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{i}")}, "data": {"text": text}});
        client.post(MAPS, &map).expect(201);
    }
    let gzip = [("accept-encoding", "gzip")];
    let (plain, packed) = (client.get(MAPS), client.get_with(MAPS, &gzip));
    assert!(!plain.headers.contains_key(header::CONTENT_ENCODING));
    assert_eq!(packed.headers[header::CONTENT_ENCODING], "gzip");
    assert!(packed.bytes.len() < plain.bytes.len() / 20, "{}", packed.bytes.len());
    assert_eq!(unpacked(&packed), plain.body);
    for small in [
        format!("{MAPS}/m0"),
        format!("{MAPS}?limit=1"),
        format!("{MAPS}?watch=true&timeoutSeconds=1"),
    ] {
        let answer = client.get_with(&small, &gzip);
        assert_eq!(
            (answer.code, answer.headers.get(header::CONTENT_ENCODING)),
            (200, None),
            "{small}"
        );
    }
    let openapi = client.get_with("/openapi/v3/api/v1", &gzip);
    assert_eq!(unpacked(&openapi)["openapi"], "3.0.0");
}
