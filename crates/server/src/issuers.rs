//! Issuers of tokens that the operator configures: a file as for Kubernetes'
//! `--authentication-config`, read again when it changes.

use std::{path::PathBuf, sync::Arc, time::Duration};

use insula_access::{Authenticator, issuers::read_all};
use insula_api::{FieldError, FieldPath, Json, aggregate};
use insula_auth::jwt::Issuer;

use crate::{Config, StartError};

/// Period of reading the file.
const PERIOD: Duration = Duration::from_secs(5);

const KIND: &str = "AuthenticationConfiguration";
const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];

/// Reads the file, if there is one.
pub(crate) fn read(config: &Config) -> Result<Vec<Issuer>, StartError> {
    let Some(path) = &config.authentication_config else {
        return Ok(Vec::new());
    };
    let text = std::fs::read_to_string(path).map_err(|cause| StartError::read(path, cause))?;
    parse(&text).map_err(|cause| StartError::Issuers {
        path: path.clone(),
        cause,
    })
}

/// Follows the file. A mistake in it is logged once, and the previous issuers stay in use.
pub(crate) async fn follow(path: PathBuf, authenticator: Arc<Authenticator>) {
    let mut last = None;
    loop {
        let text = tokio::fs::read_to_string(&path)
            .await
            .map_err(|error| error.to_string());
        if last.as_ref() != Some(&text) {
            match (
                text.as_deref().map_err(Clone::clone).and_then(parse),
                &authenticator.issuers,
            ) {
                (Ok(issuers), Some(known)) => known.configure(issuers),
                (Ok(_), None) => {}
                (Err(cause), _) => {
                    tracing::warn!(file = %path.display(), cause, "the issuers of tokens stay as they were");
                }
            }
            last = Some(text);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn parse(text: &str) -> Result<Vec<Issuer>, String> {
    let file: Json = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let version = file["apiVersion"].as_str().unwrap_or_default();
    if file["kind"] != KIND || !VERSIONS.contains(&version) {
        return Err(format!("is not of kind {KIND} in {}; write both into it", VERSIONS[0]));
    }
    let unknown = file.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    let unknown = unknown.filter(|key| !["apiVersion", "kind", "jwt"].contains(key));
    let unknown = unknown.map(|key| match key {
        "anonymous" => FieldError::forbidden(&FieldPath::new(key), "who shows no credential may ask for health alone"),
        _ => FieldError::forbidden(&FieldPath::new(key), "unknown field; issuers are listed below jwt"),
    });
    let unknown: Vec<FieldError> = unknown.collect();
    if !unknown.is_empty() {
        return Err(aggregate(&unknown));
    }
    read_all(&file["jwt"], &FieldPath::new("jwt")).map_err(|errors| aggregate(&errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_kubernetes_own() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
        let good = format!(
            "{head}jwt:\n- issuer: {{url: https://login.example.com, audiences: [insula]}}\n\
             \x20 claimMappings: {{username: {{claim: sub, prefix: 'corp:'}}}}\n"
        );
        let read = parse(&good).expect("it is good");
        assert_eq!(
            &*read[0].discovery_url,
            "https://login.example.com/.well-known/openid-configuration"
        );
        assert_eq!(parse(head).map(|none| none.len()), Ok(0));
        for (text, want) in [
            ("jwt: []".to_owned(), "is not of kind AuthenticationConfiguration"),
            (format!("{head}anonymous: {{enabled: true}}"), "anonymous: Forbidden"),
            (format!("{head}jwts: []"), "jwts: Forbidden: unknown field"),
            (good.replace("https", "http"), "jwt[0].issuer.url: Invalid value"),
            (good.replace("prefix", "suffix"), "unknown field `suffix`"),
            (
                format!("{good}{}", &good[head.len() + 5..]),
                "jwt[1].issuer.url: Duplicate value",
            ),
        ] {
            let refused = parse(&text).expect_err(want);
            assert!(refused.contains(want), "{refused}");
        }
    }
}
