//! Search of conversion rules for a counterexample before they serve: once for each content, paid
//! for by the request that brings them. A tool that searches the same rules finds the same.
//!
//! Only new rules are searched. Rules of a stored bundle passed the search at their creation. They
//! keep serving even if a later, deeper search would find a counterexample.

use insula_api::FieldError;
use insula_conversion::Bundle;
use insula_conversion::proof::{self, Search, Searched};
use insula_meter::Meter;

/// An executor for long work of the server for itself, which has no turns. Runs the function once,
/// before it returns.
pub type BlockingExecutor = fn(&mut dyn FnMut());

/// The result of a search: its extent, or the counterexamples found.
pub type Proof = Result<Searched, Vec<FieldError>>;

/// The search, with the executor of those that nobody pays for.
pub struct Prover {
    pub(crate) aside: BlockingExecutor,
}

impl Default for Prover {
    /// Returns a prover that searches on the caller's thread.
    fn default() -> Self {
        Prover { aside: |work| work() }
    }
}

impl Prover {
    /// Searches the rules of a bundle for a counterexample to the conversion laws. Work that a
    /// meter pays for leaves the threads that answer by itself.
    ///
    /// # Errors
    /// Returns the first counterexamples as field errors, and the number of the others.
    pub fn prove(&self, bundle: &Bundle, meter: &Meter) -> Proof {
        let mut told = Ok(Searched::default());
        let mut search = || told = proof::prove(bundle, Search::default(), meter);
        match meter.is_unbounded() {
            true => (self.aside)(&mut search),
            false => search(),
        }
        told.map_err(proof::counted)
    }
}
