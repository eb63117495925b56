//! CertificateSigningRequests (`pkg/apis/certificates/validation`). Admission decides which callers
//! may change which part of the status.

use crate::{
    Builtin, CellValue, Strategy, Subresource, Table, TableColumn, Traits,
    kind::crd,
    names::{NameRule, name_problems},
};
use insula_api::{FieldError, FieldPath, Json, Timestamp, Verb};
use insula_auth::certificate;
use serde_json::json;

/// Spec fields that the server sets from the identity of the caller.
const SENDER: [&str; 4] = ["username", "uid", "groups", "extra"];
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const EXPIRATION_SECONDS_MIN: i64 = 600;

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &Requests,
    claimable: true,
    subresources: &[Subresource {
        name: "approval",
        body: None,
        verbs: &[Verb::Get, Verb::Patch, Verb::Update],
    }],
    table: Some(Table::new(&[
        TableColumn::NAME,
        TableColumn::AGE,
        TableColumn::text(
            "SignerName",
            "Who is asked to sign.",
            CellValue::Text("/spec/signerName"),
        ),
        TableColumn::text("Requestor", "Who asked.", CellValue::Text("/spec/username")),
        TableColumn::text(
            "RequestedDuration",
            DURATION_TEXT,
            CellValue::Duration("/spec/expirationSeconds"),
        ),
        TableColumn::text(
            "Condition",
            "What became of it.",
            CellValue::Computed(|request| json!(verdict(request))),
        ),
    ])),
    ..Builtin::new(crd!("certificates.k8s.io_certificatesigningrequests"))
}];

const DURATION_TEXT: &str = "How long the certificate should be valid.";

/// Returns the state of a request in kubectl's form, e.g. `Approved,Issued`.
fn verdict(request: &Json) -> String {
    let status = &request["status"];
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let is = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
    let verdict = match (is("Denied"), is("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if is("Failed") { ",Failed" } else { "" };
    let issued = status["certificate"].as_str().is_some_and(|bytes| !bytes.is_empty());
    format!("{verdict}{failed}{}", if issued { ",Issued" } else { "" })
}

/// CertificateSigningRequests.
struct Requests;

impl Strategy for Requests {
    fn traits(&self) -> Traits {
        Traits::BUILT_IN
    }

    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        new["status"] = json!({});
        if let Some(spec) = new["spec"].as_object_mut() {
            spec.retain(|field, _| !SENDER.contains(&field.as_str()));
        }
    }

    fn prepare_for_update(&self, new: &mut Json, old: &Json, _now: Timestamp) {
        new["spec"] = old["spec"].clone();
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let (spec, at) = (&new["spec"], FieldPath::new("spec"));
        let mut errors = Vec::new();
        if let Err(why) = request(spec) {
            let given = spec.get("request").unwrap_or(&Json::Null);
            errors.push(FieldError::invalid(&at.child("request"), given, why));
        }
        check_usages(&spec["usages"], &at.child("usages"), &mut errors);
        check_signer(&spec["signerName"], &at.child("signerName"), &mut errors);
        if spec["expirationSeconds"]
            .as_i64()
            .is_some_and(|seconds| seconds < EXPIRATION_SECONDS_MIN)
        {
            errors.push(FieldError::invalid(
                &at.child("expirationSeconds"),
                &spec["expirationSeconds"],
                "may not specify a duration less than 600 seconds (10 minutes)",
            ));
        }
        check_conditions(&new["status"]["conditions"], &mut errors);
        errors
    }
}

/// Returns the groups in the subject of a certificate request.
///
/// # Errors
///
/// Returns a message if `spec.request` is not a valid certificate request.
pub fn request(spec: &Json) -> Result<Vec<String>, String> {
    use base64::Engine;
    let text = spec["request"].as_str().unwrap_or_default();
    let pem = base64::engine::general_purpose::STANDARD.decode(text);
    certificate::requested_groups(&pem.unwrap_or_default()).map_err(|why| why.to_string())
}

fn check_usages(usages: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let usages = usages.as_array().map_or(&[][..], Vec::as_slice);
    if usages.is_empty() {
        errors.push(FieldError::required(at, ""));
    }
    for (i, usage) in usages.iter().enumerate() {
        if !usage.as_str().is_some_and(|usage| USAGES.contains(&usage)) {
            errors.push(FieldError::not_supported(&at.index(i), usage, USAGES));
        }
        if usages[..i].contains(usage) {
            errors.push(FieldError::duplicate(&at.index(i), usage));
        }
    }
}

fn check_signer(signer: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let name = signer.as_str().unwrap_or_default();
    let mut invalid = |value: &str, why: String| errors.push(FieldError::invalid(at, &json!(value), why));
    if name == LEGACY_SIGNER {
        invalid(
            name,
            "the legacy signerName is not allowed via this API version".to_owned(),
        );
        return;
    }
    let (domain, path) = match name.split('/').collect::<Vec<_>>()[..] {
        _ if name.is_empty() => {
            errors.push(FieldError::required(at, ""));
            return;
        }
        [domain, path] => (domain, path),
        _ => {
            let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            invalid(name, why.to_owned());
            return;
        }
    };
    for (part, rule) in [(domain, NameRule::Label), (path, NameRule::Subdomain)] {
        let mut bad = part.split('.').map(|label| (label, name_problems(label, rule)));
        if let Some((label, problems)) = bad.find(|(_, problems)| !problems.is_empty()) {
            for problem in problems {
                invalid(part, format!("validating label {label:?}: {problem}"));
            }
        }
    }
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        invalid(domain, why.to_owned());
    }
}

fn check_conditions(conditions: &Json, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("status").child("conditions");
    let (mut approved, mut denied) = (false, false);
    for (i, condition) in conditions.as_array().into_iter().flatten().enumerate() {
        let kind = condition["type"].as_str().unwrap_or_default();
        let at = at.index(i);
        if kind.is_empty() {
            errors.push(FieldError::required(&at.child("type"), ""));
        }
        approved |= kind == "Approved";
        denied |= kind == "Denied";
        if approved && denied && matches!(kind, "Approved" | "Denied") {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(&at.child("type"), &condition["type"], why));
        }
        if matches!(kind, "Approved" | "Denied" | "Failed") && condition["status"] != "True" {
            errors.push(FieldError::not_supported(
                &at.child("status"),
                &condition["status"],
                &["True"],
            ));
        }
    }
}
