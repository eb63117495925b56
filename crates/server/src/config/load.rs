//! Sources of settings: defaults, then a YAML file, then the environment, then flags. The last one
//! wins.
//!
//! Each source is a list of (key, value), and is applied one value at a time. So an error names the
//! key and its source, and for an unknown key the nearest known one.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde_json::{Map, Value};
use strsim::osa_distance;

use super::{Config, StoreChoice, serving, workspaces};

/// Maximum number of seconds of a webhook call, as in Kubernetes.
const WEBHOOK_SECONDS_MAX: u32 = 30;

/// Sources to read.
#[derive(Debug, Default)]
pub struct Sources {
    /// A YAML file.
    pub file: Option<PathBuf>,
    /// Environment of the process; only names with the prefix `INSULA_` count.
    pub environment: Vec<(String, String)>,
    /// Flags as (key, value), the key as in YAML: `dataDir`, `log.level`.
    pub flags: Vec<(&'static str, String)>,
}

/// Source of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// The environment.
    Environment,
    /// The command line.
    Flags,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment => f.write_str("the environment"),
            Self::Flags => f.write_str("the command line"),
        }
    }
}

/// A setting that cannot be used. Each variant names the source to correct.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {cause}; check the path given by --config", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        cause: std::io::Error,
    },
    /// The file is not YAML, or not a mapping.
    #[error("{} is not a configuration: {cause}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Cause.
        cause: String,
    },
    /// A key that does not exist.
    #[error("unknown key `{key}` in {from}{}", hint(nearest))]
    Unknown {
        /// The key as written.
        key: String,
        /// Source of the setting.
        from: Source,
        /// The known key that is most similar.
        nearest: Option<String>,
    },
    /// A value that the key does not take.
    #[error("`{key}` in {from}: {cause}")]
    Invalid {
        /// The key as written.
        key: String,
        /// Source of the setting.
        from: Source,
        /// Cause.
        cause: String,
    },
}

fn hint(nearest: &Option<String>) -> String {
    match nearest {
        Some(known) => format!("; did you mean `{known}`?"),
        None => "; config/insula.yaml lists every key".to_owned(),
    }
}

/// Reads and merges all sources. Paths in the result are absolute.
pub fn load(sources: Sources) -> Result<Config, ConfigError> {
    load_over(Config::default(), sources)
}

/// Reads and merges all sources over the settings that a program begins with.
pub fn load_over(base: Config, sources: Sources) -> Result<Config, ConfigError> {
    let mut merge = Merge::new();
    merge.config = base;
    if let Some(path) = sources.file {
        let text = std::fs::read_to_string(&path).map_err(|cause| ConfigError::Read {
            path: path.clone(),
            cause,
        })?;
        merge.file(path, &text)?;
    }
    merge.environment(&sources.environment)?;
    for (key, value) in &sources.flags {
        merge.text(key, key, value, Source::Flags)?;
    }
    let mut config = merge.config;
    config.data_dir = absolute(config.data_dir, "dataDir")?;
    config.kubeconfig = config.kubeconfig.map(|path| absolute(path, "kubeconfig")).transpose()?;
    config.token_file = config.token_file.map(|path| absolute(path, "tokenFile")).transpose()?;
    config.audit.file = config.audit.file.map(|path| absolute(path, "audit.file")).transpose()?;
    let directory = config.backup.directory;
    config.backup.directory = directory.map(|path| absolute(path, "backup.directory")).transpose()?;
    config.audit.policy = config
        .audit
        .policy
        .map(|path| absolute(path, "audit.policy"))
        .transpose()?;
    for (key, file) in [
        ("etcd.ca", &mut config.etcd.ca),
        ("etcd.certificate", &mut config.etcd.certificate),
        ("etcd.key", &mut config.etcd.key),
        ("etcd.passwordFile", &mut config.etcd.password_file),
        ("tls.certFile", &mut config.tls.cert_file),
        ("tls.keyFile", &mut config.tls.key_file),
        ("tls.caFile", &mut config.tls.ca_file),
        ("tls.clientCaFile", &mut config.tls.client_ca_file),
        ("frontProxy.caFile", &mut config.front_proxy.ca_file),
        (
            "consoleLogin.clientSecretFile",
            &mut config.console_login.client_secret_file,
        ),
    ] {
        *file = file.take().map(|path| absolute(path, key)).transpose()?;
    }
    for pair in &mut config.tls.sni.0 {
        for file in [&mut pair.cert_file, &mut pair.key_file] {
            *file = absolute(std::mem::take(file), "tls.sni")?;
        }
    }
    config.shared_keys = config
        .shared_keys
        .map(|path| absolute(path, "sharedKeys"))
        .transpose()?;
    let file = config.authentication_config;
    config.authentication_config = file.map(|path| absolute(path, "authenticationConfig")).transpose()?;
    check(&config)?;
    Ok(config)
}

fn absolute(path: PathBuf, key: &str) -> Result<PathBuf, ConfigError> {
    std::path::absolute(&path).map_err(|cause| ConfigError::Invalid {
        key: key.to_owned(),
        from: Source::Flags,
        cause: format!("cannot make {} an absolute path: {cause}", path.display()),
    })
}

/// Checks rules that types cannot express. The source is not known any more here; the key is enough
/// to find it.
fn check(config: &Config) -> Result<(), ConfigError> {
    let refuse = |key: &str, cause: String| {
        Err(ConfigError::Invalid {
            key: key.to_owned(),
            from: Source::Flags,
            cause,
        })
    };
    let limits = serde_json::to_value(&config.limits).unwrap_or_default();
    let zero = limits
        .as_object()
        .and_then(|all| all.iter().find(|(_, value)| value.as_u64() == Some(0)));
    if let Some((key, _)) = zero {
        return refuse(&format!("limits.{key}"), "a limit must be at least 1".to_owned());
    }
    let percent = config.limits.compute_percent_per_workspace;
    if percent > 100 {
        let why = format!("{percent} % is more than all cores; 100 is as much as is left over");
        return refuse("limits.computePercentPerWorkspace", why);
    }
    if !(1..=WEBHOOK_SECONDS_MAX).contains(&config.webhooks.timeout_seconds) {
        let cause = format!("must be between 1 and {WEBHOOK_SECONDS_MAX}");
        return refuse("webhooks.timeoutSeconds", cause);
    }
    for (key, limit) in [
        ("callsPerWorkspace", config.webhooks.calls_per_workspace),
        (
            "proxiedRequestsPerWorkspace",
            config.webhooks.proxied_requests_per_workspace,
        ),
    ] {
        if limit == 0 {
            return refuse(&format!("webhooks.{key}"), "a limit must be at least 1".to_owned());
        }
    }
    for (key, amount) in [
        ("watches.historySeconds", config.watches.history_seconds),
        ("watches.historyMegabytes", config.watches.history_megabytes as u64),
        ("watches.bookmarkSeconds", config.watches.bookmark_seconds),
        ("audit.queue", config.audit.queue as u64),
        ("audit.maxMegabytes", config.audit.max_megabytes),
    ] {
        if amount == 0 {
            return refuse(key, "must be at least 1".to_owned());
        }
    }
    if let Some((key, cause)) = etcd_mistake(config) {
        return refuse(key, cause.to_owned());
    }
    if let Some((key, cause)) = workspaces::mistake(&config.workspaces) {
        return refuse(key, cause);
    }
    let serving = serving::mistake(config.external_url.as_deref(), &config.tls, &config.front_proxy);
    let serving = serving.or_else(|| serving::host_mistake(config.host_pattern.as_deref()));
    if let Some((key, cause)) = serving.or_else(|| config.console_login.mistake()) {
        return refuse(key, cause);
    }
    if let Err(cause) = crate::telemetry::filter(&config.log.level) {
        return refuse("log.level", cause);
    }
    match config.telemetry.mistake() {
        Some((key, cause)) => refuse(key, cause),
        None => Ok(()),
    }
}

/// Returns the key of an etcd setting that contradicts another one, and the mistake.
fn etcd_mistake(config: &Config) -> Option<(&'static str, &'static str)> {
    let etcd = &config.etcd;
    let tls = matches!(&config.store, StoreChoice::Etcd(endpoints) if endpoints.tls);
    let plain = matches!(&config.store, StoreChoice::Etcd(endpoints) if !endpoints.tls);
    if tls && etcd.ca.is_none() {
        return Some((
            "etcd.ca",
            "`store` is etcds://: name the file of the CA that signed etcd's certificates",
        ));
    }
    if plain && (etcd.ca.is_some() || etcd.certificate.is_some()) {
        let key = if etcd.ca.is_some() {
            "etcd.ca"
        } else {
            "etcd.certificate"
        };
        return Some((key, "`store` is etcd://, which is not encrypted: write etcds://"));
    }
    if etcd.certificate.is_some() != etcd.key.is_some() {
        return Some(("etcd.certificate", "`etcd.certificate` and `etcd.key` go together"));
    }
    if etcd.user.is_some() != etcd.password_file.is_some() {
        return Some(("etcd.user", "`etcd.user` and `etcd.passwordFile` go together"));
    }
    if etcd.attempt_seconds == 0 || etcd.attempt_seconds > etcd.request_seconds {
        return Some(("etcd.attemptSeconds", "must be between 1 and etcd.requestSeconds"));
    }
    None
}

/// The merged settings, and the tree of known keys with their defaults.
struct Merge {
    config: Config,
    known: BTreeMap<String, Value>,
}

impl Merge {
    fn new() -> Self {
        let config = Config::default();
        let mut known = BTreeMap::new();
        leaves("", &tree(&config), &mut known);
        Self { config, known }
    }

    fn file(&mut self, path: PathBuf, text: &str) -> Result<(), ConfigError> {
        let syntax = |cause: String| ConfigError::Syntax {
            path: path.clone(),
            cause,
        };
        let value: Value = match text
            .lines()
            .all(|line| line.trim().is_empty() || line.trim().starts_with('#'))
        {
            true => Value::Null,
            false => serde_saphyr::from_str(text).map_err(|error| syntax(error.to_string()))?,
        };
        let mut settings = BTreeMap::new();
        match &value {
            Value::Null => {}
            Value::Object(_) => leaves("", &value, &mut settings),
            _ => return Err(syntax("expected `key: value` lines".to_owned())),
        }
        for (key, value) in settings {
            self.set(&key, &key, value, Source::File(path.clone()))?;
        }
        Ok(())
    }

    fn environment(&mut self, variables: &[(String, String)]) -> Result<(), ConfigError> {
        let names: BTreeMap<String, String> = self.known.keys().map(|key| (variable(key), key.clone())).collect();
        for (name, value) in variables {
            if !name.starts_with("INSULA_") || is_not_ours(name) {
                continue;
            }
            let Some(key) = names.get(name) else {
                return Err(ConfigError::Unknown {
                    key: name.clone(),
                    from: Source::Environment,
                    nearest: nearest(name, names.keys()),
                });
            };
            self.text(key, name, value, Source::Environment)?;
        }
        Ok(())
    }

    /// Sets a key to the text of a flag or variable. The type of the default decides how the text
    /// is parsed.
    fn text(&mut self, key: &str, written: &str, text: &str, from: Source) -> Result<(), ConfigError> {
        let value = match self.known.get(key) {
            Some(Value::Number(_)) => text.parse().map(Value::Number).unwrap_or_else(|_| Value::from(text)),
            Some(Value::Bool(_)) => text.parse().map_or_else(|_| Value::from(text), Value::Bool),
            _ => Value::from(text),
        };
        self.set(key, written, value, from)
    }

    fn set(&mut self, key: &str, written: &str, value: Value, from: Source) -> Result<(), ConfigError> {
        if !self.known.contains_key(key) {
            let section = self.known.keys().any(|known| known.starts_with(&format!("{key}.")));
            if section {
                let cause = "is a section: its keys go on lines of their own below it, indented".to_owned();
                let invalid = ConfigError::Invalid {
                    key: written.to_owned(),
                    from,
                    cause,
                };
                return if value.is_null() { Ok(()) } else { Err(invalid) };
            }
            let nearest = nearest(key, self.known.keys());
            return Err(ConfigError::Unknown {
                key: written.to_owned(),
                from,
                nearest,
            });
        }
        let mut settings = tree(&self.config);
        place(&mut settings, key, value);
        self.config = serde_json::from_value(settings).map_err(|error| ConfigError::Invalid {
            key: written.to_owned(),
            from,
            cause: error.to_string(),
        })?;
        Ok(())
    }
}

fn tree(config: &Config) -> Value {
    serde_json::to_value(config).expect("settings are plain data")
}

/// Flattens a tree: `{"log": {"level": "info"}}` → `log.level: "info"`.
fn leaves(prefix: &str, value: &Value, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                let key = if prefix.is_empty() {
                    name.clone()
                } else {
                    format!("{prefix}.{name}")
                };
                leaves(&key, field, into);
            }
        }
        leaf => drop(into.insert(prefix.to_owned(), leaf.clone())),
    }
}

fn place(settings: &mut Value, key: &str, value: Value) {
    let mut at = settings;
    for step in key.split('.') {
        at = match at {
            Value::Object(fields) => fields.entry(step.to_owned()).or_insert(Value::Null),
            other => {
                *other = Value::Object(Map::new());
                return;
            }
        };
    }
    *at = value;
}

/// Returns the environment variable of a key: `limits.bodyBytes` → `INSULA_LIMITS_BODY_BYTES`.
fn variable(key: &str) -> String {
    let mut name = "INSULA_".to_owned();
    for letter in key.chars() {
        match letter {
            '.' => name.push('_'),
            letter if letter.is_ascii_uppercase() => name.extend(['_', letter]),
            letter => name.push(letter.to_ascii_uppercase()),
        }
    }
    name
}

/// Returns true for variables with our prefix that are no settings.
fn is_not_ours(name: &str) -> bool {
    // `INSULA_CONFIG` names the file itself. Tests find programs by `INSULA_BIN` and `INSULA_ETCD`.
    // Kubernetes gives every pod the address of every Service, and a Service may be called
    // `insula`.
    let fixed = [
        "INSULA_CONFIG",
        "INSULA_BIN",
        "INSULA_ETCD",
        "INSULA_PORT",
        "INSULA_SERVICE_HOST",
        // Variables of the commands that talk to a server.
        "INSULA_CONTEXT",
        "INSULA_WORKSPACE",
        "INSULA_SERVER",
        "INSULA_TOKEN",
        "INSULA_CERTIFICATE_AUTHORITY",
        "INSULA_PLUGIN_DIR",
        "INSULA_SOURCE",
        // The server that a program of the SDK delegates to.
        "INSULA_DELEGATE",
    ];
    fixed.contains(&name)
        || name.starts_with("INSULA_SERVICE_PORT")
        || name
            .strip_prefix("INSULA_PORT_")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the known key that is most similar to the written one, if any is.
fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a String>) -> Option<String> {
    let lower = written.to_lowercase();
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_lowercase();
    known
        .map(|key| {
            // Also `bodyBytes` for `limits.bodyBytes`: the section is easily forgotten.
            let whole = osa_distance(&lower, &key.to_lowercase());
            (
                whole.min(osa_distance(&lower, &last(key)) + usize::from(key.contains('.'))),
                key,
            )
        })
        .min()
        .filter(|(distance, key)| *distance <= 1 + key.len().min(written.len()) / 4)
        .map(|(_, key)| key.clone())
}

#[cfg(test)]
mod tests;
