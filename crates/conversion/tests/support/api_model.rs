//! Releases of a generated API.

use super::apis::Dice;
use super::model::{Choices, Face, Field, Kind, Position, fields, rules, schema, view};
use serde_json::{Map, Value as Json, json};

/// An API whose releases take fields and versions away and bring them back.
pub struct Api {
    pub fields: Vec<Field>,
    /// The views of all versions, with all their fields.
    pub full: Vec<Face>,
    pub hub: usize,
    pub ruled: bool,
    pub release: Release,
}

/// A state of the API.
#[derive(Clone)]
pub struct Release {
    pub storage: usize,
    /// Versions that objects have been stored in.
    pub stored: Vec<bool>,
    /// Versions that are there.
    pub versions: Vec<bool>,
    pub served: Vec<bool>,
    /// Fields that are away, by the indices that lead to them, in all versions or in one.
    pub away: Vec<(Vec<usize>, Option<usize>)>,
}

impl Api {
    pub fn new(dice: &mut Dice) -> Api {
        let fields = fields(dice, 3, &mut 0);
        let count = 3 + dice.below(4);
        let ruled = dice.below(4) != 0;
        let how = Choices {
            renames: ruled,
            inside: false,
            top: true,
        };
        let hub_view = view(&fields, 0, None, how, dice);
        let hub = dice.below(count);
        let mut full: Vec<Face> = (0..count)
            .map(|_| view(&fields, 0, Some(&hub_view), how, dice))
            .collect();
        full[hub] = hub_view;
        let storage = if ruled { dice.below(count) } else { hub };
        Api {
            fields,
            full,
            hub,
            ruled,
            release: Release {
                storage,
                stored: (0..count).map(|version| version == storage).collect(),
                versions: vec![true; count],
                served: vec![true; count],
                away: Vec::new(),
            },
        }
    }

    /// Returns the view of a version in this release.
    pub fn view(&self, version: usize) -> Face {
        let mut view = self.full[version].clone();
        for (path, of) in &self.release.away {
            if of.is_none_or(|of| of == version) {
                take_away(&mut view, path);
            }
        }
        view
    }

    /// Returns the API in the notation of `bundle`.
    pub fn doc(&self) -> Json {
        let there = |version: &usize| self.release.versions[*version];
        let versions: Vec<usize> = (0..self.full.len()).filter(there).collect();
        let mut schemas = Map::new();
        for version in &versions {
            let spec = schema(&self.fields, 0, &self.view(*version));
            schemas.insert(name(*version), json!({"spec": spec}));
        }
        let unserved: Vec<String> = versions
            .iter()
            .filter(|v| !self.release.served[**v])
            .map(|v| name(*v))
            .collect();
        let mut doc = json!({"storage": name(self.release.storage), "versions": schemas, "unserved": unserved});
        if !self.ruled {
            return doc;
        }
        let mut conversions = Vec::new();
        let hub = self.view(self.hub);
        for a in &versions {
            for b in versions.iter().filter(|b| a != *b) {
                let beside = *a != self.hub && *b != self.hub;
                let rules = rules(
                    &self.fields,
                    &name(*a),
                    (&self.view(*a), &self.view(*b)),
                    beside.then_some(&hub),
                );
                if !beside || !rules.is_empty() {
                    conversions.push(json!({"from": name(*a), "to": name(*b), "rules": rules}));
                }
            }
        }
        doc["rules"] = json!({"hub": name(self.hub), "conversions": conversions});
        doc
    }

    /// Makes the next release: fields go or return, the storage version moves, versions go, return,
    /// and are served or not.
    pub fn advance(&mut self, dice: &mut Dice) {
        let stored = self.release.storage;
        for _ in 0..1 + dice.below(3) {
            let version = dice.below(self.full.len());
            match dice.below(8) {
                0 if self.release.versions[version] => self.release.storage = version,
                // A version takes the places of the union with it that have its names.
                1 if ![self.hub, stored, self.release.storage].contains(&version)
                    && self.spells_as_others(version)
                    && (!self.release.stored[version] || self.is_plainly_named(version)) =>
                {
                    self.release.versions[version] ^= true;
                }
                2 if version != self.hub => self.release.served[version] ^= true,
                3 | 4 if !self.release.away.is_empty() => {
                    let back = dice.below(self.release.away.len());
                    self.release.away.remove(back);
                }
                _ => self.take(version, dice),
            }
        }
        let storage = self.release.storage;
        self.release.stored[storage] = true;
        if !self.ruled {
            self.hub = storage;
        }
    }

    fn take(&mut self, version: usize, dice: &mut Dice) {
        let Some(path) = some_path(&self.fields, 0, dice) else {
            return;
        };
        let of = (dice.below(2) == 0).then_some(version);
        // Rules relate names in items, and places that rules name, only to the hub; and what the
        // hub lacks has the name of its first version.
        let hub_has = has(&self.full[self.hub], &path);
        let of = of.filter(|version| *version != self.hub && hub_has || self.is_plain(&path));
        // The stored version's field takes its rules along: others show it by its path.
        let of = of.filter(|version| !self.release.stored[*version] || self.is_plain_along(&path));
        self.release.away.push((path, of));
    }

    /// Returns true if what the version has and the hub lacks has one name in all versions, or is
    /// in no item: objects tell the other names of those.
    fn spells_as_others(&self, version: usize) -> bool {
        let mut alone = Vec::new();
        lacking(
            &self.fields,
            (&self.full[self.hub], &self.full[version]),
            &mut Vec::new(),
            &mut alone,
        );
        alone.iter().all(|path| self.is_plain(path) || self.is_told(path))
    }

    /// Returns true if a field is in objects alone, and what is in its items has one name in all
    /// versions.
    fn is_told(&self, path: &[usize]) -> bool {
        self.full.iter().all(|view| is_told(&self.fields, view, path))
    }

    /// Returns true if all versions have the names of a version. What an object that was stored in
    /// it holds under another name, in fields that are away, is known to its rules alone: they are
    /// gone with the fields, so that no other version can show it before the version is back.
    fn is_plainly_named(&self, version: usize) -> bool {
        let has = |number: &usize| self.full[version][*number].is_some();
        (0..self.fields.len())
            .filter(has)
            .all(|number| self.is_plain(&[number]))
    }

    /// Returns true if all versions have one name for the field, for what is in it, and for the
    /// objects that it is in: rules relate their fields one by one, and go with them.
    fn is_plain(&self, path: &[usize]) -> bool {
        self.full.iter().all(|view| is_plain(&self.fields, view, path))
    }

    /// Returns true if all versions have one name for the field, for what it is in, and for what
    /// is in it.
    fn is_plain_along(&self, path: &[usize]) -> bool {
        (1..=path.len()).all(|end| {
            let is_named = |view: &Face| name_is_plain(&self.fields, view, &path[..end]);
            self.full.iter().all(is_named)
        }) && self.is_plain(path)
    }
}

fn name_is_plain(fields: &[Field], view: &Face, path: &[usize]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return true;
    };
    let Some(shown) = &view[*first] else { return true };
    let own = shown.name == fields[*first].name && shown.place == Position::Field;
    own && name_is_plain(fields[*first].kind.fields(), &shown.below, rest)
}

pub fn name(version: usize) -> String {
    format!("v{}", version + 1)
}

fn is_plain(fields: &[Field], view: &Face, path: &[usize]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return fields.iter().zip(view).all(|(field, shown)| {
            let plain = |shown: &super::model::Shown| {
                shown.name == field.name
                    && shown.place == Position::Field
                    && is_plain(field.kind.fields(), &shown.below, &[])
            };
            shown.as_ref().is_none_or(plain)
        });
    };
    let Some(shown) = &view[*first] else { return true };
    let by_field = matches!(fields[*first].kind, Kind::Object(_)) && !fields[*first].whole;
    let is_named = rest.is_empty() || by_field;
    let own = !is_named || shown.name == fields[*first].name && shown.place == Position::Field;
    own && is_plain(fields[*first].kind.fields(), &shown.below, rest)
}

fn is_told(fields: &[Field], view: &Face, path: &[usize]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return true;
    };
    let field = &fields[*first];
    let inner = field.kind.fields();
    let by_field = matches!(field.kind, Kind::Object(_)) && !field.whole;
    view[*first].as_ref().is_none_or(|shown| match rest {
        [] if by_field => (0..inner.len()).all(|number| is_told(inner, &shown.below, &[number])),
        [] => is_plain(inner, &shown.below, &[]),
        _ => by_field && is_told(inner, &shown.below, rest),
    })
}

/// Finds the fields that a version has and the hub lacks.
fn lacking(fields: &[Field], (hub, own): (&Face, &Face), path: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) {
    for (number, field) in fields.iter().enumerate() {
        path.push(number);
        match (&hub[number], &own[number]) {
            (None, Some(_)) => found.push(path.clone()),
            (Some(hub), Some(own)) => lacking(field.kind.fields(), (&hub.below, &own.below), path, found),
            (_, None) => {}
        }
        path.pop();
    }
}

fn has(view: &Face, path: &[usize]) -> bool {
    path.split_first().is_none_or(|(first, rest)| {
        let shown = view[*first].as_ref();
        shown.is_some_and(|shown| has(&shown.below, rest))
    })
}

fn take_away(view: &mut Face, path: &[usize]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        view[*first] = None;
    } else if let Some(shown) = &mut view[*first] {
        take_away(&mut shown.below, rest);
    }
}

/// Chooses a field that is no key.
fn some_path(fields: &[Field], keys: usize, dice: &mut Dice) -> Option<Vec<usize>> {
    if fields.len() <= keys {
        return None;
    }
    let at = keys + dice.below(fields.len() - keys);
    let kind: &Kind = &fields[at].kind;
    let below = (dice.below(2) == 0)
        .then(|| some_path(kind.fields(), kind.keys(), dice))
        .flatten();
    Some([vec![at], below.unwrap_or_default()].concat())
}
