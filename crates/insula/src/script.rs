//! Script of the demonstration: publishes an API in two versions, binds it in two workspaces, and
//! writes and reads objects in both versions.
//!
//! Every step checks its result, over HTTPS like any other client: a step that prints success
//! without a check would prove nothing.

use std::{io::Write, time::Duration};

use anyhow::{Context, anyhow, bail, ensure};
use http::StatusCode;
use insula_server::Running;
use serde_json::{Value, json};

use crate::{
    client::Client,
    samples::{ADA, API, BINDING, GRACE, Manifest, Samples, WORKSPACES},
    steps::{Done, Steps},
};

const WORKSPACE: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const V1: &str = "/apis/example.io/v1/namespaces/default/widgets";
const V2: &str = "/apis/example.io/v2/namespaces/default/widgets";

/// Time for anything to become ready: a thousand times the usual time.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the command after which the printed commands work in any shell.
pub(crate) fn connect(running: &Running, samples: &Samples) -> String {
    format!(
        "export KUBECONFIG={} S={}/clusters W={}",
        running.kubeconfig().display(),
        running.url(),
        samples.folder().display()
    )
}

/// Runs the steps. The first one that fails ends the script.
pub(crate) async fn run<W: Write>(steps: &mut Steps<W>, running: &Running, samples: &Samples) -> anyhow::Result<()> {
    let admin = Client::from_kubeconfig(running.kubeconfig(), "base")?;
    // Only system:masters may create a workspace for another user.
    let masters = Client::from_kubeconfig(running.kubeconfig(), "system:admin")?;
    let alice = samples.alice(running)?;
    let alice = Client::from_kubeconfig(&alice, "alice")?;
    let at = |workspace: &str| admin.at_path(&format!("/clusters/root:{workspace}"));
    let (a, b) = (at("tenant-a"), at("tenant-b"));

    steps.step("ready", ready(&admin, connect(running, samples))).await?;
    steps
        .step("workspaces", workspaces(&masters.at_path("/clusters/root")))
        .await?;
    steps.step("publish", publish(&at("provider"))).await?;
    let own = alice.at_path("/clusters/root:tenant-a");
    let by_alice = "kubectl --kubeconfig $W/alice.kubeconfig";
    steps
        .step(
            "bind",
            bind(
                &own,
                "tenant-a",
                by_alice,
                "alice binds the API in tenant-a, her workspace",
            ),
        )
        .await?;
    steps
        .step(
            "bind",
            bind(&b, "tenant-b", "kubectl", "the administrator binds it in tenant-b"),
        )
        .await?;

    steps.step("write", write(&a, "tenant-a", &ADA, "v1")).await?;
    let want = json!({"name": {"first": "Ada", "last": "Lovelace"}});
    steps.step("read", read(&a, "tenant-a", ("v2", "ada"), want)).await?;
    steps.step("write", write(&b, "tenant-b", &GRACE, "v2")).await?;
    let want = json!({"firstName": "Grace", "lastName": "Hopper"});
    steps.step("read", read(&b, "tenant-b", ("v1", "grace"), want)).await?;
    steps.step("update", update(&b)).await?;
    let want = json!({"name": {"first": "Grace", "last": "Murray Hopper"}, "color": "navy"});
    steps.step("read", read(&b, "tenant-b", ("v2", "grace"), want)).await?;

    steps.step("lists", lists(&a, &b)).await?;
    steps.step("hidden", hidden(&b)).await?;
    steps.step("owner", owner(&alice)).await?;
    steps.step("refused", refused(&alice)).await?;

    let (count, took) = steps.total();
    steps.note(&format!("{count} steps in {:.1} s", took.as_secs_f64()))?;
    Ok(())
}

fn done(what: impl Into<String>, by_hand: impl Into<String>) -> anyhow::Result<(Done, ())> {
    let (what, by_hand) = (what.into(), by_hand.into());
    Ok((Done { what, by_hand }, ()))
}

async fn ready(admin: &Client, connect: String) -> anyhow::Result<(Done, ())> {
    let (code, answer) = admin.get("/readyz").await?;
    ensure!(code == StatusCode::OK, "the server is not ready: {answer}");
    done("the server is ready", format!("{connect}; kubectl get --raw /readyz"))
}

async fn workspaces(root: &Client) -> anyhow::Result<(Done, ())> {
    apply(root, &WORKSPACES).await?;
    for name in ["provider", "tenant-a", "tenant-b"] {
        phase(root, &format!("{WORKSPACE}/{name}"), "Ready").await?;
    }
    done(
        "workspaces root:provider, root:tenant-a, root:tenant-b",
        "kubectl --context system:admin -s $S/root apply -f $W/workspaces.yaml && \
         kubectl -s $S/root wait workspace --all --for=jsonpath={.status.phase}=Ready",
    )
}

async fn publish(provider: &Client) -> anyhow::Result<(Done, ())> {
    apply(provider, &API).await?;
    done(
        "provider publishes widgets.example.io: v1, v2 and rules",
        "kubectl -s $S/root:provider apply -f $W/api.yaml",
    )
}

async fn bind(tenant: &Client, name: &str, kubectl: &str, what: &str) -> anyhow::Result<(Done, ())> {
    apply(tenant, &BINDING).await?;
    phase(tenant, &format!("{BINDINGS}/widgets"), "Bound").await?;
    let kubectl = format!("{kubectl} -s $S/root:{name}");
    done(
        what,
        format!(
            "{kubectl} apply -f $W/binding.yaml && \
             {kubectl} wait apibinding/widgets --for=jsonpath={{.status.phase}}=Bound"
        ),
    )
}

async fn write(tenant: &Client, name: &str, manifest: &Manifest, version: &str) -> anyhow::Result<(Done, ())> {
    apply(tenant, manifest).await?;
    let file = manifest.name;
    let widget = file.trim_end_matches(".yaml");
    done(
        format!("{name} writes {widget} through {version}"),
        format!("kubectl -s $S/root:{name} apply -f $W/{file}"),
    )
}

async fn read(tenant: &Client, name: &str, (version, widget): (&str, &str), want: Value) -> anyhow::Result<(Done, ())> {
    let path = if version == "v1" { V1 } else { V2 };
    let object = got(tenant.get(&format!("{path}/{widget}")).await?, StatusCode::OK)?;
    let (spec, api_version) = (&object["spec"], &object["apiVersion"]);
    ensure!(
        api_version == &json!(format!("example.io/{version}")),
        "requested {version} and got {api_version}"
    );
    ensure!(
        spec == &want,
        "{version} of {widget} should have {want}, and has {spec}"
    );
    done(
        format!("{widget} in {version}: {}", brief(spec)),
        format!("kubectl -s $S/root:{name} get widgets.{version}.example.io {widget} -o yaml"),
    )
}

/// Reads an object as v1, changes a field and writes the whole object back. v1 has no field
/// `color`, so the server has to preserve it.
async fn update(tenant: &Client) -> anyhow::Result<(Done, ())> {
    let path = format!("{V1}/grace");
    let mut object = got(tenant.get(&path).await?, StatusCode::OK)?;
    ensure!(object["spec"].get("color").is_none(), "v1 should have no color");
    object["spec"]["lastName"] = json!("Murray Hopper");
    let answer = got(tenant.put(&path, &object).await?, StatusCode::OK)?;
    let spec = &answer["spec"];
    ensure!(
        spec == &object["spec"],
        "the object that was written differs from the one that was read: {spec}"
    );
    done(
        "tenant-b reads grace as v1, renames her, writes v1 back",
        "kubectl -s $S/root:tenant-b get widgets.v1.example.io grace -o yaml | \
         sed 's/lastName: .*/lastName: Murray Hopper/' | kubectl -s $S/root:tenant-b replace -f -",
    )
}

async fn lists(a: &Client, b: &Client) -> anyhow::Result<(Done, ())> {
    for (tenant, want) in [(a, "ada"), (b, "grace")] {
        let list = got(tenant.get("/apis/example.io/v1/widgets").await?, StatusCode::OK)?;
        let items = list["items"].as_array().context("a list without items")?;
        let names: Vec<&Value> = items.iter().map(|item| &item["metadata"]["name"]).collect();
        ensure!(names == [want], "only {want} should be listed: {names:?}");
    }
    done(
        "tenant-a lists ada only, tenant-b grace only",
        "kubectl -s $S/root:tenant-a get widgets -A; kubectl -s $S/root:tenant-b get widgets -A",
    )
}

async fn hidden(b: &Client) -> anyhow::Result<(Done, ())> {
    got(b.get(&format!("{V1}/ada")).await?, StatusCode::NOT_FOUND)?;
    done(
        "in tenant-b there is no ada: 404",
        "kubectl -s $S/root:tenant-b get widgets ada",
    )
}

async fn owner(alice: &Client) -> anyhow::Result<(Done, ())> {
    let own = alice.at_path("/clusters/root:tenant-a");
    got(own.get(&format!("{V2}/ada")).await?, StatusCode::OK)?;
    done(
        "alice, who owns tenant-a, reads ada with her token",
        "kubectl --kubeconfig $W/alice.kubeconfig -s $S/root:tenant-a get widgets ada",
    )
}

async fn refused(alice: &Client) -> anyhow::Result<(Done, ())> {
    let other = alice.at_path("/clusters/root:tenant-b");
    for path in [
        V1,
        "/apis/example.io/v2/widgets",
        "/api/v1/namespaces/default/secrets",
        "/apis",
    ] {
        got(other.get(path).await?, StatusCode::FORBIDDEN).with_context(|| path.to_owned())?;
    }
    let stray = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "stray"}});
    got(other.post(V1, &stray).await?, StatusCode::FORBIDDEN)?;
    done(
        "in tenant-b she may neither read nor write: 403",
        "kubectl --kubeconfig $W/alice.kubeconfig -s $S/root:tenant-b get widgets",
    )
}

/// Creates or updates the objects of a manifest, so that the demonstration can run again on a kept
/// directory.
async fn apply(client: &Client, manifest: &Manifest) -> anyhow::Result<()> {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(manifest.text).map_err(|error| anyhow!("{}: {error}", manifest.name))?;
    for object in objects {
        let path = collection(&object)?;
        let (code, answer) = client.post(&path, &object).await?;
        if code == StatusCode::CONFLICT && answer["reason"] == "AlreadyExists" {
            let name = object["metadata"]["name"]
                .as_str()
                .context("an object without a name")?;
            got(client.patch(&format!("{path}/{name}"), &object).await?, StatusCode::OK)
        } else {
            got((code, answer), StatusCode::CREATED)
        }
        .with_context(|| format!("{} of {}", object["kind"], manifest.name))?;
    }
    Ok(())
}

/// Returns the path at which objects of this kind are created.
fn collection(object: &Value) -> anyhow::Result<String> {
    let plural = match object["kind"].as_str() {
        Some("Workspace") => "workspaces",
        Some("APIResourceSchema") => "apiresourceschemas",
        Some("APIConversion") => "apiconversions",
        Some("APIExport") => "apiexports",
        Some("APIBinding") => "apibindings",
        Some("ClusterRole") => "clusterroles",
        Some("ClusterRoleBinding") => "clusterrolebindings",
        Some("Widget") => "widgets",
        other => bail!("the path of {other:?} is not known"),
    };
    let version = object["apiVersion"].as_str().context("an object without a version")?;
    Ok(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/apis/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/apis/{version}/{plural}"),
    })
}

/// Waits for `status.phase`.
async fn phase(client: &Client, path: &str, want: &str) -> anyhow::Result<()> {
    let mut last = Value::Null;
    let arrived = tokio::time::timeout(READY_TIMEOUT, async {
        loop {
            last = got(client.get(path).await?, StatusCode::OK)?;
            if last["status"]["phase"] == want {
                return anyhow::Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    });
    match arrived.await {
        Ok(arrived) => arrived,
        Err(_) => {
            let seconds = READY_TIMEOUT.as_secs();
            bail!("{path} is not {want} after {seconds} s: {}", last["status"])
        }
    }
}

/// Returns the body of an answer, if it has the wanted code.
fn got((code, body): (StatusCode, Value), want: StatusCode) -> anyhow::Result<Value> {
    if code == want {
        return Ok(body);
    }
    let message = body["message"].as_str().map_or_else(|| body.to_string(), str::to_owned);
    Err(anyhow!("expected {want}, got {code}: {message}"))
}

/// Returns a value on one line in the flow style of YAML:
/// `color: navy, name: {first: Grace, last: Hopper}`.
fn brief(value: &Value) -> String {
    let flow = flow(value);
    let inner = flow.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    inner.unwrap_or(&flow).to_owned()
}

fn flow(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}: {}", flow(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_fit_on_a_line() {
        let spec = json!({"name": {"first": "Grace", "last": "Hopper"}, "color": "navy"});
        assert_eq!(brief(&spec), "color: navy, name: {first: Grace, last: Hopper}");
        assert_eq!(brief(&json!(3)), "3");
    }
}
