//! Search of generated APIs for counterexamples.

use super::apis::generated_api;
use super::bundle;
use insula_conversion::proof::{Search, Searched, search};

/// Searches generated APIs for counterexamples; `cases` sequences of writes in each.
pub fn hold(seed: u64, apis: u64, cases: u32) -> Result<Searched, String> {
    let mut total = Searched::default();
    for i in 0..apis {
        let of = seed.wrapping_mul(1_000_003).wrapping_add(i);
        let doc = generated_api(of);
        let bundle = bundle(&doc).map_err(|e| format!("world {of} does not compile: {e:#?}\n{doc}"))?;
        let how = Search {
            seed: of,
            cases,
            ..Search::default()
        };
        let searched = search(&bundle, how)
            .map_err(|example| format!("world {of} (seed {seed}, number {i}): {example}\n{doc}"))?;
        total.cases += searched.cases;
        total.writes += searched.writes;
        total.refused += searched.refused;
        total.skipped += searched.skipped;
    }
    Ok(total)
}
