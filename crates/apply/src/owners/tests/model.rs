//! Random scripts of writes, whose owners are those of a model.

use super::*;
use crate::fields::Element;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The model: values and owners of plain fields, in maps.
#[derive(Debug, Default, Clone)]
struct Model {
    values: BTreeMap<u8, u8>,
    owners: BTreeMap<(u8, bool), BTreeSet<u8>>,
}

impl Model {
    fn change(&mut self, own: (u8, bool), new: BTreeMap<u8, u8>) {
        for (manager, fields) in &mut self.owners {
            fields.retain(|field| match (self.values.get(field), new.get(field)) {
                (_, None) => false,
                (old, now) => old == now || *manager == own,
            });
        }
        self.values = new;
    }

    fn update(&mut self, manager: u8, new: BTreeMap<u8, u8>) {
        let changed: Vec<u8> = new
            .iter()
            .filter(|(f, v)| self.values.get(f) != Some(v))
            .map(|(f, _)| *f)
            .collect();
        self.change((manager, false), new);
        self.owners.entry((manager, false)).or_default().extend(changed);
    }

    /// Applies a configuration; returns false for a conflict.
    fn apply(&mut self, manager: u8, config: &BTreeMap<u8, u8>, force: bool) -> bool {
        let own = (manager, true);
        let others = |field: &u8| {
            self.owners
                .iter()
                .any(|(other, fields)| *other != own && fields.contains(field))
        };
        let differs =
            |(field, value): (&u8, &u8)| self.values.get(field).is_some_and(|now| now != value) && others(field);
        if !force && config.iter().any(differs) {
            return false;
        }
        let mut new = self.values.clone();
        let last = self.owners.get(&own).cloned().unwrap_or_default();
        new.retain(|field, _| !last.contains(field) || others(field));
        new.extend(config);
        self.owners.insert(own, config.keys().copied().collect());
        self.change(own, new);
        true
    }
}

fn values() -> impl Strategy<Value = BTreeMap<u8, u8>> {
    prop::collection::btree_map(0u8..5, 0u8..3, 0..5)
}

proptest! {
    #[test]
    fn stories_end_as_in_the_model(steps in prop::collection::vec((0u8..3, 0u8..3, values()), 1..12)) {
        let mut script = Script::new();
        let mut model = Model::default();
        let sizes = |values: &BTreeMap<u8, u8>| {
            let sizes: serde_json::Map<_, _> = values.iter().map(|(field, value)| (field.to_string(),
                json!(value))).collect();
            spec(json!({"sizes": sizes}))
        };
        for (kind, manager, values) in &steps {
            let name = format!("m{manager}");
            if *kind == 0 {
                model.update(*manager, values.clone());
                script.write(&Write::Update, &name, "g/v1", sizes(values)).expect("updates");
            } else {
                let write = if *kind == 1 { Write::Apply } else { Write::Force };
                let applied = script.write(&write, &name, "g/v1", sizes(values));
                prop_assert_eq!(applied.is_ok(), model.apply(*manager, values, *kind == 2), "{:?}", applied);
                if applied.is_ok() {
                    let before = (script.object.clone(), script.managers.clone());
                    script.write(&write, &name, "g/v1", sizes(values)).expect("applies again");
                    prop_assert_eq!((&script.object, &script.managers), (&before.0, &before.1));
                }
            }
            prop_assert_eq!(&script.object["spec"], &sizes(&model.values)["spec"]);
            for manager in 0u8..3 {
                for (applies, operation) in [(true, Operation::Apply), (false, Operation::Update)] {
                    let owned: BTreeSet<u8> = (0u8..5).filter(|field| {
                        let path = ["spec", "sizes", &field.to_string()].map(Element::field);
                        script.managers.0.iter().any(|(m, entry)| {
                            let is_manager = *m.name == *format!("m{manager}") && m.operation == operation;
                            is_manager && entry.fields.contains(&path)
                        })
                    }).collect();
                    let want = model.owners.get(&(manager, applies)).cloned().unwrap_or_default();
                    prop_assert_eq!(owned, want, "manager {} {:?}", manager, operation);
                }
            }
        }
    }
}
