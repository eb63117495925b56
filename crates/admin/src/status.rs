//! Refusals of the edge as gRPC statuses: one exhaustive match. Messages are those that HTTP
//! clients read.

use insula_apiserver::call::{Refusal, RefusalReason};
use tonic::{Code, Status};

/// The metadata by which a server says when a call may be made again (gRFC A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Returns the status of a refusal.
pub fn refused(refusal: &Refusal) -> Status {
    let Refusal {
        reason,
        message,
        retry_after,
    } = refusal;
    let code = match reason {
        RefusalReason::BadRequest => Code::InvalidArgument,
        RefusalReason::Unauthenticated => Code::Unauthenticated,
        RefusalReason::Forbidden => Code::PermissionDenied,
        RefusalReason::NotFound => Code::NotFound,
        RefusalReason::LimitReached => Code::ResourceExhausted,
        RefusalReason::Unavailable => Code::Unavailable,
        RefusalReason::Timeout => Code::DeadlineExceeded,
        RefusalReason::Internal => Code::Internal,
    };
    let mut status = Status::new(code, message.clone());
    if let Some(seconds) = *retry_after {
        let metadata = status.metadata_mut();
        metadata.insert(PUSHBACK, (u64::from(seconds) * 1_000).into());
        metadata.insert("retry-after", seconds.into());
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_say_when_to_call_again() {
        let refusal = Refusal {
            reason: RefusalReason::LimitReached,
            message: "too many".to_owned(),
            retry_after: Some(2),
        };
        let status = refused(&refusal);
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "too many"));
        assert_eq!(status.metadata().get(PUSHBACK).expect("a pushback"), "2000");
        assert_eq!(status.metadata().get("retry-after").expect("a time"), "2");
    }
}
