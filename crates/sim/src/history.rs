//! History of each object by the order of commits, and the promises about it.

use crate::{center::Center, client::Effect, yaml};
use insula_api::{Json, Object, ObjectKey, Revision, names::annotations};
use insula_catalog::ids;
use insula_store::Change;
use std::collections::{BTreeMap, BTreeSet};

/// ConfigMap that the server writes into each namespace.
const OWN_MAP: &str = "kube-root-ca.crt";

/// The order of all changes, and what clients were told of it.
#[derive(Default)]
pub struct History {
    absorbed: usize,
    /// Each object's revisions, with false for a deletion.
    objects: BTreeMap<ObjectKey, Vec<(Revision, bool)>>,
    /// Latest revision of each object that a client knows of.
    acknowledged: BTreeMap<ObjectKey, Revision>,
    /// Marks that were written, with the number of times.
    marks: BTreeMap<String, usize>,
    /// Marks of revisions that clients were told of.
    shown: BTreeMap<(ObjectKey, Revision), String>,
    /// Numbers of writes that were refused.
    refused: BTreeSet<u64>,
    maps: BTreeMap<String, usize>,
    /// Clusters with a quota that counts.
    quotas: BTreeSet<String>,
    /// Clusters of frozen workspaces.
    frozen: BTreeSet<String>,
}

impl History {
    /// Takes on the commits since the last time.
    ///
    /// # Errors
    /// A commit breaks what must hold.
    pub fn absorb(&mut self, center: &Center) -> Result<(), String> {
        let commits = center.commits();
        for changes in center.changes(self.absorbed, commits) {
            changes.iter().try_for_each(|change| self.change(change))?;
            for change in changes
                .iter()
                .filter(|change| *change.key.resource.resource == *"resourcequotas")
            {
                let counts = change.new.as_ref().is_some_and(|quota| counts(quota));
                let cluster = change.key.cluster.to_string();
                let _ = match counts {
                    true => self.quotas.insert(cluster),
                    false => self.quotas.remove(&cluster),
                };
            }
        }
        self.absorbed = commits;
        Ok(())
    }

    /// Takes on a revision of an object and the mark that it has, which a client was told of. For
    /// histories whose commits nobody sees: all revisions come first, in whatever order, and what
    /// was reported after them.
    ///
    /// # Errors
    /// Another client was told another mark of the revision.
    pub fn observed(&mut self, key: &ObjectKey, revision: Revision, mark: &str) -> Result<(), String> {
        let revisions = self.objects.entry(key.clone()).or_default();
        if let Err(place) = revisions.binary_search_by_key(&revision, |(at, _)| *at) {
            revisions.insert(place, (revision, true));
        }
        self.marks.insert(mark.to_owned(), 1);
        let known = self
            .shown
            .entry((key.clone(), revision))
            .or_insert_with(|| mark.to_owned());
        match *known == mark {
            true => Ok(()),
            false => Err(format!("{key:?} was shown with {known} and with {mark} at {revision}")),
        }
    }

    fn change(&mut self, change: &Change) -> Result<(), String> {
        let key = &change.key;
        is_one_object(change)?;
        let revisions = self.objects.entry(key.clone()).or_default();
        revisions.push((change.revision, change.new.is_some()));
        if *key.resource.resource == *"configmaps" && *key.namespace == *"default" {
            self.count(change)?;
        }
        if key.resource == ids::logicalclusters() {
            let cluster = key.cluster.to_string();
            let _ = match change.new.as_deref().is_some_and(is_frozen) {
                true => self.frozen.insert(cluster),
                false => self.frozen.remove(&cluster),
            };
        }
        match yaml::MARKED.contains(&&*key.resource.resource) {
            true => self.marked(change),
            false => Ok(()),
        }
    }

    /// Checks that each mark is written once, and where it belongs. What returns is an older state
    /// that was written over a newer one.
    fn marked(&mut self, change: &Change) -> Result<(), String> {
        let old = change
            .old
            .as_ref()
            .map(|old| old.object.body_value())
            .unwrap_or_default();
        let new = change.new.as_ref().map(|new| new.body_value()).unwrap_or_default();
        let known: Vec<&str> = yaml::marks_of(&old).map(|(_, mark)| mark).collect();
        for (place, mark) in yaml::marks_of(&new) {
            // A storage version has a field that another one has not, and an object moves back and
            // forth.
            if known.contains(&mark) || place == yaml::IN_ONE_VERSION {
                continue;
            }
            if !mark.starts_with(&format!("{}/", change.key.cluster)) {
                return Err(format!("{mark} was written to {:?}", change.key));
            }
            let times = self.marks.entry(mark.to_owned()).or_default();
            *times += 1;
            if *times > 1 {
                return Err(format!("{mark} came back, in {:?} at {}", change.key, change.revision));
            }
            if self.frozen.contains(change.key.cluster.as_str()) {
                let at = change.revision;
                return Err(format!(
                    "{mark} was written to {:?} at {at}, in a frozen workspace",
                    change.key
                ));
            }
        }
        Ok(())
    }

    fn count(&mut self, change: &Change) -> Result<(), String> {
        let cluster = change.key.cluster.to_string();
        let maps = self.maps.entry(cluster.clone()).or_default();
        match (&change.old, &change.new) {
            (None, Some(_)) => *maps += 1,
            (Some(_), None) => *maps -= 1,
            _ => return Ok(()),
        }
        let is_new = change.new.is_some() && *change.key.name != *OWN_MAP;
        match is_new && *maps > yaml::MAPS_MAX && self.quotas.contains(&cluster) {
            true => Err(format!("{:?} is one of {maps} in spite of a quota", change.key)),
            false => Ok(()),
        }
    }

    /// Returns the latest revision of an object that a client knows of.
    pub fn acknowledged(&self) -> BTreeMap<ObjectKey, Revision> {
        self.acknowledged.clone()
    }

    /// Returns the revision at which an object was last written, as of a revision.
    fn as_of(&self, key: &ObjectKey, revision: Revision) -> Option<Revision> {
        let revisions = self.objects.get(key)?;
        let before = revisions.iter().rev().find(|(at, _)| *at <= revision);
        before.filter(|(_, is_there)| *is_there).map(|(at, _)| *at)
    }

    fn acknowledge(&mut self, key: &ObjectKey, revision: Revision) {
        let known = self.acknowledged.entry(key.clone()).or_insert(revision);
        *known = revision.max(*known);
    }

    /// Takes on what the client of a request was told. `known`: what clients knew when it was sent.
    ///
    /// # Errors
    /// It was told something that is not so.
    pub fn reported(
        &mut self,
        write: u64,
        known: &BTreeMap<ObjectKey, Revision>,
        effect: &Effect,
    ) -> Result<(), String> {
        match effect {
            Effect::Wrote(key, revision) => {
                if self.as_of(key, *revision) != Some(*revision) {
                    return Err(format!("{key:?} was not written at {revision}, as was acknowledged"));
                }
                self.acknowledge(key, *revision);
            }
            Effect::Gone(key, revision) => {
                let revisions = self.objects.get(key).into_iter().flatten();
                let mut after = revisions.skip_while(|(at, _)| at <= revision);
                match after.next() {
                    Some((at, false)) => self.acknowledge(key, *at),
                    _ => return Err(format!("{key:?} of {revision} is not gone, as was acknowledged")),
                }
            }
            Effect::Saw(key, at, found) => {
                if known.get(key).is_some_and(|known| known > at) {
                    return Err(format!(
                        "{key:?} was read at {at}, and {:?} was acknowledged before",
                        known.get(key)
                    ));
                }
                if self.as_of(key, *at) != *found {
                    let is = self.as_of(key, *at);
                    return Err(format!("{key:?} was shown as of {found:?} at {at}, and is of {is:?}"));
                }
            }
            Effect::Listed(cluster, marks) => {
                let other = marks.iter().find(|mark| !mark.starts_with(&format!("{cluster}/")));
                if let Some(mark) = other {
                    return Err(format!("{mark} was listed in {cluster}"));
                }
            }
            Effect::Refused(_) => drop(self.refused.insert(write)),
            Effect::Done | Effect::Unknown => {}
        }
        Ok(())
    }

    /// Checks that nothing that was refused has happened.
    ///
    /// # Errors
    /// Something has.
    pub fn check_refused(&self) -> Result<(), String> {
        let number = |mark: &str| mark.rsplit_once('/')?.1.parse::<u64>().ok();
        let wrong = |mark: &&String| number(mark).is_some_and(|write| self.refused.contains(&write));
        match self.marks.keys().find(wrong) {
            Some(mark) => Err(format!("{mark} was written, and its client was told that it was not")),
            None => Ok(()),
        }
    }
}

/// Checks that an object is not written over another one of its name.
fn is_one_object(change: &Change) -> Result<(), String> {
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        return Ok(());
    };
    match old.object.meta.uid == new.meta.uid {
        true => Ok(()),
        false => Err(format!(
            "{:?} was replaced by another object at {}",
            change.key, change.revision
        )),
    }
}

/// Returns true for the LogicalCluster of a frozen workspace. None is frozen while it is deleted.
fn is_frozen(logical: &Object) -> bool {
    let metadata = &logical.body_value()["metadata"];
    metadata["annotations"].get(annotations::FROZEN).is_some() && metadata.get("deletionTimestamp").is_none()
}

fn counts(quota: &Object) -> bool {
    let value: Json = quota.body_value();
    value.pointer("/status/hard").is_some() && value.pointer("/metadata/deletionTimestamp").is_none()
}
