//! Shrinking of counterexamples: removes writes, fields and items and simplifies scalars, one at a
//! time.

use super::Write;
use insula_api::Json;

/// Returns smaller sequences of writes, the smallest first.
pub(super) fn smaller(script: &[Write]) -> Vec<Vec<Write>> {
    let mut out = Vec::new();
    for leave in 0..script.len() {
        if script.len() > 1 {
            let mut shorter = script.to_vec();
            shorter.remove(leave);
            out.push(shorter);
        }
    }
    for (i, write) in script.iter().enumerate() {
        for object in simpler(&write.object, true) {
            let mut changed = script.to_vec();
            changed[i].object = object;
            out.push(changed);
        }
    }
    out
}

/// Returns simpler values: first with fewer parts, then with simpler ones.
fn simpler(value: &Json, root: bool) -> Vec<Json> {
    match value {
        Json::Object(map) => {
            let names: Vec<&String> = map
                .keys()
                .filter(|name| !root || !matches!(name.as_str(), "apiVersion" | "kind"))
                .collect();
            let without = names.iter().map(|name| {
                let mut less = map.clone();
                less.remove(*name);
                Json::Object(less)
            });
            let within = names.iter().flat_map(|name| {
                let parts = map.get(*name).map(|part| simpler(part, false)).unwrap_or_default();
                parts.into_iter().map(|part| {
                    let mut changed = map.clone();
                    changed.insert((*name).clone(), part);
                    Json::Object(changed)
                })
            });
            without.chain(within).collect()
        }
        Json::Array(items) => {
            let without = (0..items.len()).map(|i| {
                let mut less = items.clone();
                less.remove(i);
                Json::Array(less)
            });
            let within = items.iter().enumerate().flat_map(|(i, item)| {
                simpler(item, false).into_iter().map(move |part| {
                    let mut changed = items.clone();
                    changed[i] = part;
                    Json::Array(changed)
                })
            });
            without.chain(within).collect()
        }
        Json::String(text) => ["", "a"]
            .into_iter()
            .filter(|plain| plain.len() < text.len())
            .map(Json::from)
            .collect(),
        Json::Number(number) => [0, 1]
            .into_iter()
            .filter(|plain| number.as_f64().is_some_and(|n| n.abs() > *plain as f64))
            .map(Json::from)
            .collect(),
        Json::Bool(true) => vec![Json::Bool(false)],
        Json::Bool(false) | Json::Null => Vec::new(),
    }
}
