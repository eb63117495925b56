//! Stages of a request at which events are recorded.

/// A stage, with Kubernetes' name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The user is known, and nothing else has happened.
    RequestReceived,
    /// The headers of a watch have been sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The server panicked while handling it.
    Panic,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 4] = [
        Stage::RequestReceived,
        Stage::ResponseStarted,
        Stage::ResponseComplete,
        Stage::Panic,
    ];

    /// Returns Kubernetes' name of the stage.
    pub fn word(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stages(u8);

impl Stages {
    /// Adds a stage.
    pub fn add(&mut self, stage: Stage) {
        self.0 |= 1 << stage as u8;
    }

    /// Adds all stages of another set.
    pub fn extend(&mut self, other: Stages) {
        self.0 |= other.0;
    }

    /// Returns true if the set contains the stage.
    pub fn has(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }
}
