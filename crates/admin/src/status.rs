//! Errors as gRPC tells them: one exhaustive match. Messages are those that HTTP clients read.

use insula_registry::Error;
use tonic::{Code, Status};

/// A verb's error.
pub fn status(error: &Error) -> Status {
    let code = match error {
        Error::NotFound { .. } | Error::UnknownResource => Code::NotFound,
        Error::AlreadyExists { .. } | Error::NoFreeName { .. } => Code::AlreadyExists,
        Error::Conflict { .. } | Error::ApplyConflict(_) => Code::Aborted,
        Error::Invalid { .. } | Error::BadRequest(_) | Error::Mistyped(_) | Error::BadPatch | Error::TooLarge(_) => {
            Code::InvalidArgument
        }
        Error::Forbidden { .. } | Error::Denied { .. } | Error::Refused { .. } => Code::PermissionDenied,
        Error::MethodNotAllowed | Error::UnsupportedMediaType(_) => Code::Unimplemented,
        Error::Expired { .. } | Error::RevisionTooLarge { .. } => Code::OutOfRange,
        Error::Conversion(_) | Error::Webhook(_) => Code::FailedPrecondition,
        Error::Internal(_) => Code::Internal,
        Error::Unavailable(_) => Code::Unavailable,
        Error::TooManyRequests(_) => Code::ResourceExhausted,
        Error::Warned { error, warnings: _ } => return status(error),
    };
    Status::new(code, error.to_string())
}
