//! Errors as gRPC tells them: one exhaustive match. Messages are those that HTTP clients read.

use insula_apiserver::call::Refusal;
use insula_registry::Error;
use tonic::{Code, Status};

/// The metadata by which a server says when a call may be made again (gRFC A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// A refusal of the edge.
pub fn refused(refusal: &Refusal) -> Status {
    let code = match refusal.code {
        400 | 415 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        413 | 429 => Code::ResourceExhausted,
        503 => Code::Unavailable,
        504 => Code::DeadlineExceeded,
        _ => Code::Internal,
    };
    let mut status = Status::new(code, refusal.message.clone());
    if let Some(seconds) = refusal.retry_after {
        let metadata = status.metadata_mut();
        metadata.insert(PUSHBACK, (u64::from(seconds) * 1_000).into());
        metadata.insert("retry-after", seconds.into());
    }
    status
}

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
        Error::TooManyRequests(_) | Error::InsufficientStorage(_) => Code::ResourceExhausted,
        Error::Warned { error, warnings: _ } => return status(error),
    };
    Status::new(code, error.to_string())
}
