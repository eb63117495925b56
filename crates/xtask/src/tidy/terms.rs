//! Names that have a standard term, and the term. `docs/GLOSSARY.md` holds the terms that are ours.

/// Names of types: struct, enum, trait, type.
const TYPES: [(&str, &str); 38] = [
    ("Lane", "say Priority: normal or low"),
    ("Lanes", "say PriorityRuntimes"),
    ("Shares", "say FairShare"),
    ("Account", "say TenantUsage"),
    ("Meter", "say ConnectionMeter"),
    ("Crowd", "say Contention"),
    ("Turn", "say ThrottleSlot, CreateLock or LifecyclePhase"),
    ("Turns", "say ConversionScheduler"),
    ("Place", "say RequestScope, InFlightPermit or LockKey"),
    ("RequestPlace", "say InFlightPermit"),
    ("WatchPlace", "say WatchPermit"),
    ("Sight", "say ViewScope"),
    ("Across", "say AllClusters"),
    ("Through", "say ViaExport"),
    ("Looking", "say VisibilityFilter"),
    ("View", "say VirtualWorkspace"),
    ("Duty", "say Initializer or Terminator"),
    ("Wish", "say AccessRequest"),
    ("Right", "say Grant"),
    ("Offer", "say ExportOffer"),
    ("Claim", "say ResourceRoute; a claim is a permission claim"),
    ("Register", "say SerializationPoint"),
    ("Questions", "say PendingCalls"),
    ("Library", "say ResponseCache"),
    ("Shelf", "say ResponseCache"),
    ("Heir", "say successor binding"),
    ("Fate", "say field coverage"),
    ("Fates", "say field coverage"),
    ("Owned", "say ToStore"),
    ("Door", "say AdminService"),
    ("Visit", "say Session"),
    ("Front", "say Edge"),
    ("Way", "say Located or Mount"),
    ("Aside", "say BlockingExecutor"),
    ("Rig", "say TestControlPlane"),
    ("Stage", "say runner"),
    ("Story", "say script"),
    ("Frames", "say watch encoder"),
];

/// Names of functions.
const FUNCTIONS: [(&str, &str); 15] = [
    ("of", "name the relation: `for_cluster`, `from_bytes`"),
    ("at", "name the relation: `at_revision`"),
    ("where", "say what is found: `position`, `location`"),
    ("so_much", "say `amount`, with its unit"),
    ("said", "say `reported` or `spec`"),
    ("told", "say `reported`"),
    ("words", "say `message`"),
    ("told_apart", "say `route`"),
    ("held", "say `in_flight`"),
    ("recorded", "say `audit`"),
    ("ask", "say `request`"),
    ("learn", "say `prefetch`"),
    ("settled", "say `run_until_resolved`"),
    ("carry", "say `passthrough`"),
    ("dear", "say `over_budget`"),
];

/// Names of source files, without `.rs`.
const FILES: [(&str, &str); 14] = [
    ("before", "prepare"),
    ("alone", "metadata_only"),
    ("lanes", "priority"),
    ("shares", "fair_share"),
    ("unread", "drain_body"),
    ("recorded", "audit"),
    ("frames", "watch_encoder"),
    ("population", "object_limit"),
    ("tally", "counts"),
    ("register", "serialization_point"),
    ("soup", "fuzz"),
    ("bombs", "exhaustion"),
    ("doors", "tenant_isolation"),
    ("duty", "lifecycle"),
];

/// Names of Kubernetes' own API that equal one of the names above: (file, name).
const OF_KUBERNETES: [(&str, &str); 1] = [("crates/auth/src/audit/stage.rs", "Stage")];

/// Keywords that define a type.
const TYPE_KEYWORDS: [&str; 4] = ["struct", "enum", "trait", "type"];

/// The name that a line of code defines and that has a standard term, with the advice.
pub(super) fn defined(line: &str) -> Option<(&str, &'static str)> {
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        let terms: &[(&str, &str)] = match word {
            "fn" => &FUNCTIONS,
            _ if TYPE_KEYWORDS.contains(&word) => &TYPES,
            "pub" | "async" | "const" => continue,
            _ if word.starts_with("pub(") => continue,
            _ => return None,
        };
        let name = words.next()?;
        let end = name
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(name.len());
        let name = &name[..end];
        return terms
            .iter()
            .find(|(term, _)| *term == name)
            .map(|(_, advice)| (name, *advice));
    }
    None
}

/// Returns true if the file defines the name because Kubernetes' API calls it so.
pub(super) fn is_of_kubernetes(file: &str, name: &str) -> bool {
    OF_KUBERNETES.contains(&(file, name))
}

/// Advice for a file whose name has a standard term.
pub(super) fn for_file(stem: &str) -> Option<String> {
    let (name, advice) = FILES.iter().find(|(name, _)| *name == stem)?;
    Some(format!("`{name}.rs`: say `{advice}.rs`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_found_and_uses_are_not() {
        for (line, want) in [
            ("pub(crate) struct Lanes {", Some("Lanes")),
            ("enum Sight<'a> {", Some("Sight")),
            ("pub async fn told(&self) {", Some("told")),
            ("fn of(bytes: &[u8]) -> Self {", Some("of")),
            ("let lanes = Lanes::new();", None),
            ("pub struct PriorityRuntimes {", None),
            ("fn office() {}", None),
        ] {
            assert_eq!(defined(line).map(|(name, _)| name), want, "{line}");
        }
        assert!(for_file("lanes").is_some_and(|advice| advice.contains("priority.rs")));
        assert!(for_file("limits").is_none());
    }
}
