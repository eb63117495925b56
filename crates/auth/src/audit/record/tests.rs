use super::*;
use crate::{attributes::Attributes, authorize::permit, rbac::ClusterFacts};
use insula_api::Timestamp;
use serde_json::json;
use std::sync::atomic::{AtomicI64, Ordering};

struct Ticks(AtomicI64);

impl Clock for Ticks {
    fn now(&self) -> Timestamp {
        Timestamp(self.now_micros() / 1_000_000)
    }

    fn now_micros(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Kept(Mutex<Vec<Json>>);

impl Sink for Kept {
    fn take(&self, event: Event) {
        let event = serde_json::to_value(&event).expect("is JSON");
        self.0.lock().expect("no panic").push(event);
    }
}

fn log(rules: Json) -> (Arc<Log>, Arc<Kept>) {
    let policy = Policy::parse(&json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}));
    let sink = Arc::new(Kept::default());
    let log = Log {
        policy: policy.expect("is one"),
        clock: Arc::new(Ticks(AtomicI64::new(1_700_000_000_000_007))),
        sink: sink.clone(),
    };
    (Arc::new(log), sink)
}

fn record(rules: Json) -> (Record, Arc<Kept>) {
    let (log, sink) = log(rules);
    let facts = Facts {
        id: "id".to_owned(),
        uri: "/clusters/root:a/api/v1/namespaces/n/configmaps".to_owned(),
        user_agent: "test".to_owned(),
        source_ips: vec!["127.0.0.1".to_owned()],
        ..Facts::default()
    };
    (Record::new(log, facts), sink)
}

fn attributes() -> Attributes {
    Attributes {
        verb: "create".into(),
        version: "v1".to_owned(),
        resource: "configmaps".to_owned(),
        namespace: "n".to_owned(),
        is_resource_request: true,
        cluster: ClusterName::parse("a").ok(),
        ..Attributes::default()
    }
}

#[test]
fn a_refusal_is_recorded_with_every_step_of_it() {
    let (record, sink) = record(json!([{"level": "Metadata", "omitStages": ["RequestReceived"]}]));
    let user = UserInfo::authenticated("ada", "7", Vec::new());
    record.about(attributes());
    record.known(&user);
    record.located(
        attributes().cluster.as_ref(),
        ClusterPath::parse("root:a").ok().as_ref(),
    );
    let refused = permit(&user, attributes(), &ClusterFacts::default()).expect_err("no step allows it");
    record.decided(false, &refused.reason, &refused.trail);
    record.sent(&json!({"metadata": {"name": "m"}}));
    record.status(&json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403}));
    record.answered(403);
    record.answered(200);
    let events = sink.0.lock().expect("no panic");
    let mut want = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "id",
        "stage": "ResponseComplete", "requestURI": "/clusters/root:a/api/v1/namespaces/n/configmaps", "verb": "create",
        "user": {"username": "ada", "uid": "7", "groups": ["system:authenticated"]},
        "sourceIPs": ["127.0.0.1"], "userAgent": "test",
        "objectRef": {"resource": "configmaps", "namespace": "n", "name": "m", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403},
        "requestReceivedTimestamp": "2023-11-14T22:13:20.000007Z",
        "stageTimestamp": "2023-11-14T22:13:20.000008Z",
    });
    let mut got = events[0].clone();
    let notes = got["annotations"].take();
    want["annotations"] = Json::Null;
    assert_eq!((got, events.len()), (want, 1));
    for (key, value) in [
        ("authorization.k8s.io/decision", "forbid"),
        ("authorization.k8s.io/reason", "no access to the workspace"),
        ("kcp.io/cluster", "a"),
        ("kcp.io/path", "root:a"),
        ("tenancy.kcp.io/workspace", "a"),
        ("request.auth.kcp.io/00-masters-decision", "NoOpinion"),
        ("request.auth.kcp.io/02-content-decision", "Denied"),
        ("request.auth.kcp.io/02-content-reason", "no access to the workspace"),
    ] {
        assert_eq!(notes[key], value, "{key} in {notes}");
    }
    assert!(
        notes.get("request.auth.kcp.io/05-local-decision").is_none(),
        "it was not asked"
    );
}

#[test]
fn stages_come_in_their_order_and_end() {
    let (record, sink) = record(json!([{"level": "Metadata"}]));
    record.about(attributes());
    record.known(&UserInfo::anonymous());
    let open = record.open();
    record.answered(200);
    drop(open);
    record.panicked();
    let (early, later) = self::record(json!([{"level": "Metadata", "omitStages": ["RequestReceived"]}]));
    drop(early.open());
    early.answered(200);
    let stages = |sink: &Kept| -> Vec<Json> {
        let events = sink.0.lock().expect("no panic");
        events.iter().map(|event| event["stage"].clone()).collect()
    };
    assert_eq!(
        stages(&sink),
        ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    );
    assert_eq!(stages(&later), ["ResponseComplete"]);
    let (nothing, sink) = self::record(json!([{"level": "None"}]));
    nothing.about(attributes());
    nothing.known(&UserInfo::anonymous());
    nothing.answered(200);
    assert!(stages(&sink).is_empty());
}

#[test]
fn objects_are_recorded_as_far_as_the_policy_says() {
    let object =
        json!({"metadata": {"name": "m", "managedFields": [{}]}, "items": [{"metadata": {"managedFields": []}}]});
    let bare = json!({"metadata": {"name": "m"}, "items": [{"metadata": {}}]});
    for (level, omit, want) in [
        ("Metadata", false, [None, None]),
        ("Request", false, [Some(&object), None]),
        ("RequestResponse", true, [Some(&bare), Some(&bare)]),
    ] {
        let (record, sink) =
            record(json!([{"level": level, "omitManagedFields": omit, "omitStages": ["RequestReceived"]}]));
        record.about(attributes());
        record.known(&UserInfo::anonymous());
        record.sent(&object);
        record.given(object.clone());
        record.note("a", &"é".repeat(NOTE_BYTES_MAX));
        record.answered(200);
        let events = sink.0.lock().expect("no panic");
        let got = ["requestObject", "responseObject"].map(|field| events[0].get(field));
        assert_eq!(got, want, "{level}");
        let note = events[0]["annotations"]["a"].as_str().map(str::len);
        assert_eq!(note, Some(NOTE_BYTES_MAX));
    }
}
