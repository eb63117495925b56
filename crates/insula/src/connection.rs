//! Flags, variables and kubeconfigs that name a server, an identity and a workspace. All commands
//! that talk to a server find it here.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use insula_api::ClusterPath;
use serde_json::{Value, json};

use crate::{
    client::Client,
    duration,
    kubeconfig::{Entry, Kubeconfig, Paths, Section},
};

/// Longest wait for an answer, unless `--request-timeout` is given.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// First segments of absolute paths; other paths are relative to the current workspace.
const TOP: [&str; 3] = ["root", "system", "user"];

/// Server and identity. The names are kubectl's.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct ServerFlags {
    /// The kubeconfig [default: $KUBECONFIG, then ~/.kube/config].
    #[arg(long, global = true, value_name = "FILE", help_heading = "Server")]
    #[arg(env = "INSULA_KUBECONFIG", hide_env_values = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig [default: its current one].
    #[arg(long, global = true, value_name = "NAME", help_heading = "Server")]
    #[arg(env = "INSULA_CONTEXT", hide_env_values = true)]
    pub(crate) context: Option<String>,
    /// A cluster of the kubeconfig [default: the one of the context].
    #[arg(long, global = true, value_name = "NAME", help_heading = "Server")]
    pub(crate) cluster: Option<String>,
    /// A user of the kubeconfig [default: the one of the context].
    #[arg(long, global = true, value_name = "NAME", help_heading = "Server")]
    pub(crate) user: Option<String>,
    /// The URL of the server.
    #[arg(long, short, global = true, value_name = "URL", help_heading = "Server")]
    #[arg(env = "INSULA_SERVER", hide_env_values = true)]
    pub(crate) server: Option<String>,
    /// A bearer token, in place of the user's credentials.
    #[arg(long, global = true, value_name = "TOKEN", help_heading = "Server")]
    #[arg(env = "INSULA_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// A user to act as.
    #[arg(long = "as", global = true, value_name = "USER", help_heading = "Server")]
    pub(crate) as_user: Option<String>,
    /// A group to act in; may be repeated.
    #[arg(long = "as-group", global = true, value_name = "GROUP", help_heading = "Server")]
    pub(crate) as_groups: Vec<String>,
    /// Certificates that the server's one must come from.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Server")]
    #[arg(env = "INSULA_CERTIFICATE_AUTHORITY", hide_env_values = true)]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Trust any server. Others can read and change what is sent.
    #[arg(long, global = true, help_heading = "Server")]
    pub(crate) insecure_skip_tls_verify: bool,
    /// Longest wait for an answer, such as 10s or 2m; 0 waits for ever [default: 60s].
    #[arg(long, global = true, value_name = "TIME", value_parser = duration::parse, help_heading = "Server")]
    pub(crate) request_timeout: Option<Duration>,
}

/// A workspace of a server.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct Connection {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    /// The workspace: absolute as root:apis or :root:apis, else relative to the current one
    /// [default: the one of the context].
    #[arg(
        long,
        short = 'W',
        short_alias = 'w',
        global = true,
        value_name = "PATH",
        help_heading = "Server"
    )]
    #[arg(env = "INSULA_WORKSPACE", hide_env_values = true)]
    pub(crate) workspace: Option<String>,
}

/// A URL of a server with the path of a workspace: `https://host/clusters/root:a`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// The URL before `/clusters/`, or all of it; without a slash at its end.
    base: String,
    workspace: Option<String>,
}

impl ServerUrl {
    pub(crate) fn parse(url: &str) -> Self {
        let found = url.split_once("/clusters/").and_then(|(base, rest)| {
            let path = rest.split('/').next().unwrap_or_default();
            ClusterPath::parse(path).ok()?;
            Some((base, path.to_owned()))
        });
        let (base, workspace) = found.map_or((url, None), |(base, path)| (base, Some(path)));
        Self {
            base: base.trim_end_matches('/').to_owned(),
            workspace,
        }
    }

    /// Returns the URL of the server itself.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the workspace of the URL, if it has one.
    pub(crate) fn workspace(&self) -> Option<&str> {
        self.workspace.as_deref()
    }

    /// Returns the workspace of the URL.
    ///
    /// # Errors
    /// The URL is one of the server itself. The message is that of kcp's plugins.
    pub(crate) fn current(&self) -> anyhow::Result<&str> {
        self.workspace().with_context(|| {
            format!(
                "current URL {:?} does not point to a workspace; name one by its absolute path, such as :root",
                self.base
            )
        })
    }

    /// Returns the URL of a workspace of the same server.
    pub(crate) fn for_workspace(&self, workspace: &str) -> String {
        format!("{}/clusters/{workspace}", self.base)
    }

    /// Resolves a path to a workspace. Dots are segments: `..:b` in `root:a` is `root:b`.
    ///
    /// # Errors
    /// A relative path without a workspace, a path above the top, or a name that is none.
    pub(crate) fn resolve(&self, path: &str) -> anyhow::Result<String> {
        let (is_absolute, rest) = match path.strip_prefix(':') {
            Some("") => (true, "root"),
            Some(rest) => (true, rest),
            None => (TOP.contains(&path.split(':').next().unwrap_or_default()), path),
        };
        let mut segments: Vec<&str> = match is_absolute {
            true => Vec::new(),
            false => self.current()?.split(':').collect(),
        };
        for segment in rest.split(':') {
            match segment {
                "." => {}
                ".." if segments.is_empty() => bail!("cannot go up from root"),
                ".." => drop(segments.pop()),
                segment => segments.push(segment),
            }
        }
        let joined = segments.join(":");
        if segments.is_empty() {
            bail!("cannot go up from root");
        }
        match ClusterPath::parse(&joined) {
            Ok(path) => Ok(path.as_str().to_owned()),
            Err(_) => bail!("invalid workspace path: {path}"),
        }
    }
}

/// A server and an identity, found.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) paths: Paths,
    pub(crate) kubeconfig: Kubeconfig,
    /// The context; without a cluster where the server was named by its URL alone.
    pub(crate) context: Entry,
    /// The cluster, with the flags applied.
    pub(crate) cluster: Entry,
    /// The user, with the flags applied.
    pub(crate) user: Entry,
    pub(crate) url: ServerUrl,
    pub(crate) timeout: Option<Duration>,
}

impl ServerFlags {
    /// Finds server and identity.
    ///
    /// # Errors
    /// No kubeconfig, or one without the context, cluster or user.
    pub(crate) fn resolve(&self) -> anyhow::Result<Resolved> {
        let paths = Paths::find(self.kubeconfig.as_deref())?;
        let kubeconfig = match (Kubeconfig::load(&paths), &self.server) {
            (Err(_), Some(_)) if self.kubeconfig.is_none() => Kubeconfig::none(),
            (loaded, _) => loaded?,
        };
        let context_name = self.context.clone().unwrap_or_else(|| kubeconfig.current().to_owned());
        let context = match kubeconfig.entry(Section::Contexts, &context_name) {
            Some(found) => found,
            None if self.context.is_none() && self.server.is_some() => Entry::default(),
            None => bail!(
                "current {context_name:?} context not found in the kubeconfig; it has {}",
                listed(&kubeconfig.names(Section::Contexts))
            ),
        };
        let mut cluster = named(&kubeconfig, Section::Clusters, self.cluster.as_deref(), &context)?;
        let mut user = named(&kubeconfig, Section::Users, self.user.as_deref(), &context)?;
        self.override_cluster(&mut cluster)?;
        self.override_user(&mut user);
        let server = cluster
            .text("server")
            .context("the cluster of the kubeconfig has no server")?;
        let timeout = match self.request_timeout {
            None => Some(ANSWER_TIMEOUT),
            Some(Duration::ZERO) => None,
            given => given,
        };
        Ok(Resolved {
            url: ServerUrl::parse(server),
            paths,
            kubeconfig,
            context,
            cluster,
            user,
            timeout,
        })
    }

    fn override_cluster(&self, cluster: &mut Entry) -> anyhow::Result<()> {
        if let Some(server) = &self.server {
            cluster.content["server"] = json!(server);
        }
        if let Some(file) = &self.certificate_authority {
            let path = std::path::absolute(file).with_context(|| file.display().to_string())?;
            cluster.content["certificate-authority"] = json!(path);
            remove(cluster, "certificate-authority-data");
        }
        if self.insecure_skip_tls_verify {
            cluster.content["insecure-skip-tls-verify"] = json!(true);
        }
        Ok(())
    }

    fn override_user(&self, user: &mut Entry) {
        if let Some(token) = &self.token {
            user.content = json!({"token": token});
        }
        if let Some(name) = &self.as_user {
            user.content["as"] = json!(name);
        }
        if !self.as_groups.is_empty() {
            user.content["as-groups"] = json!(self.as_groups);
        }
    }

    /// Connects to the URL of the context.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Client::new(&self.resolve()?)
    }
}

impl Connection {
    /// Finds server, identity and workspace.
    pub(crate) fn resolve(&self) -> anyhow::Result<Resolved> {
        let mut resolved = self.server.resolve()?;
        if let Some(path) = &self.workspace {
            let path = resolved.url.resolve(path)?;
            resolved.enter(&path);
        }
        Ok(resolved)
    }

    /// Connects to the workspace.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Client::new(&self.resolve()?)
    }

    /// Returns true if a flag or a variable names a server or a workspace.
    pub(crate) fn is_given(&self) -> bool {
        let server = &self.server;
        self.workspace.is_some() || server.kubeconfig.is_some() || server.context.is_some() || server.server.is_some()
    }
}

impl Resolved {
    /// Selects another workspace of the server.
    pub(crate) fn enter(&mut self, workspace: &str) {
        let url = self.url.for_workspace(workspace);
        self.cluster.content["server"] = json!(url);
        self.url = ServerUrl::parse(&url);
    }
}

/// Returns the cluster or user that a flag names, else that of the context, else an empty one.
fn named(kubeconfig: &Kubeconfig, section: Section, flag: Option<&str>, context: &Entry) -> anyhow::Result<Entry> {
    let field = if section == Section::Users { "user" } else { "cluster" };
    let Some(name) = flag.or(context.text(field)) else {
        return Ok(Entry::default());
    };
    kubeconfig.entry(section, name).with_context(|| {
        format!(
            "{field} {name:?} not found in the kubeconfig; it has {}",
            listed(&kubeconfig.names(section))
        )
    })
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

fn remove(entry: &mut Entry, field: &str) {
    if let Value::Object(fields) = &mut entry.content {
        fields.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_at_the_workspace() {
        let url = ServerUrl::parse("https://h:1/x/clusters/root:a/");
        assert_eq!(
            (url.workspace(), url.for_workspace("root").as_str()),
            (Some("root:a"), "https://h:1/x/clusters/root")
        );
        let base = ServerUrl::parse("https://h:1/");
        assert_eq!(
            (base.workspace(), base.for_workspace("root").as_str()),
            (None, "https://h:1/clusters/root")
        );
        assert_eq!(ServerUrl::parse("https://h/clusters/*").workspace(), None);
    }

    #[test]
    fn paths_are_resolved_in_the_current_workspace() {
        let url = ServerUrl::parse("https://h/clusters/root:a:b");
        for (path, want) in [
            (":root", "root"),
            (":", "root"),
            ("root:x", "root:x"),
            ("system:admin", "system:admin"),
            ("user:alice", "user:alice"),
            ("c", "root:a:b:c"),
            ("c:d", "root:a:b:c:d"),
            (".", "root:a:b"),
            ("..", "root:a"),
            ("..:..", "root"),
            ("..:x:.:y", "root:a:x:y"),
            (":root:a:..:z", "root:z"),
            ("rooty", "root:a:b:rooty"),
        ] {
            assert_eq!(url.resolve(path).unwrap(), want, "{path}");
        }
        for (path, why) in [
            ("..:..:..", "cannot go up from root"),
            (":root:..:..", "cannot go up from root"),
            ("A", "invalid workspace path: A"),
            ("a::b", "invalid workspace path: a::b"),
        ] {
            assert_eq!(url.resolve(path).unwrap_err().to_string(), why);
        }
        let base = ServerUrl::parse("https://h");
        assert_eq!(base.resolve(":root:a").unwrap(), "root:a");
        let error = base.resolve("a").unwrap_err().to_string();
        assert!(
            error.starts_with("current URL \"https://h\" does not point to a workspace"),
            "{error}"
        );
    }
}
