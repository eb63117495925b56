//! APIServices (`kube-aggregator/pkg/apis/apiregistration/validation`). Admission refuses group
//! versions that the workspace serves by itself.

use crate::{
    Builtin, CellValue, Strategy, Table, TableColumn, Traits, aggregation,
    kind::crd,
    names::{NameRule, name_problems},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{Condition, FieldError, FieldPath, Json, Timestamp, condition, names::annotations, set_condition};
use serde_json::json;

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &ApiServices,
    merge_keys: &[("status.conditions", "type")],
    table: Some(Table::new(&[
        TableColumn::NAME,
        TableColumn::text(
            "Service",
            "The reference to the service that hosts this API endpoint.",
            CellValue::Computed(|object| json!(service_cell(object))),
        ),
        TableColumn::text(
            "Available",
            "Whether this service is available.",
            CellValue::Computed(|object| json!(available_cell(object))),
        ),
        TableColumn::AGE,
    ])),
    ..Builtin::new(crd!("apiregistration.k8s.io_apiservices"))
}];

/// Largest priority of a group among the groups.
const GROUP_PRIORITY_MAX: i64 = 20_000;
/// Largest priority of a version in its group.
const VERSION_PRIORITY_MAX: i64 = 1_000;

/// Group versions that extension servers serve.
struct ApiServices;

impl Strategy for ApiServices {
    fn traits(&self) -> Traits {
        Traits {
            unconditional_update: false,
            ..Traits::BUILT_IN
        }
    }

    fn prepare_for_create(&self, new: &mut Json, now: Timestamp) {
        if let Some(fields) = new.as_object_mut() {
            fields.remove("status");
        }
        if !new["spec"]["service"].is_object() {
            let local = Condition::holds(aggregation::AVAILABLE).because("Local", LOCAL);
            set_condition(new, &local, now);
        }
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let spec = FieldPath::new("spec");
        let mut errors = Vec::new();
        validate_names(new, &spec, &mut errors);
        for (field, max, message) in [
            (
                "groupPriorityMinimum",
                GROUP_PRIORITY_MAX,
                "must be positive and less than 20000",
            ),
            (
                "versionPriority",
                VERSION_PRIORITY_MAX,
                "must be positive and less than 1000",
            ),
        ] {
            let given = new["spec"][field].as_i64().unwrap_or_default();
            if !(1..=max).contains(&given) {
                errors.push(FieldError::invalid(&spec.child(field), &json!(given), message));
            }
        }
        validate_server(new, &spec, &mut errors);
        errors
    }
}

const LOCAL: &str = "Local APIServices are always available";

fn text<'a>(of: &'a Json, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

fn validate_names(new: &Json, spec: &FieldPath, errors: &mut Vec<FieldError>) {
    let (group, version) = (text(&new["spec"], "group"), text(&new["spec"], "version"));
    let (name, wanted) = (text(&new["metadata"], "name"), format!("{version}.{group}"));
    if name != wanted {
        let why = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        let at = FieldPath::new("metadata").child("name");
        errors.push(FieldError::invalid(&at, &json!(name), why));
    }
    if group.is_empty() && version != "v1" {
        let why = "only v1 may have an empty group and it better be legacy kube";
        errors.push(FieldError::required(&spec.child("group"), why));
    }
    if !group.is_empty() {
        for problem in name_problems(group, NameRule::Subdomain) {
            errors.push(FieldError::invalid(&spec.child("group"), &json!(group), problem));
        }
    }
    for problem in insula_schema::label_1035(version) {
        errors.push(FieldError::invalid(&spec.child("version"), &json!(version), problem));
    }
}

fn validate_server(new: &Json, spec: &FieldPath, errors: &mut Vec<FieldError>) {
    let (bundle, skips) = (
        text(&new["spec"], "caBundle"),
        new["spec"]["insecureSkipTLSVerify"] == true,
    );
    let (at_bundle, at_skip) = (spec.child("caBundle"), spec.child("insecureSkipTLSVerify"));
    let service = &new["spec"]["service"];
    if !service.is_object() {
        if !bundle.is_empty() {
            let bytes = STANDARD.decode(bundle).map_or(bundle.len(), |decoded| decoded.len());
            let why = "local APIServices may not have a caBundle";
            errors.push(FieldError::invalid(&at_bundle, &json!(format!("{bytes} bytes")), why));
        }
        if skips {
            let why = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(FieldError::invalid(&at_skip, &json!(true), why));
        }
        return;
    }
    let at = spec.child("service");
    for field in ["namespace", "name"] {
        if text(service, field).is_empty() {
            errors.push(FieldError::required(&at.child(field), ""));
        }
    }
    let port = service["port"].as_i64().unwrap_or(443);
    if !(1..=65_535).contains(&port) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(&at.child("port"), &json!(port), why));
    }
    if skips && !bundle.is_empty() {
        let why = "may not be true if caBundle is present";
        errors.push(FieldError::invalid(&at_skip, &json!(true), why));
    }
    let url = &new["metadata"]["annotations"][annotations::SERVICE_URL];
    if let Some(problem) = url.as_str().and_then(url_problem) {
        let at = FieldPath::new("metadata")
            .child("annotations")
            .key(annotations::SERVICE_URL);
        errors.push(FieldError::invalid(&at, url, problem));
    }
}

/// Returns the reason for which a text is no URL of an extension server.
fn url_problem(url: &str) -> Option<&'static str> {
    let Some(rest) = url.strip_prefix("https://") else {
        return Some("must begin with https://");
    };
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '@' | '\\') || !c.is_ascii();
    match rest.chars().any(is_bad) || rest.is_empty() || rest.starts_with(['/', ':']) {
        true => Some("must be https://HOST[:PORT][/PATH], without user, query and fragment"),
        false => None,
    }
}

fn service_cell(object: &Json) -> String {
    let service = &object["spec"]["service"];
    match service.is_object() {
        true => format!("{}/{}", text(service, "namespace"), text(service, "name")),
        false => "Local".to_owned(),
    }
}

fn available_cell(object: &Json) -> String {
    match condition(object, aggregation::AVAILABLE) {
        None => "Unknown".to_owned(),
        Some(found) if found["status"] == "True" => "True".to_owned(),
        Some(found) => format!("{} ({})", text(found, "status"), text(found, "reason")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(edit: impl FnOnce(&mut Json)) -> Json {
        let mut object = json!({
            "metadata": {"name": "v1.example.com"},
            "spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
                "service": {"namespace": "default", "name": "api", "port": 443}},
        });
        edit(&mut object);
        object
    }

    fn problems(edit: impl FnOnce(&mut Json)) -> Vec<String> {
        let errors = ApiServices.validate(&service(edit));
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn messages_are_those_of_kubernetes() {
        assert_eq!(problems(|_| ()), [""; 0]);
        let said = problems(|object| object["metadata"]["name"] = json!("v2.example.com"));
        assert_eq!(
            said,
            [concat!(
                "metadata.name: Invalid value: \"v2.example.com\": must be ",
                "`spec.version+\".\"+spec.group`: \"v1.example.com\""
            )]
        );
        let said = problems(|object| object["spec"]["groupPriorityMinimum"] = json!(20_001));
        assert_eq!(
            said,
            ["spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000"]
        );
        let said = problems(|object| {
            object["spec"]["caBundle"] = json!("YQ==");
            object["spec"]["insecureSkipTLSVerify"] = json!(true);
        });
        assert_eq!(
            said,
            ["spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present"]
        );
        let said = problems(|object| {
            object["spec"]["service"] = Json::Null;
            object["spec"]["caBundle"] = json!("YQ==");
        });
        assert_eq!(
            said,
            ["spec.caBundle: Invalid value: \"1 bytes\": local APIServices may not have a caBundle"]
        );
    }

    #[test]
    fn urls_are_plain_https_urls() {
        for good in ["https://a", "https://127.0.0.1:8443/clusters/root:a", "https://[::1]:1"] {
            assert_eq!(url_problem(good), None, "{good}");
        }
        for bad in [
            "http://a",
            "https://",
            "https:///a",
            "https://u@a",
            "https://a?b",
            "https://a b",
            "",
        ] {
            assert!(url_problem(bad).is_some(), "{bad}");
        }
    }
}
