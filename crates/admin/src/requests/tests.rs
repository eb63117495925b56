use super::*;
use insula_meter::ServerWork;

fn key(payer: &str, id: u128) -> ObjectKey {
    let name = format!("{payer}/{}", Uid(id));
    ObjectKey::cluster_scoped(ids::requests(), ClusterName::bound_crds(), &name)
}

fn request(payer: &str, id: u128, fingerprint: &str) -> Request {
    Request {
        key: key(payer, id),
        fingerprint: fingerprint.to_owned(),
    }
}

async fn store(records: impl Iterator<Item = (ObjectKey, Json)>) -> insula_store::MemoryStore {
    use insula_store::{Store, Txn, Write};
    let store = insula_store::MemoryStore::new();
    for (key, record) in records {
        let object = insula_api::Object::new(&record, None).expect("a record");
        let txn = Txn {
            guards: Vec::new(),
            writes: vec![Write::Put(key, object.into())],
        };
        store.commit(txn).await.expect("it is stored");
    }
    store
}

#[test]
fn ids_are_uuids() {
    assert_eq!(parse_id("").expect("none"), None);
    let id = "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b11";
    assert!(parse_id(id).expect("an id").is_some());
    for wrong in ["x", "6f1b3ad094a54f4e9d3a0a7d3c5f2b11", &format!("{{{id}}}")] {
        assert_eq!(
            parse_id(wrong).expect_err("no id").code(),
            Code::InvalidArgument,
            "{wrong}"
        );
    }
}

#[test]
fn a_record_answers_its_own_request_alone() {
    let own = request("alice", 1, "f");
    let mut record = own.record(7, Timestamp(100));
    assert_eq!(own.answer(&record).expect("begun"), None);
    record["spec"]["done"] = json!(true);
    let not_kept = own.answer(&record).expect_err("no answer");
    assert_eq!(not_kept.code(), Code::FailedPrecondition);
    record["spec"]["answer"] = json!(HEXLOWER.encode(b"\x00\xffab"));
    assert_eq!(own.answer(&record).expect("done"), Some(b"\x00\xffab".to_vec()));
    let other = request("alice", 1, "g").answer(&record).expect_err("another request");
    assert_eq!(other.code(), Code::InvalidArgument);
    assert!(!is_expired(&record, Timestamp(100 + 24 * 3600 - 1)));
    assert!(is_expired(&record, Timestamp(100 + 24 * 3600)));
}

#[test]
fn a_request_runs_once_at_a_time() {
    struct Zero;
    impl Rng for Zero {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(0);
        }
    }
    let requests = Requests::new(&Zero, true);
    let running = requests.run(&key("alice", 1)).expect("it runs");
    assert!(requests.run(&key("alice", 1)).is_none());
    assert!(requests.run(&key("bob", 1)).is_some());
    drop(running);
    assert!(requests.run(&key("alice", 1)).is_some());
}

/// A user whose name begins with another one's has records of their own.
#[tokio::test]
async fn the_oldest_records_of_a_user_make_room() {
    use insula_store::Store;
    let record = |payer: &str, id| (key(payer, id), request(payer, id, "f").record(1, Timestamp(0)));
    let count = PER_USER_MAX as u128;
    // The oldest have the highest ids.
    let own = (0..count).map(|n| record("a", count - n));
    let others = (0..count).map(|n| record("a/b", n));
    let store = store(own.chain(others)).await;
    let new = request("a", 5_000, "f");
    let deleted = room(
        &store.latest().for_server(ServerWork::Tool),
        &new.key,
        new.payer_prefix(),
    );
    let names: Vec<&str> = deleted
        .iter()
        .map(|intent| match intent {
            Intent::Delete(entry) => &*entry.key.name,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names.len(), ROOM);
    assert!(names.contains(&&*key("a", count).name) && !names.contains(&&*key("a", 1).name));
    let known = request("a", 7, "f");
    assert!(
        room(
            &store.latest().for_server(ServerWork::Tool),
            &known.key,
            known.payer_prefix()
        )
        .is_empty(),
        "it has its place"
    );
}
