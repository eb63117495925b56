//! Admission of CertificateSigningRequests: records the requester, limits the fields that each
//! subresource may change, and checks who may approve and sign. Follows Kubernetes' strategies of
//! `/approval` and `/status` and its plugins CertificateApproval, CertificateSigning and
//! CertificateSubjectRestriction.

use crate::kinds::review::{Operation, Review, Rules};
use insula_api::{FieldError, FieldPath, Json};
use insula_catalog::{Part, Result, builtin, object::refuse};
use serde_json::json;

const GROUP: &str = "certificates.k8s.io";
/// Signer of client certificates. Their holder authenticates as the subject.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Conditions that only `/approval` may set.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];
/// Conditions that cannot be removed.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];

pub(super) const RULES: Rules = Rules {
    write: review,
    ..Rules::new("certificates.k8s.io", &["certificatesigningrequests"])
};

fn review(review: &Review<'_>, new: &mut Json, old: Option<&Json>) -> Result<()> {
    let Some(old) = old.filter(|_| review.operation != Operation::Create) else {
        return create(review, new);
    };
    if review.part == Part::Approval {
        // `/approval` changes only the conditions of the status.
        let conditions = new["status"]["conditions"].take();
        new["status"] = old["status"].clone();
        set_conditions(new, conditions);
    }
    if review.part == Part::Status {
        keep_verdicts(new, old);
    }
    let now = json!(review.now.to_string());
    stamp(new, old, &now);
    refuse(review.served, name(new), changes(review, new, old))?;
    may_change(review, new, old)
}

fn name(object: &Json) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn create(review: &Review<'_>, new: &mut Json) -> Result<()> {
    let spec = &mut new["spec"];
    spec["username"] = json!(review.user.name);
    if !review.user.uid.is_empty() {
        spec["uid"] = json!(review.user.uid);
    }
    if !review.user.groups.is_empty() {
        spec["groups"] = json!(review.user.groups);
    }
    if !review.user.extra.is_empty() {
        spec["extra"] = json!(review.user.extra);
    }
    let masters = |groups: Vec<String>| groups.iter().any(|group| group == insula_auth::GROUP_MASTERS);
    if new["spec"]["signerName"] == CLIENT_SIGNER && builtin::certificate_request(&new["spec"]).is_ok_and(masters) {
        let why = format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed");
        return Err(review.forbid(new, why));
    }
    Ok(())
}

fn conditions(object: &Json) -> &[Json] {
    object["status"]["conditions"].as_array().map_or(&[], Vec::as_slice)
}

fn of_type<'a>(object: &'a Json, kind: &'a str) -> impl Iterator<Item = &'a Json> {
    conditions(object)
        .iter()
        .filter(move |condition| condition["type"] == kind)
}

fn set_conditions(object: &mut Json, conditions: Json) {
    if let Some(status) = object["status"].as_object_mut() {
        match conditions.is_null() {
            true => status.remove("conditions"),
            false => status.insert("conditions".into(), conditions),
        };
    }
}

/// Restores the old verdicts of each type whose number is unchanged.
fn keep_verdicts(new: &mut Json, old: &Json) {
    for kind in VERDICTS {
        let before: Vec<Json> = of_type(old, kind).cloned().collect();
        if of_type(new, kind).count() != before.len() {
            continue;
        }
        let list = new["status"]["conditions"].as_array_mut().into_iter().flatten();
        let verdicts = list.filter(|condition| condition["type"] == kind);
        verdicts.zip(before).for_each(|(verdict, before)| *verdict = before);
    }
}

/// Fills in the update and transition times of conditions.
fn stamp(new: &mut Json, old: &Json, now: &Json) {
    for condition in new["status"]["conditions"].as_array_mut().into_iter().flatten() {
        let kind = condition["type"].as_str().unwrap_or_default();
        let same = of_type(old, kind).find(|known| known["status"] == condition["status"]);
        let since = same
            .map(|known| known["lastTransitionTime"].clone())
            .filter(|time| !time.is_null());
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.clone();
        }
        if condition["lastTransitionTime"].is_null() {
            condition["lastTransitionTime"] = since.unwrap_or_else(|| now.clone());
        }
    }
}

/// Returns the errors for changes that this subresource may not make.
fn changes(review: &Review<'_>, new: &Json, old: &Json) -> Vec<FieldError> {
    let at = FieldPath::new("status").child("conditions");
    let mut errors = Vec::new();
    let mut forbid = |at: &FieldPath, why: String| errors.push(FieldError::forbidden(at, why));
    let count = |object: &Json, kind: &str| of_type(object, kind).count();
    for kind in LASTING {
        if count(new, kind) < count(old, kind) {
            forbid(&at, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    if review.part != Part::Approval {
        for kind in VERDICTS {
            if count(new, kind) > count(old, kind) {
                forbid(&at, format!("updates may not add a condition of type {kind:?}"));
            }
        }
    }
    let certificate = |object: &Json| object["status"]["certificate"].as_str().unwrap_or_default().to_owned();
    let (now, before) = (certificate(new), certificate(old));
    let at = FieldPath::new("status").child("certificate");
    if now != before && review.part != Part::Status {
        forbid(&at, "updates may not set certificate content".to_owned());
    } else if now != before && !before.is_empty() {
        forbid(&at, "updates may not modify existing certificate content".to_owned());
    }
    errors
}

/// Checks the caller's right on the signer to approve or sign.
fn may_change(review: &Review<'_>, new: &Json, old: &Json) -> Result<()> {
    let (verb, what) = match review.part {
        Part::Approval => ("approve", "approve"),
        Part::Status if new["status"] != old["status"] => ("sign", "sign"),
        _ => return Ok(()),
    };
    let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    let any = format!("{domain}/*");
    let may = |name: &str| review.may(verb, review.cluster, GROUP, "signers", name);
    if may(signer) || may(&any) {
        return Ok(());
    }
    let why = format!("user not permitted to {what} requests with signerName {signer:?}");
    Err(review.forbid(new, why))
}
