//! Differences between two schemas, by path, with their compatibility.
//!
//! A change is breaking if an object that was valid may be refused, lose a value or change its
//! meaning:
//!
//! ```text
//! .spec.size     type      integer → string                     breaking
//! .spec.mode     narrowed  enum lost "Slow"                     breaking
//! .spec.name     widened   maxLength 63 → 253
//! .spec.hint     added     string
//! ```

mod restriction;

use crate::formats;
use crate::node::{ListType, MapType, Node, Type};
use crate::rule::Rule;
use insula_api::Json;
use std::fmt;

/// Detail of a field that takes no null any more.
pub const NULL_REFUSED: &str = "null is not accepted any more";

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Path of the node: `.spec.colors[].name`; `[]` stands for the items of a list and the values
    /// of a map.
    pub path: String,
    /// Kind of the difference.
    pub kind: ChangeKind,
    /// True if an object that was valid may be refused, lose a value or change its meaning.
    pub breaking: bool,
    /// The old and the new setting.
    pub detail: String,
    /// True if it concerns all that is below the node, too: a type, a rule, or which fields there
    /// are.
    pub is_deep: bool,
    /// True if it refuses changes of a value that is there, whatever that is: a transition rule.
    pub refuses_changes: bool,
}

/// Kinds of differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// The node is gone.
    Removed,
    /// The node is new.
    Added,
    /// Values have another type.
    Type,
    /// Fewer values are accepted.
    Narrowed,
    /// More values are accepted.
    Widened,
    /// The field must be present.
    Required,
    /// The field may be absent.
    Optional,
    /// An absent field has another meaning.
    Default,
    /// Items or fields have another identity.
    Identity,
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChangeKind::Removed => "removed",
            ChangeKind::Added => "added",
            ChangeKind::Type => "type",
            ChangeKind::Narrowed => "narrowed",
            ChangeKind::Widened => "widened",
            ChangeKind::Required => "required",
            ChangeKind::Optional => "optional",
            ChangeKind::Default => "default",
            ChangeKind::Identity => "identity",
        })
    }
}

/// Consequence for who applies a part of a list or map that becomes atomic.
const APPLIED_WHOLE: &str = "server-side apply writes it as a whole, also what others applied";

/// Returns all differences in order of path. Descriptions, titles and examples do not count.
pub fn diff(old: &Node, new: &Node) -> Vec<Change> {
    let mut differ = Differ { changes: Vec::new() };
    differ.node(old, new, "");
    differ.changes
}

struct Differ {
    changes: Vec<Change>,
}

impl Differ {
    fn note(&mut self, path: &str, kind: ChangeKind, breaking: bool, detail: String) {
        let is_deep = !matches!(kind, ChangeKind::Narrowed | ChangeKind::Required | ChangeKind::Identity);
        self.record((path, is_deep), kind, breaking, detail);
    }

    /// Records a difference at a node, and below it if `is_deep`.
    fn record(&mut self, (path, is_deep): (&str, bool), kind: ChangeKind, breaking: bool, detail: String) {
        self.changes.push(Change {
            path: if path.is_empty() { "." } else { path }.to_owned(),
            kind,
            breaking,
            detail,
            is_deep,
            refuses_changes: false,
        });
    }

    /// Records that what is below a node is kept no longer.
    fn gone(&mut self, path: &str, detail: String) {
        self.note(&format!("{path}[]"), ChangeKind::Removed, true, detail);
    }

    /// Records a bound on a node and all that is below it.
    fn deep_bound(&mut self, path: &str, narrower: bool, detail: String) {
        self.record((path, true), bounded(narrower), narrower, detail);
    }

    /// Records a bound that became tighter or wider.
    fn bound(&mut self, path: &str, narrower: bool, detail: String) {
        self.note(path, bounded(narrower), narrower, detail);
    }

    fn node(&mut self, old: &Node, new: &Node, path: &str) {
        let (before, after) = (word(old), word(new));
        if before != after {
            let breaking = !(new.fits(old) || before == "integer" && after == "number");
            self.note(path, ChangeKind::Type, breaking, format!("{before} → {after}"));
            // Below another type nothing is comparable.
            return;
        }
        self.flags(old, new, path);
        self.limits(old, new, path);
        self.texts(old, new, path);
        self.combinations(old, new, path);
        self.identity(old, new, path);
        self.defaults(old, new, path);
        self.fields(old, new, path);
        for (before, after, what) in [
            (old.items(), new.items(), "items"),
            (old.additional(), new.additional(), "values"),
        ] {
            match (before, after) {
                (Some(before), Some(after)) => self.node(before, after, &format!("{path}[]")),
                (Some(_), None) => {
                    let detail = format!("{what} are not described any more");
                    match new.preserves_unknown() {
                        true => self.bound(path, false, detail),
                        false => self.gone(path, detail),
                    }
                }
                (None, Some(_)) => self.deep_bound(path, old.preserves_unknown(), format!("{what} are described")),
                (None, None) => {}
            }
        }
    }

    fn fields(&mut self, old: &Node, new: &Node, path: &str) {
        let required = |node: &Node, name: &str| node.required().iter().any(|required| required == name);
        let mut names: Vec<&str> = old.properties().chain(new.properties()).map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let at = format!("{path}{}", step(name));
            match (old.property(name), new.property(name)) {
                (Some(before), None) => {
                    let kept = new.preserves_unknown() || new.additional().is_some_and(|values| values.fits(before));
                    self.note(&at, ChangeKind::Removed, !kept, word(before));
                }
                (None, Some(after)) => {
                    let needed = required(new, name) && after.default().is_none();
                    let detail = if needed {
                        format!("{}, required", word(after))
                    } else {
                        word(after)
                    };
                    // An undeclared field may have existed before, with any value.
                    let breaking = needed || old.preserves_unknown() && !matches!(word(after).as_str(), "any");
                    self.record((&at, !needed), ChangeKind::Added, breaking, detail);
                }
                (Some(before), Some(after)) => {
                    match (required(old, name), required(new, name)) {
                        (false, true) => {
                            let filled = after.default().is_some();
                            let detail = if filled {
                                "optional → required, with a default"
                            } else {
                                "optional → required"
                            };
                            self.note(&at, ChangeKind::Required, !filled, detail.to_owned());
                        }
                        (true, false) => self.note(&at, ChangeKind::Optional, false, "required → optional".to_owned()),
                        _ => {}
                    }
                    self.node(before, after, &at);
                }
                (None, None) => {}
            }
        }
        // Required names without a declaration are entries of a map.
        for name in new.required() {
            if new.property(name).is_none() && !required(old, name) {
                self.note(
                    &format!("{path}{}", step(name)),
                    ChangeKind::Required,
                    true,
                    "optional → required".to_owned(),
                );
            }
        }
    }

    fn flags(&mut self, old: &Node, new: &Node, path: &str) {
        for (name, before, after) in [
            ("null", old.nullable(), new.nullable()),
            ("unknown fields", old.preserves_unknown(), new.preserves_unknown()),
        ] {
            match (before, after) {
                (true, false) if name == "null" => self.bound(path, true, NULL_REFUSED.to_owned()),
                (true, false) => self.gone(path, format!("{name} are not kept any more")),
                (false, true) if name == "null" => self.bound(path, false, "null is accepted".to_owned()),
                (false, true) => self.bound(path, false, format!("{name} are kept")),
                _ => {}
            }
        }
        if old.embedded() != new.embedded() {
            let detail = if new.embedded() {
                "is an embedded resource"
            } else {
                "is no embedded resource any more"
            };
            self.deep_bound(path, new.embedded(), detail.to_owned());
        }
    }

    fn limits(&mut self, old: &Node, new: &Node, path: &str) {
        let most = [
            ("maxLength", old.max_length(), new.max_length()),
            ("maxItems", old.max_items(), new.max_items()),
            ("maxProperties", old.max_properties(), new.max_properties()),
        ];
        for (name, before, after) in most {
            if before != after {
                let narrower = after.is_some_and(|after| before.is_none_or(|before| after < before));
                self.bound(path, narrower, change(name, before, after));
            }
        }
        let least = [
            ("minLength", old.min_length(), new.min_length()),
            ("minItems", old.min_items(), new.min_items()),
            ("minProperties", old.min_properties(), new.min_properties()),
        ];
        for (name, before, after) in least {
            if before.unwrap_or(0) != after.unwrap_or(0) {
                self.bound(
                    path,
                    after.unwrap_or(0) > before.unwrap_or(0),
                    change(name, before, after),
                );
            }
        }
        self.numbers(old, new, path);
    }

    fn numbers(&mut self, old: &Node, new: &Node, path: &str) {
        let text = |bound: (f64, bool)| format!("{}{}", bound.0, if bound.1 { " (excluded)" } else { "" });
        // The greater key is the tighter bound, on both sides.
        let tightness = |sign: f64, bound: (f64, bool)| (sign * bound.0, bound.1);
        for (name, sign, before, after) in [
            ("minimum", 1.0, old.minimum(), new.minimum()),
            ("maximum", -1.0, old.maximum(), new.maximum()),
        ] {
            if before != after {
                let narrower = after
                    .is_some_and(|after| before.is_none_or(|before| tightness(sign, after) > tightness(sign, before)));
                self.bound(path, narrower, change(name, before.map(text), after.map(text)));
            }
        }
        let multiple = |node: &Node| node.limits.as_ref().and_then(|limits| limits.multiple_of);
        let (before, after) = (multiple(old), multiple(new));
        if before != after {
            let coarser = |after: f64| before.is_none_or(|before| (before / after).fract() != 0.0);
            self.bound(path, after.is_some_and(coarser), change("multipleOf", before, after));
        }
    }

    fn texts(&mut self, old: &Node, new: &Node, path: &str) {
        let formats = new.format().is_some_and(|format| bounds_values(new, format));
        for (name, before, after, narrower) in [
            ("pattern", old.pattern(), new.pattern(), new.pattern().is_some()),
            ("format", old.format(), new.format(), formats),
        ] {
            if before != after {
                self.bound(path, narrower, change(name, before, after));
            }
        }
        let (before, after) = (old.choices(), new.choices());
        let without = |all: &[Json], of: &[Json]| -> Vec<String> {
            all.iter()
                .filter(|choice| !of.contains(choice))
                .map(Json::to_string)
                .collect()
        };
        match (before.is_empty(), after.is_empty()) {
            (true, true) => {}
            (true, false) => self.bound(path, true, format!("enum {}", without(after, &[]).join(", "))),
            (false, true) => self.bound(path, false, "any value instead of an enum".to_owned()),
            (false, false) => {
                let (lost, gained) = (without(before, after), without(after, before));
                if !lost.is_empty() {
                    self.bound(path, true, format!("enum lost {}", lost.join(", ")));
                }
                if !gained.is_empty() {
                    self.bound(path, false, format!("enum gained {}", gained.join(", ")));
                }
            }
        }
        let is_in = |node: &Node, rule: &Rule| node.rules().iter().any(|known| known.source() == rule.source());
        for rule in new.rules().iter().filter(|rule| !is_in(old, rule)) {
            self.deep_bound(path, true, format!("rule added: {}", rule.source()));
            if let Some(change) = self.changes.last_mut() {
                change.refuses_changes = rule.reads_old();
            }
        }
        for rule in old.rules().iter().filter(|rule| !is_in(new, rule)) {
            self.bound(path, false, format!("rule removed: {}", rule.source()));
        }
    }

    /// Compares `allOf`, `anyOf`, `oneOf` and `not`, which only restrict.
    fn combinations(&mut self, old: &Node, new: &Node, path: &str) {
        let (old, new) = (restriction::combinations(old), restriction::combinations(new));
        for ((name, before), (_, after)) in old.into_iter().zip(new) {
            let (lost, gained) = (!before.is_subset(&after), !after.is_subset(&before));
            let narrower = match name {
                "allOf" => gained,
                "anyOf" => lost,
                _ => true,
            };
            let (change, narrower) = match (before.is_empty(), after.is_empty()) {
                _ if !lost && !gained => continue,
                (true, _) => ("added", true),
                (_, true) => ("removed", false),
                _ => ("changed", narrower),
            };
            self.deep_bound(path, narrower, format!("{name} {change}"));
        }
    }

    fn identity(&mut self, old: &Node, new: &Node, path: &str) {
        let name = |list: &ListType| match list {
            ListType::Atomic => "atomic".to_owned(),
            ListType::Set => "set".to_owned(),
            ListType::Map { keys } => format!("map by {}", keys.join(", ")),
        };
        if old.list_type() != new.list_type() {
            // Equal items are refused once they must be unique. Who applied a list as one value
            // owns none of its items once they are told apart.
            let applied = match (old.list_type(), new.list_type()) {
                (_, ListType::Atomic) => APPLIED_WHOLE,
                (ListType::Atomic, _) => "server-side apply takes away no item that was there before",
                _ => "items are told apart by other values",
            };
            let (before, after) = (name(old.list_type()), name(new.list_type()));
            let detail = format!("list is {before} → {after}: {applied}");
            self.note(path, ChangeKind::Identity, true, detail);
        }
        if old.map_type() != new.map_type() {
            let name = |map| if map == MapType::Atomic { "atomic" } else { "granular" };
            let is_whole = new.map_type() == MapType::Atomic;
            let mut detail = format!("map is {} → {}", name(old.map_type()), name(new.map_type()));
            if is_whole {
                detail.push_str(&format!(": {APPLIED_WHOLE}"));
            }
            self.note(path, ChangeKind::Identity, is_whole, detail);
        }
    }

    fn defaults(&mut self, old: &Node, new: &Node, path: &str) {
        if old.default() != new.default() {
            // A new default gives absence a meaning; a changed one changes it.
            let detail = change("default", old.default(), new.default());
            self.note(path, ChangeKind::Default, old.default().is_some(), detail);
        }
    }
}

fn bounded(narrower: bool) -> ChangeKind {
    if narrower {
        ChangeKind::Narrowed
    } else {
        ChangeKind::Widened
    }
}

/// Returns true if a format refuses values of a node: one that nobody knows refuses none.
fn bounds_values(node: &Node, format: &str) -> bool {
    match node.kind() {
        Some(Type::Integer) => matches!(format, "int32" | "uint32" | "uint64"),
        Some(Type::Number) => matches!(format, "float" | "float32"),
        _ => formats::lookup(format).is_some(),
    }
}

/// Returns the name of the type in the schema language.
fn word(node: &Node) -> String {
    match (node.kind(), node.int_or_string()) {
        (_, true) => "int-or-string".to_owned(),
        (Some(Type::Object), _) if node.additional().is_some() && node.properties().next().is_none() => {
            "map".to_owned()
        }
        (Some(Type::Array), _) => "list".to_owned(),
        (Some(kind), _) => kind.as_str().to_owned(),
        (None, _) => "any".to_owned(),
    }
}

fn change<T: fmt::Display>(name: &str, before: Option<T>, after: Option<T>) -> String {
    match (before, after) {
        (Some(before), Some(after)) => format!("{name} {before} → {after}"),
        (None, Some(after)) => format!("{name} {after} added"),
        (Some(before), None) => format!("{name} {before} removed"),
        (None, None) => name.to_owned(),
    }
}

/// Renders a step as `.name`, quoted unless it is a plain name.
pub(crate) fn step(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$');
    if name.chars().all(plain) {
        format!(".{name}")
    } else {
        format!("['{}']", name.replace('\\', "\\\\").replace('\'', "\\'"))
    }
}

#[cfg(test)]
mod tests;
