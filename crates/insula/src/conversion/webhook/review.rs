//! Answers to ConversionReviews, without a network.
use std::fmt;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use insula_conversion::{Portable, unmetered_budget};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::files::text;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

/// A kind that can be converted.
pub(super) struct Api {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) versions: Vec<String>,
    pub(super) portable: Portable,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} ({})", self.kind, self.group, self.versions.join(", "))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: ReviewRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewRequest {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    objects: Vec<Value>,
}

/// Answers a request.
pub(super) fn respond(apis: &[Api], request: &Request<Bytes>) -> Response<Bytes> {
    if *request.method() == Method::GET && request.uri().path() == "/healthz" {
        return plain(StatusCode::OK, "ok");
    }
    if *request.method() != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "POST a ConversionReview");
    }
    let review: Review = match serde_json::from_slice(request.body()) {
        Ok(review) => review,
        Err(error) => return plain(StatusCode::BAD_REQUEST, &format!("not a ConversionReview: {error}")),
    };
    if review.kind != KIND || review.api_version != API_VERSION {
        let got = format!("{} {}", review.api_version, review.kind);
        return plain(
            StatusCode::BAD_REQUEST,
            &format!("answers {API_VERSION} {KIND}, not {got}"),
        );
    }
    let body = json!({"apiVersion": API_VERSION, "kind": KIND, "response": answer(apis, review.request)});
    let mut response = Response::new(Bytes::from(body.to_string()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

fn plain(code: StatusCode, text: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("{text}\n")));
    *response.status_mut() = code;
    response
}

/// Returns the response: all objects in the desired version, or the reason why one of them cannot
/// be converted.
fn answer(apis: &[Api], request: ReviewRequest) -> Value {
    let ReviewRequest {
        uid,
        desired_api_version,
        objects,
    } = request;
    let converted: Result<Vec<Value>, String> = objects
        .iter()
        .map(|object| convert(apis, object, &desired_api_version))
        .collect();
    match converted {
        Ok(objects) => json!({"uid": uid, "result": {"status": "Success"}, "convertedObjects": objects}),
        Err(why) => json!({"uid": uid, "result": {"status": "Failed", "message": why}, "convertedObjects": []}),
    }
}

fn convert(apis: &[Api], object: &Value, desired: &str) -> Result<Value, String> {
    let named = || {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let slash = if namespace.is_empty() { "" } else { "/" };
        format!("{} {namespace}{slash}{name}", text(object, "/kind"))
    };
    let (group, version) = desired.rsplit_once('/').unwrap_or(("", desired));
    let own = text(object, "/apiVersion");
    let own = own.rsplit_once('/').map_or("", |(group, _)| group);
    let api = apis
        .iter()
        .find(|api| api.group == group && api.kind == text(object, "/kind"));
    let api = api.filter(|_| own == group);
    let api = api.ok_or_else(|| {
        format!(
            "{}: there are no rules from {} to {desired}",
            named(),
            text(object, "/apiVersion")
        )
    })?;
    let made = api.portable.convert(object, version, &mut unmetered_budget());
    let made = made.map_err(|error| format!("{}: {error}", named()))?;
    if made.broken {
        eprintln!(
            "warning: {}: the annotation insula.io/residual is not what was written there, and is left out",
            named()
        );
    }
    Ok(made.object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::FieldPath;
    use insula_conversion::{VersionSchema, parse_rules};
    use insula_schema::Structural;
    use std::sync::Arc;

    fn apis() -> Vec<Api> {
        let version = |name: &str, fields: Value| {
            let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
            VersionSchema {
                name: name.to_owned(),
                served: true,
                schema: Arc::new(Structural::parse_trusted(&schema).unwrap()),
            }
        };
        let text = json!({"type": "string"});
        let versions = [
            version("v1", json!({"a": text})),
            version("v2", json!({"b": text, "more": text})),
        ];
        let spec = FieldPath::new("spec");
        let rule = |from: &str, to: &str, a: &str, b: &str| {
            json!({"from": from, "to": to, "rules": [{"field": a,
            "destination": b}]})
        };
        let rules =
            json!({"conversions": [rule("v1", "v2", "spec.a", "spec.b"), rule("v2", "v1", "spec.b", "spec.a")]});
        let rules = parse_rules(&rules, &spec).unwrap();
        vec![Api {
            group: "example.io".to_owned(),
            kind: "Widget".to_owned(),
            versions: vec!["v1".to_owned(), "v2".to_owned()],
            portable: Portable::compile("example.io", &versions, "v1", Some(&rules), &spec).unwrap(),
        }]
    }

    fn request(desired: &str, objects: Value) -> Value {
        let review = json!({"apiVersion": API_VERSION, "kind": KIND,
            "request": {"uid": "u", "desiredAPIVersion": desired, "objects": objects}});
        let request = Request::post("/convert").body(Bytes::from(review.to_string())).unwrap();
        let response = respond(&apis(), &request);
        assert_eq!(response.status(), StatusCode::OK);
        serde_json::from_slice(response.body()).unwrap()
    }

    fn widget(version: &str, spec: Value) -> Value {
        json!({"apiVersion": format!("example.io/{version}"), "kind": "Widget", "metadata": {"name": "w",
            "namespace": "n", "uid": "1"}, "spec": spec})
    }

    #[test]
    fn all_objects_are_converted_in_order() {
        let objects = json!([
            widget("v2", json!({"b": "x", "more": "m"})),
            widget("v1", json!({"a": "y"}))
        ]);
        let answer = request("example.io/v1", objects.clone());
        let response = &answer["response"];
        assert_eq!(
            (&response["uid"], &response["result"]["status"]),
            (&json!("u"), &json!("Success"))
        );
        let converted = response["convertedObjects"].as_array().unwrap();
        assert_eq!(converted[0]["spec"], json!({"a": "x"}));
        assert_eq!(converted[1], objects[1]);
        let back = request("example.io/v2", json!([converted[0]]));
        assert_eq!(back["response"]["convertedObjects"][0], objects[0]);
    }

    #[test]
    fn one_that_cannot_be_fails_the_review_by_name() {
        for (desired, why) in [
            (
                "example.io/v9",
                "Widget n/w: converting example.io/v1 to v9: there is no version v9",
            ),
            (
                "other.io/v1",
                "Widget n/w: there are no rules from example.io/v1 to other.io/v1",
            ),
        ] {
            let answer = request(desired, json!([widget("v1", json!({}))]));
            assert_eq!(
                answer["response"]["result"],
                json!({"status": "Failed", "message": why})
            );
        }
    }

    #[test]
    fn other_requests_are_refused_with_the_accepted_kind() {
        let requests = [
            (Request::get("/healthz"), "", 200),
            (Request::get("/convert"), "", 405),
            (Request::post("/convert"), "{}", 400),
            (
                Request::post("/convert"),
                r#"{"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "ConversionReview",
                    "request": {"uid": "", "desiredAPIVersion": "", "objects": []}}"#,
                400,
            ),
        ];
        for (request, body, code) in requests {
            let request = request.body(Bytes::from(body)).unwrap();
            assert_eq!(respond(&apis(), &request).status().as_u16(), code, "{request:?}");
        }
    }
}
