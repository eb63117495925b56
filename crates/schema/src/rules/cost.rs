//! Estimated costs of rules from the bounds of the schema alone: each rule times the number of
//! values it runs on, and the sum of a schema's rules.

use insula_api::{FieldError, FieldPath};

/// Cost units of one rule over all values of an object, as in Kubernetes.
pub(crate) const RULE_COST_MAX: u64 = 10_000_000;
/// Cost units of all rules of a schema, as in Kubernetes.
const SCHEMA_COST_MAX: u64 = 100_000_000;
/// Maximum number of rules that the refusal of a schema names, the most expensive ones.
const NAMED_MAX: usize = 4;

/// Estimated costs of a schema's rules.
#[derive(Debug, Default)]
pub(super) struct Costs {
    total: u64,
    /// The most expensive rules, in descending order: only those of at least a hundredth of the
    /// limit.
    dearest: Vec<(FieldPath, u64)>,
}

impl Costs {
    /// Adds the cost of an expression at `path`. Returns an error if it exceeds the limit of one
    /// rule.
    pub(super) fn observe(&mut self, what: &str, path: impl Fn() -> FieldPath, cost: u64) -> Option<FieldError> {
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_COST_MAX / 100 {
            let at = self.dearest.partition_point(|(_, other)| *other >= cost);
            if at < NAMED_MAX {
                self.dearest.insert(at, (path(), cost));
                self.dearest.truncate(NAMED_MAX);
            }
        }
        let dear = cost > RULE_COST_MAX;
        dear.then(|| FieldError::forbidden(&path(), exceeds(&format!("estimated {what} cost"), cost, RULE_COST_MAX)))
    }

    /// Returns the errors of a schema whose rules together exceed the limit.
    pub(super) fn finish(self, schema: &FieldPath) -> Vec<FieldError> {
        if self.total <= SCHEMA_COST_MAX {
            return Vec::new();
        }
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let contributors = self.dearest.iter().map(|(path, _)| FieldError::forbidden(path, why));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let whole = FieldError::forbidden(schema, exceeds(what, self.total, SCHEMA_COST_MAX));
        contributors.chain([whole]).collect()
    }
}

fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        f if f > 100.0 => "more than 100x".to_owned(),
        // `1.0x` would not look like an excess.
        f if f < 1.5 => format!("{f:.6}x"),
        f => format!("{f:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_written_as_kubernetes_writes_them() {
        for (cost, want) in [
            (12_000_000, "1.200000x"),
            (43_000_000, "4.3x"),
            (1_000_000_000, "100.0x"),
            (1_000_000_001, "more than 100x"),
        ] {
            assert!(
                exceeds("c", cost, RULE_COST_MAX).contains(&format!("factor of {want} (try")),
                "{cost}"
            );
        }
    }

    #[test]
    fn the_dearest_four_are_named() {
        let mut costs = Costs::default();
        for (i, cost) in [
            5, 30, 40, 999_999, 30_000_000, 1_000_000, 40_000_000, 2_000_000, 50_000_000,
        ]
        .iter()
        .enumerate()
        {
            costs.observe("rule", || FieldPath::new("r").index(i), *cost);
        }
        let named: Vec<String> = costs
            .finish(&FieldPath::new("s"))
            .iter()
            .map(|e| e.field.to_string())
            .collect();
        assert_eq!(named, ["r[8]", "r[6]", "r[4]", "r[7]", "s"]);
    }
}
