//! Conversion webhooks: ConversionReviews (`apiextensions.k8s.io`) and the checks of their
//! responses.
//!
//! A response is valid for all objects of a review or for none: one invalid object fails the whole
//! review. Messages are those of Kubernetes (apiextensions-apiserver,
//! `conversion/webhook_converter.go`).

use super::{Answer, PendingCall, call, review_uid};
use crate::{Endpoint, Outbound, names};
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{ClusterName, FieldPath, Json, Rng, aggregate};
use serde_json::{Map, json};
use std::sync::Arc;

const GROUP: &str = "apiextensions.k8s.io";
/// Maximum number of objects in a review: the size of a watch's initial batch.
const OBJECTS_MAX: usize = 500;

/// The conversion webhook of a definition.
#[derive(Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Address of the webhook.
    pub endpoint: Endpoint,
    /// The version of ConversionReview that both sides support.
    review: &'static str,
    /// The definition's group.
    group: Arc<str>,
}

impl Webhook {
    /// Reads a definition's `spec.conversion`. Returns `None` unless it configures a usable
    /// webhook.
    pub fn read(group: &Arc<str>, conversion: &Json) -> Option<Arc<Self>> {
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let versions = webhook["conversionReviewVersions"].as_array()?;
        let known = ["v1", "v1beta1"];
        let review = versions
            .iter()
            .find_map(|version| known.into_iter().find(|known| version == known))?;
        Some(Arc::new(Webhook {
            endpoint: endpoint(&webhook["clientConfig"])?,
            review,
            group: group.clone(),
        }))
    }
}

/// Returns the endpoint of a `clientConfig`. A service is addressed by its DNS name in the cluster.
pub fn endpoint(config: &Json) -> Option<Endpoint> {
    let url = match config["url"].as_str() {
        Some(url) => url.to_owned(),
        None => {
            let service = &config["service"];
            let (name, namespace) = (service["name"].as_str()?, service["namespace"].as_str()?);
            let path = service["path"].as_str().unwrap_or_default().trim_start_matches('/');
            let port = service["port"].as_i64().unwrap_or(443);
            format!("https://{name}.{namespace}.svc:{port}/{path}")
        }
    };
    let bundle = config["caBundle"].as_str().filter(|bundle| !bundle.is_empty());
    Some(Endpoint {
        url: url.into(),
        // Invalid base64 becomes a bundle without certificates, which trusts no server.
        ca_bundle: bundle.map(|bundle| STANDARD.decode(bundle).unwrap_or_default().into()),
    })
}

/// A ConversionReview: the objects that one webhook converts to one version.
pub(super) struct Review<'q> {
    webhook: &'q Webhook,
    to: &'q str,
    uid: String,
    /// Objects, each with its index in the list of calls.
    objects: Vec<(usize, &'q Json)>,
}

/// Groups conversions by webhook and target version into reviews of at most `OBJECTS_MAX` objects.
pub(super) fn reviews<'q>(pending_calls: &'q [PendingCall], rng: &dyn Rng) -> Vec<Review<'q>> {
    let mut reviews: Vec<Review<'q>> = Vec::new();
    for (index, pending_call) in pending_calls.iter().enumerate() {
        let PendingCall::Convert { webhook, object, to } = pending_call else {
            continue;
        };
        let fits = |review: &&mut Review<'_>| {
            *review.webhook == **webhook && *review.to == **to && review.objects.len() < OBJECTS_MAX
        };
        match reviews.iter_mut().rev().find(fits) {
            Some(review) => review.objects.push((index, object)),
            None => reviews.push(Review {
                webhook,
                to,
                uid: review_uid(rng),
                objects: vec![(index, object)],
            }),
        }
    }
    reviews
}

impl Review<'_> {
    pub(super) async fn send(self, outbound: &dyn Outbound, cluster: &ClusterName) -> Vec<(usize, Answer)> {
        let call = call(cluster, &self.webhook.endpoint, &self.request(), None);
        let answered = match outbound.post(call).await {
            Ok(body) => self.read(&body),
            Err(why) => Err(format!("failed: {why}")),
        };
        let places = self.objects.iter().map(|(index, _)| *index);
        match answered {
            Ok(converted) => places
                .zip(converted.into_iter().map(|object| Ok(Arc::new(object))))
                .collect(),
            Err(why) => {
                let why: Arc<str> = format!("conversion webhook for {} {why}", self.kind()).into();
                places.map(|index| (index, Err(why.clone()))).collect()
            }
        }
    }

    fn request(&self) -> Json {
        let objects: Vec<&Json> = self.objects.iter().map(|(_, object)| *object).collect();
        json!({
            "kind": "ConversionReview",
            "apiVersion": format!("{GROUP}/{}", self.webhook.review),
            "request": {"uid": self.uid, "desiredAPIVersion": self.desired(), "objects": objects},
        })
    }

    fn desired(&self) -> String {
        format!("{}/{}", self.webhook.group, self.to)
    }

    /// Returns the version and kind of the objects as Go prints them; several objects get the
    /// kind's list name.
    fn kind(&self) -> String {
        let Some((_, first)) = self.objects.first() else {
            return String::new();
        };
        let list = if self.objects.len() > 1 { "List" } else { "" };
        format!("{}, Kind={}{list}", text(first, "apiVersion"), text(first, "kind"))
    }

    /// Checks a response and returns its objects in the order of the review.
    fn read(&self, body: &[u8]) -> Result<Vec<Json>, String> {
        let mut review: Json = serde_json::from_slice(body)
            .map_err(|error| format!("failed: couldn't get version/kind; json parse error: {error}"))?;
        let got = (text(&review, "apiVersion"), text(&review, "kind"));
        let want = (format!("{GROUP}/{}", self.webhook.review), "ConversionReview");
        let strict = self.webhook.review == "v1";
        if strict && got != (&*want.0, want.1) {
            return Err(format!(
                "failed: expected webhook response of {}, Kind={}, got {}, Kind={}",
                want.0,
                want.1,
                crate::object::group_version(got.0),
                got.1
            ));
        }
        let response = &mut review["response"];
        if !response.is_object() {
            return Err("failed: no response provided".to_owned());
        }
        let uid = text(response, "uid");
        if strict && uid != self.uid {
            return Err(format!("failed: expected response.uid={:?}, got {uid:?}", self.uid));
        }
        let status = text(&response["result"], "status");
        if status != "Success" {
            let message = text(&response["result"], "message");
            return Err(match message.is_empty() {
                true => format!("failed: response.result.status was '{status}', not 'Success'"),
                false => format!("failed: {message}"),
            });
        }
        let converted = match response["convertedObjects"].take() {
            Json::Array(converted) => converted,
            _ => Vec::new(),
        };
        if converted.len() != self.objects.len() {
            return Err(format!(
                "returned {} objects, expected {}",
                converted.len(),
                self.objects.len()
            ));
        }
        let pairs = self.objects.iter().zip(converted).enumerate();
        pairs
            .map(|(place, ((_, original), converted))| {
                check(original, converted, &self.desired()).map_err(|broken| self.tell(place, &broken))
            })
            .collect()
    }

    /// Returns the message for an invalid object of the response.
    fn tell(&self, place: usize, broken: &Broken) -> String {
        let several = self.objects.len() > 1;
        match (broken, several) {
            (Broken::Type(why), false) => format!("returned invalid object at index 0: {why}"),
            (Broken::Object(why), false) => format!("returned invalid object: {why}"),
            (Broken::Metadata(why), false) => format!("returned invalid metadata: {why}"),
            (Broken::Type(why) | Broken::Object(why), true) => {
                format!("returned invalid converted object at index {place}: {why}")
            }
            (Broken::Metadata(why), true) => format!("returned invalid metadata in object at index {place}: {why}"),
        }
    }
}

/// The rule that a converted object violates, with the reason.
enum Broken {
    Type(String),
    Object(String),
    Metadata(String),
}

/// Checks a converted object and restores the metadata that a conversion must not change.
fn check(original: &Json, mut converted: Json, desired: &str) -> Result<Json, Broken> {
    let got = text(&converted, "apiVersion");
    if got != desired {
        let why = format!("invalid groupVersion (expected {desired}, received {got})");
        return Err(Broken::Type(why));
    }
    let kinds = (text(original, "kind"), text(&converted, "kind"));
    if kinds.0 != kinds.1 {
        let why = format!("invalid kind (expected {}, received {})", kinds.0, kinds.1);
        return Err(Broken::Type(why));
    }
    for (field, word) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let both = (text(&original["metadata"], field), text(&converted["metadata"], field));
        if both.0 != both.1 {
            let why = format!("must have the same {word}: {} != {}", both.0, both.1);
            return Err(Broken::Object(why));
        }
    }
    let metadata = restored(&original["metadata"], converted.get("metadata")).map_err(Broken::Metadata)?;
    converted["metadata"] = metadata;
    Ok(converted)
}

/// Returns the original metadata with the labels and annotations of the converted object.
fn restored(original: &Json, converted: Option<&Json>) -> Result<Json, String> {
    let converted = match converted {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Json::Object(converted)) => converted,
        Some(other) => {
            return Err(format!(
                "invalid metadata of type {} in converted object",
                go_type(other)
            ));
        }
    };
    let mut restored = original.as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match converted.get(field) {
            None | Some(Json::Null) => {
                restored.remove(field);
            }
            Some(Json::Object(texts)) => {
                check_texts(field, texts)?;
                restored.insert(field.to_owned(), Json::Object(texts.clone()));
            }
            Some(other) => {
                let kind = go_type(other);
                return Err(format!("invalid metadata.{field} of type {kind} in converted object"));
            }
        }
    }
    let changed: Map<String, Json> = ["labels", "annotations"]
        .into_iter()
        .filter(|field| restored.get(*field) != original.get(*field))
        .filter_map(|field| Some((field.to_owned(), restored.get(field)?.clone())))
        .collect();
    let mut errors = Vec::new();
    names::check_labels_and_annotations(&Json::Object(changed), &FieldPath::new("metadata"), &mut errors);
    match errors.is_empty() {
        true => Ok(Json::Object(restored)),
        false => Err(aggregate(&errors)),
    }
}

fn check_texts(field: &str, texts: &Map<String, Json>) -> Result<(), String> {
    match texts.iter().find(|(_, value)| !value.is_string()) {
        None => Ok(()),
        Some((key, value)) => Err(format!(
            "metadata.{field}[{key}] must be a string, but is {} in converted object",
            go_type(value)
        )),
    }
}

/// Returns the Go type that this JSON value decodes to.
fn go_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

fn text<'j>(object: &'j Json, field: &str) -> &'j str {
    object[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
