//! Answers to questions about access: who has which role, who may do something, and why.

use super::{answer, check_groups, cut, listing_bindings, question, reviewing, subject};
use crate::{
    pages::Page,
    session::{Located, Session, right},
    status,
};
use insula_access::{
    facts,
    roles::holders::{Bindings, Holder, Namespaces, as_user, holders},
};
use insula_api::{ClusterName, Verb};
use insula_auth::{Attributes, ClusterFacts, Decision, Subject, Trail, UserInfo, permit};
use insula_catalog::ids;
use insula_proto::admin::v1::{
    self as proto, AccessStep, CheckAccessRequest, CheckAccessResponse, ListAccessRequest, ListAccessResponse,
    WhoCanRequest, WhoCanResponse,
};
use insula_store::Snapshot;
use tonic::{Response, Status};

/// Returns true if the caller may know the bindings of the platform.
fn knows_platform(session: &Session) -> bool {
    let platform = ClusterName::system_admin();
    let permitted = session.caller.permit(&session.snapshot, &platform, listing_bindings());
    permitted.is_ok()
}

pub(super) async fn list(
    session: &Session,
    located: &Located,
    request: ListAccessRequest,
) -> Result<Response<ListAccessResponse>, Status> {
    let cluster = &located.cluster;
    session.permit(cluster, right(Verb::List, ids::RBAC, "rolebindings", ""))?;
    let wanted = request.subject.map(|given| subject(Some(given))).transpose()?;
    let filter = format!("{wanted:?} {}", request.only_own);
    let filter = [cluster.as_str(), &filter];
    let page = Page::read(session, &filter, request.page_size, &request.page_token)?;
    let snapshot = &page.snapshot(session).await?;
    let which = Bindings {
        namespaces: Namespaces::All,
        platform: !request.only_own && knows_platform(session),
        bootstrap: !request.only_own,
    };
    let mut found = holders(snapshot, cluster, which);
    if let Some(wanted) = wanted {
        found.retain(|holder| holder.subject == wanted);
    }
    let (found, next_page_token) = cut(&page, snapshot, found);
    Ok(Response::new(ListAccessResponse {
        header: session.header_at(snapshot.revision()),
        bindings: found.iter().map(|holder| answer(snapshot, cluster, holder)).collect(),
        next_page_token,
    }))
}

pub(super) async fn who_can(
    session: &Session,
    located: &Located,
    request: WhoCanRequest,
) -> Result<Response<WhoCanResponse>, Status> {
    let cluster = &located.cluster;
    session.permit(cluster, right(Verb::List, ids::RBAC, "clusterroles", ""))?;
    let asked = question(request.question, cluster)?;
    let namespaces = match asked.namespace.as_str() {
        "" => Namespaces::None,
        namespace => {
            for resource in ["rolebindings", "roles"] {
                let mut needed = right(Verb::List, ids::RBAC, resource, "");
                namespace.clone_into(&mut needed.namespace);
                session.permit(cluster, needed)?;
            }
            Namespaces::One(namespace)
        }
    };
    let filter = format!("{asked:?}");
    let page = Page::read(session, &[&filter], request.page_size, &request.page_token)?;
    let snapshot = &page.snapshot(session).await?;
    let which = Bindings {
        namespaces,
        platform: knows_platform(session),
        bootstrap: true,
    };
    let mut found = holders(snapshot, cluster, which);
    found.retain(|holder| holder.allows(snapshot, cluster, &asked));
    let (found, next_page_token) = cut(&page, snapshot, found);
    let facts = facts(snapshot, cluster);
    let holders = found.iter().map(|holder| {
        let decided = permit(&as_user(&holder.subject, &[]), asked.clone(), &facts);
        proto::Holder {
            binding: Some(answer(snapshot, cluster, holder)),
            effective: decided.is_ok(),
            reason: decided.err().map(|refused| refused.reason).unwrap_or_default(),
        }
    });
    Ok(Response::new(WhoCanResponse {
        header: session.header_at(snapshot.revision()),
        holders: holders.collect(),
        next_page_token,
    }))
}

/// The decision about one question.
struct Decided {
    allowed: bool,
    reason: String,
    trail: Trail,
}

fn decide(user: &UserInfo, asked: Attributes, facts: &ClusterFacts) -> Decided {
    match permit(user, asked, facts) {
        Ok(permit) => Decided {
            allowed: true,
            reason: permit.reason().to_owned(),
            trail: permit.trail().clone(),
        },
        Err(refused) => Decided {
            allowed: false,
            reason: refused.reason,
            trail: refused.trail,
        },
    }
}

pub(super) fn check(
    session: &Session,
    located: &Located,
    request: CheckAccessRequest,
) -> Result<Response<CheckAccessResponse>, Status> {
    let (snapshot, cluster) = (&session.snapshot, &located.cluster);
    let asked = question(request.question, cluster)?;
    check_groups(&request.groups)?;
    let decided = match request.subject.map(|given| subject(Some(given))).transpose()? {
        Some(subject) => {
            let user = as_user(&subject, &request.groups);
            let decided = decide(&user, asked.clone(), &facts(snapshot, cluster));
            let mut answer = reported(session, &decided, true);
            answer.bindings = granting(session, cluster, &asked, |holder: &Subject| holder.is(&user));
            return Ok(Response::new(answer));
        }
        None if !request.groups.is_empty() => {
            return Err(status::invalid("groups", "need a subject"));
        }
        None => match session.caller.permit(snapshot, cluster, asked) {
            Ok(permit) => Decided {
                allowed: true,
                reason: permit.reason().to_owned(),
                trail: permit.trail().clone(),
            },
            Err(refused) => Decided {
                allowed: false,
                reason: refused.reason,
                trail: refused.trail,
            },
        },
    };
    let explains = session.caller.permit(snapshot, cluster, reviewing()).is_ok();
    Ok(Response::new(reported(session, &decided, explains)))
}

/// Returns the answer. Reasons name rules that only those may know who may ask about others.
fn reported(session: &Session, decided: &Decided, explains: bool) -> CheckAccessResponse {
    let steps = decided.trail.iter().map(|(step, decision)| {
        let (opinion, reason) = match decision {
            Decision::Allow { reason } => ("allow", reason.clone()),
            Decision::Deny { reason } => ("deny", reason.clone()),
            Decision::NoOpinion => ("no opinion", String::new()),
        };
        AccessStep {
            step: step.name().to_owned(),
            opinion: opinion.to_owned(),
            reason,
        }
    });
    let plain = if decided.allowed {
        "access granted"
    } else {
        "access denied"
    };
    CheckAccessResponse {
        header: session.header(),
        allowed: decided.allowed,
        reason: if explains {
            decided.reason.clone()
        } else {
            plain.to_owned()
        },
        steps: if explains { steps.collect() } else { Vec::new() },
        bindings: Vec::new(),
    }
}

/// Returns the bindings that allow something to a subject, for callers who may list bindings.
fn granting(
    session: &Session,
    cluster: &ClusterName,
    asked: &Attributes,
    is_meant: impl Fn(&Subject) -> bool,
) -> Vec<proto::AccessBinding> {
    let snapshot: &Snapshot = &session.snapshot;
    let may = |resource: &str| {
        let needed = right(Verb::List, ids::RBAC, resource, "");
        session.caller.permit(snapshot, cluster, needed).is_ok()
    };
    if !may("clusterrolebindings") {
        return Vec::new();
    }
    let which = Bindings {
        namespaces: match asked.namespace.as_str() {
            namespace if !namespace.is_empty() && may("rolebindings") => Namespaces::One(namespace),
            _ => Namespaces::None,
        },
        platform: knows_platform(session),
        bootstrap: true,
    };
    let found = holders(snapshot, cluster, which);
    let allows = |holder: &&Holder| is_meant(&holder.subject) && holder.allows(snapshot, cluster, asked);
    found
        .iter()
        .filter(allows)
        .map(|holder| answer(snapshot, cluster, holder))
        .collect()
}
