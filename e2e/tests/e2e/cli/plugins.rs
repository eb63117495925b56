//! The program under the names of kubectl plugins, run by a real kubectl.

use std::{fs, process::Command};

use insula_e2e::{Kubectl, binary, insula, shared, unique};

use super::{Ran, Shell, ran};

/// Runs kubectl with the plugins of a folder.
struct Plugins {
    shell: Shell,
    path: String,
}

impl Plugins {
    fn kubectl(&self, arguments: &str) -> Ran {
        let mut command = self.shell.prepared(Command::new("kubectl"));
        command.args(arguments.split_whitespace()).env("PATH", &self.path);
        ran(&mut command)
    }

    #[track_caller]
    fn ok(&self, arguments: &str) -> String {
        let Ran { code, out, error } = self.kubectl(arguments);
        assert_eq!(code, 0, "{arguments}: {out}{error}");
        out
    }
}

#[test]
fn kubectl_runs_the_program_as_plugins() {
    let server = shared();
    let shell = Shell::admin(&server);
    let folder = shell.home.path().join("plugins");
    let dir = folder.to_str().unwrap();
    let installed = shell.run(&["plugin", "install", "--dir", dir, "--kcp"]);
    assert!(installed.error.contains("is not on PATH"), "{installed:?}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 16);
    // Again, and a foreign file is left alone.
    shell.ok(&["plugin", "install", "--dir", dir]);
    let other = shell.home.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("kubectl-ws"), "").unwrap();
    let error = shell.fails(&["plugin", "install", "--dir", other.to_str().unwrap()]);
    assert!(error.contains("kubectl-ws is there and is another program"), "{error}");
    let list = shell.ok(&["plugin", "list", "--dir", dir]);
    assert!(list.lines().all(|line| line.contains(dir)), "{list}");

    // Without --dir they are looked for along PATH.
    let mut along = shell.prepared(insula(&["plugin", "list"]));
    let listed = ran(along.env("PATH", dir));
    assert!(listed.out.lines().all(|line| line.contains(dir)), "{listed:?}");
    // A folder is advised by its whole path.
    let relative = shell.run(&["plugin", "install", "--dir", "plugins", "--kcp"]);
    assert!(
        relative.error.contains(&format!("export PATH={dir}:$PATH")),
        "{relative:?}"
    );

    if Kubectl::for_server(&server).is_some() {
        let path = format!("{dir}:{}", std::env::var("PATH").unwrap());
        run_plugins(&Plugins {
            shell: Shell::admin(&server),
            path,
        });
    }
    let removed = shell.ok(&["plugin", "uninstall", "--dir", dir]);
    assert_eq!(
        (removed.lines().count(), fs::read_dir(&folder).unwrap().count()),
        (16, 0)
    );
    assert!(binary().exists());
}

/// Runs what users of kcp type, with the answers of kcp's plugins.
fn run_plugins(plugins: &Plugins) {
    let name = unique("plug");
    let kind = format!("Workspace {name:?} (type root:organization)");
    assert_eq!(
        plugins.ok(&format!("create workspace {name} --enter")),
        format!(
            "{kind} created. Waiting for it to be ready...\n{kind} is ready to use.\n\
             Current workspace is 'root:{name}' (type root:organization).\n"
        )
    );
    assert_eq!(plugins.ok("ws tree"), format!(".\n└── {name}\n\n"));
    plugins.ok("create-workspace below --type root:universal");
    assert_eq!(plugins.ok("ws below --short"), format!("root:{name}:below\n"));
    assert_eq!(
        plugins.ok("workspace ."),
        format!("Current workspace is 'root:{name}:below'.\n")
    );
    assert_eq!(plugins.ok("ws -"), format!("Current workspace is 'root:{name}'.\n"));
    // kubectl itself works in the workspace.
    plugins.ok("create configmap here");
    assert_eq!(plugins.ok("get workspaces -o name"), "workspace.tenancy.kcp.io/below\n");
    assert_eq!(
        plugins.ok("kcp ws current"),
        format!("Current workspace is 'root:{name}'.\n")
    );
    assert_eq!(
        plugins.ok("claims get apibinding"),
        "APIBINDING   GROUP-RESOURCE   VERBS   STATUS\n"
    );
    assert_eq!(plugins.ok("insula ws . --short"), format!("root:{name}\n"));
    // Errors look and end as kcp's.
    let missing = plugins.kubectl("ws nope");
    assert_eq!(missing.code, 1);
    assert_eq!(
        missing.error,
        format!("Error: workspace \"root:{name}:nope\" not found\n")
    );
    assert_eq!(plugins.kubectl("ws a b").code, 1);
    let noted = plugins.kubectl(&format!("ws root:{name}"));
    assert!(
        noted
            .error
            .starts_with("Note: Using 'root:' to define an absolute path"),
        "{noted:?}"
    );
    // kubectl asks for completions.
    let completed = plugins.ok("__complete ws be");
    assert!(completed.starts_with("below\n:4\n"), "{completed}");
}
