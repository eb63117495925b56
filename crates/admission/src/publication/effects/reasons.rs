//! Effects that the schemas of before and of after tell, and which of them is the reason of what an
//! object shows.

use super::{Effect, names};
use crate::publication::diff::{About, Difference, differences};
use insula_catalog::Api;
use insula_schema::ChangeKind;

/// Returns the effects that schemas and versions alone tell, each once.
pub(super) fn of_schemas(before: &Api, after: &Api) -> Vec<Effect> {
    let is_served = |api: &Api, version: &str| api.bundle.served().any(|served| served == version);
    // Nobody sees a version that is not served; one that is served no longer is one effect.
    let is_seen = |effect: &Effect| {
        effect.version.is_empty()
            || effect.kind == names::VERSION_REMOVED
            || is_served(before, &effect.version) && is_served(after, &effect.version)
    };
    let changes = differences(std::slice::from_ref(before), std::slice::from_ref(after));
    let mut found: Vec<Effect> = changes.iter().filter_map(of_change).filter(is_seen).collect();
    found.sort_by(|a, b| name(a).cmp(&name(b)));
    found.dedup_by(|more, kept| {
        let is_one = name(more) == name(kept);
        if is_one {
            let between = if kept.detail.is_empty() || more.detail.is_empty() {
                ""
            } else {
                ", "
            };
            kept.detail.push_str(between);
            kept.detail.push_str(&more.detail);
            kept.is_deep |= more.is_deep;
        }
        is_one
    });
    found
}

fn name(effect: &Effect) -> (&str, &str, &str) {
    (effect.kind, &effect.version, &effect.path)
}

/// Returns the position of the effect that tells what is at a path: the nearest one, at the path or
/// around it.
pub(super) fn nearest(found: &[Effect], kind: &str, version: &str, path: &str) -> Option<usize> {
    let covers = |effect: &Effect| {
        let below = path.strip_prefix(&*effect.path);
        let is_there = below.is_some_and(|rest| rest.is_empty() || effect.is_deep && rest.starts_with(['.', '[']));
        is_there && effect.version == version && (effect.kind == kind || tells(effect, kind))
    };
    let covering = found.iter().enumerate().filter(|(_, effect)| covers(effect));
    let nearest = covering.max_by_key(|(_, effect)| (effect.path.len(), effect.kind == kind));
    nearest.map(|(index, _)| index)
}

/// Returns true if an effect of the schemas is the reason of one of another kind that an object
/// shows.
fn tells(effect: &Effect, object: &str) -> bool {
    match object {
        names::VALUE_HIDDEN | names::WRITE_HIDDEN => {
            matches!(effect.kind, names::FIELD_REMOVED | names::DEFAULT_CHANGED)
        }
        names::VALUE_CHANGED | names::WRITE_CHANGED => effect.kind == names::DEFAULT_CHANGED,
        names::VALUE_ADDED | names::WRITE_ADDED => {
            matches!(effect.kind, names::DEFAULT_ADDED | names::DEFAULT_CHANGED)
        }
        // A type or a rule may ask for a field.
        names::FIELD_REQUIRED => effect.kind == names::VALUE_REFUSED,
        _ => false,
    }
}

/// Returns the effect of a difference between schemas, if that breaks something.
fn of_change(change: &Difference) -> Option<Effect> {
    let is = |kind: ChangeKind| change.change == kind.to_string();
    let kind = match change.about {
        // A default that is new or gone, a name and a column break no rule of compatibility.
        About::Column => names::COLUMN_REMOVED,
        About::Name if change.change == "removed" => names::NAME_REMOVED,
        About::Field | About::Fields if is(ChangeKind::Default) && !change.breaking => names::DEFAULT_ADDED,
        About::Field | About::Fields if is(ChangeKind::Default) => names::DEFAULT_CHANGED,
        _ if !change.breaking => return None,
        About::Version => names::VERSION_REMOVED,
        About::Field if is(ChangeKind::Required) || is(ChangeKind::Added) => names::FIELD_REQUIRED,
        About::Field | About::Fields if is(ChangeKind::Removed) => names::FIELD_REMOVED,
        About::Field if is(ChangeKind::Identity) => names::CLIENT_BROKEN,
        About::Field | About::Fields if change.refuses_changes => names::CHANGE_REFUSED,
        About::Field | About::Fields => names::VALUE_REFUSED,
        About::Api | About::Name | About::Subresource | About::Selectable => names::CLIENT_BROKEN,
    };
    let path = match (change.about, &*change.path) {
        (About::Field | About::Fields, ".") => String::new(),
        (About::Selectable, path) => format!(".{path}"),
        (_, path) => path.to_owned(),
    };
    let detail = match kind {
        // The type of a field that is gone tells nothing.
        names::FIELD_REMOVED if !path.ends_with("[]") => String::new(),
        names::CLIENT_BROKEN if change.about == About::Subresource && path.is_empty() => {
            format!("{} is {}", change.detail, change.change)
        }
        _ => change.detail.clone(),
    };
    let mut effect = Effect::new(kind, &change.api, &change.version, &path, detail);
    effect.is_deep = change.about == About::Fields;
    Some(effect)
}
