use super::*;
use insula_api::{FieldError, FieldPath, Json, Revision, Verb};
use insula_apiserver::status::Refused;
use insula_auth::Attributes;
use insula_catalog::{Cause, Denial, Error, Named};
use insula_edge::guard::Limit;
use insula_pipeline::{Clusters, Refusal};
use serde_json::json;

#[test]
fn limits_say_when_to_call_again() {
    let refusal = Refusal::from(Limit("wait".to_owned()));
    let status = refused(&refusal);
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::ResourceExhausted,
            "Too many requests, please try again later: wait",
        )
    );
    assert_eq!(
        status.metadata().get("grpc-retry-pushback-ms").expect("a pushback"),
        "1000"
    );
    assert_eq!(status.metadata().get("retry-after").expect("a time"), "1");
    let details = rpc::read(status.details()).expect("details");
    let retry = rpc::RetryInfo::find(&details).expect("a time");
    assert_eq!(retry.retry_delay.map(|delay| delay.seconds), Some(1));
}

fn reason(status: &Status) -> String {
    let details = rpc::read(status.details()).expect("details");
    assert_eq!(
        (details.code, &*details.message),
        (i32::from(status.code()), status.message())
    );
    rpc::ErrorInfo::find(&details).expect("a reason").reason
}

fn served(code: u16, status: &Json, names: FieldNames) -> Status {
    elsewhere::of_answer(code, status.to_string().as_bytes(), None, names)
}

fn bad_fields(status: &Status) -> Vec<String> {
    let details = rpc::read(status.details()).expect("details");
    let fields = rpc::BadRequest::find(&details).unwrap_or_default().field_violations;
    fields.into_iter().map(|field| field.field).collect()
}

fn named() -> Named {
    Named {
        group: "example.io".into(),
        resource: "widgets".into(),
    }
}

#[test]
fn quotas_are_no_missing_rights() {
    let full = Error::QuotaExceeded {
        resource: named(),
        name: "a".to_owned(),
        why: "full".to_owned(),
    };
    let status = refused(&full.into());
    assert_eq!(
        (status.code(), &*reason(&status)),
        (Code::ResourceExhausted, "QUOTA_EXCEEDED")
    );
}

/// Errors about an object.
fn errors_about_objects() -> Vec<Error> {
    let field = FieldPath::new("spec").child("size");
    let errors = vec![FieldError::invalid(&field, &json!(0), "too small")];
    vec![
        Error::NotFound {
            resource: named(),
            name: "a".to_owned(),
        },
        Error::UnknownResource,
        Error::AlreadyExists {
            resource: named(),
            name: "a".to_owned(),
            deleting: true,
        },
        Error::NoFreeName {
            resource: named(),
            name: "a".to_owned(),
        },
        Error::Conflict {
            resource: named(),
            name: "a".to_owned(),
            detail: "changed".to_owned(),
        },
        Error::Invalid {
            subject: named(),
            name: "a".to_owned(),
            errors,
        },
        Error::Invalid {
            subject: named(),
            name: "a".to_owned(),
            errors: Vec::new(),
        },
    ]
}

/// Errors about parts of an object, and refusals of admission.
fn errors_of_admission() -> Vec<Error> {
    let denied = |denial| Error::Denied {
        resource: named(),
        name: "a".to_owned(),
        denial,
        message: "denied".to_owned(),
        causes: vec!["denied".to_owned()],
    };
    vec![
        Error::Mistyped("failed to create typed patch object (a/b; v1): .spec.c: field not declared in schema".into()),
        Error::Mistyped("no schema".into()),
        Error::BadRequest("strict decoding error: unknown field \"spec.a\"".into()),
        Error::Forbidden {
            resource: named(),
            name: String::new(),
            why: "no".into(),
            cause: Some(Box::new(Cause {
                reason: "FieldValueInvalid".into(),
                message: "no".into(),
                field: "spec.a".into(),
            })),
        },
        denied(Denial::Invalid),
        denied(Denial::Forbidden),
        denied(Denial::TooLarge),
        denied(Denial::Mutation),
        Error::Refused {
            message: "a webhook".into(),
            code: 418,
            reason: "Teapot".into(),
            details: json!({"causes": [{"field": "spec.a", "message": "no"}]}),
        },
    ]
}

/// Errors about requests and the server.
fn errors_about_requests() -> Vec<Error> {
    vec![
        Error::MethodNotAllowed,
        Error::Expired {
            message: "too old".into(),
            next: None,
        },
        Error::RevisionTooLarge {
            wanted: Revision(2),
            current: Revision(1),
        },
        Error::TooLarge("limit is 1".into()),
        Error::BadPatch,
        Error::Conversion("no".into()),
        Error::Webhook("no".into()),
        Error::Internal("no".into()),
        Error::Unavailable("no".into()),
        Error::InsufficientStorage("full".into()),
        Error::TooManyRequests("wait".into()),
        Error::UnsupportedMediaType("no".into()),
    ]
}

/// Refusals before a verb.
fn other_refusals() -> Vec<Refusal> {
    let right = Attributes {
        verb: Verb::Get.into(),
        group: "example.io".into(),
        resource: "widgets".into(),
        name: "a".to_owned(),
        is_resource_request: true,
        ..Attributes::default()
    };
    let supported = |clusters| Refusal::NotSupported {
        resource: named(),
        verb: Some(Verb::Create),
        clusters,
    };
    vec![
        Refusal::Unauthenticated,
        Refusal::forbidden("no".into(), &right),
        Refusal::forbidden("no".into(), &Attributes::default()),
        Refusal::from(Limit("wait".into())),
        Refusal::NotServed,
        Refusal::NoWorkspace,
        supported(Clusters::One),
        supported(Clusters::All),
        Refusal::NotInWorkspaces,
        Refusal::NotAcceptable("no".into()),
        Refusal::UnsupportedPatch,
        Refusal::HomeIsComing,
        Refusal::Timeout,
        Refusal::Panicked,
    ]
}

/// The same is told of a refusal whether this server refuses, or another one in Kubernetes' terms.
#[test]
fn refusals_of_this_server_and_of_others_agree() {
    let errors = [errors_about_objects(), errors_of_admission(), errors_about_requests()];
    let refusals = errors.concat().into_iter().map(Refusal::from).chain(other_refusals());
    for refusal in refusals {
        let (code, body, retry_after) = match insula_apiserver::status::refused(&refusal) {
            Refused::Status(status) => (status.code, status.body.to_string(), status.retry_after),
            Refused::Page(page) => (page.code, page.text.to_owned(), page.retry_after),
        };
        for names in [&[][..], &[("", "object")], &[("spec", "fields")]] {
            let told = elsewhere::of_answer(code, body.as_bytes(), retry_after, names);
            let own = refusal::of_refusal(&refusal, names);
            let parts = |status: &Status| (status.code(), status.message().to_owned(), status.details().to_vec());
            assert_eq!(parts(&own), parts(&told), "{refusal:?}");
        }
    }
}

/// A row: names of fields, code and Status of an answer, and the paths in the request.
#[test]
fn refusals_name_the_fields_of_the_request() {
    const APPLY: FieldNames = &[("fieldManager", "field_manager"), ("", "object")];
    const WORKSPACE: FieldNames = &[("metadata.name", "name"), ("metadata.labels", "labels")];
    let causes = |field: &str| json!({"message": "m", "details": {"causes": [{"field": field, "message": "m"}]}});
    let says = |message: &str| json!({"message": message});
    let strict = "strict decoding error: unknown field \"spec.a\", unknown field \"spec.b[0].c\"";
    let typed = "failed to create typed patch object (default/a; v1): .spec.c: field not declared in schema";
    let several = "failed to create typed patch object (default/a; v1): errors:\n  .spec.c: no\n  .spec.d: no";
    for (names, code, status, want) in [
        (APPLY, 422, causes("spec.a"), &["object.spec.a"][..]),
        (APPLY, 422, causes("fieldManager"), &["field_manager"]),
        (APPLY, 422, causes("<nil>"), &["object"]),
        (APPLY, 422, causes(".spec.a"), &["object.spec.a"]),
        (APPLY, 400, says("no such thing"), &["object"]),
        (APPLY, 400, says(strict), &["object.spec.a", "object.spec.b[0].c"]),
        (APPLY, 500, says(typed), &["object.spec.c"]),
        (APPLY, 500, says(several), &["object.spec.c", "object.spec.d"]),
        (WORKSPACE, 422, causes("metadata.name"), &["name"]),
        (WORKSPACE, 422, causes("metadata.labels"), &["labels"]),
        (
            WORKSPACE,
            422,
            causes("metadata.labelsOfOthers"),
            &["object.metadata.labelsOfOthers"],
        ),
        (WORKSPACE, 400, says("no such thing"), &[]),
        (&[], 422, causes("spec.a"), &["object.spec.a"]),
    ] {
        let got = served(code, &status, names);
        assert_eq!(bad_fields(&got), want, "{status}");
    }
}

#[test]
fn bytes_that_are_no_message_are_the_callers_fault() {
    let named = fault::undecodable("failed to decode Protobuf message: GetObjectRequest.name: invalid string value");
    assert_eq!(
        (named.code(), bad_fields(&named)),
        (Code::InvalidArgument, vec!["name".to_owned()])
    );
    let bare = fault::undecodable("failed to decode Protobuf message: buffer underflow");
    assert_eq!(
        (bare.code(), bare.message()),
        (
            Code::InvalidArgument,
            "the request is no message of this method: buffer underflow"
        )
    );
}

/// A row: HTTP code, Status, gRPC code, reason.
#[test]
fn answers_of_the_http_api_become_statuses() {
    let row = |code: u16, status: Json| {
        let status = served(code, &status, &[]);
        (status.code(), reason(&status))
    };
    let named = json!({"name": "a", "group": "example.io", "kind": "widgets"});
    let conflict = json!({"causes": [{"reason": "FieldManagerConflict", "field": ".spec.a", "message": "b"}]});
    let mistyped = "failed to create typed patch object (a/b; v1): .spec.c: field not declared in schema";
    let too_new = json!({"causes": [{"reason": "ResourceVersionTooLarge"}]});
    for (code, status, want, why) in [
        (400, json!({}), Code::InvalidArgument, "INVALID_FIELD"),
        (403, json!({}), Code::PermissionDenied, "FORBIDDEN"),
        (404, json!({"details": named}), Code::NotFound, "NOT_FOUND"),
        (404, json!({"details": {}}), Code::InvalidArgument, "NOT_SERVED"),
        (
            409,
            json!({"reason": "AlreadyExists"}),
            Code::AlreadyExists,
            "ALREADY_EXISTS",
        ),
        (409, json!({"reason": "Conflict"}), Code::Aborted, "STALE_ETAG"),
        (
            409,
            json!({"details": conflict}),
            Code::FailedPrecondition,
            "FIELD_CONFLICT",
        ),
        (410, json!({}), Code::OutOfRange, "REVISION_COMPACTED"),
        (429, json!({}), Code::ResourceExhausted, "LIMIT_REACHED"),
        (504, json!({"details": too_new}), Code::Unavailable, "UNAVAILABLE"),
        (504, json!({}), Code::DeadlineExceeded, "TIMEOUT"),
        (418, json!({}), Code::FailedPrecondition, "WRONG_STATE"),
        (500, json!({}), Code::Internal, "INTERNAL"),
        (
            500,
            json!({"message": mistyped}),
            Code::InvalidArgument,
            "INVALID_FIELD",
        ),
    ] {
        assert_eq!(row(code, status), (want, why.to_owned()), "{code}");
    }
}

#[test]
fn invalid_objects_name_their_fields_and_their_resource() {
    let invalid = json!({"message": "m", "details": {"name": "a", "group": "example.io", "kind": "Widget",
        "causes": [{"reason": "FieldValueInvalid", "message": "too large", "field": "spec.size"}]}});
    let status = of_event(&json!({"code": 422, "message": "m", "details": invalid["details"]}));
    let details = rpc::read(status.details()).expect("details");
    let fields = rpc::BadRequest::find(&details).expect("fields").field_violations;
    let field = &fields[0];
    assert_eq!(
        (&*field.field, &*field.description, &*field.reason),
        ("object.spec.size", "too large", "FieldValueInvalid")
    );
    let resource = rpc::ResourceInfo::find(&details).expect("a resource");
    assert_eq!(
        (&*resource.resource_type, &*resource.resource_name),
        ("Widget.example.io", "a")
    );
}

#[test]
fn statuses_without_details_get_those_of_their_code() {
    let bare = completed(Status::invalid_argument("page_size: must not be negative"));
    let details = rpc::read(bare.details()).expect("details");
    let fields = rpc::BadRequest::find(&details).expect("fields").field_violations;
    assert_eq!(
        (&*fields[0].field, &*fields[0].description),
        ("page_size", "must not be negative")
    );
    let told = completed(Status::invalid_argument("The thing: is wrong"));
    let details = rpc::read(told.details()).expect("details");
    assert_eq!(rpc::BadRequest::find(&details), None);
    assert_eq!(reason(&completed(Status::not_found("x"))), "NOT_FOUND");
    let missing = completed(Status::not_found("operation \"a\" not found"));
    let details = rpc::read(missing.details()).expect("details");
    let resource = rpc::ResourceInfo::find(&details).expect("a resource");
    assert_eq!((&*resource.resource_type, &*resource.resource_name), ("operation", "a"));
    let late = completed(Status::new(Code::DeadlineExceeded, ""));
    assert_eq!(
        (late.message(), &*reason(&late)),
        ("the deadline of the call has passed", "TIMEOUT")
    );
    let header = completed(Status::invalid_argument("grpc-timeout: write digits"));
    assert_eq!(bad_fields(&header), ["grpc-timeout"]);
    let own = no_workspace("a");
    assert_eq!(completed(own.clone()).details(), own.details());
}
