//! Files of the demonstration, written beside its server, so that the printed commands work in any
//! directory.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use insula_server::{Env, Running};

macro_rules! manifest {
    ($name:literal) => {
        Manifest {
            name: $name,
            text: include_str!(concat!("../../../config/samples/widgets/", $name)),
        }
    };
}

/// A file of `config/samples/widgets`.
pub(crate) struct Manifest {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

pub(crate) const WORKSPACES: Manifest = manifest!("workspaces.yaml");
pub(crate) const API: Manifest = manifest!("api.yaml");
pub(crate) const BINDING: Manifest = manifest!("binding.yaml");
pub(crate) const ADA: Manifest = manifest!("ada.yaml");
pub(crate) const GRACE: Manifest = manifest!("grace.yaml");

/// The folder of the files, readable by its owner only: one of them holds a token.
pub(crate) struct Samples {
    folder: PathBuf,
    token: String,
}

impl Samples {
    /// Writes the files into `widgets` in the data directory. An existing token stays, since a
    /// client may use it.
    pub(crate) fn write(data_dir: &Path, env: &Env) -> anyhow::Result<Self> {
        let folder = data_dir.join("widgets");
        let unusable = || format!("cannot write to {}", folder.display());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .with_context(unusable)?;
        for Manifest { name, text } in [WORKSPACES, API, BINDING, ADA, GRACE] {
            fs::write(folder.join(name), text).with_context(unusable)?;
        }
        let fresh = format!("{:016x}{:016x}", env.rng.next_u64(), env.rng.next_u64());
        let tokens = folder.join("tokens.csv");
        let written = private(&tokens, true).and_then(|mut file| writeln!(file, "{fresh},alice,alice"));
        let token = match written {
            Ok(()) => fresh,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => token_in(&tokens)?,
            Err(error) => return Err(error).with_context(unusable),
        };
        Ok(Self { folder, token })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path for `--token-file`.
    pub(crate) fn tokens(&self) -> PathBuf {
        self.folder.join("tokens.csv")
    }

    /// Writes the kubeconfig of alice: the CA of the server and her token, without a certificate.
    /// Called once the address of the server is known.
    pub(crate) fn alice(&self, running: &Running) -> anyhow::Result<PathBuf> {
        let path = self.folder.join("alice.kubeconfig");
        let admins = running.kubeconfig();
        let text = fs::read_to_string(admins).with_context(|| format!("cannot read {}", admins.display()))?;
        let mut lines = text.lines().map(str::trim);
        let ca = lines.find(|line| line.starts_with("certificate-authority-data:"));
        let ca = ca.ok_or_else(|| anyhow!("{} names no certificate authority", admins.display()))?;
        let url = running.url();
        let Self { token, .. } = self;
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: alice\n\
             clusters:\n- name: insula\n  cluster:\n    server: \"{url}\"\n    {ca}\n\
             contexts:\n- name: alice\n  context:\n    cluster: insula\n    user: alice\n\
             users:\n- name: alice\n  user:\n    token: \"{token}\"\n"
        );
        private(&path, false)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

fn private(path: &Path, is_new: bool) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if is_new {
        options.create_new(true);
    } else {
        options.create(true).truncate(true);
    }
    options.open(path)
}

fn token_in(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let token = text.split(',').next().filter(|token| !token.is_empty());
    token
        .map(str::to_owned)
        .ok_or_else(|| anyhow!("{} holds no token: remove it", path.display()))
}
