//! Guard of rules in force: a change is refused by which a served version stops showing something
//! of stored objects, or of what is written in another version.

use crate::{
    kinds::{
        review::Review,
        trial::{self, Tried},
    },
    publication::{Acceptance, Effect, unaccepted},
};
use insula_api::{
    Json, Scope, counted,
    names::{
        annotations::{ACCEPTED_EFFECTS, ACCEPTED_ONCE},
        effects,
    },
};
use insula_catalog::Api;
use std::collections::BTreeMap;

/// Objects that are compared in one request, aside from other requests: some seconds at most.
const OBJECTS_MAX: usize = 10_000;

/// Compares what an API shows of stored objects with what its successor shows of them.
pub(super) fn tried(review: &Review<'_>, scopes: &[Scope], before: &Api, after: &Api) -> Tried {
    let change = (before, after);
    let tried = review
        .catalog
        .run_aside(|| trial::effects(review, change, scopes, OBJECTS_MAX));
    if tried.is_cut {
        review.warn(format!(
            "the first {OBJECTS_MAX} stored objects were compared: others may show less than they do"
        ));
    }
    tried
}

/// Returns why a change is refused, or `None` if it hides nothing, or no more than is accepted.
pub(super) fn refusal(tried: &Tried, accepted: &[Acceptance]) -> Option<String> {
    let hides = |effect: &&Effect| {
        matches!(
            effect.kind,
            effects::VALUE_HIDDEN | effects::WRITE_HIDDEN | effects::FIELD_REMOVED
        )
    };
    let open: Vec<&Effect> = unaccepted(&tried.effects, accepted).into_iter().filter(hides).collect();
    let most = open.iter().max_by_key(|effect| effect.objects)?;
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for effect in &open {
        let word = words.entry(effect.kind).or_default();
        *word = effect.objects.max(*word);
    }
    let words: Vec<String> = words
        .iter()
        .map(|(kind, objects)| format!("{kind}={objects}"))
        .collect();
    let less = match most.kind {
        effects::WRITE_HIDDEN => "would show less of what is written in another version",
        _ => "would show less than they do",
    };
    let key = most.named.first().and_then(|named| named.split(' ').next());
    Some(format!(
        "{}{} in {} {less}, such as {} of {} in {}: keep a rule that shows it, or accept it by the annotation \
         {ACCEPTED_EFFECTS}: {:?}",
        if tried.is_cut { "at least " } else { "" },
        counted(most.objects, "object"),
        counted(most.workspaces.len(), "workspace"),
        most.path,
        key.unwrap_or_default(),
        most.version,
        words.join(",")
    ))
}

/// Returns what the annotations of an APIConversion accept, and takes out the one that is for this
/// write alone. An entry that cannot be read accepts nothing.
pub(super) fn take_accepted(object: &mut Json) -> Vec<Acceptance> {
    let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Json::as_object_mut)
    else {
        return Vec::new();
    };
    let once = annotations.remove(ACCEPTED_ONCE);
    let texts = [annotations.get(ACCEPTED_EFFECTS), once.as_ref()];
    let texts = texts.into_iter().flatten().filter_map(Json::as_str);
    let accepted = texts.flat_map(Acceptance::all).collect();
    if once.is_some() && annotations.is_empty() {
        object["metadata"]
            .as_object_mut()
            .map(|metadata| metadata.remove("annotations"));
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_effect_is_accepted_up_to_a_number() {
        let accepts = |text: &str, objects| {
            let mut object = json!({"metadata": {"annotations": {ACCEPTED_EFFECTS: text}}});
            let accepted = take_accepted(&mut object);
            accepted.iter().any(|one| one.covers(effects::VALUE_HIDDEN, objects))
        };
        assert!(accepts("value-hidden=3", 3) && !accepts("value-hidden=3", 4));
        assert!(accepts("other=9, value-hidden=2", 2) && !accepts("other=9, value-hidden=2", 3));
        assert!(accepts("value-hidden", u64::MAX));
        assert!(!accepts("value-hidden=many", 1));
        assert!(!accepts("", 1));
        assert!(take_accepted(&mut json!({})).is_empty());
    }

    #[test]
    fn a_word_for_one_write_is_taken_out() {
        let word = |name: &str| json!({"metadata": {"name": "a", "annotations": {name: "value-hidden=3"}}});
        let mut once = word(ACCEPTED_ONCE);
        assert_eq!(take_accepted(&mut once).len(), 1);
        assert_eq!(once, json!({"metadata": {"name": "a"}}));
        let mut kept = word(ACCEPTED_EFFECTS);
        assert_eq!(take_accepted(&mut kept).len(), 1);
        assert_eq!(kept, word(ACCEPTED_EFFECTS));
    }
}
