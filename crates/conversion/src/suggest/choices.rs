//! Matching of enumerations with different words, and of booleans that became enumerations.

use super::{Step, names};
use insula_schema::Node;
use serde_json::Value as Json;

/// Pairs of words of two enumerations that are compared.
const PAIRS_MAX: usize = 10_000;
/// Letters of a word of an enumeration. A longer text is none.
const WORD_LETTERS_MAX: usize = 64;
/// Least similarity of two choices that match.
const ALIKE_MIN: f64 = 0.6;
const YES: &[&str] = &[
    "enabled", "on", "true", "yes", "always", "allow", "active", "required", "strict", "public", "open",
];
const NO: &[&str] = &[
    "disabled", "off", "false", "no", "never", "none", "deny", "inactive", "optional", "private", "closed",
];

/// Returns expressions between two enumerations, or lists of them, with different words; `None` if
/// the words are equal or nothing matches.
pub(super) fn between(from: &Node, to: &Node) -> Option<(Step, Step)> {
    if let (Some(a), Some(b)) = (from.items(), to.items()) {
        let (forth, back) = between(a, b)?;
        // In a list, every choice needs a counterpart.
        let all = |Step(text): Step| (!text.ends_with("[?self]")).then(|| text.replace("[self]", "[item]"));
        let each = |step| all(step).map(|text| Step::new(format!("self.map(item, {text})")));
        return Some((each(forth)?, each(back)?));
    }
    let (a, b) = (texts(from)?, texts(to)?);
    if a.len().saturating_mul(b.len()) > PAIRS_MAX {
        return None;
    }
    if a.iter().all(|choice| b.contains(choice)) {
        return None;
    }
    Some((step(&a, &b)?, step(&b, &a)?))
}

/// Returns an expression from one enumeration to the other. Choices without a counterpart have no
/// result.
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

/// Returns expressions between a boolean of this name and an enumeration, and whether one of its
/// words is the name.
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

/// Returns the choices, if all can be written in single quotes.
pub(super) fn texts(node: &Node) -> Option<Vec<&str>> {
    let plain = |text: &&str| !text.contains(['\'', '\\']) && text.len() <= WORD_LETTERS_MAX;
    let texts: Option<Vec<&str>> = node.choices().iter().map(|c| Json::as_str(c).filter(plain)).collect();
    texts.filter(|texts| !texts.is_empty())
}
