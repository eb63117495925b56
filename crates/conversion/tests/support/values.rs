//! The values that an object of a generated API has, and edits of them through a version.

use super::apis::Dice;
use super::model::{Face, Field, Kind, Position, Shown};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// The fields of an object, by their numbers.
pub type Values = BTreeMap<usize, Value>;

/// A value of a field, whatever versions call it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Leaf(Json),
    Object(Values),
    Items(Vec<Values>),
    Entries(BTreeMap<String, Values>),
}

/// Returns the values that a version shows in its object.
pub fn read(fields: &[Field], view: &Face, object: &Json) -> Values {
    let one = |(number, (field, shown)): (usize, (&Field, &Option<Shown>))| {
        let shown = shown.as_ref()?;
        let value = match shown.place {
            Position::Field => object.get(&shown.name)?,
            Position::First => object.get(&shown.name)?.get(0)?,
            Position::Item => object.get(&shown.name)?.get(0)?.get("at")?,
            Position::Entry => object.get(&shown.name)?.get("main")?.get("at")?,
        };
        let inner = |value: &Json| read(field.kind.fields(), &shown.below, value);
        let value = match &field.kind {
            Kind::Object(_) => Value::Object(inner(value)),
            Kind::List(_) | Kind::Keyed { .. } => Value::Items(value.as_array()?.iter().map(inner).collect()),
            Kind::Units(_) => {
                let entries = value.as_object()?.iter();
                Value::Entries(entries.map(|(key, value)| (key.clone(), inner(value))).collect())
            }
            _ => Value::Leaf(value.clone()),
        };
        Some((number, value)).filter(|(_, value)| !is_empty(value))
    };
    fields.iter().zip(view).enumerate().filter_map(one).collect()
}

/// Returns true for an object without values: nobody can tell it from none.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Leaf(Json::Object(map)) => map.is_empty(),
        Value::Object(values) => values.is_empty(),
        _ => false,
    }
}

/// Returns the values that a version shows of all.
pub fn visible(fields: &[Field], view: &Face, all: &Values) -> Values {
    let one = |(number, (field, shown)): (usize, (&Field, &Option<Shown>))| {
        let shown = shown.as_ref()?;
        let inner = |values: &Values| visible(field.kind.fields(), &shown.below, values);
        let value = match all.get(&number)? {
            Value::Leaf(json) => Value::Leaf(json.clone()),
            Value::Object(values) => Value::Object(inner(values)),
            Value::Items(items) => Value::Items(items.iter().map(inner).collect()),
            Value::Entries(entries) => Value::Entries(
                entries
                    .iter()
                    .map(|(key, values)| (key.clone(), inner(values)))
                    .collect(),
            ),
        };
        Some((number, value)).filter(|(_, value)| !is_empty(value))
    };
    fields.iter().zip(view).enumerate().filter_map(one).collect()
}

/// An edit through a version: of its object and of all values alike.
pub struct Editor<'a> {
    pub dice: &'a mut Dice,
    /// Every text and number that is written is a new one.
    pub next: &'a mut u64,
}

impl Editor<'_> {
    fn text(&mut self) -> Json {
        *self.next += 1;
        json!(format!("t{}", self.next))
    }

    /// Edits one field of an object; returns false if there was none to edit.
    pub fn edit(&mut self, (fields, keys): (&[Field], usize), view: &Face, x: &mut Json, all: &mut Values) -> bool {
        let shown = view.iter().enumerate().skip(keys);
        let shown: Vec<usize> = shown.filter(|(_, s)| s.is_some()).map(|(number, _)| number).collect();
        let Some(number) = shown.get(self.dice.below(shown.len())).copied() else {
            return false;
        };
        let (field, shown) = (&fields[number], view[number].as_ref().unwrap());
        let clears = self.dice.below(6) == 0;
        match &field.kind {
            Kind::Text | Kind::Number | Kind::Texts | Kind::Tags => {
                let value = (!clears).then(|| self.leaf(&field.kind, all.get(&number)));
                set(x, shown, value.clone());
                match value {
                    Some(value) => drop(all.insert(number, Value::Leaf(value))),
                    None => drop(all.remove(&number)),
                }
                true
            }
            Kind::Object(inner) => {
                if clears {
                    x.as_object_mut().unwrap().remove(&shown.name);
                    if let Some(Value::Object(values)) = all.get_mut(&number) {
                        clear(inner, &shown.below, values);
                    }
                    return true;
                }
                let Value::Object(values) = all.entry(number).or_insert_with(|| Value::Object(Values::new())) else {
                    return false;
                };
                let object = x
                    .as_object_mut()
                    .unwrap()
                    .entry(&shown.name)
                    .or_insert_with(|| json!({}));
                self.edit((inner, 0), &shown.below, object, values)
            }
            Kind::List(_) | Kind::Keyed { .. } | Kind::Units(_) if clears => {
                x.as_object_mut().unwrap().remove(&shown.name);
                all.remove(&number);
                true
            }
            Kind::List(_) | Kind::Keyed { .. } => self.list((number, field), shown, x, all),
            Kind::Units(_) => self.map((number, field), shown, x, all),
        }
    }

    fn leaf(&mut self, kind: &Kind, stands: Option<&Value>) -> Json {
        match (kind, stands) {
            (Kind::Number, _) => {
                *self.next += 1;
                json!(*self.next)
            }
            (Kind::Texts, _) => (0..self.dice.below(3)).map(|_| self.text()).collect(),
            (Kind::Tags, stands) => {
                let mut tags = match stands {
                    Some(Value::Leaf(Json::Object(tags))) => tags.clone(),
                    _ => Map::new(),
                };
                let key = ["a", "b", "x.y/z"][self.dice.below(3)];
                if tags.remove(key).is_none() || self.dice.below(2) == 0 {
                    tags.insert(key.to_owned(), self.text());
                }
                Json::Object(tags)
            }
            _ => self.text(),
        }
    }

    fn list(&mut self, (number, field): (usize, &Field), shown: &Shown, x: &mut Json, all: &mut Values) -> bool {
        let map = x.as_object_mut().unwrap();
        let list = map
            .entry(&shown.name)
            .or_insert_with(|| json!([]))
            .as_array_mut()
            .unwrap();
        let Value::Items(items) = all.entry(number).or_insert_with(|| Value::Items(Vec::new())) else {
            return false;
        };
        let (inner, keys) = (field.kind.fields(), field.kind.keys());
        let at = self.dice.below(list.len());
        match self.dice.below(6) {
            0 if !list.is_empty() => {
                // Of items that look alike, none can be meant.
                if list.iter().filter(|item| **item == list[at]).count() > 1 {
                    return false;
                }
                list.remove(at);
                items.remove(at);
                true
            }
            1 if keys > 0 && at > 0 && list[at - 1] != list[at] => {
                list.swap(at - 1, at);
                items.swap(at - 1, at);
                true
            }
            2 | 3 if !list.is_empty() => self.edit((inner, keys), &shown.below, &mut list[at], &mut items[at]),
            _ => {
                let at = self.dice.below(list.len() + 1);
                let Some((item, values)) = self.item(field, shown, list) else {
                    return false;
                };
                list.insert(at, item);
                items.insert(at, values);
                true
            }
        }
    }

    /// Makes an item that differs from the others.
    fn item(&mut self, field: &Field, shown: &Shown, others: &[Json]) -> Option<(Json, Values)> {
        let (mut item, mut values) = (json!({}), Values::new());
        let keys = field.kind.keys();
        for (key, name) in shown.below.iter().take(keys).enumerate() {
            let mut value = self.text();
            let other = others.get(self.dice.below(others.len()));
            let has_second = keys == 2 && shown.below[1].is_some();
            if let (0, true, Some(other), Some(shown)) = (key, has_second, other, name)
                && self.dice.below(3) == 0
            {
                value = other[&shown.name].clone();
            }
            // A version without the second key writes its default.
            let value = if name.is_none() { json!("T") } else { value };
            if let Some(shown) = name {
                item[&shown.name] = value.clone();
            }
            values.insert(key, Value::Leaf(value));
        }
        for _ in 0..2 {
            self.edit((field.kind.fields(), keys), &shown.below, &mut item, &mut values);
        }
        let is_bare = read(field.kind.fields(), &shown.below, &item).is_empty();
        (!is_bare && !others.contains(&item)).then_some((item, values))
    }

    fn map(&mut self, (number, field): (usize, &Field), shown: &Shown, x: &mut Json, all: &mut Values) -> bool {
        let map = x.as_object_mut().unwrap();
        let object = map.entry(&shown.name).or_insert_with(|| json!({}));
        let Value::Entries(entries) = all.entry(number).or_insert_with(|| Value::Entries(BTreeMap::new())) else {
            return false;
        };
        let key = ["a", "b", "c.d/e"][self.dice.below(3)];
        let object = object.as_object_mut().unwrap();
        if self.dice.below(4) == 0 && object.remove(key).is_some() {
            entries.remove(key);
            return true;
        }
        let entry = object.entry(key).or_insert_with(|| json!({}));
        let values = entries.entry(key.to_owned()).or_default();
        self.edit((field.kind.fields(), 0), &shown.below, entry, values);
        true
    }
}

/// Removes the values that a version shows; lists and maps go as a whole.
fn clear(fields: &[Field], view: &Face, values: &mut Values) {
    for (number, (field, shown)) in fields.iter().zip(view).enumerate() {
        match (shown, values.get_mut(&number)) {
            (Some(shown), Some(Value::Object(inner))) => clear(field.kind.fields(), &shown.below, inner),
            (Some(_), Some(_)) => drop(values.remove(&number)),
            _ => {}
        }
    }
}

/// Sets or removes a value in its place.
fn set(x: &mut Json, shown: &Shown, value: Option<Json>) {
    let map = x.as_object_mut().unwrap();
    let name = &shown.name;
    match (shown.place, value) {
        (Position::Field, Some(value)) => map.insert(name.clone(), value),
        (Position::First, Some(value)) => map.insert(name.clone(), json!([value])),
        (Position::Item, value) => in_place(map, name, json!([{}]), "/0", value),
        (Position::Entry, value) => in_place(map, name, json!({"main": {}}), "/main", value),
        (Position::Field | Position::First, None) => map.remove(name),
    };
}

fn in_place(map: &mut Map<String, Json>, name: &str, empty: Json, at: &str, value: Option<Json>) -> Option<Json> {
    let container = map.entry(name).or_insert(empty);
    let place = container.pointer_mut(at).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => drop(place.insert("at".to_owned(), value)),
        None => drop(place.remove("at")),
    }
    if place.is_empty() { map.remove(name) } else { None }
}
