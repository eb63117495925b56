//! Differences of two objects.

use insula_conversion::{Path, Segment};
use serde_json::Value;

/// Returns the paths at which `a` and `b` differ, each as short as possible. `apiVersion` and
/// metadata other than labels and annotations are left out, since rules do not convert them.
pub(super) fn paths(a: &Value, b: &Value) -> Vec<String> {
    let differences = values(a, b).into_iter();
    differences.map(|difference| difference.path).collect()
}

/// A path at which two objects differ, with both values.
pub(super) struct Difference<'a> {
    pub(super) path: String,
    pub(super) a: Option<&'a Value>,
    pub(super) b: Option<&'a Value>,
}

/// Like [`paths`], with the values.
pub(super) fn values<'a>(a: &'a Value, b: &'a Value) -> Vec<Difference<'a>> {
    let mut out = Vec::new();
    let mut at = Vec::new();
    walk(Some(a), Some(b), &mut at, &mut out);
    out
}

fn walk<'a>(a: Option<&'a Value>, b: Option<&'a Value>, at: &mut Vec<Segment>, out: &mut Vec<Difference<'a>>) {
    if a == b || skipped(at) {
        return;
    }
    match (a, b) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let mut names: Vec<&String> = one.keys().chain(other.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                at.push(Segment::Field(name.clone()));
                walk(one.get(name), other.get(name), at, out);
                at.pop();
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            for (index, pair) in one.iter().zip(other).enumerate() {
                at.push(Segment::Index(index));
                walk(Some(pair.0), Some(pair.1), at, out);
                at.pop();
            }
        }
        _ => out.push(Difference {
            path: Path::from_segments(at.clone()).to_string(),
            a,
            b,
        }),
    }
}

fn skipped(at: &[Segment]) -> bool {
    let name = |index: usize| match at.get(index) {
        Some(Segment::Field(name)) => name.as_str(),
        _ => "",
    };
    match at.len() {
        1 => name(0) == "apiVersion",
        2 => name(0) == "metadata" && !matches!(name(1), "labels" | "annotations"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::paths;
    use serde_json::json;

    #[test]
    fn paths_of_differences_are_as_short_as_possible() {
        let a = json!({"apiVersion": "v1", "metadata": {"name": "a", "labels": {"x": "1"}},
            "spec": {"l": [{"n": 1}, {"n": 2}], "m": {"a.b": 1}, "s": [1]}});
        let b = json!({"apiVersion": "v2", "metadata": {"name": "b"}, "spec": {"l": [{"n": 1}, {"n": 3}], "m": {},
            "s": []}});
        assert_eq!(
            paths(&a, &b),
            [".metadata.labels", ".spec.l[1].n", ".spec.m['a.b']", ".spec.s"]
        );
        assert!(paths(&a, &a).is_empty());
    }
}
