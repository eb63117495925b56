//! Rules for the names of a resource, checked when the program is compiled.

/// Suffixes of groups that belong to Kubernetes.
const PROTECTED: [&str; 2] = ["k8s.io", "kubernetes.io"];
const NAME_BYTES_MAX: usize = 63;

/// Returns the mistake in the name of a group.
pub(crate) fn group(group: &str) -> Option<String> {
    if group.chars().any(char::is_uppercase) {
        return Some(format!(
            "the group `{group}` has capital letters; write `{}`",
            group.to_lowercase()
        ));
    }
    if !group.contains('.') {
        return Some(format!(
            "the group `{group}` has no domain; write `{group}.example.com`"
        ));
    }
    let is_protected = |suffix: &&str| group == *suffix || group.ends_with(&format!(".{suffix}"));
    if let Some(suffix) = PROTECTED.into_iter().find(is_protected) {
        return Some(format!(
            "groups of `{suffix}` belong to Kubernetes; use a domain of your own"
        ));
    }
    let malformed = group.split('.').find(|part| !is_label(part));
    malformed.map(|part| format!("`{part}` in the group `{group}` must be lower-case letters, digits and `-`"))
}

/// Returns the mistake in the name of a version that clients use.
pub(crate) fn version(version: &str) -> Option<String> {
    let number = |text: &str| -> Option<usize> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        (digits > 0 && !text.starts_with('0')).then_some(digits)
    };
    let stage = |rest: &str| {
        let after = rest.strip_prefix("alpha").or_else(|| rest.strip_prefix("beta"))?;
        number(after).filter(|digits| *digits == after.len())
    };
    let fits = version.strip_prefix('v').and_then(|rest| {
        let rest = &rest[number(rest)?..];
        (rest.is_empty() || stage(rest).is_some()).then_some(())
    });
    match fits {
        Some(()) => None,
        None => Some(format!(
            "the version `{version}` must be alpha, beta or stable: `v1alpha1`, `v1beta1`, `v1`"
        )),
    }
}

/// Returns the mistake in the name of a version that nobody is served.
pub(crate) fn hub(version: &str) -> Option<String> {
    (!is_label(version)).then(|| format!("the version `{version}` must be lower-case letters, digits and `-`"))
}

/// Returns the mistake in the name of a kind.
pub(crate) fn kind(kind: &str) -> Option<String> {
    let fits = kind.starts_with(|c: char| c.is_ascii_uppercase())
        && kind.len() <= NAME_BYTES_MAX
        && kind.chars().all(|c| c.is_ascii_alphanumeric());
    (!fits).then(|| format!("the kind `{kind}` must be UpperCamel: letters and digits, a capital first"))
}

/// Returns the mistake in the plural of a kind.
pub(crate) fn plural(plural: &str) -> Option<String> {
    let fits = is_label(plural) && plural.starts_with(|c: char| c.is_ascii_lowercase());
    (!fits).then(|| format!("the plural `{plural}` must be lower-case letters, digits and `-`, a letter first"))
}

/// Returns the mistake in the name of a subresource.
pub(crate) fn subresource(name: &str) -> Option<String> {
    let fits = is_label(name);
    (!fits).then(|| format!("the subresource `{name}` must be lower-case letters, digits and `-`"))
}

/// Returns the plural of a kind, by the rules of English that code generators of Kubernetes use.
pub(crate) fn plural_of(kind: &str) -> String {
    let name = kind.to_lowercase();
    let before_y = name.strip_suffix('y').and_then(|stem| stem.chars().last());
    match before_y {
        Some(c) if !"aeiou".contains(c) => format!("{}ies", &name[..name.len() - 1]),
        _ if ["s", "x", "z", "ch", "sh"].iter().any(|end| name.ends_with(end)) => format!("{name}es"),
        _ => format!("{name}s"),
    }
}

fn is_label(text: &str) -> bool {
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let bytes = text.as_bytes();
    (1..=NAME_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_no_capitals_and_a_domain() {
        for good in ["fleet.example.com", "a-b.example.io"] {
            assert_eq!(group(good), None, "{good}");
        }
        for (bad, word) in [
            ("Fleet.example.com", "capital letters"),
            ("fleet", "no domain"),
            ("apps.k8s.io", "belong to Kubernetes"),
            ("fleet..com", "must be lower-case"),
            ("fleet_x.example.com", "must be lower-case"),
        ] {
            assert!(group(bad).unwrap().contains(word), "{bad}");
        }
    }

    #[test]
    fn versions_are_alpha_beta_or_stable() {
        for good in ["v1", "v12", "v1alpha1", "v2beta10"] {
            assert_eq!(version(good), None, "{good}");
        }
        for bad in ["1", "v", "v0", "v1alpha", "v1gamma1", "v1alpha0", "V1", "v1beta1x", ""] {
            assert!(version(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn kinds_are_upper_camel() {
        for good in ["Foo", "HTTPRoute", "Foo2"] {
            assert_eq!(kind(good), None, "{good}");
        }
        for bad in ["foo", "Foo_Bar", "Foo-Bar", ""] {
            assert!(kind(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn plurals_follow_the_kind() {
        for (kind, want) in [
            ("Robot", "robots"),
            ("Policy", "policies"),
            ("Gateway", "gateways"),
            ("Bus", "buses"),
            ("Switch", "switches"),
        ] {
            assert_eq!(plural_of(kind), want);
        }
    }
}
