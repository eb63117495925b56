//! What can go wrong with a request on objects, in terms of what its sender can do about it.
//!
//! Only `apiserver::status` and `admin::status` know what these are on the wire.

use insula_api::{FieldError, Revision, aggregate};
use std::sync::Arc;

/// Group and resource (or kind) as messages name them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Plural resource, or kind where the message names the kind.
    pub resource: Arc<str>,
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

/// An error of a verb. Texts are Kubernetes' (apimachinery `api/errors`).
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The object does not exist.
    #[error("{resource} {name:?} not found")]
    NotFound { resource: Named, name: String },
    /// The path names nothing that is served here.
    #[error("the server could not find the requested resource")]
    UnknownResource,
    /// An object of this name exists.
    #[error("{}{resource} {name:?} already exists", if *deleting { "object is being deleted: " } else { "" })]
    AlreadyExists {
        resource: Named,
        name: String,
        deleting: bool,
    },
    /// No free name was found for a `generateName`.
    #[error("{resource} {name:?} already exists, the server was not able to generate a unique name for the object")]
    NoFreeName { resource: Named, name: String },
    /// Somebody else wrote meanwhile, or a precondition does not hold.
    #[error("Operation cannot be fulfilled on {resource} {name:?}: {detail}")]
    Conflict {
        resource: Named,
        name: String,
        detail: String,
    },
    /// Fields are wrong. `subject` is the kind (or, for some refusals, the resource).
    #[error("{subject} {name:?} is invalid: {}", aggregate(errors))]
    Invalid {
        subject: Named,
        name: String,
        errors: Vec<FieldError>,
    },
    /// The request itself is malformed.
    #[error("{0}")]
    BadRequest(String),
    /// Somebody else owns what is applied.
    #[error("{0}")]
    ApplyConflict(insula_apply::Conflicts),
    /// What is applied does not fit the schema, so that it cannot be said whose which field is.
    #[error("{0}")]
    Mistyped(String),
    /// The caller may not do this, or the object's state does not allow it.
    #[error("{resource} {name:?} is forbidden: {why}")]
    Forbidden {
        resource: Named,
        name: String,
        why: String,
        cause: Option<Box<Cause>>,
    },
    /// An admission policy of the workspace refuses.
    #[error("{message}")]
    Denied {
        resource: Named,
        name: String,
        denial: Denial,
        message: String,
        /// One for each refusal that is told.
        causes: Vec<String>,
    },
    /// An admission webhook of the workspace refuses, in its own words.
    #[error("{message}")]
    Refused {
        message: String,
        code: u16,
        reason: String,
        details: insula_api::Json,
    },
    /// The verb does not exist for the resource.
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    /// A revision is no longer kept. `next` is a token that continues a list at the present.
    #[error("{message}")]
    Expired { message: String, next: Option<String> },
    /// A revision lies in the future.
    #[error("Timeout: Too large resource version: {wanted}, current: {current}")]
    RevisionTooLarge { wanted: Revision, current: Revision },
    /// The body or its patch is too large.
    #[error("Request entity too large: {0}")]
    TooLarge(String),
    /// A patch does not apply.
    #[error("the server rejected our request due to an error in our request")]
    BadPatch,
    /// A stored object cannot be shown in a version: names object, rule and field.
    #[error("{0}")]
    Conversion(String),
    /// A conversion webhook failed: the text is Kubernetes' for it.
    #[error("{0}")]
    Webhook(Arc<str>),
    /// The server's fault.
    #[error("Internal error occurred: {0}")]
    Internal(String),
    /// The server cannot now: nothing was changed, or it is unknown whether it was.
    #[error("{0}")]
    Unavailable(String),
    /// The disk is full: nothing was changed, and a retry helps only when somebody has made space.
    #[error("{0}")]
    InsufficientStorage(String),
    /// Try again after a moment.
    #[error("{0}")]
    TooManyRequests(String),
    /// A subresource patch of this media type is not supported.
    #[error("{0}")]
    UnsupportedMediaType(String),
    /// A refusal, and what was to be said of the request before it was refused.
    #[error("{error}")]
    Warned { error: Box<Error>, warnings: Vec<String> },
}

impl Error {
    /// The same refusal with warnings, if there are any.
    #[must_use]
    pub fn warned(self, warnings: Vec<String>) -> Error {
        if warnings.is_empty() {
            return self;
        }
        let error = Box::new(self);
        Error::Warned { error, warnings }
    }

    /// The refusal itself.
    pub fn bare(&self) -> &Error {
        match self {
            Error::Warned { error, .. } => error.bare(),
            other => other,
        }
    }
}

/// What kind of refusal a policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// The content is wrong: what policies mean that do not say otherwise.
    Invalid,
    /// The caller may not.
    Forbidden,
    /// It is too much.
    TooLarge,
    /// A mutating policy could not do its work.
    Mutation,
}

/// A machine-readable cause of a refusal, e.g. `NamespaceTerminating`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Word for machines.
    pub reason: String,
    /// Words for people.
    pub message: String,
    /// The field, if there is one.
    pub field: String,
}

/// What a verb gives.
pub type Result<T> = std::result::Result<T, Error>;
