//! Decisions of another server, as facts of the chain.

use super::*;

#[test]
fn another_server_decides_where_no_rule_does() {
    let allow = Decision::Allow {
        reason: "delegated".into(),
    };
    let deny = Decision::Deny {
        reason: "delegated".into(),
    };
    // The first is asked only about what is open, and overrides no refusal.
    for (who, at, is_open, delegated, is_allowed) in [
        ("stranger", "a", true, None, false),
        ("stranger", "a", true, Some(&allow), true),
        ("stranger", "a", true, Some(&deny), false),
        ("stranger", "a", true, Some(&Decision::NoOpinion), false),
        ("tA", "a", false, Some(&deny), true),
        ("stranger", "system:admin", false, Some(&allow), false),
    ] {
        let user = user(who, &[]);
        let asked = permit(&user, request(at, "create configmaps"), &facts(at));
        let open = asked.err().is_some_and(|refused| refused.is_open());
        assert_eq!(open, is_open, "{who} in {at}");
        let facts = ClusterFacts {
            delegated: delegated.cloned(),
            ..facts(at)
        };
        let decided = permit(&user, request(at, "create configmaps"), &facts);
        assert_eq!(decided.is_ok(), is_allowed, "{who} in {at}: {delegated:?}");
    }
    // The ceiling of an export stays.
    let facts = ClusterFacts {
        delegated: Some(allow),
        ..below_a_policy()
    };
    let refused = permit(
        &user("stranger", &[]),
        request("a", "delete widgets.example.io"),
        &facts,
    );
    assert!(refused.unwrap_err().reason.contains("maximal permission policy"));
}
