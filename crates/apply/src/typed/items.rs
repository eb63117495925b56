//! Identities of list items.

use super::shape::{Kind, Shape};
use crate::fields::Element;
use insula_api::Json;

/// Returns the element that identifies an item, or the reason why it has no identity.
pub(crate) fn identity(list: Shape<'_>, kind: Kind<'_>, item: &Json) -> Result<Element, String> {
    match kind {
        Kind::Keyed(keys) => by_keys(list.items(), keys, item),
        _ => match item {
            Json::Object(_) => Err("associative list without keys has an element that's a map type".into()),
            Json::Array(_) => Err("not supported: associative list with lists as elements".into()),
            Json::Null => Err("associative list without keys has an element that's an explicit null".into()),
            scalar => Ok(Element::Value(scalar.clone())),
        },
    }
}

fn by_keys(items: Shape<'_>, keys: &[String], item: &Json) -> Result<Element, String> {
    let fields = match item {
        Json::Object(fields) => fields,
        Json::Null => return Err("associative list with keys may not have a null element".into()),
        _ => return Err("associative list with keys may not have non-map elements".into()),
    };
    let found = keys.iter().filter_map(|key| {
        let value = fields.get(key).or_else(|| items.default_of(key))?;
        Some((key.as_str().into(), value.clone()))
    });
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        let keys: Vec<_> = keys.iter().map(|key| format!("{key:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(Element::key(found))
}

/// Returns the items of a list with their elements, in order. Items without an identity are
/// identified by index: stored objects may be older than their schema.
pub(crate) fn identified<'v>(list: Shape<'_>, kind: Kind<'_>, items: &'v [Json]) -> Vec<(Element, &'v Json)> {
    let identities = items.iter().zip(0..).map(|(item, place)| {
        let element = identity(list, kind, item).unwrap_or(Element::Index(place));
        (element, item)
    });
    identities.collect()
}
