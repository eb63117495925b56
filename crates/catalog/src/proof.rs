//! Rules are searched for a counterexample before they serve: once for each content, aside from the
//! threads that answer requests, and for a bounded time.
//!
//! Only what is new is searched. What a stored bundle serves was searched when it came, and must
//! not end because a later search goes further.

use insula_api::{Clock, FieldError};
use insula_conversion::Bundle;
use insula_conversion::proof::{self, Search, Searched};
use std::sync::Arc;

/// How long one search may take.
const MICROS_MAX: i64 = 250_000;

/// Runs work that takes a while where it holds up nobody else. Called once, before it returns.
pub type BlockingExecutor = fn(&mut dyn FnMut());

/// What a search said: how far it went, or what it found.
pub type Proof = Result<Searched, Vec<FieldError>>;

/// Searches.
pub struct Prover {
    clock: Arc<dyn Clock>,
    pub(crate) aside: BlockingExecutor,
}

impl Prover {
    /// A prover that searches on the caller's thread.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Prover {
            clock,
            aside: |work| work(),
        }
    }

    /// Searches the rules of a bundle for a counterexample to the conversion laws.
    pub fn prove(&self, bundle: &Bundle) -> Proof {
        let end = self.clock.monotonic_micros().saturating_add(MICROS_MAX);
        let go_on = || self.clock.monotonic_micros() < end;
        let mut told = Ok(Searched::default());
        (self.aside)(&mut || told = proof::prove(bundle, Search::default(), &go_on));
        told
    }
}
