//! Names of tenants in what a provider reads, who may enter none of their workspaces.

use super::{APIS, WIDGETS_V2, bind, condition, object, offer, publish, rules_below_100, widget};
use crate::grpc::{as_user, channel, origin};
use insula_e2e::{Answer, Client, Server, Who, runtime, shared, until, workspace, workspace_owned_by};
use insula_proto::admin::v1::{
    CheckRolloutRequest, GetExportRequest, ListConsumersRequest, ListConversionFailuresRequest,
    api_service_client::ApiServiceClient, conversion_service_client::ConversionServiceClient,
};

const ONE: &str = "one.widgets.life.example.io";

/// Returns everything that the provider's calls tell of the tenants of its export.
fn told_over_grpc(server: &Server, token: &str, provider: &str) -> Vec<String> {
    let mut apis = ApiServiceClient::with_origin(channel(server, &Who::Anonymous), origin(server));
    let mut conversions = ConversionServiceClient::with_origin(channel(server, &Who::Anonymous), origin(server));
    let (workspace, export) = (provider.to_owned(), "widgets".to_owned());
    let failures = ListConversionFailuresRequest {
        workspace: workspace.clone(),
        export: export.clone(),
        group: "life.example.io".to_owned(),
        resource: "widgets".to_owned(),
        ..ListConversionFailuresRequest::default()
    };
    let consumers = ListConsumersRequest {
        workspace: workspace.clone(),
        export: export.clone(),
        ..ListConsumersRequest::default()
    };
    let check = CheckRolloutRequest {
        workspace: workspace.clone(),
        export: export.clone(),
        ..CheckRolloutRequest::default()
    };
    runtime().block_on(async {
        let failures = conversions.list_conversion_failures(as_user(token, failures)).await;
        let consumers = apis.list_consumers(as_user(token, consumers)).await;
        let check = apis.check_rollout(as_user(token, check)).await;
        let export = apis
            .get_export(as_user(token, GetExportRequest { workspace, export }))
            .await;
        vec![
            format!("{:?}", failures.unwrap().into_inner().failures),
            format!("{:?}", consumers.unwrap().into_inner().consumers),
            format!("{:?}", check.unwrap().into_inner().failures),
            format!("{:?}", export.unwrap().into_inner()),
        ]
    })
}

/// Returns what a write says: its warnings, and its answer.
fn told_by(answer: &Answer) -> String {
    let warnings = answer.headers.get_all("warning").iter();
    let warnings: Vec<_> = warnings
        .map(|warning| String::from_utf8_lossy(warning.as_bytes()))
        .collect();
    format!("{warnings:?} {}", answer.text)
}

/// Returns what writes of the provider say of the objects of tenants: rules by which one object
/// could not be read, and a deletion of those in use.
fn told_over_http(at_provider: &Client) -> Vec<String> {
    let rules = format!("{APIS}/apiconversions/{ONE}");
    let tried = at_provider.merge(&format!("{rules}?dryRun=All"), &rules_below_100(ONE));
    assert_eq!(tried.code, 200, "{}", tried.text);
    let refused = at_provider.delete(&format!("{APIS}/apiresourceschemas/{ONE}"));
    assert_eq!(refused.code, 403, "{}", refused.text);
    vec![told_by(&tried), told_by(&refused)]
}

#[test]
fn a_provider_learns_no_path_of_a_tenant() {
    let server = shared();
    let (provider, _) = workspace_owned_by(&server, "alice");
    let as_owner = server
        .client(Who::Token("alice-token".to_owned()))
        .in_workspace(&provider);
    publish(&as_owner, "one", "v1");
    let export = object("APIExport", "widgets", &offer("one"));
    as_owner.post(&format!("{APIS}/apiexports"), &export).expect(201);
    let (path, cluster) = workspace(&server.admin(), "tenant");
    let at_tenant = server.admin().in_workspace(&path);
    bind(&at_tenant, &provider);
    at_tenant.post(WIDGETS_V2, &widget(200)).expect(201);

    // Who may enter the workspace of the tenant reads its path.
    let at_provider = server.admin().in_workspace(&provider);
    let mut told = told_over_http(&as_owner);
    for told in told_over_http(&at_provider) {
        assert!(told.contains(&*path), "{told}");
    }
    let rules = format!("{APIS}/apiconversions/{ONE}");
    as_owner.merge(&rules, &rules_below_100(ONE)).expect(200);
    let at = format!("{APIS}/apiexports/widgets");
    until("the export says why", || {
        (condition(&as_owner, &at, "RolledOut")["reason"] == "StoredObjectsNotConvertible").then_some(())
    });
    told.push(as_owner.get(&at).expect(200).to_string());
    told.extend(told_over_grpc(&server, "alice-token", &provider));
    for told in told {
        assert!(!told.contains(&*path) && told.contains(&*cluster), "{path}: {told}");
    }
}
