//! Generated edits: a client's changes to the object that it read, partly from a fresh object.

use super::random::Random;
use insula_api::Json;
use serde_json::Map;

/// Returns `old` with some parts of `fresh`: fields are added and removed; items are changed,
/// inserted, removed and moved.
pub(super) fn mix(old: &Json, fresh: &Json, random: &mut Random) -> Json {
    match (old, fresh) {
        (Json::Object(old), Json::Object(fresh)) => {
            let mut out = Map::new();
            for name in old.keys().chain(fresh.keys()) {
                if out.contains_key(name) {
                    continue;
                }
                let value = match (old.get(name), fresh.get(name)) {
                    (Some(old), Some(fresh)) => Some(mix(old, fresh, random)),
                    (old, fresh) => if random.chance(25) { fresh } else { old }.cloned(),
                };
                out.extend(value.map(|value| (name.clone(), value)));
            }
            Json::Object(out)
        }
        (Json::Array(old), Json::Array(fresh)) => {
            let mut out = Vec::new();
            for (i, item) in old.iter().enumerate() {
                match (random.below(6), fresh.get(i)) {
                    (0, _) => {}
                    (1, Some(fresh)) => out.push(mix(item, fresh, random)),
                    (2, Some(fresh)) => out.extend([fresh.clone(), item.clone()]),
                    _ => out.push(item.clone()),
                }
            }
            if random.chance(20) {
                out.reverse();
            }
            out.extend(fresh.iter().skip(old.len()).cloned());
            Json::Array(out)
        }
        _ => if random.chance(35) { fresh } else { old }.clone(),
    }
}
