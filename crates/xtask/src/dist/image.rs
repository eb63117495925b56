//! Container images as one file, for `podman load` and `docker load`: an OCI image layout, and
//! beside it the `manifest.json` that Docker reads before version 25.
//!
//! The image has the program, certificates of public authorities, and the user that runs it. It
//! needs no base: the program is static.

use std::{collections::HashMap, fmt::Write};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use oci_spec::image::{
    Arch, ConfigBuilder, DescriptorBuilder, Digest, History, HistoryBuilder, ImageConfigurationBuilder,
    ImageIndexBuilder, ImageManifestBuilder, MediaType, OciLayoutBuilder, Os, RootFsBuilder, SCHEMA_VERSION,
};
use serde::Serialize;
use serde_json::json;

use super::{
    hex_digest,
    tarball::{ROOT, Tarball},
    timestamp,
};

/// User that runs the program, the one of images without a shell.
const USER: u64 = 65_532;
/// Folder of objects and keys, which a volume replaces.
const DATA: &str = "var/lib/insula";

/// A file of the layout, named by its content.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            digest: hex_digest(&bytes),
            bytes,
        }
    }

    fn from_document(document: &impl Serialize) -> Result<Self> {
        Ok(Self::new(serde_json::to_vec(document)?))
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, media_type: MediaType) -> Result<DescriptorBuilder> {
        let digest: Digest = format!("sha256:{}", self.digest).parse()?;
        Ok(DescriptorBuilder::default()
            .media_type(media_type)
            .digest(digest)
            .size(self.bytes.len() as u64))
    }
}

/// Facts about an image.
pub(super) struct Image<'a> {
    /// Version of the program.
    pub(super) version: &'a str,
    /// Processor by the name of images: `amd64`.
    pub(super) arch: &'a str,
    /// Time of the commit, in seconds since 1970.
    pub(super) seconds: u64,
}

impl Image<'_> {
    /// Returns the file that `podman load --input` and `docker load --input` take.
    pub(super) fn archive(&self, program: &[u8]) -> Result<Vec<u8>> {
        let layer = self.layer(program)?;
        let layer = Blob::new(layer);
        let config = Blob::from_document(&self.configuration(&layer.digest)?)?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageManifest)
            .config(config.descriptor(MediaType::ImageConfig)?.build()?)
            .layers(vec![layer.descriptor(MediaType::ImageLayer)?.build()?])
            .build()?;
        let manifest = Blob::from_document(&manifest)?;
        let name = format!("insula:{}", self.version);
        let names = HashMap::from([
            ("org.opencontainers.image.ref.name".to_owned(), self.version.to_owned()),
            (
                "io.containerd.image.name".to_owned(),
                format!("docker.io/library/{name}"),
            ),
        ]);
        let shown = manifest.descriptor(MediaType::ImageManifest)?.annotations(names);
        let index = ImageIndexBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageIndex)
            .manifests(vec![shown.build()?])
            .build()?;
        let layout = OciLayoutBuilder::default().image_layout_version("1.0.0").build()?;
        let of_docker = json!([{"Config": config.path(), "RepoTags": [name], "Layers": [layer.path()]}]);

        let mut tar = Tarball::new(self.seconds);
        tar.folder("blobs/", 0o755, ROOT)?;
        tar.folder("blobs/sha256/", 0o755, ROOT)?;
        for blob in [&config, &manifest, &layer] {
            tar.file(&blob.path(), 0o644, &blob.bytes)?;
        }
        // Annotations are a map without an order, so the text goes through one that has it.
        let index = serde_json::to_vec(&serde_json::to_value(&index)?)?;
        tar.file("index.json", 0o644, &index)?;
        tar.file("manifest.json", 0o644, &serde_json::to_vec(&of_docker)?)?;
        tar.file("oci-layout", 0o644, &serde_json::to_vec(&layout)?)?;
        tar.finish()
    }

    /// Returns the one layer, uncompressed.
    fn layer(&self, program: &[u8]) -> Result<Vec<u8>> {
        let mut tar = Tarball::new(self.seconds);
        for folder in ["etc/", "etc/ssl/", "etc/ssl/certs/", "var/", "var/lib/"] {
            tar.folder(folder, 0o755, ROOT)?;
        }
        tar.folder(&format!("{DATA}/"), 0o700, USER)?;
        tar.folder("tmp/", 0o1777, ROOT)?;
        let passwd = format!("root:x:0:0:root:/:/sbin/nologin\ninsula:x:{USER}:{USER}:insula:/{DATA}:/sbin/nologin\n");
        tar.file("etc/passwd", 0o644, passwd.as_bytes())?;
        tar.file("etc/group", 0o644, format!("root:x:0:\ninsula:x:{USER}:\n").as_bytes())?;
        tar.file("etc/ssl/certs/ca-certificates.crt", 0o644, authorities().as_bytes())?;
        tar.file("insula", 0o755, program)?;
        tar.finish()
    }

    /// Returns the configuration of an image with one layer of this digest.
    fn configuration(&self, layer: &str) -> Result<impl Serialize> {
        let text = |text: &str| text.to_owned();
        let config = ConfigBuilder::default()
            .user(format!("{USER}:{USER}"))
            .exposed_ports(vec![text("6443/tcp")])
            .env(vec![
                format!("INSULA_DATA_DIR=/{DATA}/data"),
                text("INSULA_LISTEN=0.0.0.0:6443"),
            ])
            .entrypoint(vec![text("/insula")])
            .cmd(vec![text("start")])
            .volumes(vec![format!("/{DATA}")])
            .stop_signal("SIGTERM")
            .build()?;
        let created = timestamp(self.seconds).context("the time of the commit")?;
        let history: History = HistoryBuilder::default()
            .created(created.clone())
            .created_by("cargo xtask dist")
            .build()?;
        let rootfs = RootFsBuilder::default()
            .typ("layers")
            .diff_ids(vec![format!("sha256:{layer}")])
            .build()?;
        let whole = ImageConfigurationBuilder::default()
            .created(created)
            .architecture(Arch::from(self.arch))
            .os(Os::Linux)
            .config(config)
            .rootfs(rootfs)
            .history(vec![history])
            .build();
        whole.context("the configuration of the image")
    }
}

/// Returns the certificates of public authorities, in PEM.
fn authorities() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        text += "-----BEGIN CERTIFICATE-----\n";
        let encoded = STANDARD.encode(certificate.as_ref());
        for line in encoded.as_bytes().chunks(64) {
            // Base64 is ASCII, and writing to a text does not fail.
            let _ = writeln!(text, "{}", String::from_utf8_lossy(line));
        }
        text += "-----END CERTIFICATE-----\n";
    }
    text
}
