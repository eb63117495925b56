//! `insula boot create`: kinds, versions, subresources and controllers.

use std::{fs, path::Path};

use anyhow::{Context, bail, ensure};
use clap::Args;

use super::{
    KindFlags, names,
    plan::{Plan, fill},
    project::{Kind, Project},
};

#[derive(Args)]
pub(crate) struct Resource {
    #[command(flatten)]
    kind: KindFlags,
    /// Version: some form of alpha, beta or stable, such as v1alpha1, v1beta1 or v1.
    #[arg(long)]
    version: String,
    /// Plural of the kind [default: as in English].
    #[arg(long)]
    plural: Option<String>,
    /// Objects of a new kind are in no namespace.
    #[arg(long)]
    cluster_scoped: bool,
    /// Write no controller for a new kind.
    #[arg(long)]
    no_controller: bool,
}

#[derive(Args)]
pub(crate) struct Subresource {
    #[command(flatten)]
    kind: KindFlags,
    /// Name of the subresource, such as restart.
    #[arg(long)]
    subresource: String,
}

/// The import of a version, and that of one with conversions.
const IMPORT: &str = "use insula_sdk::{ObjectMeta, Resource};";
const IMPORT_WITH_JSON: &str = "use insula_sdk::{ObjectMeta, Resource, serde_json};";

/// Markers of generated lines.
mod markers {
    pub(super) const SERVER: &str = "// +boot:server";
    pub(super) const DEFINITIONS: &str = "// +boot:definitions";
    pub(super) const GROUPS: &str = "// +boot:groups";
    pub(super) const KINDS: &str = "// +boot:kinds";
    pub(super) const MODULES: &str = "// +boot:modules";
    pub(super) const KIND: &str = "// +boot:kind";
    pub(super) const CONTROLLERS: &str = "// +boot:controllers";
    pub(super) const TESTS: &str = "// +boot:tests";
}

/// Reads a file of a project.
pub(super) fn read(root: &Path, file: &str) -> anyhow::Result<String> {
    let path = root.join(file);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Adds a kind, or a version of a kind that is there.
pub(super) fn resource(
    project: &mut Project,
    arguments: &Resource,
    read: impl Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<Plan> {
    let KindFlags { group, kind } = &arguments.kind;
    let version = &arguments.version;
    names::group(group)?;
    names::version(version)?;
    names::kind(kind)?;
    if let Ok(at) = project.kind(group, kind) {
        let own = &project.kinds[at];
        if own.versions.contains(version) {
            bail!(
                "{kind} of {} has the version {version} already: edit src/apis/{}/{}/{version}.rs",
                project.full_group(group),
                names::module(group),
                own.module()
            );
        }
        let plan = another_version(project, own, version, read)?;
        project.kinds[at].versions.push(version.clone());
        return Ok(plan);
    }
    let own = Kind {
        group: group.clone(),
        kind: kind.clone(),
        plural: arguments.plural.clone().unwrap_or_else(|| names::plural_of(kind)),
        cluster_scoped: arguments.cluster_scoped,
        versions: vec![version.clone()],
        controller: !arguments.no_controller,
        subresources: Vec::new(),
    };
    names::plural(&own.plural)?;
    let clash =
        |other: &&Kind| other.group == own.group && (other.plural == own.plural || other.module() == own.module());
    if let Some(other) = project.kinds.iter().find(clash) {
        bail!(
            "{kind}: {} of the same group has the same plural or module; choose another name",
            other.kind
        );
    }
    let plan = new_kind(project, &own);
    project.kinds.push(own);
    Ok(plan)
}

/// Values of templates for a kind in one of its versions.
struct Values {
    own: Vec<(&'static str, String)>,
}

impl Values {
    fn new(project: &Project, kind: &Kind, version: &str) -> Self {
        let scope = if kind.cluster_scoped { "Cluster" } else { "Namespaced" };
        let client = "server.client(\"root\").await";
        let api = match kind.cluster_scoped {
            true => format!("Api::all({client})"),
            false => format!("Api::namespaced({client}, \"default\")"),
        };
        let namespace = if kind.cluster_scoped {
            "None"
        } else {
            "Some(\"default\")"
        };
        let own = vec![
            ("crate", names::module(&project.name)),
            ("group", names::module(&kind.group)),
            ("full_group", project.full_group(&kind.group)),
            ("kind", kind.module()),
            ("Kind", kind.kind.clone()),
            ("plural", kind.plural.clone()),
            ("scope", scope.to_owned()),
            ("version", version.to_owned()),
            ("hub", kind.versions[0].clone()),
            ("api", api),
            ("namespace", namespace.to_owned()),
        ];
        Self { own }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.own.push((name, value.into()));
        self
    }

    fn fill(&self, template: &str) -> String {
        let values: Vec<(&str, &str)> = self.own.iter().map(|(name, value)| (*name, value.as_str())).collect();
        fill(template, &values)
    }
}

/// Returns `src/apis/GROUP/KIND`.
fn folder(kind: &Kind) -> String {
    format!("src/apis/{}/{}", names::module(&kind.group), kind.module())
}

/// Returns the name of a kind in modules beside those of other groups: `fleet_foo`.
fn qualified(kind: &Kind) -> String {
    format!("{}_{}", names::module(&kind.group), kind.module())
}

fn new_kind(project: &Project, kind: &Kind) -> Plan {
    let mut plan = Plan::default();
    let version = &kind.versions[0];
    let values = Values::new(project, kind, version);
    let (group, module, folder) = (names::module(&kind.group), kind.module(), folder(kind));
    let group_file = format!("src/apis/{group}.rs");
    if !project.kinds.iter().any(|other| other.group == kind.group) {
        plan.create(
            group_file.as_str(),
            values.fill(include_str!("templates/group.rs.tmpl")),
        );
        plan.sort_in("src/apis.rs", markers::GROUPS, format!("pub mod {group};"));
    }
    plan.sort_in(group_file, markers::KINDS, format!("pub mod {module};"));
    plan.create(
        format!("{folder}.rs"),
        values.fill(include_str!("templates/kind.rs.tmpl")),
    );
    plan.create(
        format!("{folder}/{version}.rs"),
        values.fill(include_str!("templates/version.rs.tmpl")),
    );
    let path = format!("apis::{group}::{module}::kind()");
    plan.append(
        "src/lib.rs",
        markers::SERVER,
        format!("let server = server.kind({path});"),
    );
    plan.append(
        "src/lib.rs",
        markers::DEFINITIONS,
        format!("{path}.definition().clone(),"),
    );
    sample(&mut plan, kind, version, &values);
    test(
        &mut plan,
        &qualified(kind),
        values.fill(include_str!("templates/kind_test.rs.tmpl")),
    );
    if kind.controller {
        add_controller(&mut plan, kind, &values);
    }
    plan
}

fn sample(plan: &mut Plan, kind: &Kind, version: &str, values: &Values) {
    let file = format!("samples/{}_{version}_{}.yaml", kind.group, kind.module());
    plan.create(file, values.fill(include_str!("templates/sample.yaml.tmpl")));
}

/// Adds a module of tests.
fn test(plan: &mut Plan, module: &str, text: String) {
    plan.create(format!("tests/api/{module}.rs"), text);
    plan.sort_in("tests/api/main.rs", markers::TESTS, format!("mod {module};"));
}

/// Adds a version. It begins as a copy of the hub, and converts fields of the same name.
fn another_version(
    project: &Project,
    kind: &Kind,
    version: &str,
    read: impl Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<Plan> {
    let (hub, folder) = (&kind.versions[0], folder(kind));
    let source = format!("{folder}/{hub}.rs");
    let attribute = |version: &str| format!("version = \"{version}\"");
    let text = read(&source)?;
    ensure!(
        text.contains(&attribute(hub)),
        "{source} has no `{}`: a version begins as a copy of it; write it back into #[resource(…)]",
        attribute(hub)
    );
    let mut own = text
        .replace(&attribute(hub), &attribute(version))
        .replace(&format!("//! Version {hub} of"), &format!("//! Version {version} of"));
    match own.contains(IMPORT) {
        true => own = own.replacen(IMPORT, IMPORT_WITH_JSON, 1),
        false => own += "\nuse insula_sdk::serde_json;\n",
    }
    let values = Values::new(project, kind, version);
    let mut plan = Plan::default();
    let conversions = values.fill(include_str!("templates/conversions.rs.tmpl"));
    plan.create(format!("{folder}/{version}.rs"), own + &conversions);
    let file = format!("{folder}.rs");
    plan.sort_in(file.as_str(), markers::MODULES, format!("pub mod {version};"));
    let line = format!("let kind = kind.version::<{version}::{}>();", kind.kind);
    plan.append(file, markers::KIND, line);
    sample(&mut plan, kind, version, &values);
    let module = format!("{}_{version}", qualified(kind));
    test(
        &mut plan,
        &module,
        values.fill(include_str!("templates/version_test.rs.tmpl")),
    );
    Ok(plan)
}

/// Adds a subresource to a kind.
pub(super) fn subresource(project: &mut Project, arguments: &Subresource) -> anyhow::Result<Plan> {
    let KindFlags { group, kind } = &arguments.kind;
    let name = &arguments.subresource;
    names::subresource(name)?;
    let at = project.kind(group, kind)?;
    let own = &project.kinds[at];
    if own.subresources.contains(name) {
        bail!(
            "{kind} has the subresource {name} already: edit {}/{}.rs",
            folder(own),
            names::module(name)
        );
    }
    let module = names::module(name);
    ensure!(
        names::stability(&module).is_none(),
        "subresource {name:?}: it is the name of a version; choose another one"
    );
    let ty = format!("{kind}{}", names::upper_camel(name));
    let values = Values::new(project, own, &own.versions[0])
        .with("subresource", name.as_str())
        .with("module", module.as_str())
        .with("Type", ty.as_str());
    let (mut plan, folder) = (Plan::default(), folder(own));
    plan.create(
        format!("{folder}/{module}.rs"),
        values.fill(include_str!("templates/subresource.rs.tmpl")),
    );
    let file = format!("{folder}.rs");
    plan.sort_in(file.as_str(), markers::MODULES, format!("pub mod {module};"));
    let line = format!("let kind = kind.subresource(\"{name}\", {module}::{ty});");
    plan.append(file, markers::KIND, line);
    let tests = values.fill(include_str!("templates/subresource_test.rs.tmpl"));
    test(&mut plan, &format!("{}_{module}", qualified(own)), tests);
    project.kinds[at].subresources.push(name.clone());
    Ok(plan)
}

/// Adds a controller to a kind that has none.
pub(super) fn controller(project: &mut Project, group: &str, kind: &str) -> anyhow::Result<Plan> {
    let at = project.kind(group, kind)?;
    let own = &mut project.kinds[at];
    if own.controller {
        bail!(
            "{kind} has a controller already: edit src/controllers/{}.rs",
            qualified(own)
        );
    }
    own.controller = true;
    let own = &project.kinds[at];
    let mut plan = Plan::default();
    add_controller(&mut plan, own, &Values::new(project, own, &own.versions[0]));
    Ok(plan)
}

fn add_controller(plan: &mut Plan, kind: &Kind, values: &Values) {
    let module = qualified(kind);
    let text = values.fill(include_str!("templates/controller.rs.tmpl"));
    plan.create(format!("src/controllers/{module}.rs"), text);
    plan.sort_in("src/controllers.rs", markers::CONTROLLERS, format!("pub mod {module};"));
    let line = format!("let server = server.controller(controllers::{module}::controller());");
    plan.append("src/lib.rs", markers::SERVER, line);
    let tests = values.fill(include_str!("templates/controller_test.rs.tmpl"));
    test(plan, &format!("{module}_controller"), tests);
}

#[cfg(test)]
mod tests {
    use super::super::project::RECORD;
    use super::*;

    fn project() -> Project {
        Project {
            name: "fleet".into(),
            domain: "example.com".into(),
            kinds: Vec::new(),
        }
    }

    fn flags(kind: &str) -> KindFlags {
        KindFlags {
            group: "fleet".into(),
            kind: kind.into(),
        }
    }

    fn kind(kind: &str, version: &str) -> Resource {
        Resource {
            kind: flags(kind),
            version: version.into(),
            plural: None,
            cluster_scoped: false,
            no_controller: true,
        }
    }

    #[track_caller]
    fn refused<T>(done: anyhow::Result<T>, words: &str) {
        let error = done.map(drop).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }

    /// A folder with the files that the commands edit.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = Plan::default();
        for (file, text) in [
            ("src/lib.rs", include_str!("templates/lib.rs.tmpl")),
            ("src/apis.rs", include_str!("templates/apis.rs.tmpl")),
            ("src/controllers.rs", include_str!("templates/controllers.rs.tmpl")),
            ("tests/api/main.rs", include_str!("templates/tests.rs.tmpl")),
        ] {
            plan.create(file, text.to_owned());
        }
        plan.make(folder.path()).unwrap();
        folder
    }

    #[test]
    fn kinds_versions_and_subresources_are_registered() {
        let (folder, mut project) = (folder(), project());
        let root = folder.path();
        let add = |project: &mut Project, arguments: &Resource| {
            let plan = resource(project, arguments, |file| read(root, file)).unwrap();
            plan.make(root).unwrap();
        };
        add(&mut project, &kind("Ship", "v1"));
        add(&mut project, &kind("Boat", "v1beta1"));
        add(&mut project, &kind("Ship", "v2alpha1"));
        let arguments = Subresource {
            kind: flags("Ship"),
            subresource: "drop-anchor".into(),
        };
        subresource(&mut project, &arguments).unwrap().make(root).unwrap();
        controller(&mut project, "fleet", "Ship").unwrap().make(root).unwrap();

        let lines = |file: &str, words: &str| -> Vec<String> {
            let text = read(root, file).unwrap();
            let found = text.lines().map(str::trim).filter(|line| line.contains(words));
            found.map(str::to_owned).collect()
        };
        assert_eq!(lines("src/apis/fleet.rs", "mod"), ["pub mod boat;", "pub mod ship;"]);
        let modules = ["pub mod drop_anchor;", "pub mod v1;", "pub mod v2alpha1;"];
        assert_eq!(lines("src/apis/fleet/ship.rs", "mod")[..3], modules);
        let server = [
            "let server = server.kind(apis::fleet::ship::kind());",
            "let server = server.kind(apis::fleet::boat::kind());",
            "let server = server.controller(controllers::fleet_ship::controller());",
        ];
        assert_eq!(lines("src/lib.rs", "server = server."), server);
        let kind = [
            "let kind = kind.version::<v2alpha1::Ship>();",
            "let kind = kind.subresource(\"drop-anchor\", drop_anchor::ShipDropAnchor);",
        ];
        assert_eq!(lines("src/apis/fleet/ship.rs", "kind = kind."), kind);
        assert_eq!(lines("src/apis/fleet/ship/v2alpha1.rs", "version = ").len(), 1);
        assert_eq!(lines("tests/api/main.rs", "mod ").len(), 5);
        assert!(project.record().unwrap().contains("v2alpha1") && !root.join(RECORD).exists());
    }

    #[test]
    fn a_command_that_runs_twice_says_so() {
        let (folder, mut project) = (folder(), project());
        let root = folder.path();
        let again = |project: &mut Project| resource(project, &kind("Ship", "v1"), |file| read(root, file));
        again(&mut project).unwrap().make(root).unwrap();
        refused(
            again(&mut project),
            "has the version v1 already: edit src/apis/fleet/ship/v1.rs",
        );
        controller(&mut project, "fleet", "Ship").unwrap().make(root).unwrap();
        refused(controller(&mut project, "fleet", "Ship"), "has a controller already");
        let arguments = Subresource {
            kind: flags("Ship"),
            subresource: "dock".into(),
        };
        subresource(&mut project, &arguments).unwrap();
        refused(
            subresource(&mut project, &arguments),
            "has the subresource dock already",
        );
        refused(controller(&mut project, "fleet", "Shop"), "its kinds: Ship of fleet");
        refused(
            resource(&mut project, &kind("SHIP", "v1"), |_| bail!("no file")),
            "same plural or module",
        );
    }
}
