//! Values of any shape in versions that show different parts of them: lists in maps in lists, lists
//! of lists, nulls, and empty lists and maps. After each write, and when storage has moved, every
//! version shows what a model says.

use crate::support::apis::Dice;
use crate::support::{bundle, object};
use insula_conversion::{Bundle, ToStore, laws, unmetered_budget};
use serde_json::{Map, Value as Json, json};

/// Generated APIs of each seed, moves of the stored version of each, and writes between them.
const SEEDS: std::ops::Range<u64> = 0..4;
const APIS: u64 = 250;
const MOVES: usize = 3;
const WRITES: usize = 5;

/// Levels of lists, maps and objects.
const DEPTH: usize = 4;

/// The type of a value, with all its fields.
#[derive(Debug)]
enum Shape {
    Text {
        nullable: bool,
    },
    Number,
    Any,
    List(Box<Shape>),
    /// A list of objects by their key.
    Keyed(Box<Shape>),
    Map(Box<Shape>),
    /// Fields of these names; items of lists have the field `k` besides, in every version.
    Object {
        fields: Vec<Shape>,
        has_key: bool,
    },
}

/// The fields of a shape that a version has.
#[derive(Debug)]
enum Seen {
    Whole,
    Inside(Box<Seen>),
    Fields(Vec<Option<Seen>>),
}

fn name(field: usize) -> String {
    format!("f{field}")
}

fn is_scalar(shape: &Shape) -> bool {
    matches!(shape, Shape::Text { .. } | Shape::Number | Shape::Any)
}

/// Chooses a type. Items of lists that are objects have a key, so that an edit means one of them.
fn shape(dice: &mut Dice, depth: usize, in_list: bool) -> Shape {
    if depth == 0 {
        return match dice.below(4) {
            0 => Shape::Number,
            1 if !in_list => Shape::Any,
            2 if !in_list => Shape::Text { nullable: true },
            _ => Shape::Text { nullable: false },
        };
    }
    match dice.below(8) {
        0 => shape(dice, 0, in_list),
        1 => Shape::List(Box::new(shape(dice, depth - 1, true))),
        2 => Shape::Keyed(Box::new(fields(dice, depth - 1, true))),
        3 | 4 => Shape::Map(Box::new(shape(dice, depth - 1, in_list))),
        _ => fields(dice, depth - 1, in_list),
    }
}

fn fields(dice: &mut Dice, depth: usize, has_key: bool) -> Shape {
    let count = 2 + dice.below(3);
    let fields = (0..count).map(|_| shape(dice, depth, false)).collect();
    Shape::Object { fields, has_key }
}

/// Chooses what a version shows.
fn view(shape: &Shape, dice: &mut Dice) -> Seen {
    match shape {
        Shape::List(inner) | Shape::Keyed(inner) | Shape::Map(inner) => Seen::Inside(Box::new(view(inner, dice))),
        Shape::Object { fields, .. } => {
            let shown = |field| (dice.below(3) != 0).then(|| view(field, dice));
            Seen::Fields(fields.iter().map(shown).collect())
        }
        _ => Seen::Whole,
    }
}

/// Returns the schema of a version, whose lists of objects by key have no key unless `keyed`.
fn schema(shape: &Shape, view: &Seen, keyed: bool) -> Json {
    match (shape, view) {
        (Shape::Text { nullable: true }, _) => json!({"type": "string", "nullable": true}),
        (Shape::Text { .. }, _) => json!({"type": "string"}),
        (Shape::Number, _) => json!({"type": "integer"}),
        (Shape::Keyed(inner), Seen::Inside(below)) if keyed => json!({"type": "array",
            "items": schema(inner, below, keyed),
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
        (Shape::List(inner) | Shape::Keyed(inner), Seen::Inside(below)) => {
            json!({"type": "array", "items": schema(inner, below, keyed)})
        }
        (Shape::Map(inner), Seen::Inside(below)) => {
            json!({"type": "object", "additionalProperties": schema(inner, below, keyed)})
        }
        (Shape::Object { fields, has_key }, Seen::Fields(shown)) => {
            let shown = fields.iter().zip(shown).enumerate();
            let one = |(number, (field, view)): (usize, (&Shape, &Option<Seen>))| {
                Some((name(number), schema(field, view.as_ref()?, keyed)))
            };
            let mut out = json!({"type": "object", "properties": shown.filter_map(one).collect::<Map<_, _>>()});
            if *has_key {
                out["properties"]["k"] = json!({"type": "string"});
                out["required"] = json!(["k"]);
            }
            out
        }
        _ => json!({"x-kubernetes-preserve-unknown-fields": true}),
    }
}

/// Returns what a version shows of a value. An object without fields is as good as none.
fn shown(shape: &Shape, view: &Seen, value: &Json) -> Option<Json> {
    let below = |inner: &Shape, view: &Seen, value: &Json| shown(inner, view, value).unwrap_or_else(|| json!({}));
    match (shape, view, value) {
        (Shape::List(inner) | Shape::Keyed(inner), Seen::Inside(view), Json::Array(items)) => {
            Some(items.iter().map(|item| below(inner, view, item)).collect())
        }
        (Shape::Map(inner), Seen::Inside(view), Json::Object(entries)) => {
            let one = |(key, value): (&String, &Json)| (key.clone(), below(inner, view, value));
            Some(Json::Object(entries.iter().map(one).collect()))
        }
        (Shape::Object { fields, .. }, Seen::Fields(views), Json::Object(values)) => {
            let mut out = Map::new();
            out.extend(values.get("k").map(|key| ("k".to_owned(), key.clone())));
            for (number, (field, view)) in fields.iter().zip(views).enumerate() {
                let value = values.get(&name(number)).zip(view.as_ref());
                let value = value.and_then(|(value, view)| shown(field, view, value));
                out.extend(value.map(|value| (name(number), value)));
            }
            (!out.is_empty()).then_some(Json::Object(out))
        }
        _ => Some(value.clone()),
    }
}

/// Returns true if a list has two items that look alike, so that an edit may mean either.
fn is_ambiguous(shape: &Shape, value: &Json) -> bool {
    match (shape, value) {
        (Shape::List(inner), Json::Array(items)) => {
            let alike = |at: usize| items[..at].contains(&items[at]);
            !is_scalar(inner) && (0..items.len()).any(alike) || items.iter().any(|item| is_ambiguous(inner, item))
        }
        (Shape::Keyed(inner), Json::Array(items)) => items.iter().any(|item| is_ambiguous(inner, item)),
        (Shape::Map(inner), Json::Object(entries)) => entries.values().any(|value| is_ambiguous(inner, value)),
        (Shape::Object { fields, .. }, Json::Object(values)) => {
            let of = |(number, field)| values.get(&name(number)).map(|value| is_ambiguous(field, value));
            fields.iter().enumerate().filter_map(of).any(|ambiguous| ambiguous)
        }
        _ => false,
    }
}

/// Returns what a client writes that read an object and makes an edit to it: what it leaves alone
/// stays as it is, also an object without fields.
fn followed(read: &Json, before: &Json, after: &Json) -> Json {
    match (read, before, after) {
        _ if before == after => read.clone(),
        (Json::Object(read), Json::Object(before), Json::Object(after)) => {
            let mut out = after.clone();
            for (name, read) in read {
                match (before.get(name), after.get(name)) {
                    (Some(before), Some(after)) => drop(out.insert(name.clone(), followed(read, before, after))),
                    (None, None) => drop(out.insert(name.clone(), read.clone())),
                    _ => {}
                }
            }
            Json::Object(out)
        }
        (Json::Array(read), Json::Array(before), Json::Array(after)) => {
            let one = |(at, item): (usize, &Json)| match before.iter().position(|before| before == item) {
                Some(same) => read[same].clone(),
                None if before.len() == after.len() => followed(&read[at], &before[at], item),
                None => item.clone(),
            };
            after.iter().enumerate().map(one).collect()
        }
        _ => after.clone(),
    }
}

/// Edits of all values through a version. Every text and number is a new one.
struct Editor<'a> {
    dice: &'a mut Dice,
    next: u64,
}

impl Editor<'_> {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn fresh(&mut self, shape: &Shape, view: &Seen) -> Json {
        let count = 1 + self.dice.below(2);
        match (shape, view) {
            (Shape::Text { nullable: true }, _) if self.dice.below(3) == 0 => Json::Null,
            (Shape::Text { .. }, _) => json!(format!("t{}", self.number())),
            (Shape::Number, _) => json!(self.number()),
            (Shape::List(inner) | Shape::Keyed(inner), Seen::Inside(view)) => {
                (0..count).map(|_| self.fresh(inner, view)).collect()
            }
            (Shape::Map(inner), Seen::Inside(view)) => {
                let first = self.dice.below(3);
                let keys = (first..3).take(count).map(|key| ["a", "b", "c.d/e"][key].to_owned());
                Json::Object(keys.map(|key| (key, self.fresh(inner, view))).collect())
            }
            (Shape::Object { fields, has_key }, Seen::Fields(views)) => {
                let mut out = Map::new();
                if *has_key {
                    out.insert("k".to_owned(), json!(format!("k{}", self.number())));
                }
                for (number, (field, view)) in fields.iter().zip(views).enumerate() {
                    if let Some(view) = view.as_ref().filter(|_| self.dice.below(2) == 0) {
                        out.insert(name(number), self.fresh(field, view));
                    }
                }
                Json::Object(out)
            }
            _ => {
                let text = json!(format!("t{}", self.number()));
                [json!({"a": text}), json!([text, null]), json!({}), text.clone()][self.dice.below(4)].clone()
            }
        }
    }

    /// Edits a value that is there.
    fn edit(&mut self, shape: &Shape, view: &Seen, value: &mut Json) {
        match (shape, view, &mut *value) {
            (Shape::List(inner) | Shape::Keyed(inner), Seen::Inside(below), Json::Array(items)) => {
                let at = self.dice.below(items.len());
                match self.dice.below(8) {
                    0 => items.clear(),
                    1 if !items.is_empty() => drop(items.remove(at)),
                    2 | 3 => items.insert(at, self.fresh(inner, below)),
                    4 if at > 0 && matches!(shape, Shape::Keyed(_)) => items.swap(at - 1, at),
                    _ if items.is_empty() => items.push(self.fresh(inner, below)),
                    _ => self.edit(inner, below, &mut items[at]),
                }
            }
            (Shape::Map(inner), Seen::Inside(below), Json::Object(entries)) => {
                let key = ["a", "b", "c.d/e"][self.dice.below(3)];
                match (self.dice.below(5), entries.get_mut(key)) {
                    (0, _) => entries.clear(),
                    (1, Some(_)) => drop(entries.remove(key)),
                    (_, Some(value)) => self.edit(inner, below, value),
                    (_, None) => drop(entries.insert(key.to_owned(), self.fresh(inner, below))),
                }
            }
            (Shape::Object { fields, .. }, Seen::Fields(views), Json::Object(values)) => {
                let shown: Vec<usize> = (0..fields.len()).filter(|field| views[*field].is_some()).collect();
                let Some(field) = shown.get(self.dice.below(shown.len())).copied() else {
                    return;
                };
                let (name, shape, view) = (name(field), &fields[field], views[field].as_ref().unwrap());
                match (self.dice.below(5), values.get_mut(&name)) {
                    (0, Some(value)) => {
                        if clear(shape, view, value) {
                            values.remove(&name);
                        }
                    }
                    (0, None) => {}
                    (_, Some(value)) => self.edit(shape, view, value),
                    (1, None) if matches!(shape, Shape::List(_) | Shape::Keyed(_)) => {
                        values.insert(name, json!([]));
                    }
                    (1, None) if matches!(shape, Shape::Map(_)) => drop(values.insert(name, json!({}))),
                    (_, None) => drop(values.insert(name, self.fresh(shape, view))),
                }
            }
            _ => *value = self.fresh(shape, view),
        }
    }
}

/// Removes what a version shows of a value; returns true if the whole goes.
fn clear(shape: &Shape, view: &Seen, value: &mut Json) -> bool {
    let (Shape::Object { fields, .. }, Seen::Fields(views), Json::Object(values)) = (shape, view, value) else {
        return true;
    };
    for (number, (field, view)) in fields.iter().zip(views).enumerate() {
        if let Some((view, value)) = view.as_ref().zip(values.get_mut(&name(number)))
            && clear(field, view, value)
        {
            values.remove(&name(number));
        }
    }
    values.is_empty()
}

fn version(number: usize) -> String {
    format!("v{}", number + 1)
}

/// Compiles an API, whose last version may have the lists of others without their keys.
fn compiled(shape: &Shape, views: &[Seen], last_keyed: bool, storage: usize) -> Bundle {
    let schemas = views.iter().enumerate().map(|(at, view)| {
        let keyed = last_keyed || at + 1 < views.len();
        (version(at), json!({"spec": {"$": schema(shape, view, keyed)}}))
    });
    let doc = json!({"storage": version(storage), "versions": schemas.collect::<Map<_, _>>()});
    bundle(&doc).unwrap_or_else(|errors| panic!("{errors:#?}\n{doc}"))
}

/// Writes and reads objects of one API; returns the number of writes.
fn hold(seed: u64) -> Result<u64, String> {
    let mut dice = Dice::new(seed);
    dice.below(2);
    let shape = fields(&mut dice, DEPTH, false);
    let count = 2 + dice.below(4);
    let views: Vec<Seen> = (0..count).map(|_| view(&shape, &mut dice)).collect();
    let last_keyed = dice.below(2) == 0;
    let (mut all, mut stored, mut next, mut writes) = (json!({}), None::<(ToStore, String)>, 0, 0);
    let mut log = String::new();
    for _ in 0..MOVES {
        let bundle = compiled(&shape, &views, last_keyed, dice.below(count));
        log += &format!("stored in {}\n", bundle.storage());
        for _ in 0..WRITES {
            let from = dice.below(count);
            let mut edited = all.clone();
            let mut editor = Editor { dice: &mut dice, next };
            for _ in 0..if stored.is_none() { 8 } else { 1 } {
                editor.edit(&shape, &views[from], &mut edited);
            }
            next = editor.next;
            let spec = |all| shown(&shape, &views[from], all).unwrap_or_else(|| json!({}));
            let (before, written) = (spec(&all), spec(&edited));
            if is_ambiguous(&shape, &before) || is_ambiguous(&shape, &written) {
                continue;
            }
            all = edited;
            let from = version(from);
            let old = stored.as_ref().map(|(stored, storage)| stored.stored(storage));
            let read = old.map(|old| bundle.get(old, &from, &mut unmetered_budget()));
            let read = read.transpose().map_err(|e| format!("{e}\n{log}"))?;
            let written = followed(read.as_ref().map_or(&before, |read| &read["spec"]), &before, &written);
            log += &format!("{from} writes {written}\n");
            let x = object(&from, &json!({"spec": written}));
            let after = bundle
                .put(&x, &from, old, &mut unmetered_budget())
                .map_err(|e| format!("{e}\n{log}"))?;
            let checked = laws::put_get(&bundle, &x, &from, &after)
                .and_then(|()| laws::get_put(&bundle, &after))
                .and_then(|()| laws::carried(&bundle, &after));
            log += &format!(
                "  stored {} beside {:?}\n",
                after.value["spec"],
                after.residual.as_deref().map(String::from_utf8_lossy)
            );
            checked.map_err(|violation| format!("{violation}\n{log}"))?;
            stored = Some((after, bundle.storage().to_owned()));
            writes += 1;
        }
        let Some((stored, storage)) = &stored else { continue };
        for (number, view) in views.iter().enumerate() {
            let read = bundle.get(stored.stored(storage), &version(number), &mut unmetered_budget());
            let read = read.map_err(|e| format!("{e}\n{log}"))?;
            let got = read.get("spec").and_then(|spec| shown(&shape, view, spec));
            let want = shown(&shape, view, &all);
            if got != want {
                return Err(format!("{} shows {got:?}\nand not {want:?}\n{log}", version(number)));
            }
        }
    }
    Ok(writes)
}

/// Items that look alike to a version stay what they are when others are edited in place.
#[test]
fn items_that_look_alike_stay_beside_edited_ones() {
    let doc = json!({"versions": {"v1": {"spec": {"l": [{"a": "string"}]}},
        "v2": {"spec": {"l": [{"a": "string", "b": "string"}]}}}});
    for storage in ["v1", "v2"] {
        let mut doc = doc.clone();
        doc["storage"] = json!(storage);
        let bundle = bundle(&doc).unwrap();
        let whole = json!({"spec": {"l": [{"b": "1"}, {"b": "2"}, {"b": "3"}]}});
        let before = bundle
            .put(&object("v2", &whole), "v2", None, &mut unmetered_budget())
            .unwrap();
        let edited = object("v1", &json!({"spec": {"l": [{"a": "x"}, {}, {"a": "y"}]}}));
        let old = Some(before.stored(storage));
        let after = bundle.put(&edited, "v1", old, &mut unmetered_budget()).unwrap();
        let shown = bundle
            .get(after.stored(storage), "v2", &mut unmetered_budget())
            .unwrap();
        let want = json!([{"a": "x", "b": "1"}, {"b": "2"}, {"a": "y", "b": "3"}]);
        assert_eq!(shown["spec"]["l"], want, "stored in {storage}");
    }
}

#[test]
fn values_of_any_shape_are_shared() {
    let check = |seed: u64| -> u64 {
        let one = |number| {
            let of = seed * 1_000_003 + number;
            hold(of).unwrap_or_else(|why| panic!("seed {seed}, number {number}: {why}"))
        };
        (0..APIS).map(one).sum()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = SEEDS.map(|seed| scope.spawn(move || check(seed))).collect();
        let writes: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(writes > 8 * APIS * (SEEDS.end - SEEDS.start), "{writes}");
    });
}
