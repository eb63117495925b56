//! gRPC statuses of errors: refusals of the edge, of the authorizers, of the store and of
//! workspaces, each by one exhaustive match. Messages are those that HTTP clients read.

use insula_api::ClusterPath;
use insula_apiserver::call::{Refusal, RefusalReason};
use insula_auth::Forbidden;
use insula_catalog::locate::NotLocated;
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

/// Returns the status of a denied right.
pub(crate) fn forbidden(forbidden: Forbidden) -> Status {
    Status::permission_denied(forbidden.message)
}

/// Returns the status of a workspace that cannot be entered, for callers who may read it in its
/// parent. Returns `None` where no parent is known: such a cluster is forbidden to everybody.
pub(crate) fn not_located(path: &ClusterPath, why: &NotLocated) -> Option<Status> {
    match why {
        NotLocated::UnknownCluster(_) => None,
        NotLocated::UnknownWorkspace { parent: _, name } => Some(Status::not_found(format!(
            "workspaces.tenancy.kcp.io {name:?} not found"
        ))),
        NotLocated::Unavailable { parent: _, name, phase } => Some(Status::unavailable(format!(
            "workspace {name:?} is not available: its phase is {phase}"
        ))),
        NotLocated::Mounted { .. } => Some(Status::failed_precondition(format!(
            "workspace {path} is a mount: its content is on another server, ask there"
        ))),
    }
}

/// Returns the HTTP code that corresponds to a gRPC code, for metrics and the audit log.
pub fn http_code(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => 500,
    }
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
