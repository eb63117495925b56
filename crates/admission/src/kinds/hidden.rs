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
use std::{collections::BTreeMap, sync::Arc};

/// Objects that are compared in one request: some seconds at most.
const OBJECTS_MAX: usize = 10_000;

/// Compares what an API shows of stored objects with what its successor shows of them.
pub(super) fn tried(review: &Review<'_>, scopes: &[Scope], before: &Arc<Api>, after: &Arc<Api>) -> Tried {
    let change = (before, after);
    let tried = trial::effects(review, change, scopes, OBJECTS_MAX);
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

/// Returns what the annotations of an object accept; `warn` gets what cannot be read.
pub(super) fn accepted(object: &Json, warn: impl FnMut(String)) -> Vec<Acceptance> {
    Acceptance::all(object, &[ACCEPTED_EFFECTS, ACCEPTED_ONCE], warn)
}

/// Takes out the annotation that accepts effects for this write alone.
pub(super) fn forget_once(object: &mut Json) {
    let annotations = object.pointer_mut("/metadata/annotations");
    let Some(annotations) = annotations.and_then(Json::as_object_mut) else {
        return;
    };
    if annotations.remove(ACCEPTED_ONCE).is_some() && annotations.is_empty() {
        object["metadata"]
            .as_object_mut()
            .map(|metadata| metadata.remove("annotations"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_effect_is_accepted_up_to_a_number() {
        let accepts = |text: &str, objects| {
            let object = json!({"metadata": {"annotations": {ACCEPTED_EFFECTS: text}}});
            let accepted = accepted(&object, drop);
            accepted.iter().any(|one| one.covers(effects::VALUE_HIDDEN, objects))
        };
        assert!(accepts("value-hidden=3", 3) && !accepts("value-hidden=3", 4));
        assert!(accepts("field-removed=9, value-hidden=2", 2) && !accepts("field-removed=9, value-hidden=2", 3));
        assert!(accepts("value-hidden", u64::MAX));
        assert!(!accepts("value-hidden=many", 1));
        assert!(!accepts("", 1));
        assert!(accepted(&json!({}), drop).is_empty());
    }

    #[test]
    fn a_word_that_cannot_be_read_is_told() {
        let object = json!({"metadata": {"annotations": {ACCEPTED_EFFECTS: "value-hiden, value-hidden=x"}}});
        let mut told = Vec::new();
        assert!(accepted(&object, |why| told.push(why)).is_empty());
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("\"value-hiden\" is no kind of effect"), "{told:?}");
    }

    #[test]
    fn a_word_for_one_write_is_taken_out() {
        let word = |name: &str| json!({"metadata": {"name": "a", "annotations": {name: "value-hidden=3"}}});
        let mut once = word(ACCEPTED_ONCE);
        assert_eq!(accepted(&once, drop).len(), 1);
        forget_once(&mut once);
        assert_eq!(once, json!({"metadata": {"name": "a"}}));
        let mut kept = word(ACCEPTED_EFFECTS);
        assert_eq!(accepted(&kept, drop).len(), 1);
        forget_once(&mut kept);
        assert_eq!(kept, word(ACCEPTED_EFFECTS));
    }
}
