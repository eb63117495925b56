//! Admission of APIBindRequests. The server makes them for users who ask, so a client can only
//! decide on one, and only a client who may grant the right to bind approves it. The decision and
//! its author are facts: nobody changes them afterwards.

use crate::kinds::{
    catalogue::is_hidden,
    rbac,
    review::{Operation, Review, Rules},
};
use insula_api::{FieldError, FieldPath, Json, Timestamp, names::groups};
use insula_catalog::{Part, Result, exports::bind_request::Decision, object::refuse};
use serde_json::json;

/// Fields that the server sets when the request is made.
const FACTS: [&str; 5] = ["export", "exportUID", "requester", "reason", "expirationTimestamp"];
/// Fields of the decision. The server sets the last two.
const VERDICT: [&str; 5] = ["decision", "group", "message", "decidedBy", "decisionTimestamp"];

pub(super) const RULES: Rules = Rules {
    write: review,
    ..Rules::new(groups::REQUESTS, &["apibindrequests"])
};

fn review(review: &Review<'_>, new: &mut Json, old: Option<&Json>) -> Result<()> {
    let Some(old) = old.filter(|_| review.operation != Operation::Create) else {
        let why = "the server makes requests for the users who ask: `insula apis request WORKSPACE:EXPORT` or \
                   ApiService.RequestApi";
        return Err(review.forbid(new, why));
    };
    if review.part == Part::Status && new["status"] != old["status"] {
        return Err(review.forbid(new, "status: the server writes it: set spec.decision instead"));
    }
    let is_new = decide(new, old, &review.user.name, review.now);
    let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    refuse(review.served, &name, changes(new, old, review.now))?;
    match is_new && Decision::read(&new["spec"]) == Some(Decision::Approved) {
        true => may_approve(review, new),
        false => Ok(()),
    }
}

/// Fills in who decides and when. Returns true for a decision on an undecided request.
fn decide(new: &mut Json, old: &Json, user: &str, now: Timestamp) -> bool {
    let is_new = Decision::read(&old["spec"]).is_none() && Decision::read(&new["spec"]).is_some();
    let Some(spec) = new["spec"].as_object_mut() else {
        return false;
    };
    let facts = match is_new {
        true => [json!(user), json!(now.to_string())],
        false => ["decidedBy", "decisionTimestamp"].map(|field| old["spec"][field].clone()),
    };
    for (field, fact) in ["decidedBy", "decisionTimestamp"].into_iter().zip(facts) {
        match fact {
            Json::Null => drop(spec.remove(field)),
            fact => drop(spec.insert(field.to_owned(), fact)),
        }
    }
    is_new
}

/// Returns the errors of changes that nobody may make.
fn changes(new: &Json, old: &Json, now: Timestamp) -> Vec<FieldError> {
    let at = FieldPath::new("spec");
    let mut errors = Vec::new();
    let forbid = |errors: &mut Vec<FieldError>, field: &str, why: &str| {
        if new["spec"][field] != old["spec"][field] {
            errors.push(FieldError::forbidden(&at.child(field), why.to_owned()));
        }
    };
    for field in FACTS {
        forbid(
            &mut errors,
            field,
            "is set when the request is made and cannot be changed",
        );
    }
    let message = new["spec"]["message"].as_str().unwrap_or_default();
    if new["spec"]["message"] != old["spec"]["message"] && message.chars().any(is_hidden) {
        let why = "must not have control characters or line breaks";
        errors.push(FieldError::invalid(&at.child("message"), &json!("…"), why));
    }
    if let (Json::String(group), None) = (&new["spec"]["group"], Decision::read(&old["spec"])) {
        let known = new["spec"]["requester"]["groups"].as_array();
        let is_known = known.is_some_and(|groups| groups.contains(&json!(group)));
        let why = match Decision::read(&new["spec"]) {
            Some(Decision::Approved) if is_known => None,
            Some(Decision::Approved) => Some("must be one of spec.requester.groups: the user is in no other"),
            _ => Some("is a part of an approval"),
        };
        errors.extend(why.map(|why| FieldError::invalid(&at.child("group"), &json!(group), why)));
    }
    let expires = old["spec"]["expirationTimestamp"].as_str().and_then(Timestamp::parse);
    match Decision::read(&old["spec"]) {
        Some(_) => {
            for field in VERDICT {
                let why = "a decision is final: `insula access grant --bind` and `insula access revoke --bind` change \
                           the right";
                forbid(&mut errors, field, why);
            }
        }
        None if expires.is_some_and(|expires| now.since(expires) >= 0) => {
            forbid(
                &mut errors,
                "decision",
                "the request has expired: its user may ask again",
            );
        }
        None => {}
    }
    errors
}

/// Asks for the right to grant the right to bind, as for the role binding that follows.
fn may_approve(review: &Review<'_>, new: &Json) -> Result<()> {
    let export = new["spec"]["export"].as_str().unwrap_or_default();
    rbac::may_let_bind(review, export).map_err(|why| {
        let why = format!("you cannot approve the right to bind APIExport {export:?}, which you may not grant: {why}");
        review.forbid(new, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Json {
        json!({"metadata": {"name": "widgets-1"}, "spec": {"export": "widgets", "exportUID": "1",
            "requester": {"username": "alice"}, "expirationTimestamp": "1970-01-01T01:00:00Z"}})
    }

    /// Returns the refused fields of a change of the spec.
    fn refused(old: &Json, change: &Json, now: i64) -> Vec<String> {
        let mut new = old.clone();
        for (field, value) in change.as_object().expect("fields") {
            new["spec"][field] = value.clone();
        }
        decide(&mut new, old, "eve", Timestamp(now));
        let errors = changes(&new, old, Timestamp(now));
        errors.iter().map(|error| error.to_string()).collect()
    }

    #[test]
    fn only_a_decision_is_a_change() {
        let old = request();
        for field in FACTS {
            let errors = refused(&old, &json!({field: "other"}), 0);
            assert_eq!(errors.len(), 1, "{field}: {errors:?}");
        }
        assert!(refused(&old, &json!({"decision": "Denied", "message": "no"}), 0).is_empty());
        assert!(refused(&old, &json!({"message": "soon"}), 0).is_empty());
        assert_eq!(
            refused(&old, &json!({"decision": "Approved"}), 3_600).len(),
            1,
            "it has expired"
        );
    }

    #[test]
    fn a_decision_is_final_and_names_its_author() {
        let old = request();
        let mut new = old.clone();
        new["spec"]["decision"] = json!("Approved");
        new["spec"]["decidedBy"] = json!("somebody else");
        assert!(decide(&mut new, &old, "bob", Timestamp(5)));
        assert_eq!(new["spec"]["decidedBy"], "bob");
        assert_eq!(new["spec"]["decisionTimestamp"], "1970-01-01T00:00:05Z");
        for change in [
            json!({"decision": "Denied"}),
            json!({"decision": null}),
            json!({"message": "x"}),
        ] {
            assert_eq!(refused(&new, &change, 9).len(), 1, "{change}");
        }
        // What the server has set comes back.
        assert!(refused(&new, &json!({"decidedBy": "eve"}), 9).is_empty());
    }
}
