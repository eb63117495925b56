//! The field that a writer sent, for a field that another version shows: errors about the view of
//! one version are reported to the writer of another one.

use crate::bundle::Bundle;
use crate::field_coverage::{FieldCoverage, FieldOutcome, field_coverage};
use crate::proof::general;

impl Bundle {
    /// Returns the field of version `from` that gives a field of version `to` its value: `spec.a`
    /// for `spec.b`, if a rule moves or computes it. Items keep their index where both lists have
    /// the same depth. Without a source, it is the nearest parent that version `from` has, too.
    pub fn origin(&self, from: &str, to: &str, field: &str) -> String {
        let all = field_coverage(self);
        let direct = |from: &str, to: &str, field: &str| {
            let direction = all
                .iter()
                .find(|direction| direction.from == from && direction.to == to)?;
            source(direction, field)
        };
        let hub = self.hub();
        let found = direct(from, to, field).or_else(|| {
            let between = direct(hub, to, field)?;
            direct(from, hub, &between)
        });
        found.unwrap_or_else(|| self.nearest(from, field))
    }

    fn nearest(&self, version: &str, field: &str) -> String {
        let mut node = self.schema(version).map(|schema| schema.root());
        let mut known = 0;
        for (end, _) in field.match_indices('.').chain([(field.len(), "")]) {
            let step = field.get(known..end).unwrap_or_default().trim_start_matches('.');
            let name = step.split('[').next().unwrap_or_default();
            node = node.and_then(|node| node.property(name));
            if node.is_none() {
                break;
            }
            known = end;
        }
        match field.get(..known) {
            Some(parent) if !parent.is_empty() => parent.to_owned(),
            _ => "spec".to_owned(),
        }
    }
}

/// Returns the source of a field in one direction: the closest of those whose value it holds or
/// contains, is in, or is computed from.
fn source(direction: &FieldCoverage, field: &str) -> Option<String> {
    let wanted = general(field);
    let mut best: Option<(usize, String)> = None;
    for covered in &direction.fields {
        let own = general(covered.path.to_string().trim_start_matches('.'));
        let mut lands: Vec<String> = match &covered.outcome {
            FieldOutcome::Carried => vec![own.clone()],
            other => other
                .destinations()
                .into_iter()
                .map(|path| general(path.to_string().trim_start_matches('.')))
                .collect(),
        };
        lands.retain(|land| starts(land, &wanted) || starts(&wanted, land));
        let Some(close) = lands.iter().map(|land| land.len().min(wanted.len())).max() else {
            continue;
        };
        if best.as_ref().is_none_or(|(known, _)| close > *known) {
            best = Some((close, indexed(&own, field)));
        }
    }
    best.map(|(_, own)| own)
}

/// Returns true if a path is at or below another one.
fn starts(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Fills in the indices and keys of another path, as far as it has some.
fn indexed(path: &str, like: &str) -> String {
    let mut indices = like
        .match_indices('[')
        .filter_map(|(at, _)| like.get(at + 1..)?.split_once(']'))
        .map(|(index, _)| index);
    let mut out = String::new();
    let mut parts = path.split("[]");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        match indices.next() {
            Some(index) => out.push_str(&format!("[{index}]")),
            None => out.push_str("[]"),
        }
        out.push_str(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{indexed, starts};

    #[test]
    fn indices_are_those_of_the_other_path() {
        assert_eq!(indexed("spec.ports[].name", "spec.lines[2].id"), "spec.ports[2].name");
        assert_eq!(indexed("spec.a[].b[]", "spec.c[k]"), "spec.a[k].b[]");
    }

    #[test]
    fn a_prefix_ends_at_a_step() {
        assert!(starts("spec.ports[].name", "spec.ports"));
        assert!(!starts("spec.portsOfCall", "spec.ports"));
    }
}
