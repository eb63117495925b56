//! Limits on requests that wait for a decision.

use crate::status::Fault;
use insula_api::{Scope, Timestamp};
use insula_catalog::{
    exports::{
        ExportName,
        bind_request::{BindRequest, PER_EXPORT_MAX, PER_USER_MAX, Requester},
    },
    ids, indexes,
};
use insula_proto::admin::v1::ErrorReason;
use insula_store::Snapshot;
use std::{collections::BTreeSet, ops::ControlFlow};
use tonic::{Code, Status};

/// Refuses a request beyond the limits, which name their numbers.
pub(super) fn check_limits(snapshot: &Snapshot, asked: &(ExportName, Requester), now: Timestamp) -> Result<(), Status> {
    let (export, requester) = asked;
    let mut of_export = 0;
    let scope = Scope::cluster(ids::apibindrequests(), export.cluster.clone());
    snapshot.for_each(&scope, |entry| {
        let request = entry.object.parsed(BindRequest::read);
        of_export += usize::from(request.is_open(now) && *request.export == *export.name);
        ControlFlow::Continue(())
    });
    let mut own = snapshot.indexed(&indexes::BIND_REQUESTS_BY_USER, &requester.user);
    own.extend(snapshot.indexed(&indexes::BIND_REQUESTS_BY_CLUSTER, requester.cluster.as_str()));
    own.retain(|entry| entry.object.parsed(BindRequest::read).is_open(now));
    let of_user = own.iter().map(|entry| &entry.key).collect::<BTreeSet<_>>().len();
    let why = match (of_user >= PER_USER_MAX, of_export >= PER_EXPORT_MAX) {
        (true, _) => format!(
            "{of_user} requests of yours or from {} wait for a decision, and at most {PER_USER_MAX} may: ask again \
             when one is decided or has expired (`insula apis requests --mine`)",
            requester.workspace
        ),
        (_, true) => format!(
            "{of_export} requests for APIExport {:?} wait for a decision, and at most {PER_EXPORT_MAX} may: ask its \
             owner",
            export.name
        ),
        (false, false) => return Ok(()),
    };
    Err(Fault::new(Code::ResourceExhausted, ErrorReason::LimitReached, why).status())
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::{ClusterName, ClusterPath, Object, Uid};
    use insula_catalog::exports::bind_request;
    use insula_meter::ServerWork;
    use insula_store::{MemoryStore, Store, Txn, Write};
    use std::sync::Arc;

    const NOW: Timestamp = Timestamp(1_000);

    fn side(user: &str, cluster: &str) -> Requester {
        Requester {
            user: user.to_owned(),
            groups: Vec::new(),
            workspace: ClusterPath::parse("root:tenant").unwrap(),
            cluster: ClusterName::parse(cluster).unwrap(),
        }
    }

    fn export(name: &str) -> ExportName {
        ExportName {
            cluster: ClusterName::root(),
            name: name.into(),
        }
    }

    /// Returns the outcome of a request of eve for widgets beside others.
    async fn checked(others: impl Iterator<Item = (ExportName, Requester, Timestamp)>) -> Result<(), String> {
        let store = MemoryStore::new();
        for (of, requester, expires) in others {
            let (key, value) = bind_request::request((&of, &Uid::default()), &requester, "", expires);
            let object = Arc::new(Object::new(&value, None).unwrap());
            let txn = Txn {
                guards: Vec::new(),
                writes: vec![Write::Put(key, object)],
            };
            store.commit(txn).await.unwrap();
        }
        let asked = (export("widgets"), side("eve", "eves"));
        check_limits(&store.latest().for_server(ServerWork::Tool), &asked, NOW)
            .map_err(|refused| refused.message().to_owned())
    }

    #[tokio::test]
    async fn open_requests_of_a_user_of_a_workspace_and_for_an_export_are_limited() {
        let (open, over) = (Timestamp(2_000), NOW);
        let of_user = |count, expires| {
            (0..count).map(move |index| (export(&format!("e{index}")), side("eve", &format!("c{index}")), expires))
        };
        checked(of_user(PER_USER_MAX - 1, open)).await.unwrap();
        checked(of_user(PER_USER_MAX, over)).await.unwrap();
        let refused = checked(of_user(PER_USER_MAX, open)).await.unwrap_err();
        assert!(refused.contains("20 requests of yours"), "{refused}");
        let of_workspace = (0..PER_USER_MAX).map(|index| (export("gears"), side(&format!("u{index}"), "eves"), open));
        assert!(checked(of_workspace).await.is_err());
        let of_export = |count, name: &'static str| {
            (0..count).map(move |index| (export(name), side(&format!("u{index}"), &format!("c{index}")), open))
        };
        checked(of_export(PER_EXPORT_MAX - 1, "widgets")).await.unwrap();
        checked(of_export(PER_EXPORT_MAX, "gears")).await.unwrap();
        let refused = checked(of_export(PER_EXPORT_MAX, "widgets")).await.unwrap_err();
        assert!(refused.contains("100 requests for APIExport"), "{refused}");
    }
}
