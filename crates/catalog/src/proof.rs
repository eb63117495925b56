//! Search of conversion rules for a counterexample before they serve: once for each content, in
//! bounded time, outside the threads that answer requests.
//!
//! Only new rules are searched. Rules of a stored bundle passed the search at their creation. They
//! keep serving even if a later, deeper search would find a counterexample.

use insula_api::{Clock, FieldError};
use insula_conversion::Bundle;
use insula_conversion::proof::{self, Search, Searched};
use std::sync::Arc;

/// Time limit of one search, in microseconds.
const MICROS_MAX: i64 = 250_000;

/// An executor for long work that must not block other requests. Runs the function once, before it
/// returns.
pub type BlockingExecutor = fn(&mut dyn FnMut());

/// The result of a search: its extent, or the counterexamples found.
pub type Proof = Result<Searched, Vec<FieldError>>;

/// The search, with its clock and executor.
pub struct Prover {
    clock: Arc<dyn Clock>,
    pub(crate) aside: BlockingExecutor,
}

impl Prover {
    /// Returns a prover that searches on the caller's thread.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Prover {
            clock,
            aside: |work| work(),
        }
    }

    /// Searches the rules of a bundle for a counterexample to the conversion laws.
    ///
    /// # Errors
    /// Returns the counterexamples as field errors.
    pub fn prove(&self, bundle: &Bundle) -> Proof {
        let end = self.clock.monotonic_micros().saturating_add(MICROS_MAX);
        let go_on = || self.clock.monotonic_micros() < end;
        let mut told = Ok(Searched::default());
        (self.aside)(&mut || told = proof::prove(bundle, Search::default(), &go_on));
        told
    }
}
