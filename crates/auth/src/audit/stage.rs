//! Moments in the life of a request that are recorded.

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The sender is known, and nothing is done yet.
    RequestReceived,
    /// A watch has begun.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The server failed on it.
    Panic,
}

impl Stage {
    /// All of them, in their order.
    pub const ALL: [Stage; 4] = [
        Stage::RequestReceived,
        Stage::ResponseStarted,
        Stage::ResponseComplete,
        Stage::Panic,
    ];

    /// Kubernetes' word.
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
    /// Puts one in.
    pub fn add(&mut self, stage: Stage) {
        self.0 |= 1 << stage as u8;
    }

    /// Puts in all of another set.
    pub fn extend(&mut self, other: Stages) {
        self.0 |= other.0;
    }

    /// Whether it has the stage.
    pub fn has(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }
}
