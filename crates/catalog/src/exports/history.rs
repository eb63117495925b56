//! History of an export: the releases that it offered before, each with what the one after it
//! changed.
//!
//! ```text
//! A offers w1, B offers w2 and adds g1, C offers w3:  [B {w2}, A {w1, added g}]
//! ```

use insula_api::{
    Json, Timestamp,
    kinds::{AddedResource, FormerRelease, ReleasedResource},
};
use serde_json::json;

/// Former releases that an export remembers.
const HISTORY_MAX: usize = 5;
/// Schemas of all remembered releases together, beside those of the last one: each takes about 210
/// bytes of the export, whose object has at most 1.4 MiB.
const RESOURCES_MAX: usize = 2_000;
/// Seconds within which writes that change different resources are parts of one release: a client
/// that publishes many schemas or rules writes them one after another.
const ONE_RELEASE_SECONDS: i64 = 2;

/// Change of what an export offers.
#[derive(Debug, Default)]
pub struct Replaced {
    /// Schemas and rules, as they were, that are others now or no longer on offer.
    pub resources: Vec<ReleasedResource>,
    /// Resources that are on offer now and were not.
    pub added: Vec<AddedResource>,
    /// True if the rules of a resource are in several objects, each with a write of its own.
    pub is_partial: bool,
}

impl Replaced {
    /// Returns true if what is on offer is as it was.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.added.is_empty()
    }

    /// Returns true if the change is a part of the one that ended a release.
    fn continues(&self, last: &FormerRelease, now: Timestamp) -> bool {
        let since = Timestamp::parse(&last.end_time).map(|end| now.since(end));
        if since.is_none_or(|since| since > ONE_RELEASE_SECONDS) {
            return false;
        }
        let is_known = |group: &str, name: &str| {
            let mut replaced = last.resources.iter();
            let mut added = last.added.iter();
            replaced.any(|it| it.group == group && it.name == name)
                || added.any(|it| it.group == group && it.name == name)
        };
        let mut replaced = self.resources.iter();
        let mut added = self.added.iter();
        let repeats = replaced.any(|it| is_known(&it.group, &it.name)) || added.any(|it| is_known(&it.group, &it.name));
        self.is_partial || !repeats
    }
}

/// Adds to the history of an export that its release ends with a change. `release` returns the
/// identifier of the release.
pub fn end_release(
    history: &mut Vec<FormerRelease>,
    replaced: Replaced,
    now: Timestamp,
    release: impl FnOnce() -> String,
) {
    match history.first_mut().filter(|last| replaced.continues(last, now)) {
        Some(last) => {
            let Replaced { resources, added, .. } = replaced;
            for resource in resources {
                let mut known = last.resources.iter();
                if !known.any(|it| it.group == resource.group && it.name == resource.name) {
                    last.resources.push(resource);
                }
            }
            last.added.extend(added);
            last.end_time = now.to_string();
        }
        None => history.insert(
            0,
            FormerRelease {
                release: release(),
                end_time: now.to_string(),
                resources: replaced.resources,
                added: replaced.added,
            },
        ),
    }
    history.truncate(HISTORY_MAX);
    let mut total = 0;
    let mut older = history.iter().skip(1).map(|former| former.resources.len());
    let fits = older.position(|resources| {
        total += resources;
        total > RESOURCES_MAX
    });
    history.truncate(fits.map_or(HISTORY_MAX, |index| index + 1));
}

/// Returns the history as `status.rollout.history` has it.
pub fn history_value(history: &[FormerRelease]) -> Json {
    let resource = |it: &ReleasedResource| {
        let (group, name, schema) = (&it.group, &it.name, &it.schema);
        json!({"group": group, "name": name, "schema": schema, "UID": it.uid, "fingerprint": it.fingerprint})
    };
    let former = |former: &FormerRelease| {
        let resources: Vec<Json> = former.resources.iter().map(resource).collect();
        let mut value = json!({"release": former.release, "endTime": former.end_time, "resources": resources});
        if !former.added.is_empty() {
            let added = former
                .added
                .iter()
                .map(|it| json!({"group": it.group, "name": it.name}));
            value["added"] = added.collect();
        }
        value
    };
    history.iter().map(former).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(names: &[&str]) -> Replaced {
        let resource = |name: &&str| ReleasedResource {
            name: (*name).to_owned(),
            ..ReleasedResource::default()
        };
        Replaced {
            resources: names.iter().map(resource).collect(),
            ..Replaced::default()
        }
    }

    /// Returns the history after changes, each with the second of its write.
    fn after(changes: Vec<(i64, Replaced)>) -> Vec<String> {
        let mut history = Vec::new();
        for (index, (second, replaced)) in changes.into_iter().enumerate() {
            end_release(&mut history, replaced, Timestamp(second), || format!("r{index}"));
        }
        let line = |former: &FormerRelease| {
            let replaced = former.resources.iter().map(|it| &*it.name);
            let names: Vec<&str> = replaced.chain(former.added.iter().map(|it| &*it.name)).collect();
            format!("{} {}", former.release, names.join(","))
        };
        history.iter().map(line).collect()
    }

    #[test]
    fn each_release_is_remembered_however_short_it_was_on_offer() {
        let all = vec![(0, replaced(&["a"])), (0, replaced(&["a"])), (0, replaced(&["a"]))];
        assert_eq!(after(all), ["r2 a", "r1 a", "r0 a"]);
    }

    #[test]
    fn writes_of_one_publication_are_one_release() {
        let added = Replaced {
            added: vec![AddedResource {
                name: "c".to_owned(),
                ..AddedResource::default()
            }],
            ..Replaced::default()
        };
        let all = vec![(0, replaced(&["a"])), (1, replaced(&["b"])), (3, added)];
        assert_eq!(after(all), ["r0 a,b,c"]);
        let later = vec![(0, replaced(&["a"])), (3, replaced(&["b"]))];
        assert_eq!(after(later), ["r1 b", "r0 a"]);
    }

    #[test]
    fn rules_in_several_objects_are_one_release() {
        let part = || Replaced {
            is_partial: true,
            ..replaced(&["a"])
        };
        assert_eq!(after(vec![(0, part()), (1, part()), (9, part())]), ["r2 a", "r0 a"]);
    }

    #[test]
    fn five_releases_are_remembered() {
        let all = (0..9).map(|second| (10 * second, replaced(&["a"]))).collect();
        assert_eq!(after(all), ["r8 a", "r7 a", "r6 a", "r5 a", "r4 a"]);
    }

    #[test]
    fn large_releases_are_remembered_while_they_fit_into_the_export() {
        let names: Vec<String> = (0..RESOURCES_MAX / 2).map(|index| format!("n{index}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = (0..9).map(|second| (10 * second, replaced(&names))).collect();
        assert_eq!(after(all).len(), 3);
    }
}
