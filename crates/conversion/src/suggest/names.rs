//! Similarity of names as sets of words: `firstName` and `name.first` match, `cfg` and `config`
//! partly.

use crate::path::Segment;

/// The words of a field: of its path, its last name and its description.
pub(super) struct NameWords {
    path: Vec<Vec<String>>,
    description: Vec<String>,
}

/// Similarity of two names.
pub(super) struct Likeness {
    pub(super) score: f64,
    pub(super) reason: String,
    /// The names have opposite meanings.
    pub(super) opposite: bool,
}

/// Pairs of words with opposite meanings.
const OPPOSITES: &[(&str, &str)] = &[
    ("enable", "disable"),
    ("enabled", "disabled"),
    ("enabled", "muted"),
    ("enabled", "suspend"),
    ("enabled", "suspended"),
    ("active", "inactive"),
    ("active", "paused"),
    ("active", "suspended"),
    ("running", "paused"),
    ("allow", "deny"),
    ("visible", "hidden"),
    ("include", "exclude"),
    ("mutable", "immutable"),
    ("public", "private"),
    ("open", "closed"),
    ("locked", "unlocked"),
    ("secure", "insecure"),
    ("required", "optional"),
    ("writable", "readonly"),
];
/// Words that negate the rest of a name, and words that affirm it.
const NEGATIONS: &[&str] = &[
    "skip", "no", "not", "disable", "disabled", "without", "omit", "ignore", "suppress",
];
const ASSERTIONS: &[&str] = &["enable", "enabled", "use", "with", "do"];

/// Pairs of words that tell values apart which are alike in all else: a field with one of them is
/// not the one with the other.
const APART: &[(&str, &str)] = &[
    ("ingress", "egress"),
    ("inbound", "outbound"),
    ("input", "output"),
    ("incoming", "outgoing"),
    ("limit", "request"),
    ("request", "response"),
    ("min", "max"),
    ("minimum", "maximum"),
    ("lower", "upper"),
    ("start", "end"),
    ("start", "stop"),
    ("startup", "shutdown"),
    ("first", "last"),
    ("before", "after"),
    ("pre", "post"),
    ("old", "new"),
    ("previous", "next"),
    ("source", "destination"),
    ("source", "target"),
    ("read", "write"),
    ("reader", "writer"),
    ("create", "delete"),
    ("up", "down"),
    ("left", "right"),
    ("width", "height"),
    ("local", "remote"),
    ("client", "server"),
    ("primary", "secondary"),
    ("success", "failure"),
    ("succeeded", "failed"),
    ("liveness", "readiness"),
    ("cpu", "memory"),
];

/// Groups of synonyms.
const SYNONYMS: &[&[&str]] = &[
    &["comment", "description", "note"],
    &["size", "capacity"],
    &["capacity", "limit"],
    &["state", "phase"],
    &["count", "replica", "number"],
    &["url", "uri"],
    &["mail", "email"],
    &["folder", "directory", "dir"],
    &["type", "kind"],
    &["setting", "option", "config"],
    &["cpu", "core"],
    &["reason", "cause"],
    &["max", "limit", "less"],
    &["min", "least", "greater"],
    &["ready", "initialized", "provisioned", "created"],
    &["secret", "password"],
    &["user", "username"],
    &["host", "node"],
    &["hw", "hardware"],
];

/// Words that say nothing about longer ones: `name` and `namespace`, `nameserver`.
const NO_BEGINNINGS: &[&str] = &["kind", "name", "type", "value"];
/// Factor for names of which each has words that the other lacks.
const UNLIKE: f64 = 0.7;
/// Similarity of opposite names that are alike otherwise.
const OPPOSITE: f64 = 0.8;
/// Words that tell nothing.
const FILLERS: &[&str] = &["a", "an", "and", "equal", "in", "is", "of", "or", "than", "the", "to"];
/// Factor for names beside each other of which one says that it is a name: `cohort` and
/// `cohortName`.
const CALLED: f64 = 0.95;
/// Letters of a name or description that are compared: the words of two are compared each with
/// each.
const LETTERS_MAX: usize = 600;
/// Factor for equal last names at different paths.
const ELSEWHERE: f64 = 0.95;

impl NameWords {
    pub(super) fn from_path(path: &[Segment], description: &str) -> NameWords {
        let name = |segment: &Segment| match segment {
            Segment::Field(name) if !of_version(name) => split(name),
            _ => Vec::new(),
        };
        NameWords {
            path: path.iter().map(name).collect(),
            description: split(description),
        }
    }

    /// Compares two names, without the first segments of their paths.
    pub(super) fn like(&self, other: &NameWords, (skip_self, skip_other): (usize, usize)) -> Likeness {
        let (one, two) = (&self.path[skip_self..], &other.path[skip_other..]);
        let shared = one.iter().zip(two).take_while(|(a, b)| a == b).count();
        let below = |path: &[Vec<String>]| path[shared.min(path.len().saturating_sub(1))..].concat();
        let last = |path: &[Vec<String>]| path.last().cloned().unwrap_or_default();
        let (a, b) = (last(one), last(two));
        let (name, whole) = (dice(&a, &b), dice(&below(one), &below(two)));
        let is_beside = one.len() == two.len() && shared + 1 >= one.len();
        let opposed = OPPOSITES.iter().find_map(|(x, y)| {
            let says = |words: &[String], word: &str| words.iter().any(|own| own == word);
            let found = says(&a, x) && says(&b, y);
            found
                .then_some((x, y))
                .or((says(&a, y) && says(&b, x)).then_some((y, x)))
        });
        // `disableCache` is opposite to `enableCache`, and not to `enableProxy`.
        let alike = opposed.map_or(0.0, |(x, y)| {
            let (ours, theirs) = (without(&a, &[x]), without(&b, &[y]));
            match ours.is_empty() || theirs.is_empty() {
                true => 1.0,
                false => dice(&ours, &theirs).max(dice(&without(&below(one), &[x]), &without(&below(two), &[y]))),
            }
        });
        let alike = if negated(&a, &b) || negated(&b, &a) { 1.0 } else { alike };
        let opposite = alike > 0.0;
        let called = if is_beside { called_alike(&a, &b) * CALLED } else { 0.0 };
        let score = (name * ELSEWHERE).max(whole).max(called);
        let reason = match (opposite, name >= 1.0, whole >= 1.0) {
            (true, ..) => "opposite names",
            (false, true, _) => "same name",
            (false, false, true) => "same words",
            (false, false, false) if score > 0.0 => "similar names",
            _ => "other names",
        };
        Likeness {
            score: score.max(OPPOSITE * alike),
            reason: reason.to_owned(),
            opposite,
        }
    }

    /// Returns true if each has a word that tells it apart from the other.
    pub(super) fn are_apart(&self, other: &NameWords) -> bool {
        let own = |words: &NameWords, others: &NameWords, word: &str| {
            let has = |words: &NameWords| words.path.iter().flatten().any(|one| one == word);
            has(words) && !has(others)
        };
        let either = |x: &str, y: &str| own(self, other, x) && own(other, self, y);
        APART.iter().any(|(x, y)| either(x, y) || either(y, x))
    }

    /// Returns true if this is its last word.
    pub(super) fn ends_with(&self, word: &str) -> bool {
        let last = self.path.last().and_then(|name| name.last());
        last.is_some_and(|last| *last == singular(word.to_owned()))
    }

    /// Compares the last names.
    pub(super) fn called_like(&self, other: &NameWords) -> f64 {
        match (self.path.last(), other.path.last()) {
            (Some(one), Some(other)) => dice(one, other),
            _ => 0.0,
        }
    }

    /// Returns the number of words of the path and of the description.
    pub(super) fn count(&self) -> usize {
        self.path.iter().map(Vec::len).sum::<usize>() + self.description.len()
    }

    pub(super) fn described_like(&self, other: &NameWords) -> f64 {
        dice(&self.description, &other.description)
    }
}

/// Returns true for the name of an object that holds the fields of another version, as in
/// `status.deprecated.v1beta1`: it tells nothing of their meaning.
fn of_version(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let version = name.strip_prefix('v').is_some_and(|rest| {
        let parts = rest.split_once("alpha").or_else(|| rest.split_once("beta"));
        parts.map_or(digits(rest), |(major, minor)| digits(major) && digits(minor))
    });
    version || name == "deprecated"
}

/// Returns true for a name and its negation: `skipVerify` and `verify`.
fn negated(no: &[String], yes: &[String]) -> bool {
    let (bare, asserted) = (without(no, NEGATIONS), without(yes, ASSERTIONS));
    bare.len() < no.len() && !bare.is_empty() && bare == asserted
}

fn without(words: &[String], gone: &[&str]) -> Vec<String> {
    let kept = words.iter().filter(|word| !gone.contains(&word.as_str()));
    kept.cloned().collect()
}

/// Compares two names of which one says besides that it is a name.
fn called_alike(a: &[String], b: &[String]) -> f64 {
    fn bare(words: &[String]) -> Option<&[String]> {
        let (last, rest) = words.split_last()?;
        (last == "name" && !rest.is_empty()).then_some(rest)
    }
    match (bare(a), bare(b)) {
        (Some(a), None) => dice(a, b),
        (None, Some(b)) => dice(a, b),
        _ => 0.0,
    }
}

/// Returns the similarity of two names of fields, from 0 to 1.
pub(super) fn names_alike(a: &str, b: &str) -> f64 {
    dice(&split(a), &split(b))
}

/// Splits the beginning of a text into words, in lower case and singular.
fn split(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut chars = text.chars().take(LETTERS_MAX).peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        if !c.is_alphanumeric() {
            words.push(std::mem::take(&mut word));
        } else {
            // Before a capital, as in `firstName` and before the last capital of `URLPath`.
            let mut ahead = chars.clone();
            let next_is_small = ahead.next().is_some_and(char::is_lowercase);
            // `uriSANs` is the plural of an acronym.
            let plural = chars.peek() == Some(&'s') && !ahead.next().is_some_and(char::is_lowercase);
            let next_is_small = next_is_small && !plural;
            if c.is_uppercase() && (before.is_lowercase() || before.is_uppercase() && next_is_small) {
                words.push(std::mem::take(&mut word));
            }
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    if words.iter().any(|word| !FILLERS.contains(&word.as_str())) {
        words.retain(|word| !FILLERS.contains(&word.as_str()));
    }
    words.into_iter().map(singular).collect()
}

fn singular(word: String) -> String {
    // `addresses` and `policies`.
    if let Some(one) = word.strip_suffix("es")
        && ["ss", "sh", "ch", "x"].iter().any(|end| one.ends_with(end))
    {
        return one.to_owned();
    }
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 2) {
        return format!("{stem}y");
    }
    match word.strip_suffix('s') {
        Some(one) if one.len() > 2 && !one.ends_with('s') => one.to_owned(),
        _ => word,
    }
}

/// Returns the share of common words (Dice coefficient).
fn dice(a: &[String], b: &[String]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 0.0;
    }
    // `acmedns` and `acmeDNS`: the first is one word, whose last letter looks like a plural.
    let letters = |words: &[String]| words.concat().trim_end_matches('s').to_owned();
    if a.len() != b.len() && letters(a) == letters(b) {
        return 1.0;
    }
    if a == b {
        return 1.0;
    }
    let mut free: Vec<&String> = b.iter().collect();
    let mut shared = 0.0;
    for word in a {
        let best = free.iter().enumerate().map(|(at, other)| (at, alike(word, other)));
        if let Some((at, score)) = best.max_by(|x, y| x.1.total_cmp(&y.1))
            && score > 0.0
        {
            shared += score;
            free.remove(at);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "numbers of words")]
    let (one, two) = (a.len() as f64, b.len() as f64);
    let score = 2.0 * shared / (one + two);
    // Each name has a word of its own, and one has several.
    let (fewer, more) = ((one - shared).min(two - shared), (one - shared).max(two - shared));
    if fewer >= 1.0 && more >= 2.0 {
        score * UNLIKE
    } else {
        score
    }
}

/// Returns the similarity of two words: equal, prefix, abbreviation or synonym.
fn alike(a: &str, b: &str) -> f64 {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if a == b {
        1.0
    } else if short.len() >= 3 && long.starts_with(short) && !NO_BEGINNINGS.contains(&short) {
        0.8
    } else if short.len() >= 3 && abbreviates(short, long) || same_stem(a, b) {
        0.7
    } else if SYNONYMS.iter().any(|same| same.contains(&a) && same.contains(&b)) {
        0.75
    } else {
        0.0
    }
}

/// Returns true for `delete` and `deletion`.
fn same_stem(a: &str, b: &str) -> bool {
    let stem = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count();
    let rest = a.chars().count().min(b.chars().count()) - stem;
    stem >= 5 && rest <= if stem >= 7 { 2 } else { 1 }
}

/// Returns true if the letters of `short` occur in `long` in order, from the first one: `cfg` and
/// `config`.
fn abbreviates(short: &str, long: &str) -> bool {
    let mut rest = long.chars();
    let in_order = short.chars().all(|c| rest.any(|other| other == c));
    in_order && short.chars().next() == long.chars().next() && short.len() * 3 > long.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Path;

    #[test]
    fn names_are_sets_of_words() {
        let words = |path: &str| NameWords::from_path(Path::parse(path).unwrap().segments(), "");
        for (a, b, low, high) in [
            ("spec.firstName", "spec.name.first", 1.0, 1.0),
            ("spec.size", "spec.resources.size", 0.95, 0.95),
            ("spec.names", "spec.name", 1.0, 1.0),
            ("spec.cfgMap", "spec.configMap", 0.8, 0.9),
            ("spec.replicas", "spec.color", 0.0, 0.0),
            ("spec.baseURLPath", "spec.base.url.path", 1.0, 1.0),
            ("spec.httpPort", "spec.port", 0.6, 0.7),
        ] {
            let score = words(a).like(&words(b), (0, 0)).score;
            assert!((low..=high).contains(&score), "{a} {b}: {score}");
        }
        assert!(words("spec.paused").like(&words("spec.enabled"), (0, 0)).score < 0.1);
        for (a, b, want) in [
            ("spec.tlsEnabled", "spec.tls.disabled", true),
            ("spec.skipVerify", "spec.verify", true),
            ("spec.cache.enabled", "spec.cache.noCache", false),
            ("spec.noCache", "spec.enableCache", true),
            ("spec.verify", "spec.verify", false),
        ] {
            assert_eq!(words(a).like(&words(b), (0, 0)).opposite, want, "{a} {b}");
        }
    }
}
