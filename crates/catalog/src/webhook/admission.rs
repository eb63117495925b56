//! Admission webhooks: AdmissionReviews (`admission.k8s.io`) and the checks of their responses.
//!
//! Messages are those of Kubernetes (apiserver, `admission/plugin/webhook`).

use super::{Answer, call, review_uid};
use crate::{Endpoint, Outbound};
use insula_api::{ClusterName, Json, Rng};
use serde_json::json;
use std::sync::Arc;

const GROUP: &str = "admission.k8s.io";

/// The configuration needed to call an admission webhook.
#[derive(Debug, Clone)]
pub struct Hook {
    /// Address of the webhook.
    pub endpoint: Endpoint,
    /// The version of AdmissionReview that both sides support.
    pub review: &'static str,
    /// Seconds to wait for a response.
    pub timeout_seconds: u32,
    /// True for a mutating webhook, which may respond with a patch.
    pub mutating: bool,
}

/// Calls the webhook and returns the `response` of a valid review.
pub(super) async fn request(
    hook: &Hook,
    request: &Json,
    (outbound, cluster, rng): (&dyn Outbound, &ClusterName, &dyn Rng),
) -> Answer {
    let uid = review_uid(rng);
    let mut request = request.clone();
    request["uid"] = json!(uid);
    let version = format!("{GROUP}/{}", hook.review);
    let review = json!({"kind": "AdmissionReview", "apiVersion": version, "request": request});
    let call = call(cluster, &hook.endpoint, &review, Some(hook.timeout_seconds));
    let answered = match outbound.post(call).await {
        Ok(body) => serde_json::from_slice(&body)
            .map_err(|error| format!("failed to call webhook: couldn't get version/kind; json parse error: {error}")),
        Err(why) => Err(format!("failed to call webhook: {why}")),
    };
    let response = answered.and_then(|mut review: Json| {
        check(hook, &review, &uid).map_err(|why| format!("received invalid webhook response: {why}"))?;
        Ok(Arc::new(review["response"].take()))
    });
    response.map_err(Arc::from)
}

fn check(hook: &Hook, review: &Json, uid: &str) -> Result<(), String> {
    let response = &review["response"];
    if !response.is_object() {
        return Err("webhook response was absent".to_owned());
    }
    // Kubernetes makes no further checks for v1beta1.
    if hook.review != "v1" {
        return Ok(());
    }
    let text = |object: &Json, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    if text(response, "uid") != uid {
        return Err(format!(
            "expected response.uid={uid:?}, got {:?}",
            text(response, "uid")
        ));
    }
    let got = (text(review, "apiVersion"), text(review, "kind"));
    if got != (format!("{GROUP}/v1"), "AdmissionReview".to_owned()) {
        return Err(format!(
            "expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {}, Kind={}",
            crate::object::group_version(&got.0),
            got.1
        ));
    }
    let (patch, kind) = (!text(response, "patch").is_empty(), !response["patchType"].is_null());
    let why = match (hook.mutating, patch, kind) {
        (false, true, _) => "validating webhook may not return response.patch",
        (false, _, true) => "validating webhook may not return response.patchType",
        (true, true, false) => "webhook returned response.patch but not response.patchType",
        (true, false, true) => "webhook returned response.patchType but not response.patch",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}
