//! Search of conversion rules for a counterexample before they serve: once for each content,
//! outside the threads that answer requests. A tool that searches the same rules finds the same.
//!
//! Only new rules are searched. Rules of a stored bundle passed the search at their creation. They
//! keep serving even if a later, deeper search would find a counterexample.

use insula_api::FieldError;
use insula_conversion::Bundle;
use insula_conversion::proof::{self, Search, Searched};

/// An executor for long work that must not block other requests. Runs the function once, before it
/// returns.
pub type BlockingExecutor = fn(&mut dyn FnMut());

/// The result of a search: its extent, or the counterexamples found.
pub type Proof = Result<Searched, Vec<FieldError>>;

/// The search, with its executor.
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
    /// Searches the rules of a bundle for a counterexample to the conversion laws.
    ///
    /// # Errors
    /// Returns the first counterexamples as field errors, and the number of the others.
    pub fn prove(&self, bundle: &Bundle) -> Proof {
        let mut told = Ok(Searched::default());
        (self.aside)(&mut || told = proof::prove(bundle, Search::default()));
        told.map_err(proof::counted)
    }
}
