//! Conversion of a definition's objects between versions: none, or a webhook.

use crate::formats::uri::{Uri, UriForm};
use crate::keyword::text;
use crate::names;
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{FieldError, FieldPath, Json};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

pub(super) fn validate(conversion: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let webhook = conversion.get("webhook").unwrap_or(&Json::Null);
    let config = webhook.get("clientConfig").filter(|c| !c.is_null());
    let reviews = webhook.get("conversionReviewVersions").and_then(Json::as_array);
    let strategy = text(conversion, "strategy");
    let config_at = path.child("webhookClientConfig");
    let reviews_at = path.child("conversionReviewVersions");
    match strategy {
        "" if conversion.is_null() => {}
        "" => errors.push(FieldError::required(&path.child("strategy"), "")),
        "Webhook" => {
            match config {
                None => errors.push(FieldError::required(
                    &config_at,
                    "required when strategy is set to Webhook",
                )),
                Some(config) => validate_client_config(config, &config_at, errors),
            }
            review_versions(reviews.map(Vec::as_slice).unwrap_or_default(), &reviews_at, errors);
        }
        _ => {
            if strategy != "None" {
                let at = path.child("strategy");
                errors.push(FieldError::not_supported(
                    &at,
                    &Json::from(strategy),
                    &["None", "Webhook"],
                ));
            }
            let why = "should not be set when strategy is not set to Webhook";
            if config.is_some() {
                errors.push(FieldError::forbidden(&config_at, why));
            }
            if reviews.is_some_and(|r| !r.is_empty()) {
                errors.push(FieldError::forbidden(&reviews_at, why));
            }
        }
    }
}

fn review_versions(versions: &[Json], path: &FieldPath, errors: &mut Vec<FieldError>) {
    if versions.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for (i, version) in versions.iter().enumerate() {
        let at = path.index(i);
        if versions.iter().take(i).any(|earlier| earlier == version) {
            errors.push(FieldError::invalid(&at, version, "duplicate version"));
            continue;
        }
        for why in names::label_1035(version.as_str().unwrap_or("")) {
            errors.push(FieldError::invalid(&at, version, why));
        }
    }
    if !versions
        .iter()
        .any(|v| v.as_str().is_some_and(|v| REVIEW_VERSIONS.contains(&v)))
    {
        let why = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(path, &Json::from(versions), why));
    }
}

/// Validates the client configuration of a webhook: exactly one of an `https` URL and a service.
pub fn validate_client_config(config: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let url = config.get("url").and_then(Json::as_str);
    let service = config.get("service").filter(|s| !s.is_null());
    match (url, service) {
        (Some(url), None) => check_url(url, &path.child("url"), errors),
        (None, Some(service)) => check_service(service, &path.child("service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

/// Checks the CA bundle of an updated definition. An unusable one passes if the old one was
/// unusable too.
pub(super) fn ca_bundle_update(new: &Json, old: &Json, errors: &mut Vec<FieldError>) {
    let bundle = |definition: &Json| ca_bundle(&definition["spec"]["conversion"]).map(str::to_owned);
    let was_wrong = bundle(old).is_some_and(|old| untrusted(&old).is_some());
    if let (Some(given), false) = (bundle(new), was_wrong)
        && let Some(why) = untrusted(&given)
    {
        let path = FieldPath::new("spec").child("conversion").child("webhookClientConfig");
        let why = format!("unable to load root certificates: {why}");
        errors.push(FieldError::invalid(&path.child("caBundle"), &Json::from(given), why));
    }
}

/// Returns true if the webhook of `spec.conversion` has a CA bundle without a usable certificate.
pub fn ca_bundle_is_unusable(conversion: &Json) -> bool {
    ca_bundle(conversion).and_then(untrusted).is_some()
}

fn ca_bundle(conversion: &Json) -> Option<&str> {
    let bundle = conversion["webhook"]["clientConfig"]["caBundle"].as_str();
    bundle.filter(|bundle| !bundle.is_empty())
}

/// Returns the reason why a bundle of PEM certificates, encoded as base64, has no usable
/// certificate; `None` if it has one.
fn untrusted(bundle: &str) -> Option<&'static str> {
    let bundle: String = bundle.split_whitespace().collect();
    let pem = STANDARD.decode(bundle).unwrap_or_default();
    let pem = String::from_utf8_lossy(&pem);
    let mut why = "unable to parse bytes as PEM block";
    for block in pem.split("-----BEGIN ").skip(1) {
        let Some((kind, rest)) = block.split_once("-----") else {
            continue;
        };
        let end = format!("-----END {kind}-----");
        let Some((body, _)) = rest.split_once(&end) else {
            continue;
        };
        if kind != "CERTIFICATE" {
            why = "no valid certificate authority data seen";
            continue;
        }
        let body: String = body.split_whitespace().collect();
        if STANDARD.decode(body).is_ok_and(|der| is_sequence(&der)) {
            return None;
        }
        why = "failed to parse certificate: x509: malformed certificate";
    }
    Some(why)
}

/// Returns true if the bytes are one DER sequence, as a certificate is.
fn is_sequence(der: &[u8]) -> bool {
    let [0x30, length, rest @ ..] = der else { return false };
    match usize::from(*length) {
        short @ ..0x80 => rest.len() == short,
        long => {
            let digits = long - 0x80;
            let split = rest.split_at_checked(digits).filter(|_| (1..=4).contains(&digits));
            split.is_some_and(|(digits, rest)| {
                let length = digits.iter().fold(0usize, |sum, digit| sum << 8 | usize::from(*digit));
                rest.len() == length
            })
        }
    }
}

fn check_url(url: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    const FORM: &str = "desired format: https://host[/path]";
    let parts = match Uri::parse(url, UriForm::Any) {
        Ok(parts) => parts,
        Err(why) => {
            let why = format!("url must be a valid URL: parse {url:?}: {why}; {FORM}");
            return errors.push(FieldError::required(path, why));
        }
    };
    let mut push = |value: &str, why: String| errors.push(FieldError::invalid(path, &Json::from(value), why));
    if parts.scheme != "https" {
        push(&parts.scheme, format!("'https' is the only allowed URL scheme; {FORM}"));
    }
    if parts.host.is_empty() {
        push(parts.host, format!("host must be specified; {FORM}"));
    }
    if let Some(user) = parts.user {
        push(user, "user information is not permitted in the URL".to_owned());
    }
    if !parts.fragment.is_empty() {
        push(parts.fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !parts.query.is_empty() {
        push(parts.query, "query parameters are not permitted in the URL".to_owned());
    }
}

fn check_service(service: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for name in ["name", "namespace"] {
        if text(service, name).is_empty() {
            errors.push(FieldError::required(&path.child(name), ""));
        }
    }
    if let Some(port) = service
        .get("port")
        .filter(|p| p.as_i64().is_none_or(|p| !(1..=65535).contains(&p)))
    {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(&path.child("port"), port, why));
    }
    let at = path.child("path");
    let given = text(service, "path");
    if given.is_empty() || given == "/" {
        return;
    }
    let value = Json::from(given);
    if !given.starts_with('/') {
        errors.push(FieldError::invalid(&at, &value, "must start with a '/'"));
    }
    // Kubernetes skips the first character, whatever it is.
    let rest = given
        .get(given.chars().next().map_or(0, char::len_utf8)..)
        .unwrap_or_default();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (i, segment) in rest.split('/').enumerate() {
        if segment.is_empty() {
            errors.push(FieldError::invalid(
                &at,
                &value,
                format!("segment[{i}] may not be empty"),
            ));
            continue;
        }
        for why in names::subdomain(segment) {
            errors.push(FieldError::invalid(&at, &value, format!("segment[{i}]: {why}")));
        }
    }
}
