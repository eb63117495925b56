//! Closed sets of labels.

use insula_api::Verb;
use insula_edge::port::{ClosedFor, ResourceClass};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use std::fmt::{self, Write as _};

/// Verb of a request; `None` for one that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct VerbLabel(pub(super) Option<Verb>);

impl EncodeLabelValue for VerbLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        match self.0 {
            // Like the other labels: `Get`, `DeleteCollection`.
            Some(verb) => write!(encoder, "{verb:?}"),
            None => encoder.write_str("Other"),
        }
    }
}

/// Origin of the requested kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Class {
    /// Insula's and Kubernetes' own.
    System,
    /// Bound from an export.
    Bound,
    /// From a definition in the same workspace.
    Local,
    /// Served by an extension server.
    Aggregated,
    /// None: health, discovery, OpenAPI, metrics.
    NonResource,
    /// None: a call of a gRPC service.
    Call,
}

impl From<ResourceClass> for Class {
    fn from(class: ResourceClass) -> Self {
        match class {
            ResourceClass::NonResource => Class::NonResource,
            ResourceClass::System => Class::System,
            ResourceClass::Bound => Class::Bound,
            ResourceClass::Local => Class::Local,
            ResourceClass::Aggregated => Class::Aggregated,
            ResourceClass::Call | ResourceClass::UnknownCall => Class::Call,
        }
    }
}

/// Class of the status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum CodeClass {
    /// 1xx and 2xx.
    Success,
    /// 3xx.
    Redirect,
    /// 4xx.
    ClientError,
    /// 5xx.
    ServerError,
}

impl From<http::StatusCode> for CodeClass {
    fn from(code: http::StatusCode) -> Self {
        match code.as_u16() {
            ..300 => Self::Success,
            300..400 => Self::Redirect,
            400..500 => Self::ClientError,
            _ => Self::ServerError,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) verb: VerbLabel,
    pub(super) class: Class,
    pub(super) code: CodeClass,
}

/// Effect of a request: read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Effect {
    /// Changes nothing.
    ReadOnly,
    /// May change something.
    Mutating,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EffectLabels {
    pub(super) effect: Effect,
}

/// Outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum CommitOutcome {
    /// The commit is durable.
    Committed,
    /// A guard did not hold.
    Conflict,
    /// The commit failed, or its outcome is unknown.
    Failed,
}

impl CommitOutcome {
    pub(super) const ALL: [Self; 3] = [Self::Committed, Self::Conflict, Self::Failed];

    /// Returns the name in traces.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CommitLabels {
    pub(super) outcome: CommitOutcome,
}

/// Outcome of an audit event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum AuditOutcome {
    /// The event is in the log.
    Written,
    /// There was no room in the queue, or on the disk.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AuditLabels {
    pub(super) outcome: AuditOutcome,
}

/// Reason why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ReasonLabel(pub(super) ClosedFor);

impl EncodeLabelValue for ReasonLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        write!(encoder, "{:?}", self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ClosedLabels {
    pub(super) reason: ReasonLabel,
}

/// Purpose of a request to another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Purpose {
    /// An admission or conversion webhook.
    Webhook,
    /// Discovery, keys and sign-ins of a token issuer.
    Issuer,
    /// The content of a mounted workspace.
    Mount,
}

impl Purpose {
    pub(super) const ALL: [Self; 3] = [Self::Webhook, Self::Issuer, Self::Mount];

    /// Returns the name in traces.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Issuer => "issuer",
            Self::Mount => "mount",
        }
    }
}

/// Outcome of a request to another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum CallOutcome {
    /// It answered as it should.
    Answered,
    /// It did not.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CallLabels {
    pub(super) purpose: Purpose,
    pub(super) outcome: CallOutcome,
}

/// Kind of telemetry that goes to a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Signal {
    Spans,
    Metrics,
}

/// Outcome of telemetry that was to go to a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum ExportOutcome {
    /// The collector took it.
    Sent,
    /// The queue was full.
    Dropped,
    /// The collector could not be reached, refused, or took too long.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ExportLabels {
    pub(super) signal: Signal,
    pub(super) outcome: ExportOutcome,
}

impl ExportLabels {
    /// Returns the pairs that can happen: metrics wait in no queue.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        use ExportOutcome::{Dropped, Failed, Sent};
        let spans = [Sent, Dropped, Failed].map(|outcome| (Signal::Spans, outcome));
        let metrics = [Sent, Failed].map(|outcome| (Signal::Metrics, outcome));
        let pairs = spans.into_iter().chain(metrics);
        pairs.map(|(signal, outcome)| ExportLabels { signal, outcome })
    }
}
