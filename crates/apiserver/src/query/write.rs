//! Query parameters of writes, and the options of a DELETE, which may be in its body.

use super::{Query, meta_options_errors};
use insula_api::{FieldError, FieldPath, Json, go_quoted, is_printable};
use insula_apply::OnConflict;
use insula_catalog::Error;
use insula_registry::{DeleteOptions, FieldValidation, Preconditions, Propagation};
use serde_json::json;

impl Query {
    /// Parses `dryRun` and `fieldValidation` of a write with a kind of options.
    pub fn write(&self, options: &str) -> Result<(bool, FieldValidation), Error> {
        let mut errors = Vec::new();
        if options == "PatchOptions" && self.get("force").is_some() {
            let at = FieldPath::new("force");
            errors.push(FieldError::forbidden(&at, "may not be specified for non-apply patch"));
        }
        self.checked_write(options, errors)
    }

    /// Parses the parameters of a server-side apply: those of [`Query::write`], and `force`.
    pub fn apply(&self) -> Result<(bool, FieldValidation, OnConflict), Error> {
        let mut errors = Vec::new();
        if self.text("fieldManager").is_empty() {
            let at = FieldPath::new("fieldManager");
            errors.push(FieldError::required(&at, "is required for apply patch"));
        }
        let on_conflict = match self.flag("force") {
            true => OnConflict::Force,
            false => OnConflict::Refuse,
        };
        let (dry_run, validation) = self.checked_write("PatchOptions", errors)?;
        Ok((dry_run, validation, on_conflict))
    }

    fn checked_write(&self, options: &str, mut errors: Vec<FieldError>) -> Result<(bool, FieldValidation), Error> {
        let dry = self.all("dryRun");
        if dry.iter().any(|value| *value != "All") {
            errors.push(FieldError::not_supported(
                &FieldPath::new("dryRun"),
                &json!(dry),
                &["All"],
            ));
        }
        let validation = match self.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let at = FieldPath::new("fieldValidation");
                errors.push(FieldError::not_supported(
                    &at,
                    &json!(other),
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        check_manager(self.text("fieldManager"), &mut errors);
        meta_options_errors(options, errors)?;
        Ok((!dry.is_empty(), validation))
    }

    /// Parses the options of a DELETE: the body takes precedence over the query.
    pub fn delete(&self, body: Option<&Json>) -> Result<(DeleteOptions, bool), Error> {
        let none = Json::Null;
        let body = body.unwrap_or(&none);
        check_delete_options(body)?;
        let grace = self.number("gracePeriodSeconds")?;
        let grace = match body.is_null() {
            true => self.get("gracePeriodSeconds").map(|_| grace),
            false => body["gracePeriodSeconds"].as_i64(),
        };
        let of_query = |name: &str| self.get(name).map(str::to_owned);
        let of_body = |name: &str| body[name].as_str().map(str::to_owned);
        let mut errors = Vec::new();
        let policy = of_body("propagationPolicy").or_else(|| of_query("propagationPolicy").filter(|_| body.is_null()));
        let orphan = body["orphanDependents"].as_bool().or_else(|| {
            of_query("orphanDependents")
                .filter(|_| body.is_null())
                .map(|value| value != "false" && value != "0")
        });
        let at = FieldPath::new("propagationPolicy");
        if let (Some(policy), Some(_)) = (&policy, orphan) {
            let text = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&at, &json!(policy), text));
        }
        let propagation = match policy.as_deref() {
            None => match orphan {
                Some(true) => Some(Propagation::Orphan),
                Some(false) => Some(Propagation::Background),
                None => None,
            },
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(&at, &json!(other), &known));
                None
            }
        };
        let dry: Vec<Json> = match body["dryRun"].as_array() {
            Some(list) => list.clone(),
            None => self.all("dryRun").into_iter().map(|value| json!(value)).collect(),
        };
        if dry.iter().any(|value| *value != "All") {
            errors.push(FieldError::not_supported(
                &FieldPath::new("dryRun"),
                &json!(dry),
                &["All"],
            ));
        }
        meta_options_errors("DeleteOptions", errors)?;
        let of = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
        let preconditions = Preconditions {
            uid: of("uid"),
            revision: of("resourceVersion"),
        };
        Ok((
            DeleteOptions {
                preconditions,
                propagation,
                grace_seconds: grace.and_then(|seconds| u64::try_from(seconds).ok()),
            },
            !dry.is_empty(),
        ))
    }
}

fn check_manager(manager: &str, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("fieldManager");
    if manager.len() > 128 {
        errors.push(FieldError::too_long(&at, 128));
    }
    for (i, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let why = format!("invalid character U+{:04X} (at position {i})", u32::from(c));
        errors.push(FieldError::invalid_text(&at, go_quoted(manager), why));
    }
}

/// Checks that the body of a DELETE is `DeleteOptions`, of any group, or has no kind.
fn check_delete_options(body: &Json) -> Result<(), Error> {
    let kind = body["kind"].as_str().unwrap_or_default();
    if (kind.is_empty() || kind == "DeleteOptions") && (body.is_null() || body.is_object()) {
        return Ok(());
    }
    let version = body["apiVersion"].as_str().unwrap_or_default();
    Err(Error::BadRequest(format!(
        "the body of a DELETE must be DeleteOptions, not {kind:?} in version {version:?}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_writes_and_deletes() {
        for (text, fine) in [
            ("dryRun=All&dryRun=All", true),
            ("dryRun=", false),
            ("fieldManager=a%20b", true),
            ("fieldManager=a%00b", false),
        ] {
            assert_eq!(Query::parse(text).write("CreateOptions").is_ok(), fine, "{text}");
        }
        for (text, body, fine) in [
            ("gracePeriodSeconds=30", json!({}), true),
            ("gracePeriodSeconds=soon", json!({}), false),
            ("", json!({"kind": "DeleteOptions", "apiVersion": "v1"}), true),
            ("", json!({"kind": "DeleteOptions", "apiVersion": "apps/v1"}), true),
            ("", json!({"kind": "Widget", "apiVersion": "g/v1"}), false),
            ("", json!(["x"]), false),
        ] {
            assert_eq!(Query::parse(text).delete(Some(&body)).is_ok(), fine, "{text} {body}");
        }
    }
}
