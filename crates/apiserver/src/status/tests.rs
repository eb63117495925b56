use super::*;
use insula_api::{FieldPath, Revision, Verb};
use insula_auth::Attributes;
use insula_edge::guard::Limit;
use insula_pipeline::{Clusters, Refusal};

fn resource(group: &str, resource: &str) -> Named {
    Named {
        group: group.into(),
        resource: resource.into(),
    }
}

fn check(reply: &StatusReply, code: u16, reason: &str, message: &str, details: Option<Json>) {
    let got = (
        reply.code,
        &reply.body["code"],
        &reply.body["reason"],
        &reply.body["message"],
    );
    assert_eq!(got, (code, &json!(code), &json!(reason), &json!(message)));
    assert_eq!(reply.body.get("details"), details.as_ref(), "{message}");
    assert_eq!(reply.body["status"], "Failure");
    assert_eq!(reply.body["metadata"], json!({}));
}

/// An error, its code, reason and message, and its details.
type Row<'a> = (Error, u16, &'a str, &'a str, Option<Json>);

fn check_errors(rows: &[Row<'_>]) {
    for (error, code, reason, message, details) in rows {
        check(&status(error), *code, reason, message, details.clone());
    }
}

fn widgets() -> Named {
    resource("example.io", "widgets")
}

fn of_a() -> Json {
    json!({"name": "a", "group": "example.io", "kind": "widgets"})
}

#[test]
fn missing_and_conflicting_objects_have_kubernetes_reasons() {
    let name = || "a".to_owned();
    check_errors(&[
        (
            Error::NotFound {
                resource: widgets(),
                name: name(),
            },
            404,
            "NotFound",
            r#"widgets.example.io "a" not found"#,
            Some(of_a()),
        ),
        (
            Error::NotFound {
                resource: resource("", "configmaps"),
                name: name(),
            },
            404,
            "NotFound",
            r#"configmaps "a" not found"#,
            Some(json!({"name": "a", "kind": "configmaps"})),
        ),
        (
            Error::UnknownResource,
            404,
            "NotFound",
            "the server could not find the requested resource",
            Some(json!({})),
        ),
        (
            Error::AlreadyExists {
                resource: widgets(),
                name: name(),
                deleting: true,
            },
            409,
            "AlreadyExists",
            r#"object is being deleted: widgets.example.io "a" already exists"#,
            Some(of_a()),
        ),
        (
            Error::NoFreeName {
                resource: widgets(),
                name: "made-".into(),
            },
            409,
            "AlreadyExists",
            r#"widgets.example.io "made-" already exists, the server was not able to generate a unique name for the object"#,
            Some(json!({"name": "made-", "group": "example.io", "kind": "widgets", "retryAfterSeconds": 1})),
        ),
        (
            Error::Conflict {
                resource: widgets(),
                name: name(),
                detail: "no".into(),
            },
            409,
            "Conflict",
            r#"Operation cannot be fulfilled on widgets.example.io "a": no"#,
            Some(of_a()),
        ),
    ]);
}

/// Over HTTP only; other protocols tell a quota from a missing right.
#[test]
fn a_full_quota_is_forbidden() {
    let full = Error::QuotaExceeded {
        resource: widgets(),
        name: "a".to_owned(),
        why: "exceeded quota".to_owned(),
    };
    let message = r#"widgets.example.io "a" is forbidden: exceeded quota"#;
    check_errors(&[(full, 403, "Forbidden", message, Some(of_a()))]);
}

#[test]
fn invalid_requests_have_kubernetes_reasons() {
    let size = FieldPath::new("spec").child("size");
    check_errors(&[
        (
            Error::Invalid {
                subject: resource("example.io", "Widget"),
                name: String::new(),
                errors: vec![
                    FieldError::invalid(&size, &json!(0), "too small"),
                    FieldError::required(&FieldPath::root(), ""),
                ],
            },
            422,
            "Invalid",
            r#"Widget.example.io "" is invalid: [spec.size: Invalid value: 0: too small, <nil>: Required value]"#,
            Some(json!({"group": "example.io", "kind": "Widget", "causes": [
                {"reason": "FieldValueInvalid", "message": "Invalid value: 0: too small", "field": "spec.size"},
                {"reason": "FieldValueRequired", "message": "Required value", "field": "<nil>"},
            ]})),
        ),
        (Error::BadRequest("no".into()), 400, "BadRequest", "no", None),
        (
            Error::Forbidden {
                resource: widgets(),
                name: "a".to_owned(),
                why: "no".into(),
                cause: Some(Box::new(Cause {
                    reason: String::new(),
                    message: "m".into(),
                    field: String::new(),
                })),
            },
            403,
            "Forbidden",
            r#"widgets.example.io "a" is forbidden: no"#,
            Some(json!({"name": "a", "group": "example.io", "kind": "widgets", "causes": [{"message": "m"}]})),
        ),
        (
            Error::MethodNotAllowed,
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
            Some(json!({})),
        ),
        (
            Error::BadPatch,
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
            Some(json!({})),
        ),
        (
            Error::TooLarge("big".into()),
            413,
            "RequestEntityTooLarge",
            "Request entity too large: big",
            None,
        ),
    ]);
}

#[test]
fn overload_and_failures_have_kubernetes_reasons() {
    check_errors(&[
        (
            Error::TooManyRequests("wait".into()),
            429,
            "TooManyRequests",
            "wait",
            Some(json!({"retryAfterSeconds": 1})),
        ),
        (
            Error::RevisionTooLarge {
                wanted: Revision(9),
                current: Revision(3),
            },
            504,
            "Timeout",
            "Timeout: Too large resource version: 9, current: 3",
            Some(json!({"retryAfterSeconds": 1, "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]})),
        ),
        (
            Error::Internal("x".into()),
            500,
            "InternalError",
            "Internal error occurred: x",
            Some(json!({"causes": [{"message": "x"}]})),
        ),
    ]);
}

#[test]
fn answers_that_never_reach_the_registry() {
    let of = |refusal: Refusal| match refused(&refusal) {
        Refused::Status(status) => *status,
        Refused::Page(page) => panic!("{page:?}"),
    };
    let why = r#"events is forbidden: User "ada" cannot list resource "events": access denied"#;
    let events = Attributes {
        resource: "events".into(),
        is_resource_request: true,
        ..Attributes::default()
    };
    check(
        &of(Refusal::forbidden(why.to_owned(), &events)),
        403,
        "Forbidden",
        why,
        Some(json!({"kind": "events"})),
    );
    check(
        &of(Refusal::forbidden("forbidden: no".to_owned(), &Attributes::default())),
        403,
        "Forbidden",
        "forbidden: no",
        Some(json!({})),
    );
    let not_supported = Refusal::NotSupported {
        resource: resource("example.io", "widgets"),
        verb: Some(Verb::Delete),
        clusters: Clusters::One,
    };
    check(
        &of(not_supported),
        405,
        "MethodNotAllowed",
        r#"delete is not supported on resources of kind "widgets.example.io""#,
        Some(json!({"group": "example.io", "kind": "widgets"})),
    );
    check(&of(Refusal::Unauthenticated), 401, "Unauthorized", "Unauthorized", None);
    assert_eq!(of(Limit(String::new()).into()).retry_after, Some(1));
    assert_eq!(status(&Error::Unavailable("?".into())).retry_after, None);
}

#[test]
fn an_expired_list_has_a_continue_token() {
    let reply = status(&Error::Expired {
        message: "too old".into(),
        next: Some("t".into()),
    });
    assert_eq!((reply.code, &reply.body["reason"]), (410, &json!("Expired")));
    assert_eq!(reply.body["metadata"], json!({"continue": "t"}));
}

#[test]
fn a_deletion_names_its_object() {
    let reply = deleted(&resource("example.io", "widgets"), "a", "u-1");
    let want = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success",
        "details": {"name": "a", "group": "example.io", "kind": "widgets", "uid": "u-1"}});
    assert_eq!((reply.code, reply.body), (200, want));
}
