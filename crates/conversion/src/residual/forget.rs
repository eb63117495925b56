//! Values that an author allows to be lost.

use crate::path::{Path, Segment};
use serde_json::Value as Json;

/// Removes the paths that the author allows to be lost, where the conversion would not show them
/// either.
pub(crate) fn forget(object: &mut Json, base: &Json, paths: &[Path]) {
    for path in paths {
        forget_path(object, Some(base), path.segments());
    }
}

fn forget_path(object: &mut Json, base: Option<&Json>, path: &[Segment]) {
    let Some((segment, rest)) = path.split_first() else {
        return;
    };
    match (segment, object) {
        (Segment::Field(name), Json::Object(map)) => {
            let base = base.and_then(|b| b.get(name));
            if !rest.is_empty() {
                if let Some(child) = map.get_mut(name) {
                    forget_path(child, base, rest);
                }
            } else if let Some(base) = base {
                map.insert(name.clone(), base.clone());
            } else {
                map.remove(name);
            }
        }
        (Segment::Index(index), Json::Array(items)) if !rest.is_empty() => {
            if let Some(item) = items.get_mut(*index) {
                forget_path(item, base.and_then(|b| b.get(*index)), rest);
            }
        }
        (Segment::Each(_) | Segment::Key(_), Json::Array(items)) if !rest.is_empty() => {
            items
                .iter_mut()
                .enumerate()
                .for_each(|(i, item)| forget_path(item, base.and_then(|b| b.get(i)), rest));
        }
        (Segment::Each(_) | Segment::Key(_), Json::Object(map)) if !rest.is_empty() => {
            map.iter_mut()
                .for_each(|(name, item)| forget_path(item, base.and_then(|b| b.get(name)), rest));
        }
        _ => {}
    }
}
