//! Refusals: everything that is answered instead of done.

use insula_api::Verb;
use insula_auth::Attributes;
use insula_catalog::{Error, Named};
use insula_edge::guard::Limit;

/// The reason why a request is answered, and not done.
///
/// Displays the text for people. Codes, and the form of the text, are those of a protocol:
/// `insula_apiserver::status` and `insula_admin::status` have one exhaustive match each.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// The sender shows no valid credential.
    #[error("Unauthorized")]
    Unauthenticated,
    /// The sender lacks a right.
    #[error(transparent)]
    Forbidden(Box<Forbidden>),
    /// A user, a workspace or the server is at a limit.
    #[error(transparent)]
    Limit(#[from] Limit),
    /// Nothing is served at the path.
    #[error("nothing is served at this path")]
    NotServed,
    /// The path is one of a workspace, and names none.
    #[error("the URL names no workspace: end the server's URL with one, as in https://HOST/clusters/root:org:team")]
    NoWorkspace,
    /// The resource does not have the verb.
    #[error("{} is not supported on resources of kind \"{resource}\"{clusters}", verb.map_or("", Verb::name))]
    NotSupported {
        /// The resource.
        resource: Named,
        /// The verb; `None` for a method that is none.
        verb: Option<Verb>,
        /// The clusters of the request.
        clusters: Clusters,
    },
    /// The path is one of the whole server, and not of a workspace (kcp
    /// `pkg/server/filters/shardlevelpaths.go`).
    #[error("shard-level endpoint not available at workspace scope")]
    NotInWorkspaces,
    /// The client accepts no form of the answer.
    #[error("{0}")]
    NotAcceptable(String),
    /// The built-in resource does not take patches of this type.
    #[error("415: Unsupported Media Type")]
    UnsupportedPatch,
    /// The user's home workspace is being made.
    #[error("Creating the home workspace")]
    HomeIsComing,
    /// The answer took longer than the limit.
    #[error("Timeout: request did not complete within the allotted timeout")]
    Timeout,
    /// The handler panicked. The panic is in the log, under the request's id.
    #[error("Internal error occurred: {}", Refusal::PANICKED)]
    Panicked,
    /// The verb refuses, or failed: quotas, policies and webhooks among others.
    #[error(transparent)]
    Verb(Error),
    /// A refusal after warnings.
    #[error("{0}")]
    Warned(Box<Refusal>, Vec<String>),
}

/// A right that the sender lacks.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Forbidden {
    /// The text in the words of authorization.
    pub message: String,
    /// The right.
    pub attributes: Attributes,
}

/// The clusters of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clusters {
    /// One cluster.
    One,
    /// All clusters.
    All,
}

impl std::fmt::Display for Clusters {
    /// Writes the end of a sentence about the verbs of a resource.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Clusters::One => "",
            Clusters::All => " in the `*` logical cluster",
        })
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Warned { error, warnings } => Refusal::from(*error).warn(warnings),
            error => Refusal::Verb(error),
        }
    }
}

impl Refusal {
    /// The cause of [`Refusal::Panicked`].
    pub const PANICKED: &str = "the server failed on this request; its log has the story under the request's id";

    /// Returns the refusal of a right, with the message of authorization.
    pub fn forbidden(message: String, attributes: &Attributes) -> Self {
        let attributes = attributes.clone();
        Refusal::Forbidden(Box::new(Forbidden { message, attributes }))
    }

    /// Returns the refusal of a malformed request.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Refusal::Verb(Error::BadRequest(message.into()))
    }

    /// Adds warnings before those that the refusal has.
    #[must_use]
    pub fn warn(self, mut warnings: Vec<String>) -> Self {
        match self {
            refusal if warnings.is_empty() => refusal,
            Refusal::Warned(refusal, later) => {
                warnings.extend(later);
                Refusal::Warned(refusal, warnings)
            }
            refusal => Refusal::Warned(Box::new(refusal), warnings),
        }
    }

    /// Returns the refusal without its warnings, and the warnings.
    pub fn parts(&self) -> (&Refusal, &[String]) {
        match self {
            Refusal::Warned(refusal, warnings) => (refusal, warnings),
            refusal => (refusal, &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_keep_their_order() {
        let error = Error::BadPatch.warned(vec!["b".to_owned()]);
        let refusal = Refusal::from(error).warn(vec!["a".to_owned()]).warn(Vec::new());
        let (bare, warnings) = refusal.parts();
        assert!(matches!(bare, Refusal::Verb(Error::BadPatch)));
        assert_eq!(warnings, ["a", "b"]);
    }

    #[test]
    fn verbs_that_are_not_served_are_told_with_their_clusters() {
        let refused = |clusters| {
            let resource = Named {
                group: "example.io".into(),
                resource: "widgets".into(),
            };
            let verb = Some(Verb::Create);
            Refusal::NotSupported {
                resource,
                verb,
                clusters,
            }
            .to_string()
        };
        let one = "create is not supported on resources of kind \"widgets.example.io\"";
        assert_eq!(refused(Clusters::One), one);
        assert_eq!(refused(Clusters::All), format!("{one} in the `*` logical cluster"));
    }
}
