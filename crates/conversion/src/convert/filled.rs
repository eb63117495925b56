//! The list or map that a loop fills.

use crate::error::Cause;
use crate::plan::Fill;
use crate::trace::Seg;
use serde_json::{Map, Value as Json};

/// A list or map being filled; a map remembers the item that set each key.
pub(super) enum Filled {
    List(Vec<Json>),
    Map(Map<String, Json>, std::collections::HashMap<String, usize>),
}

impl Filled {
    pub(super) fn for_fill(fill: &Fill) -> Filled {
        match fill {
            Fill::List => Filled::List(Vec::new()),
            Fill::SameKey | Fill::Key(_) => Filled::Map(Map::new(), std::collections::HashMap::new()),
        }
    }

    pub(super) fn add(&mut self, key: Option<String>, item: Json, at: usize) -> Result<Option<Seg>, Cause> {
        if item.is_null() {
            return Ok(None);
        }
        match (self, key) {
            (Filled::List(items), _) => {
                items.push(item);
                Ok(Some(Seg::Index(items.len() - 1)))
            }
            (Filled::Map(..), None) => Ok(None),
            (Filled::Map(map, from), Some(key)) => {
                if let Some(first) = from.insert(key.clone(), at) {
                    return Err(Cause::DuplicateKey { first, second: at });
                }
                map.insert(key.clone(), item);
                Ok(Some(Seg::Field(key.into())))
            }
        }
    }

    pub(super) fn json(self) -> Json {
        match self {
            Filled::List(items) => Json::Array(items),
            Filled::Map(map, _) => Json::Object(map),
        }
    }
}
