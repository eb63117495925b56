//! Semantic versions: `semver('1.2.3-rc.1')`. Precedence is that of semver.org; error messages are
//! those of the library that Kubernetes uses.

use super::opaque::opaque;
use super::quote::quoted;
use super::{Context, Function, global, member};
use crate::error::{EvalError, invalid, no_overload};
use crate::opaque::{Identifier, Opaque, Semver};
use crate::value::{Result, Val};

pub(super) static FUNCTIONS: &[Function] = &[
    global(
        "semver",
        &[
            "string_to_semver: (string) -> kubernetes.Semver",
            "string_bool_to_semver: (string, bool) -> kubernetes.Semver",
        ],
        |cx, a| {
            let version = read(cx, a, "semver")?.map_err(invalid)?;
            opaque(cx, Opaque::Semver(version))
        },
    ),
    global(
        "isSemver",
        &[
            "is_semver_string: (string) -> bool",
            "is_semver_string_bool: (string, bool) -> bool",
        ],
        |cx, a| Ok(Val::Bool(read(cx, a, "isSemver")?.is_ok())),
    ),
    member("major", &["semver_major: kubernetes.Semver.() -> int"], |_, a| {
        number(a, "major", 0)
    }),
    member("minor", &["semver_minor: kubernetes.Semver.() -> int"], |_, a| {
        number(a, "minor", 1)
    }),
    member("patch", &["semver_patch: kubernetes.Semver.() -> int"], |_, a| {
        number(a, "patch", 2)
    }),
];

impl Semver {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(patch)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (patch, build) = patch.split_once('+').map_or((patch, None), |(p, b)| (p, Some(b)));
        let (patch, prerelease) = patch.split_once('-').map_or((patch, None), |(p, r)| (p, Some(r)));
        let numbers = [
            core(major, "major", "Major")?,
            core(minor, "minor", "Minor")?,
            core(patch, "patch", "Patch")?,
        ];
        let prerelease = match prerelease {
            Some(text) => text.split('.').map(identifier).collect::<std::result::Result<_, _>>()?,
            None => Vec::new(),
        };
        for part in build.into_iter().flat_map(|b| b.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_word(part) {
                return Err(format!(
                    "Invalid character(s) found in build meta data {}",
                    quoted(part)
                ));
            }
        }
        Ok(Self { numbers, prerelease })
    }

    /// Normalizes a version: removes a leading `v`, adds missing parts as zero, removes leading
    /// zeros.
    fn normalized(text: &str) -> std::result::Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    let zero = if rest.starts_with(|c: char| c.is_ascii_digit()) {
        ""
    } else {
        "0"
    };
    format!("{zero}{rest}")
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

/// Parses a 64-bit number, with Go's error messages.
fn parse_number(text: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| {
        let problem = if text.is_empty() {
            "invalid syntax"
        } else {
            "value out of range"
        };
        format!("strconv.ParseUint: parsing {}: {problem}", quoted(text))
    })
}

fn core(text: &str, lower: &str, upper: &str) -> std::result::Result<u64, String> {
    if !is_number(text) {
        return Err(format!("Invalid character(s) found in {lower} number {}", quoted(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!(
            "{upper} number must not contain leading zeroes {}",
            quoted(text)
        ));
    }
    parse_number(text)
}

fn identifier(text: &str) -> std::result::Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if is_number(text) {
        if text.len() > 1 && text.starts_with('0') {
            let shown = quoted(text);
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {shown}"
            ));
        }
        return parse_number(text).map(Identifier::Number);
    }
    if is_word(text) {
        Ok(Identifier::Word(text.into()))
    } else {
        Err(format!("Invalid character(s) found in prerelease {}", quoted(text)))
    }
}

/// Parses the arguments of `semver`. The outer error concerns the arguments, the inner the text.
fn read(
    cx: &mut Context<'_>,
    args: &[Val<'_>],
    name: &'static str,
) -> std::result::Result<std::result::Result<Semver, String>, EvalError> {
    let (text, normalize) = match args {
        [text] => (text, false),
        [text, Val::Bool(normalize)] => (text, *normalize),
        _ => return Err(no_overload(name)),
    };
    let text = text.as_str().ok_or_else(|| no_overload(name))?;
    cx.budget.traverse(text.len())?;
    // Identifiers of one letter are the worst case: one allocation each.
    cx.budget.memory(text.len() * size_of::<Identifier>())?;
    Ok(if normalize {
        Semver::normalized(text)
    } else {
        Semver::parse(text)
    })
}

fn number<'v>(args: &[Val<'v>], name: &'static str, place: usize) -> Result<'v> {
    match args {
        [Val::Opaque(value)] => match &**value {
            // Wraps beyond the range of an int, as Go's conversion does.
            Opaque::Semver(version) => Ok(Val::Int(version.numbers[place].cast_signed())),
            _ => Err(no_overload(name)),
        },
        _ => Err(no_overload(name)),
    }
}
