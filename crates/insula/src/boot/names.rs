//! Names of a project's APIs: the rules for groups, versions and kinds, and the names that follow
//! from them.

use anyhow::{bail, ensure};

/// Longest label of a DNS name, and longest kind.
const LABEL_CHARS_MAX: usize = 63;
/// Domains whose groups belong to others.
const FOREIGN: [&str; 3] = ["k8s.io", "kubernetes.io", "kcp.io"];
/// Kinds that would hide names of Rust that derived code uses.
const RUST_NAMES: [&str; 9] = [
    "Box", "Default", "Err", "None", "Ok", "Option", "Self", "Some", "String",
];
/// Words of Rust that name no module.
const KEYWORDS: &str = "abstract as async await become box break const continue crate do dyn else enum extern false \
    final fn for gen if impl in let loop macro match mod move mut override priv pub ref return self static struct \
    super trait true try type typeof unsafe unsized use virtual where while yield";

/// Checks the domain of a project, such as `example.com`.
///
/// # Errors
/// A name that is no DNS name, has capitals, or belongs to others.
pub(super) fn domain(name: &str) -> anyhow::Result<()> {
    for part in name.split('.') {
        label("domain", name, part)?;
    }
    ensure!(
        name.contains('.'),
        "domain {name:?}: it has no dot; write one that you own, such as {name}.example.com"
    );
    let foreign = FOREIGN
        .iter()
        .find(|foreign| name == **foreign || name.ends_with(&format!(".{foreign}")));
    match foreign {
        Some(foreign) => bail!("domain {name:?}: {foreign} belongs to others; write a domain that you own"),
        None => Ok(()),
    }
}

/// Checks the first part of an API group, such as `fleet` of `fleet.example.com`.
///
/// # Errors
/// Capitals, dots, or other characters that no DNS label has.
pub(super) fn group(name: &str) -> anyhow::Result<()> {
    if let Some((first, _)) = name.split_once('.') {
        bail!("group {name:?}: the project's domain is added to it; write {first:?}");
    }
    label("group", name, name)
}

fn label(what: &str, whole: &str, part: &str) -> anyhow::Result<()> {
    if part.chars().any(|c| c.is_ascii_uppercase()) {
        bail!(
            "{what} {whole:?}: it must not have capital letters; write {:?}",
            whole.to_ascii_lowercase()
        );
    }
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| edge(c) || c == '-';
    ensure!(
        part.starts_with(edge) && part.ends_with(edge) && part.chars().all(inner) && part.len() <= LABEL_CHARS_MAX,
        "{what} {whole:?}: lower-case letters, digits and hyphens between them, at most {LABEL_CHARS_MAX} characters"
    );
    ensure!(
        what == "domain" || part.starts_with(|c: char| c.is_ascii_lowercase()),
        "{what} {whole:?}: it begins with a letter"
    );
    Ok(())
}

/// Checks a version: some form of alpha, beta or stable.
///
/// # Errors
/// Anything but `v1`, `v1beta1`, `v1alpha1` and the like.
pub(super) fn version(name: &str) -> anyhow::Result<()> {
    ensure!(
        stability(name).is_some(),
        "version {name:?}: it is some form of alpha, beta or stable, such as v1alpha1, v1beta1 or v1"
    );
    Ok(())
}

/// Stability of a version, then its numbers. Greater is more stable or newer, as in discovery.
pub(super) type Stability = (u8, u32, u32);

/// Returns the stability of a version, or None if the name is none.
pub(super) fn stability(name: &str) -> Option<Stability> {
    let rest = name.strip_prefix('v')?;
    for (level, word) in [(0, "alpha"), (1, "beta")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((level, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}

fn number(digits: &str) -> Option<u32> {
    let plain = digits.chars().all(|c| c.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

/// Checks a kind, such as `Foo`.
///
/// # Errors
/// Kinds that are not in UpperCamel case, or that hide a name of Rust.
pub(super) fn kind(name: &str) -> anyhow::Result<()> {
    let letters = name.chars().all(|c| c.is_ascii_alphanumeric());
    let camel = name.starts_with(|c: char| c.is_ascii_uppercase()) && letters && !name.is_empty();
    ensure!(
        camel,
        "kind {name:?}: it must be in UpperCamel case; write {:?}",
        upper_camel(name)
    );
    ensure!(
        name.len() <= LABEL_CHARS_MAX,
        "kind {name:?}: at most {LABEL_CHARS_MAX} characters"
    );
    ensure!(
        !name.ends_with("List") && !name.ends_with("Spec") && !name.ends_with("Status"),
        "kind {name:?}: List, Spec and Status end names of types that belong to a kind; choose another name"
    );
    ensure!(
        !RUST_NAMES.contains(&name),
        "kind {name:?}: it would hide Rust's {name}; choose another name"
    );
    Ok(())
}

/// Checks the name of a subresource, such as `restart`.
///
/// # Errors
/// Names that are no DNS label, and the two that every kind declares in its attributes.
pub(super) fn subresource(name: &str) -> anyhow::Result<()> {
    label("subresource", name, name)?;
    match name {
        "status" => bail!("subresource \"status\": every kind has it; its fields are those of the Status type"),
        "scale" => bail!(
            "subresource \"scale\": it is declared, not written; add `scale(spec = \".spec.replicas\", status = \
             \".status.replicas\")` to #[resource(…)] of the kind"
        ),
        _ => Ok(()),
    }
}

/// Checks the plural of a kind.
///
/// # Errors
/// Names that are no DNS label.
pub(super) fn plural(name: &str) -> anyhow::Result<()> {
    label("plural", name, name)
}

/// Returns the usual plural of a kind: `Foo` → `foos`, `Policy` → `policies`, `Mesh` → `meshes`.
pub(super) fn plural_of(kind: &str) -> String {
    let lower = kind.to_ascii_lowercase();
    let vowel = |c: char| "aeiou".contains(c);
    let before_y = lower.strip_suffix('y').filter(|stem| !stem.ends_with(vowel));
    if let Some(stem) = before_y {
        return format!("{stem}ies");
    }
    let hisses = ["s", "x", "z", "ch", "sh"].iter().any(|end| lower.ends_with(end));
    format!("{lower}{}", if hisses { "es" } else { "s" })
}

/// Returns the module of a name: `FooBar` → `foo_bar`, `HTTPRoute` → `http_route`, `a-b` → `a_b`,
/// `type` → `type_`.
pub(super) fn module(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut module = String::new();
    for (at, c) in chars.iter().enumerate() {
        let follows_lower = at > 0 && (chars[at - 1].is_ascii_lowercase() || chars[at - 1].is_ascii_digit());
        let ends_capitals = at > 0 && chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if c.is_ascii_uppercase() && (follows_lower || ends_capitals) {
            module.push('_');
        }
        module.push(if *c == '-' { '_' } else { c.to_ascii_lowercase() });
    }
    if KEYWORDS.split(' ').any(|word| word == module) {
        module.push('_');
    }
    module
}

/// Returns a name in UpperCamel case: `foo-bar` → `FooBar`.
pub(super) fn upper_camel(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .map(|word| {
            let mut chars = word.chars();
            let first = chars.next().map(|c| c.to_ascii_uppercase());
            first.into_iter().chain(chars).collect::<String>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(done: anyhow::Result<()>, words: &str) {
        let error = done.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn groups_have_no_capitals_and_no_domain() {
        assert!(group("fleet").is_ok() && group("my-fleet2").is_ok());
        refused(group("Fleet"), "must not have capital letters; write \"fleet\"");
        refused(group("fleet.example.com"), "write \"fleet\"");
        for wrong in ["", "-a", "a-", "a_b", "2a", &"a".repeat(64)] {
            assert!(group(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_version_is_some_form_of_alpha_beta_or_stable() {
        for right in ["v1", "v12", "v1alpha1", "v2beta10"] {
            assert!(version(right).is_ok(), "{right}");
        }
        for wrong in [
            "1", "v", "v0", "v01", "V1", "v1alpha", "v1gamma1", "v1alpha0", "v1.1", "valpha1", "v+1",
        ] {
            refused(version(wrong), "alpha, beta or stable");
        }
        let mut names = ["v1", "v2alpha1", "v1beta2", "v2", "v1beta1"];
        names.sort_by_key(|name| stability(name));
        assert_eq!(names, ["v2alpha1", "v1beta1", "v1beta2", "v1", "v2"]);
    }

    #[test]
    fn a_kind_is_in_upper_camel_case() {
        assert!(kind("Foo").is_ok() && kind("HTTPRoute").is_ok() && kind("S3Bucket").is_ok());
        refused(kind("foo"), "must be in UpperCamel case; write \"Foo\"");
        refused(kind("foo_bar"), "write \"FooBar\"");
        refused(kind("FooList"), "choose another name");
        refused(kind("Option"), "hide Rust's Option");
        assert!(kind("").is_err());
    }

    #[test]
    fn domains_are_dns_names_of_ones_own() {
        assert!(domain("example.com").is_ok() && domain("4u.example.com").is_ok());
        refused(domain("Example.com"), "write \"example.com\"");
        refused(domain("example"), "it has no dot");
        refused(domain("x.k8s.io"), "k8s.io belongs to others");
        assert!(domain("example..com").is_err() && domain("").is_err());
    }

    #[test]
    fn subresources_that_a_kind_declares_are_not_written() {
        assert!(subresource("restart").is_ok());
        refused(subresource("status"), "every kind has it");
        refused(subresource("scale"), "declared, not written");
        refused(subresource("Restart"), "write \"restart\"");
    }

    #[test]
    fn plurals_and_modules_follow_from_kinds() {
        for (kind, plural, name) in [
            ("Foo", "foos", "foo"),
            ("Policy", "policies", "policy"),
            ("Gateway", "gateways", "gateway"),
            ("Mesh", "meshes", "mesh"),
            ("HTTPRoute", "httproutes", "http_route"),
            ("S3Bucket", "s3buckets", "s3_bucket"),
            ("Type", "types", "type_"),
        ] {
            assert_eq!((plural_of(kind).as_str(), module(kind).as_str()), (plural, name));
        }
        assert_eq!(module("my-fleet"), "my_fleet");
    }
}
