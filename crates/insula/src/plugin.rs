//! The program under other names: a set of kubectl plugins.
//!
//! kubectl runs `kubectl ws tree` as `kubectl-ws tree`, and asks `kubectl_complete-ws` for
//! completions. All of these names are links to the one program.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::OnceLock,
};

use anyhow::{Context, bail};
use clap::Subcommand;

use crate::{complete::COMPLETE, print};

/// Names of links, the words that kubectl's users type, and the commands that these stand for.
const PLUGINS: [(&str, &str, &[&str]); 8] = [
    ("kubectl-ws", "kubectl ws", &["ws"]),
    ("kubectl-workspace", "kubectl workspace", &["ws"]),
    (
        "kubectl-create_workspace",
        "kubectl create-workspace",
        &["create-workspace"],
    ),
    (
        "kubectl-create-workspace",
        "kubectl create workspace",
        &["create-workspace"],
    ),
    ("kubectl-bind", "kubectl bind", &["bind"]),
    ("kubectl-claims", "kubectl claims", &["claims"]),
    ("kubectl-insula", "kubectl insula", &[]),
    ("kubectl-kcp", "kubectl kcp", &[]),
];
/// The plugin of kcp's name, which is installed only where it is asked for.
const KCP: &str = "kubectl-kcp";
const COMPLETERS: &str = "kubectl_complete-";

/// The plugin that this process runs as.
static INVOKED: OnceLock<(&str, &[&str])> = OnceLock::new();

/// Returns true if kubectl runs this process as a plugin. Errors then look, and end, as those of
/// kcp's plugins.
pub(crate) fn is_plugin() -> bool {
    INVOKED.get().is_some()
}

/// Returns the word before the messages of errors: kcp's `kubectl ws` begins them with a capital.
pub(crate) fn error_word() -> &'static str {
    match INVOKED.get() {
        Some((_, ["ws" | "create-workspace"])) => "Error",
        Some(_) | None => "error",
    }
}

/// Returns the words that run a command: `kubectl ws` as a plugin, else `insula ws`.
pub(crate) fn command(name: &str) -> String {
    match INVOKED.get() {
        Some((words, [])) => format!("{words} {name}"),
        Some((words, _)) => (*words).to_owned(),
        None => format!("insula {name}"),
    }
}

/// Returns the first word of usages: `kubectl` for a plugin that stands for one command.
pub(crate) fn program() -> &'static str {
    match INVOKED.get() {
        Some((words, [])) => words,
        Some(_) => "kubectl",
        None => "insula",
    }
}

/// Returns the arguments of the command line, with the command that the program's name stands for.
pub(crate) fn arguments(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut given = given.into_iter();
    let program = given.next().unwrap_or_default();
    let name = Path::new(&program)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let mut arguments = vec![program.clone()];
    let completes = name.strip_prefix(COMPLETERS).map(|rest| format!("kubectl-{rest}"));
    let plugin = completes.as_deref().unwrap_or(name);
    if let Some((_, words, commands)) = PLUGINS.iter().find(|(known, _, _)| *known == plugin) {
        if completes.is_some() {
            arguments.extend([COMPLETE, "kubectl"].map(OsString::from));
        } else {
            // Set once: a process has one name.
            let _ = INVOKED.set((words, commands));
        }
        arguments.extend(commands.iter().map(OsString::from));
    }
    arguments.extend(given);
    arguments
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Link the program under the names of the plugins.
    Install(Install),
    /// Remove these links.
    Uninstall(Directory),
    /// List the plugins, and where they are.
    List(Directory),
}

#[derive(clap::Args)]
pub(crate) struct Directory {
    /// The folder, which must be on PATH [default: the folder of this program; list looks along
    /// PATH, too].
    #[arg(long, value_name = "FOLDER", env = "INSULA_PLUGIN_DIR", hide_env_values = true)]
    dir: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct Install {
    #[command(flatten)]
    directory: Directory,
    /// Link kubectl-kcp, too, for scripts that call kcp's plugin by this name.
    #[arg(long)]
    kcp: bool,
}

pub(crate) fn main(command: &Command) -> ExitCode {
    crate::ended(
        match command {
            Command::Install(arguments) => install(&arguments.directory, arguments.kcp),
            Command::Uninstall(directory) => uninstall(directory),
            Command::List(directory) => list(directory),
        }
        .map(|()| ExitCode::SUCCESS),
    )
}

impl Directory {
    fn path(&self) -> anyhow::Result<PathBuf> {
        if let Some(dir) = &self.dir {
            return std::path::absolute(dir).with_context(|| dir.display().to_string());
        }
        let program = program_file()?;
        Ok(program.parent().unwrap_or(Path::new("/")).to_owned())
    }
}

fn program_file() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("the path of this program is not known")
}

/// Returns the names of all links.
fn names(with_kcp: bool) -> impl Iterator<Item = String> {
    let wanted = PLUGINS.iter().map(|(name, _, _)| *name);
    let wanted = wanted.filter(move |name| with_kcp || *name != KCP);
    wanted.flat_map(|name| {
        let completer = name.strip_prefix("kubectl-").map(|rest| format!("{COMPLETERS}{rest}"));
        [name.to_owned(), completer.unwrap_or_default()]
    })
}

/// Returns true if a path is a link to this program, or a link that leads nowhere and was one to a
/// program of its name.
fn is_ours(path: &Path, program: &Path) -> bool {
    match fs::read_link(path) {
        Ok(target) => {
            let same = fs::canonicalize(path).is_ok_and(|target| target == *program);
            same || (!path.exists() && target.file_name() == program.file_name())
        }
        Err(_) => false,
    }
}

fn install(directory: &Directory, with_kcp: bool) -> anyhow::Result<()> {
    let folder = directory.path()?;
    let program = fs::canonicalize(program_file()?).context("this program cannot be found")?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for name in names(with_kcp) {
        let link = folder.join(&name);
        if is_ours(&link, &program) {
            fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
        }
        match std::os::unix::fs::symlink(&program, &link) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bail!(
                "{} is there and is another program: remove it, or choose another --dir",
                link.display()
            ),
            Err(error) => return Err(error).with_context(|| format!("cannot create {}", link.display())),
        }
    }
    let plugins = PLUGINS.iter().filter(|(name, _, _)| with_kcp || *name != KCP);
    for (_, words, _) in plugins {
        print::line(words)?;
    }
    if !is_on_path(&folder) {
        eprintln!(
            "note: {0} is not on PATH, where kubectl looks for plugins: export PATH={0}:$PATH",
            folder.display()
        );
    }
    Ok(())
}

fn is_on_path(folder: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    std::env::split_paths(&path).any(|entry| real(&entry) == real(folder))
}

fn uninstall(directory: &Directory) -> anyhow::Result<()> {
    let folder = directory.path()?;
    let program = fs::canonicalize(program_file()?).context("this program cannot be found")?;
    for name in names(true) {
        let link = folder.join(&name);
        if is_ours(&link, &program) {
            fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
            print::line(&link.display().to_string())?;
        }
    }
    Ok(())
}

fn list(directory: &Directory) -> anyhow::Result<()> {
    let mut folders = vec![directory.path()?];
    if directory.dir.is_none() {
        folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    }
    let program = fs::canonicalize(program_file()?).context("this program cannot be found")?;
    for (name, words, _) in &PLUGINS {
        let mut links = folders.iter().map(|folder| folder.join(name));
        let found = links.find(|link| is_ours(link, &program));
        let state = found.map_or("not installed".to_owned(), |link| link.display().to_string());
        print::line(&format!("{words:<26}{state}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_commands() {
        let words = |line: &str| -> Vec<String> {
            let given = line.split(' ').map(OsString::from);
            arguments(given)
                .into_iter()
                .map(|word| word.into_string().unwrap())
                .collect()
        };
        assert_eq!(words("insula ws"), ["insula", "ws"]);
        assert_eq!(words("/bin/kubectl-ws tree"), ["/bin/kubectl-ws", "ws", "tree"]);
        assert_eq!(
            words("kubectl-create_workspace a"),
            ["kubectl-create_workspace", "create-workspace", "a"]
        );
        assert_eq!(
            words("kubectl_complete-ws tr"),
            ["kubectl_complete-ws", COMPLETE, "kubectl", "ws", "tr"]
        );
        assert_eq!(words("kubectl-insula bind"), ["kubectl-insula", "bind"]);
        assert_eq!(names(false).count(), 14);
    }
}
