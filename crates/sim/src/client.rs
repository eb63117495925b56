//! Requests of clients, one after the other, each through a server that the seed chooses.

use crate::dice::Dice;
use crate::yaml::{self, Kind};
use insula_access::Target;
use insula_api::{ClusterName, ClusterPath, Freeze, Json, ObjectKey, Revision};
use insula_apply::{OnConflict, merge_patch};
use insula_auth::UserInfo;
use insula_catalog::{Error, Part, ids, locate};
use insula_meter::ServerWork;
use insula_registry::{
    Change, DeleteOptions, Deleted, Deps, FieldValidation, IfAbsent, ListOptions, SentKeys, WriteOptions,
    freeze::{self, Frozen},
    verbs,
};
use insula_store::Snapshot;
use serde_json::json;
use std::sync::Arc;

/// Names of the tenants' workspaces.
pub const TENANTS: [&str; 2] = ["t0", "t1"];
/// Names of the providers' workspaces.
pub const PROVIDERS: [&str; 2] = ["p0", "p1"];
const OBJECTS: [&str; 2] = ["a", "b"];
const MAPS: [&str; 5] = ["m0", "m1", "m2", "m3", "m4"];
const VERSIONS: [&str; 2] = ["v1", "v2"];
const MANAGERS: [&str; 2] = ["one", "other"];
/// Name of a schema of the providers, and of its rules.
const OF_RELEASE: &str = "r1.widgets.example.io";

/// A request.
#[derive(Debug, Clone)]
pub enum Op {
    /// Creates an object in a workspace: path, resource, body.
    Create(String, &'static str, Json),
    /// Changes an object: path, resource, apiVersion, name, merge patch.
    Patch(String, &'static str, &'static str, &'static str, Json),
    /// Adds a second mark to an object, which its other writers keep, or replaces its first one:
    /// path, resource, apiVersion, name, true for the second.
    Mark(String, &'static str, &'static str, String, bool),
    /// Deletes an object: path, resource, apiVersion, name.
    Delete(String, &'static str, &'static str, &'static str),
    /// Writes a field of an object in a version, new or not: tenant, kind, version, name, field.
    Write(&'static str, Kind, &'static str, &'static str, &'static str),
    /// Applies a field of an object in a version, as one of two managers: tenant, kind, version,
    /// name, field, manager.
    Apply(
        &'static str,
        Kind,
        &'static str,
        &'static str,
        &'static str,
        &'static str,
    ),
    /// Freezes the workspace of a tenant, or thaws it.
    Freeze(&'static str, bool),
    /// Creates what a tenant lacks: its workspace, or its binding to a provider's export.
    Mend(&'static str, &'static str),
    /// Creates a ConfigMap: tenant, namespace, name. One of each name but the first goes with the
    /// first.
    Map(&'static str, &'static str, &'static str),
    /// Reads a widget: tenant, version, name.
    Get(&'static str, &'static str, &'static str),
    /// Lists widgets: tenant, version.
    List(&'static str, &'static str),
}

/// The outcome of a request.
#[derive(Debug, Clone)]
pub enum Effect {
    /// An object is as it was written at a revision.
    Wrote(ObjectKey, Revision),
    /// An object that was last written at a revision is gone.
    Gone(ObjectKey, Revision),
    /// A read of a state: the revision at which the object was written last, `None` for no object.
    Saw(ObjectKey, Revision, Option<Revision>),
    /// A list: the cluster, and the marks of what it showed.
    Listed(String, Vec<String>),
    /// Something else was done, which shows in the order of commits.
    Done,
    /// Nothing happened, and nothing will.
    Refused(String),
    /// It may have happened, or may still happen.
    Unknown,
}

/// Mark of a write: no other has the same, and it tells the cluster that it was meant for.
pub fn mark(cluster: &str, write: u64) -> String {
    format!("{cluster}/{write}")
}

impl Op {
    /// Chooses a request.
    pub fn choose(dice: &Dice) -> Op {
        let tenant = *dice.pick(&TENANTS);
        let place = || format!("root:{tenant}");
        let (version, name, provider) = (*dice.pick(&VERSIONS), *dice.pick(&OBJECTS), *dice.pick(&PROVIDERS));
        let (map, field) = (*dice.pick(&MAPS), *dice.pick(yaml::fields(version)));
        let release = dice.below(yaml::RELEASES);
        let namespace = *dice.pick(&["default", yaml::NAMESPACE]);
        let (kind, manager) = (*dice.pick(&yaml::KINDS), *dice.pick(&MANAGERS));
        let bindings = ("apibindings", "apis.kcp.io/v1alpha2", "widgets");
        let definitions = (
            "customresourcedefinitions",
            "apiextensions.k8s.io/v1",
            "gadgets.acme.io",
        );
        match dice.weighted(&[
            30, 6, 12, 6, 16, 10, 4, 1, 1, 4, 15, 1, 1, 3, 2, 4, 1, 3, 3, 1, 14, 8, 1, 3, 2, 3,
        ]) {
            0 => Op::Write(tenant, kind, version, name, field),
            1 => Op::Delete(place(), "widgets", "example.io/v1", name),
            2 => Op::Get(tenant, version, name),
            3 => Op::List(tenant, version),
            4 => Op::Map(tenant, namespace, map),
            5 => Op::Delete(place(), "configmaps", "v1", map),
            6 => Op::Create(place(), "resourcequotas", yaml::quota()),
            7 => Op::Create(place(), bindings.0, yaml::binding(provider)),
            8 => Op::Delete(place(), bindings.0, bindings.1, bindings.2),
            9 => Op::Patch(
                format!("root:{provider}"),
                "apiexports",
                "apis.kcp.io/v1alpha2",
                "widgets",
                match dice.chance(10) {
                    true => json!({"spec": {"resources": []}}),
                    false => json!({"spec": {"resources": yaml::offered(release)}}),
                },
            ),
            10 => Op::Mend(tenant, provider),
            11 => Op::Delete("root".to_owned(), "workspaces", "tenancy.kcp.io/v1alpha1", tenant),
            12 => Op::Delete(place(), "resourcequotas", "v1", "few"),
            13 => Op::Create(place(), "namespaces", yaml::namespace()),
            14 => Op::Delete(place(), "namespaces", "v1", yaml::NAMESPACE),
            15 => Op::Create(place(), definitions.0, yaml::definition(release)),
            16 => Op::Delete(place(), definitions.0, definitions.1, definitions.2),
            17 => Op::Patch(
                place(),
                definitions.0,
                definitions.1,
                definitions.2,
                json!({"spec": {"versions": yaml::definition(release)["spec"]["versions"]}}),
            ),
            18 => Op::Create(place(), "apiconversions", yaml::rules_named(definitions.2)),
            19 => Op::Delete(place(), "apiconversions", "apis.kcp.io/v1alpha1", definitions.2),
            20 => Op::choose_mark(dice, tenant),
            21 => Op::Apply(tenant, kind, version, name, field, manager),
            22 => Op::Freeze(tenant, true),
            23 => Op::Freeze(tenant, false),
            _ => Op::choose_claim(dice, tenant, provider),
        }
    }

    /// Chooses what an export claims, or what a binding answers.
    fn choose_claim(dice: &Dice, tenant: &str, provider: &str) -> Op {
        let (path, plural, claims) = match dice.chance(40) {
            true => (provider, "apiexports", yaml::claims(dice.chance(70))),
            false => (tenant, "apibindings", yaml::answers(dice.chance(70))),
        };
        let patch = json!({"spec": {"permissionClaims": claims}});
        Op::Patch(format!("root:{path}"), plural, "apis.kcp.io/v1alpha2", "widgets", patch)
    }

    /// Chooses a mark on one of few objects, so that marks meet.
    fn choose_mark(dice: &Dice, tenant: &str) -> Op {
        let provider = format!("root:{}", PROVIDERS[0]);
        let (path, resource, version, name) = match dice.below(5) {
            0 => ("root".to_owned(), "workspaces", "tenancy.kcp.io/v1alpha1", tenant),
            1 => (provider, "apiresourceschemas", "apis.kcp.io/v1alpha1", OF_RELEASE),
            2 => (provider, "apiconversions", "apis.kcp.io/v1alpha1", OF_RELEASE),
            3 => (provider, "apiexports", "apis.kcp.io/v1alpha2", "widgets"),
            _ => (
                format!("root:{tenant}"),
                "apibindings",
                "apis.kcp.io/v1alpha2",
                "widgets",
            ),
        };
        Op::Mark(path, resource, version, name.to_owned(), dice.chance(50))
    }

    /// Returns the requests that set a world up.
    pub fn setting_up() -> Vec<Op> {
        let all = PROVIDERS.iter().chain(&TENANTS);
        let mut ops: Vec<Op> = all
            .map(|name| Op::Create("root".to_owned(), "workspaces", yaml::workspace(name)))
            .collect();
        for provider in PROVIDERS {
            let place = format!("root:{provider}");
            for release in 0..yaml::RELEASES {
                if release > 0 {
                    ops.push(Op::Create(place.clone(), "apiconversions", yaml::rules(release)));
                }
                ops.push(Op::Create(place.clone(), "apiresourceschemas", yaml::schema(release)));
            }
            ops.push(Op::Create(place, "apiexports", yaml::export(0)));
        }
        let bound = TENANTS.iter().zip(PROVIDERS.iter().cycle());
        let bind = |(tenant, provider): (&&str, &&str)| {
            Op::Create(format!("root:{tenant}"), "apibindings", yaml::binding(provider))
        };
        ops.extend(bound.map(bind));
        ops
    }

    /// Sends the request to a server. `write` is its number, which a write leaves in its mark.
    pub async fn run(self, deps: Arc<Deps>, write: u64) -> Effect {
        match self.outcome(&deps, write).await {
            Ok(effect) => effect,
            Err(error) => match error.bare() {
                Error::Unavailable(_) => Effect::Unknown,
                other => Effect::Refused(other.to_string()),
            },
        }
    }

    async fn outcome(self, deps: &Deps, write: u64) -> Result<Effect, Error> {
        let user = UserInfo::authenticated("alice", "", vec!["system:kcp:admin".to_owned()]);
        let options = &as_user(&user);
        match self {
            Op::Create(path, plural, body) => create(deps, (&path, plural), body, write, options).await,
            Op::Patch(path, plural, version, name, mut patch) => {
                let target = target(deps, &path, version, plural, &Json::Null)?;
                yaml::set_mark(&mut patch, &mark(target.cluster.as_str(), write));
                update(deps, &target, name, &patch, options).await
            }
            Op::Mark(path, plural, version, name, second) => {
                let target = target(deps, &path, version, plural, &Json::Null)?;
                let mark = mark(target.cluster.as_str(), write);
                update(deps, &target, &name, &yaml::mark_patch(&mark, second), options).await
            }
            Op::Delete(path, plural, version, name) => delete(deps, (&path, plural, version, name), options).await,
            Op::Write(tenant, kind, version, name, field) => {
                let path = format!("root:{tenant}");
                let api_version = format!("{}/{version}", kind.group);
                let target = target(deps, &path, &api_version, kind.plural, &in_default())?;
                let body = yaml::written(kind, version, name, field, &mark(target.cluster.as_str(), write));
                match deps.store.latest().get(&target.key(name)) {
                    Some(_) => update(deps, &target, name, &json!({"spec": body["spec"]}), options).await,
                    None => create_at(deps, &target, body, options).await,
                }
            }
            Op::Apply(tenant, kind, version, name, field, manager) => {
                let options = WriteOptions {
                    manager: manager.to_owned(),
                    ..as_user(&user)
                };
                apply(deps, (tenant, kind, version), (name, field), write, &options).await
            }
            Op::Freeze(tenant, wanted) => freeze(deps, tenant, wanted).await,
            Op::Mend(tenant, provider) => {
                let path = format!("root:{tenant}");
                match target(deps, &path, "v1", "configmaps", &in_default()) {
                    Ok(_) => create(deps, (&path, "apibindings"), yaml::binding(provider), write, options).await,
                    Err(_) => create(deps, ("root", "workspaces"), yaml::workspace(tenant), write, options).await,
                }
            }
            Op::Map(tenant, namespace, name) => create_map(deps, (tenant, namespace, name), write, options).await,
            Op::Get(tenant, version, name) => get(deps, (tenant, version), name).await,
            Op::List(tenant, version) => {
                let snapshot = current(deps).await?;
                let target = target_at(deps, &snapshot, (tenant, version))?;
                let list = verbs::list(deps, &snapshot, &target, &ListOptions::default()).await?;
                let mut marks = Vec::new();
                for entry in &list.entries {
                    let shown = verbs::show(deps, &target, entry).await?;
                    marks.extend(yaml::marks_of(&shown).map(|(_, mark)| mark.to_owned()));
                }
                Ok(Effect::Listed(target.cluster.to_string(), marks))
            }
        }
    }
}

/// Applies a field of an object.
async fn apply(
    deps: &Deps,
    (tenant, kind, version): (&str, Kind, &str),
    (name, field): (&str, &str),
    write: u64,
    options: &WriteOptions<'_>,
) -> Result<Effect, Error> {
    let api_version = format!("{}/{version}", kind.group);
    let target = target(
        deps,
        &format!("root:{tenant}"),
        &api_version,
        kind.plural,
        &in_default(),
    )?;
    let config = yaml::written(kind, version, name, field, &mark(target.cluster.as_str(), write));
    let how = (Part::Main, IfAbsent::Create);
    let applied = verbs::apply(deps, &target, name, (&config, OnConflict::Force), how, options).await?;
    let entry = applied.written.entry;
    Ok(Effect::Wrote(entry.key, entry.revision))
}

/// Freezes the workspace of a tenant, or thaws it.
async fn freeze(deps: &Deps, tenant: &str, wanted: bool) -> Result<Effect, Error> {
    let snapshot = current(deps).await?;
    let path = ClusterPath::parse(&format!("root:{tenant}")).map_err(|_| Error::UnknownResource)?;
    let cluster = locate::locate(&snapshot, &path).map_err(|_| Error::UnknownResource)?;
    let workspace = ObjectKey::cluster_scoped(ids::workspaces(), ClusterName::root(), tenant);
    let frozen = Frozen {
        workspace: &workspace,
        cluster: &cluster,
        seen: None,
    };
    let freeze = wanted.then(|| Freeze {
        workspace: path.to_string(),
        reason: "moving house".to_owned(),
        by: "alice".to_owned(),
        at: deps.clock.now().to_string(),
        subtree: false,
    });
    freeze::set(deps, &frozen, freeze.as_ref()).await?;
    Ok(Effect::Done)
}

/// Reads a widget.
async fn get(deps: &Deps, place: (&str, &str), name: &str) -> Result<Effect, Error> {
    let snapshot = current(deps).await?;
    let target = target_at(deps, &snapshot, place)?;
    let key = target.key(name);
    let found = match verbs::get(deps, &snapshot, &target, name) {
        Ok(entry) => Some(entry),
        Err(Error::NotFound { .. }) => None,
        Err(other) => return Err(other),
    };
    if let Some(entry) = &found {
        verbs::show(deps, &target, entry).await?;
    }
    Ok(Effect::Saw(key, snapshot.revision(), found.map(|entry| entry.revision)))
}

fn in_default() -> Json {
    json!({"metadata": {"namespace": "default"}})
}

async fn current(deps: &Deps) -> Result<Snapshot, Error> {
    let snapshot = deps.store.snapshot(Revision(0)).await;
    let snapshot = snapshot.map_err(|error| Error::Unavailable(error.to_string()))?;
    Ok(snapshot.for_server(ServerWork::Tool))
}

async fn create(
    deps: &Deps,
    (path, plural): (&str, &str),
    mut body: Json,
    write: u64,
    options: &WriteOptions<'_>,
) -> Result<Effect, Error> {
    let target = target(
        deps,
        path,
        body["apiVersion"].as_str().unwrap_or_default(),
        plural,
        &body,
    )?;
    yaml::set_mark(&mut body, &mark(target.cluster.as_str(), write));
    create_at(deps, &target, body, options).await
}

/// Creates a ConfigMap, owned by the first one if that is there.
async fn create_map(
    deps: &Deps,
    (tenant, namespace, name): (&str, &str, &str),
    write: u64,
    options: &WriteOptions<'_>,
) -> Result<Effect, Error> {
    let place = json!({"metadata": {"namespace": namespace}});
    let target = target(deps, &format!("root:{tenant}"), "v1", "configmaps", &place)?;
    let owner = deps
        .store
        .latest()
        .get(&target.key(MAPS[0]))
        .filter(|_| name != MAPS[0]);
    let uid = owner.map(|owner| owner.object.body_value()["metadata"]["uid"].clone());
    let owner = uid.as_ref().and_then(Json::as_str).map(|uid| (MAPS[0], uid));
    let body = yaml::map(namespace, name, owner, &mark(target.cluster.as_str(), write));
    create_at(deps, &target, body, options).await
}

async fn create_at(deps: &Deps, target: &Target, body: Json, options: &WriteOptions<'_>) -> Result<Effect, Error> {
    let entry = verbs::create(deps, target, body, options).await?.entry;
    Ok(Effect::Wrote(entry.key, entry.revision))
}

async fn update(
    deps: &Deps,
    target: &Target,
    name: &str,
    patch: &Json,
    options: &WriteOptions<'_>,
) -> Result<Effect, Error> {
    let change = |old: &Json| {
        let mut new = old.clone();
        merge_patch(&mut new, patch).map_err(|_| Error::BadPatch)?;
        Ok(new)
    };
    let entry = verbs::update(deps, target, name, Change::Patch(&change), Part::Main, options)
        .await?
        .entry;
    Ok(Effect::Wrote(entry.key, entry.revision))
}

async fn delete(
    deps: &Deps,
    (path, plural, version, name): (&str, &str, &str, &str),
    options: &WriteOptions<'_>,
) -> Result<Effect, Error> {
    let namespace = match plural {
        "widgets" | "gadgets" | "configmaps" | "resourcequotas" => in_default(),
        _ => Json::Null,
    };
    let target = target(deps, path, version, plural, &namespace)?;
    let deletion = verbs::delete(deps, &target, name, &DeleteOptions::default(), options).await?;
    Ok(match deletion.deleted {
        Deleted::Gone(entry) => Effect::Gone(entry.key, entry.revision),
        Deleted::Held(entry) => Effect::Wrote(entry.key, entry.revision),
    })
}

fn as_user(user: &UserInfo) -> WriteOptions<'_> {
    WriteOptions {
        user,
        dry_run: false,
        field_validation: FieldValidation::Strict,
        body_bytes: 0,
        keys: SentKeys::default(),
        manager: "sim".to_owned(),
        record: insula_auth::audit::Record::default(),
    }
}

fn target_at(deps: &Deps, snapshot: &Snapshot, (tenant, version): (&str, &str)) -> Result<Target, Error> {
    let path = format!("root:{tenant}");
    resolved(
        deps,
        snapshot,
        (&path, &format!("example.io/{version}"), "widgets"),
        "default",
    )
}

fn target(deps: &Deps, path: &str, version: &str, plural: &str, body: &Json) -> Result<Target, Error> {
    let namespace = body["metadata"]["namespace"].as_str().unwrap_or_default();
    resolved(
        deps,
        &deps.store.latest().for_server(ServerWork::Tool),
        (path, version, plural),
        namespace,
    )
}

fn resolved(
    deps: &Deps,
    snapshot: &Snapshot,
    (path, api_version, plural): (&str, &str, &str),
    namespace: &str,
) -> Result<Target, Error> {
    let path = ClusterPath::parse(path).map_err(|_| Error::UnknownResource)?;
    let cluster = locate::locate(snapshot, &path).map_err(|_| Error::UnknownResource)?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let served = deps.catalog.resolve(snapshot, &cluster, group, plural);
    let target = Target::for_the_server(cluster, served.ok_or(Error::UnknownResource)?, version.into());
    target.api_version()?;
    Ok(match namespace {
        "" => target,
        namespace => target.in_namespace(namespace.into()),
    })
}
