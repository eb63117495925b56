//! A migration of many objects. It reports its progress, and leaves capacity for tenants.

use std::time::{Duration, Instant};

use super::{APIS, WIDGETS_V1, WIDGETS_V2, bind, contents, object, offer, publish, storage_versions, widget};
use bytes::Bytes;
use insula_e2e::{Server, Who, copy_stored, until, workspace};
use serde_json::{Value, json};

/// At a thousand a second the migration takes four seconds, of which the first and the last may be
/// short.
const OBJECTS: usize = 4000;
const AT_LEAST: Duration = Duration::from_secs(2);

/// Returns the versions in which the objects of the one binding are stored, as the admin API counts
/// them.
fn stored(server: &Server, provider: &str) -> Value {
    let request = json!({"workspace": provider, "export": "widgets", "countObjects": true});
    let sent = server.client(Who::KcpAdmin).try_send(
        "POST",
        "/insula.admin.v1.ApiService/ListConsumers",
        &[("content-type", "application/json")],
        Bytes::from(request.to_string()),
    );
    let answer = sent.unwrap().expect(200);
    answer["consumers"][0]["storedVersions"].clone()
}

#[test]
fn a_migration_reports_progress_and_is_paced() {
    let server = Server::start();
    let (provider, _) = workspace(&server.admin(), "provider");
    let at_provider = server.admin().in_workspace(&provider);
    publish(&at_provider, "one", "v1");
    publish(&at_provider, "two", "v2");
    let export = object("APIExport", "widgets", &offer("one"));
    at_provider.post(&format!("{APIS}/apiexports"), &export).expect(201);
    let (tenant, _) = workspace(&server.admin(), "tenant");
    bind(&server.admin().in_workspace(&tenant), &provider);
    server
        .admin()
        .in_workspace(&tenant)
        .post(WIDGETS_V2, &widget(1))
        .expect(201);
    let server = server.restart_after(|data| copy_stored(data, "widgets", OBJECTS - 1));
    let client = server.admin().in_workspace(&tenant);
    let at = format!("{APIS}/apiexports/widgets");
    until("the export can be changed", || {
        (server.admin().in_workspace(&provider).get(&at).code == 200).then_some(())
    });

    let begun = Instant::now();
    server
        .admin()
        .in_workspace(&provider)
        .merge(&at, &json!({"spec": offer("two")}))
        .expect(200);
    let mut told: Vec<usize> = Vec::new();
    until("all is stored in v2", || {
        let binding = client.get(&format!("{APIS}/apibindings/widgets")).expect(200);
        let conditions = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let condition = conditions.into_iter().find(|c| c["type"] == "StorageMigrating")?;
        if condition["status"] == "False" {
            assert_eq!(condition["reason"], "MigrationSucceeded");
            return Some(());
        }
        let message = condition["message"].as_str().unwrap_or_default();
        let percent = message.strip_suffix(&format!("% of {OBJECTS} objects are stored in v2"));
        let percent = percent.and_then(|percent| percent.parse().ok());
        let percent = percent.unwrap_or_else(|| panic!("{condition}"));
        if told.last() != Some(&percent) {
            told.push(percent);
        }
        let counts = stored(&server, &provider);
        let numbers = counts.as_array().into_iter().flatten();
        let all: i64 = numbers.filter_map(|version| version["objects"].as_i64()).sum();
        assert_eq!(all, OBJECTS as i64, "{counts}");
        None
    });
    assert!(begun.elapsed() >= AT_LEAST, "{:?}", begun.elapsed());
    assert!(told.len() >= 3 && told.is_sorted(), "{told:?}");
    assert_eq!(storage_versions(&client), json!(["v2"]));
    let wanted = json!([{"version": "widgets.life.example.io/v2", "objects": OBJECTS, "current": true}]);
    assert_eq!(stored(&server, &provider), wanted);
    assert_eq!(contents(&client, WIDGETS_V1).len(), OBJECTS);
}
