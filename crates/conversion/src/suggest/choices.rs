//! Enumerations that say the same in other words, and booleans that became one.

use super::{Step, names};
use insula_schema::Node;
use serde_json::Value as Json;

/// Choices less alike than this are different choices.
const ALIKE_MIN: f64 = 0.6;
const YES: &[&str] = &[
    "enabled", "on", "true", "yes", "always", "allow", "active", "required", "strict", "public", "open",
];
const NO: &[&str] = &[
    "disabled", "off", "false", "no", "never", "none", "deny", "inactive", "optional", "private", "closed",
];

/// Steps between two enumerations, or lists of such, whose words differ; none if they do not, or
/// have nothing in common.
pub(super) fn between(from: &Node, to: &Node) -> Option<(Step, Step)> {
    if let (Some(a), Some(b)) = (from.items(), to.items()) {
        let (forth, back) = between(a, b)?;
        // An item without a counterpart would be none.
        let all = |Step(text): Step| (!text.ends_with("[?self]")).then(|| text.replace("[self]", "[item]"));
        let each = |step| all(step).map(|text| Step::new(format!("self.map(item, {text})")));
        return Some((each(forth)?, each(back)?));
    }
    let (a, b) = (texts(from)?, texts(to)?);
    if a.iter().all(|choice| b.contains(choice)) {
        return None;
    }
    Some((step(&a, &b)?, step(&b, &a)?))
}

/// Choices without a counterpart give nothing: there is no evidence for any other.
fn step(from: &[&str], to: &[&str]) -> Option<Step> {
    let partner = |choice: &str| -> Option<String> {
        if to.contains(&choice) {
            return Some(choice.to_owned());
        }
        let scored = to.iter().map(|other| (names::names_alike(choice, other), *other));
        let (score, best) = scored.max_by(|x, y| x.0.total_cmp(&y.0))?;
        (score >= ALIKE_MIN).then(|| best.to_owned())
    };
    let pairs: Vec<String> = from
        .iter()
        .filter_map(|choice| Some(format!("'{choice}': '{}'", partner(choice)?)))
        .collect();
    let index = if pairs.len() == from.len() { "self" } else { "?self" };
    (pairs.len() * 2 >= from.len()).then(|| Step::new(format!("{{{}}}[{index}]", pairs.join(", "))))
}

/// Steps from a boolean of this name to an enumeration and back, and whether one of its words is
/// that name.
pub(super) fn of_boolean(name: &str, choices: &Node) -> Option<(Step, Step, bool)> {
    let choices = texts(choices)?;
    let is = |choice: &&&str, names: &[&str]| names.contains(&choice.to_ascii_lowercase().as_str());
    let own = choices.iter().find(|choice| choice.eq_ignore_ascii_case(name));
    let yes = own.or_else(|| choices.iter().find(|choice| is(choice, YES)))?;
    let no = choices.iter().find(|choice| is(choice, NO))?;
    (yes != no).then(|| {
        (
            Step::new(format!("self ? '{yes}' : '{no}'")),
            Step::new(format!("self == '{yes}'")),
            own.is_some(),
        )
    })
}

/// Choices that can stand between quotes.
fn texts(node: &Node) -> Option<Vec<&str>> {
    let plain = |text: &&str| !text.contains(['\'', '\\']);
    let texts: Option<Vec<&str>> = node.choices().iter().map(|c| Json::as_str(c).filter(plain)).collect();
    texts.filter(|texts| !texts.is_empty())
}
