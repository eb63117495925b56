//! Errors of requests on objects, grouped by the client's possible reaction.
//!
//! Only `apiserver::status` and `admin::status` translate them to the wire format.

use insula_api::{FieldError, Revision, aggregate};
use insula_meter::Ended;
use std::sync::Arc;

/// Group and resource (or kind) in the form of error messages.
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
    /// The cluster serves no resource at this path.
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
    /// A concurrent write came first, or a precondition does not hold.
    #[error("Operation cannot be fulfilled on {resource} {name:?}: {detail}")]
    Conflict {
        resource: Named,
        name: String,
        detail: String,
    },
    /// Fields are invalid. `subject` is the kind (or, for some errors, the resource).
    #[error("{subject} {name:?} is invalid: {}", aggregate(errors))]
    Invalid {
        subject: Named,
        name: String,
        errors: Vec<FieldError>,
    },
    /// The request itself is malformed.
    #[error("{0}")]
    BadRequest(String),
    /// Another field manager owns an applied field.
    #[error("{0}")]
    ApplyConflict(insula_apply::Conflicts),
    /// The applied object does not fit the schema, so the owners of its fields cannot be
    /// determined.
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
    /// The value of a field does not exist or does not fit: HTTP's 403, as in kcp, and a wrong
    /// field in other protocols.
    #[error("{resource} {name:?} is forbidden: {why}")]
    WrongValue {
        resource: Named,
        name: String,
        why: String,
        /// Path of the field in the object.
        field: &'static str,
    },
    /// A quota or the object limit of the workspace is reached: HTTP's 403, and another code in
    /// other protocols.
    #[error("{resource} {name:?} is forbidden: {why}")]
    QuotaExceeded { resource: Named, name: String, why: String },
    /// An admission policy of the workspace refuses.
    #[error("{message}")]
    Denied {
        resource: Named,
        name: String,
        denial: Denial,
        message: String,
        /// Messages of all reported refusals.
        causes: Vec<String>,
    },
    /// An admission webhook of the workspace refuses the write, with its own message, code and
    /// reason.
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
    /// The request may compute no further.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// A revision is compacted. `next` is a token that continues a list at the present revision.
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
    /// A stored object cannot be converted to a version. The message names object, rule and field.
    #[error("{0}")]
    Conversion(String),
    /// A conversion webhook failed. The message is Kubernetes'.
    #[error("{0}")]
    Webhook(Arc<str>),
    /// An error of the server.
    #[error("Internal error occurred: {0}")]
    Internal(String),
    /// The server is temporarily unavailable. The write did not happen, or its outcome is unknown.
    #[error("{0}")]
    Unavailable(String),
    /// The disk is full and nothing was written. A retry succeeds only after an operator frees
    /// space.
    #[error("{0}")]
    InsufficientStorage(String),
    /// The client must retry later.
    #[error("{0}")]
    TooManyRequests(String),
    /// A subresource patch of this media type is not supported.
    #[error("{0}")]
    UnsupportedMediaType(String),
    /// An error with warnings for the client from before the error.
    #[error("{error}")]
    Warned { error: Box<Error>, warnings: Vec<String> },
}

impl Error {
    /// Returns the error with warnings, if there are any.
    #[must_use]
    pub fn warned(self, warnings: Vec<String>) -> Error {
        if warnings.is_empty() {
            return self;
        }
        let error = Box::new(self);
        Error::Warned { error, warnings }
    }

    /// Returns the error without its warnings.
    pub fn bare(&self) -> &Error {
        match self {
            Error::Warned { error, .. } => error.bare(),
            other => other,
        }
    }
}

/// The kind of refusal that an admission policy requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// The content is invalid. Default of policies without a reason.
    Invalid,
    /// The caller lacks permission.
    Forbidden,
    /// The request entity is too large.
    TooLarge,
    /// A mutating policy failed.
    Mutation,
}

/// A machine-readable cause of a refusal, e.g. `NamespaceTerminating`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable reason.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// The field, if there is one.
    pub field: String,
}

/// The result of a verb.
pub type Result<T> = std::result::Result<T, Error>;
