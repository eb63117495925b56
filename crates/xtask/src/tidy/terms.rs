//! Names that have a standard term, and the term. `docs/GLOSSARY.md` holds the project's own terms.

/// Names of types: struct, enum, trait, type.
const TYPES: &[(&str, &str)] = &[
    ("Lane", "say Priority: normal or low"),
    ("Lanes", "say PriorityRuntimes"),
    ("Shares", "say FairShare"),
    ("Account", "say TenantUsage"),
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
    ("Open", "say in what state of the request it is, or OpenCall"),
    ("Heirs", "say successor bindings"),
    ("Population", "say ObjectCounts"),
    ("Tally", "say Counts"),
    ("Visits", "say Sessions"),
    ("Offers", "say ExportOffers"),
    ("Rights", "say Grants"),
    ("Wishes", "say AccessRequests"),
    ("Places", "say scopes, permits or locations"),
    ("Soup", "say fuzz input"),
    ("Bomb", "say exhaustion input"),
];

/// Names of functions.
const FUNCTIONS: &[(&str, &str)] = &[
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
    ("said_by", "say `reported_by`"),
    ("asked", "say `requested`"),
    ("learned", "say `prefetched`"),
    ("unread", "say `drain_body`"),
    ("heir", "say `successor_binding`"),
    ("fate", "say `field_coverage`"),
    ("fates", "say `field_coverage`"),
    ("population", "say `object_counts`"),
    ("tally", "say `counts`"),
    ("shelf", "say `response_cache`"),
    ("door", "say `admin_service`"),
    ("story", "say `script`"),
    ("stage", "say `request_scope` or `runner`"),
];

/// Names of source files, without `.rs`.
const FILES: &[(&str, &str)] = &[
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
    ("door", "service"),
    ("fates", "field_coverage"),
    ("carry", "passthrough"),
    ("heir", "successor"),
    ("library", "response_cache"),
    ("shelf", "response_cache"),
    ("place", "location"),
    ("stage", "request"),
    ("story", "script"),
    ("told_apart", "route"),
    ("turn", "throttle"),
    ("turns", "conversion_scheduler"),
    ("ways", "routes"),
];

/// Names that stay although a term is listed for them: name, beginning of the path, reason. The
/// name of a file includes its extension.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("Stage", "crates/auth/src/audit", "Kubernetes' own name in audit.k8s.io"),
    ("stage", "crates/auth/src/audit", "Kubernetes' own name in audit.k8s.io"),
    (
        "stage.rs",
        "crates/auth/src/audit",
        "Kubernetes' own name in audit.k8s.io",
    ),
    ("Claim", "crates/auth/src/", "the term of JSON Web Tokens"),
    ("library.rs", "crates/cel/src/", "CEL's own name for a set of functions"),
    (
        "place.rs",
        "crates/cel/src/estimate/",
        "Kubernetes' cost estimator speaks of places of a schema",
    ),
];

/// Keywords that define a type.
const TYPE_KEYWORDS: [&str; 4] = ["struct", "enum", "trait", "type"];

/// Returns true for names that stay, by the list of those.
fn is_allowed(file: &str, name: &str) -> bool {
    let listed = |(allowed, path, _): &(&str, &str, &str)| *allowed == name && file.starts_with(path);
    ALLOWED.iter().any(listed)
}

/// Returns the name that a line of code defines and that has a standard term, with the advice.
pub(super) fn defined<'l>(file: &str, line: &'l str) -> Option<(&'l str, &'static str)> {
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        let terms: &[(&str, &str)] = match word {
            "fn" => FUNCTIONS,
            _ if TYPE_KEYWORDS.contains(&word) => TYPES,
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
            .find(|(term, _)| *term == name && !is_allowed(file, name))
            .map(|(_, advice)| (name, *advice));
    }
    None
}

/// Returns the advice for a file whose name has a standard term.
pub(super) fn for_file(file: &str, stem: &str) -> Option<String> {
    let in_source = file.contains("/src/");
    if in_source && stem == "mod" {
        return Some("`foo/mod.rs`: say `foo.rs` beside `foo/`".to_owned());
    }
    if let Some(name) = stem.strip_suffix("_tests").filter(|_| in_source) {
        return Some(format!("`{stem}.rs`: say `{name}/tests.rs`"));
    }
    let is_listed = |(name, _): &&(&str, &str)| *name == stem && !is_allowed(file, &format!("{stem}.rs"));
    let (name, advice) = FILES.iter().find(is_listed)?;
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
            assert_eq!(defined("crates/a/src/a.rs", line).map(|(name, _)| name), want, "{line}");
        }
        assert!(for_file("a/lanes.rs", "lanes").is_some_and(|advice| advice.contains("priority.rs")));
        assert!(for_file("a/limits.rs", "limits").is_none());
        assert!(
            for_file("crates/a/src/b/mod.rs", "mod").is_some() && for_file("crates/a/tests/b/mod.rs", "mod").is_none()
        );
        assert!(for_file("crates/a/src/b_tests.rs", "b_tests").is_some_and(|advice| advice.contains("b/tests.rs")));
        let audit = "crates/auth/src/audit/stage.rs";
        assert!(defined(audit, "pub enum Stage {").is_none() && for_file(audit, "stage").is_none());
    }
}
