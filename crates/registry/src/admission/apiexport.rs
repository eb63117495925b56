//! APIExports: schemas that fit their resources, and claims that say whose API they mean.

use super::Review;
use crate::Result;
use insula_api::{FieldError, FieldPath, Json, aggregate};

/// Kubernetes' resources that every workspace has, with kcp's own.
const BUILT_IN: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "namespaces",
            "configmaps",
            "events",
            "resourcequotas",
            "secrets",
            "serviceaccounts",
        ],
    ),
    (
        "rbac.authorization.k8s.io",
        &["clusterroles", "clusterrolebindings", "roles", "rolebindings"],
    ),
    ("certificates.k8s.io", &["certificatesigningrequests"]),
    ("coordination.k8s.io", &["leases"]),
    (
        "admissionregistration.k8s.io",
        &[
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        ],
    ),
    ("events.k8s.io", &["events"]),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    (
        "authorization.k8s.io",
        &["subjectaccessreviews", "localsubjectaccessreviews"],
    ),
    ("authentication.k8s.io", &["tokenreviews"]),
    ("core.kcp.io", &["logicalclusters"]),
];

fn is_built_in(group: &str, resource: &str) -> bool {
    group == "apis.kcp.io"
        || BUILT_IN
            .iter()
            .any(|(known, all)| *known == group && all.contains(&resource))
}

pub(super) fn review(review: &Review<'_>, new: &Json) -> Result<()> {
    let spec = FieldPath::new("spec");
    let text = |value: &Json, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let mut errors = Vec::new();
    for (i, resource) in new["spec"]["resources"].as_array().into_iter().flatten().enumerate() {
        let (group, name, schema) = (
            text(resource, "group"),
            text(resource, "name"),
            text(resource, "schema"),
        );
        let group = if group.is_empty() { "core" } else { &group };
        let suffix = format!(".{name}.{group}");
        if !schema.ends_with(&suffix) {
            let at = spec.child("resources").index(i).child("schema");
            errors.push(FieldError::invalid(
                &at,
                &Json::from(schema),
                format!("must end in {suffix}"),
            ));
        }
    }
    for (i, claim) in new["spec"]["permissionClaims"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        if text(claim, "identityHash").is_empty() && !is_built_in(&text(claim, "group"), &text(claim, "resource")) {
            let at = spec.child("permissionClaims").index(i).child("identityHash");
            let why = "identityHash is required for API types that are not built-in";
            errors.push(FieldError::invalid(&at, &Json::from(""), why));
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(review.forbid(new, aggregate(&errors)))
    }
}
