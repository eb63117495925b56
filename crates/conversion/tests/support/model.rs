//! A model of an API over its releases: logical fields, which versions show under names of their
//! own or not at all, and the rules between two versions that follow from that.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by a test and an example"
)]

use super::apis::Dice;
use serde_json::{Map, Value as Json, json};

/// A field of the API, whatever its versions call it.
#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
    /// An object that rules move as a whole, and not field by field.
    pub whole: bool,
}

/// The type of a field.
#[derive(Debug, Clone)]
pub enum Kind {
    Text,
    Number,
    /// A list of texts.
    Texts,
    /// A map of texts.
    Tags,
    Object(Vec<Field>),
    /// A list of objects without keys.
    List(Vec<Field>),
    /// A list of objects whose first field is the key; with `two`, the first two are.
    Keyed {
        two: bool,
        fields: Vec<Field>,
    },
    /// A map of objects.
    Units(Vec<Field>),
}

impl Kind {
    pub fn fields(&self) -> &[Field] {
        match self {
            Kind::Object(fields) | Kind::List(fields) | Kind::Units(fields) | Kind::Keyed { fields, .. } => fields,
            Kind::Text | Kind::Number | Kind::Texts | Kind::Tags => &[],
        }
    }

    /// Returns the number of fields that are keys.
    pub fn keys(&self) -> usize {
        match self {
            Kind::Keyed { two, .. } => 1 + usize::from(*two),
            _ => 0,
        }
    }
}

/// The place of a field in an object of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// A field of this name.
    Field,
    /// The first text of a list of this name.
    First,
    /// The field `at` of the first item of a list of this name, whose items have a field `own`.
    Item,
    /// The same of the entry `main` of a map.
    Entry,
}

/// A field as a version shows it.
#[derive(Debug, Clone)]
pub struct Shown {
    pub name: String,
    pub place: Position,
    pub below: Face,
}

/// The fields of an object, as a version shows them; `None` for one that it lacks.
pub type Face = Vec<Option<Shown>>;

/// Makes fields, with objects, lists and maps down to a depth.
pub fn fields(dice: &mut Dice, depth: usize, count: &mut usize) -> Vec<Field> {
    let number = if depth == 3 {
        3 + dice.below(5)
    } else {
        1 + dice.below(3)
    };
    let mut one = |dice: &mut Dice| {
        *count += 1;
        let name = format!("f{count}");
        let simple = depth == 0 || dice.below(5) < 2;
        let kind = match dice.below(4) {
            _ if !simple => return nested(name, dice, depth - 1, count),
            0 => Kind::Number,
            1 => [Kind::Texts, Kind::Tags][dice.below(2)].clone(),
            _ => Kind::Text,
        };
        Field {
            name,
            kind,
            whole: false,
        }
    };
    (0..number).map(|_| one(dice)).collect()
}

fn nested(name: String, dice: &mut Dice, depth: usize, count: &mut usize) -> Field {
    let form = dice.below(5);
    let mut inner = fields(dice, depth, count);
    let kind = match form {
        0 => Kind::Object(inner),
        1 => Kind::List(inner),
        2 => Kind::Units(inner),
        _ => {
            let two = form == 4;
            for key in (0..=usize::from(two)).rev() {
                let name = format!("{name}k{key}");
                let kind = Kind::Text;
                let key = Field {
                    name,
                    kind,
                    whole: false,
                };
                inner.insert(0, key);
            }
            Kind::Keyed { two, fields: inner }
        }
    };
    let whole = dice.below(2) == 0 && matches!(kind, Kind::Object(_));
    Field { name, kind, whole }
}

/// Choices for the view of a version.
#[derive(Clone, Copy)]
pub struct Choices {
    /// Names may differ, which takes rules.
    pub renames: bool,
    /// In the items of a list or the entries of a map.
    pub inside: bool,
    /// At the top of the object.
    pub top: bool,
}

/// Makes a version's view of fields, `hub` being the hub's. Below the top of the object, a field
/// that the hub lacks has one name: rules beside the hub relate values of the whole object.
pub fn view(fields: &[Field], keys: usize, hub: Option<&Face>, how: Choices, dice: &mut Dice) -> Face {
    let one = |(number, field): (usize, &Field)| {
        let theirs = hub.map(|hub| hub[number].as_ref());
        // An item shows its first key in every version, and perhaps not the second one.
        let is_key = number == 0 && keys > 0;
        if !is_key && dice.below(4) == 0 {
            return None;
        }
        let lacks = theirs.is_some_and(|theirs| theirs.is_none());
        let is_loose = how.inside && matches!(field.kind, Kind::Object(_)) && !field.whole;
        let other = how.renames && dice.below(4) == 0 && (how.top || !lacks) && !is_loose;
        let place = match (&field.kind, other && how.top && !lacks, dice.below(6)) {
            (Kind::Text, true, 0) => Position::First,
            (Kind::Text, true, 1) => Position::Item,
            (Kind::Text, true, 2) => Position::Entry,
            _ => Position::Field,
        };
        let suffix = if other { ["x", "y"][dice.below(2)] } else { "" };
        let none: Face = field.kind.fields().iter().map(|_| None).collect();
        let below = theirs.map(|theirs| theirs.map_or(&none, |theirs| &theirs.below));
        let how = Choices {
            inside: how.inside || !matches!(field.kind, Kind::Object(_)),
            top: false,
            renames: how.renames && !field.whole,
        };
        Some(Shown {
            name: format!("{}{suffix}{}", field.name, ["", "l", "i", "e"][place as usize]),
            place,
            below: view(field.kind.fields(), field.kind.keys(), below, how, dice),
        })
    };
    fields.iter().enumerate().map(one).collect()
}

/// Returns the schema of an object, in short notation.
pub fn schema(fields: &[Field], keys: usize, view: &Face) -> Map<String, Json> {
    let mut out = Map::new();
    for (number, (field, shown)) in fields.iter().zip(view).enumerate() {
        let Some(shown) = shown else { continue };
        let inner = || Json::Object(schema(field.kind.fields(), field.kind.keys(), &shown.below));
        let mut name = shown.name.clone();
        let short = match (&field.kind, shown.place) {
            (_, Position::First) => json!(["string"]),
            (_, Position::Item) => json!([{"at": "string", "own": "string"}]),
            (_, Position::Entry) => json!({"*": {"at": "string", "own": "string"}}),
            // A key is required, or has a default.
            (Kind::Text, _) if number == 1 && keys == 2 => json!({"$": {"type": "string", "default": "T"}}),
            (Kind::Text, _) => json!("string"),
            (Kind::Number, _) => json!("integer"),
            (Kind::Texts, _) => json!(["string"]),
            (Kind::Tags, _) => json!({"*": "string"}),
            (Kind::Object(_), _) => inner(),
            (Kind::List(_), _) => json!([inner()]),
            (Kind::Units(_), _) => json!({"*": inner()}),
            (Kind::Keyed { .. }, _) => {
                let keys = shown.below.iter().take(field.kind.keys()).flatten();
                let keys: Vec<&str> = keys.map(|key| key.name.as_str()).collect();
                name = format!("{name}[{}]", keys.join(","));
                json!([inner()])
            }
        };
        let required = if number == 0 && keys > 0 { "!" } else { "" };
        out.insert(format!("{name}{required}"), short);
    }
    out
}

/// Returns the rules that move fields from the view `a` of a version to the view `b`. `hub`: for
/// two versions beside the hub, whose rules are about what it lacks.
pub fn rules(fields: &[Field], from: &str, (a, b): (&Face, &Face), hub: Option<&Face>) -> Vec<Json> {
    let mut out = Vec::new();
    let base = Base {
        roots: (&format!("{from}."), ""),
        from: "spec".to_owned(),
        to: "spec".to_owned(),
        inside: false,
    };
    between(fields, (a, b, hub), &base, &mut out);
    out
}

/// The objects between whose fields rules move.
struct Base<'a> {
    roots: (&'a str, &'a str),
    from: String,
    to: String,
    /// In a rule for items.
    inside: bool,
}

fn path(base: &str, shown: &Shown) -> String {
    let dot = if base.is_empty() { "" } else { "." };
    let rest = ["", "[0]", "[0].at", "['main'].at"][shown.place as usize];
    format!("{base}{dot}{}{rest}", shown.name)
}

/// Returns true if the versions spell a field differently.
fn differs(fields: &[Field], a: &Face, b: &Face) -> bool {
    fields.iter().zip(a.iter().zip(b)).any(|(field, pair)| match pair {
        (Some(a), Some(b)) => a.name != b.name || differs(field.kind.fields(), &a.below, &b.below),
        _ => false,
    })
}

type Faces<'a> = (&'a Face, &'a Face, Option<&'a Face>);

fn between(fields: &[Field], (a, b, hub): Faces<'_>, base: &Base<'_>, out: &mut Vec<Json>) {
    for (number, (field, pair)) in fields.iter().zip(a.iter().zip(b)).enumerate() {
        let (Some(a), Some(b)) = pair else { continue };
        let inner = field.kind.fields();
        let spelled = differs(inner, &a.below, &b.below);
        let below = Base {
            from: path(&base.from, a),
            to: path(&base.to, b),
            ..*base
        };
        let theirs = hub.and_then(|hub| hub[number].as_ref());
        if let Some(theirs) = theirs {
            // What versions have in items that the hub lacks has one name.
            if matches!(field.kind, Kind::Object(_)) {
                between(inner, (&a.below, &b.below, Some(&theirs.below)), &below, out);
            }
            continue;
        }
        if below.from == below.to && !spelled {
            continue;
        }
        let (source, target) = (
            format!("{}{}", base.roots.0, below.from),
            format!("{}{}", base.roots.1, below.to),
        );
        match &field.kind {
            Kind::Object(_) if !field.whole => between(inner, (&a.below, &b.below, None), &below, out),
            Kind::List(_) | Kind::Keyed { .. } | Kind::Units(_) if spelled => {
                let mut items = Vec::new();
                let item = Base {
                    roots: ("self.", "item."),
                    from: String::new(),
                    to: String::new(),
                    inside: true,
                };
                between(inner, (&a.below, &b.below, None), &item, &mut items);
                out.push(json!({"from": source, "to": target, "itemRules": items}));
            }
            _ if base.inside || a.place == Position::First => out.push(json!({"from": source, "to": target})),
            _ => out.push(json!({"field": below.from, "destination": below.to})),
        }
    }
}
