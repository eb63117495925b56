//! The image: its layers, unpacked into an empty root, are all that the program needs to serve.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use bytes::Bytes;
use insula_e2e::{Client, Who, until, unused_port};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    super::{assert_known, variables},
    VERSION, is_there, ok, release,
};

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).unwrap()
}

/// Returns the file of a descriptor, after checking its size and its digest.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let path = layout.join("blobs/sha256").join(digest);
    assert_eq!(fs::metadata(&path).unwrap().len(), descriptor["size"].as_u64().unwrap());
    if is_there("sha256sum") {
        let sum = ok(Command::new("sha256sum").arg(&path), layout);
        assert!(sum.starts_with(digest), "{sum}");
    }
    path
}

/// Copies the C library that a program of the tests needs: those of a release are static.
fn copy_libraries(root: &Path) {
    let listed = Command::new("ldd").arg(root.join("insula")).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(library, to).unwrap();
    }
}

/// A server that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_layers_of_the_image_serve_from_an_empty_root() {
    let Some(out) = release() else { return };
    let folder = TempDir::new().unwrap();
    let (layout, root) = (folder.path().join("layout"), folder.path().join("root"));
    fs::create_dir_all(&layout).unwrap();
    fs::create_dir_all(&root).unwrap();
    let file = out.join(format!("insula-{VERSION}-image-amd64.tar"));
    ok(Command::new("tar").arg("-xf").arg(file), &layout);

    // Docker before version 25 and podman read the same blobs.
    let manifest = json(&blob(&layout, &json(&layout.join("index.json"))["manifests"][0]));
    let of_docker = &json(&layout.join("manifest.json"))[0];
    let config = json(&blob(&layout, &manifest["config"]));
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(of_docker["Layers"].as_array().unwrap().len(), layers.len());
    assert_eq!(of_docker["RepoTags"][0], format!("insula:{VERSION}"));
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), layers.len());
    for layer in layers {
        let mut unpack = Command::new("tar");
        unpack.args(["--numeric-owner", "-xf"]);
        ok(unpack.arg(blob(&layout, layer)), &root);
    }
    let roots = fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
    assert!(roots.matches("BEGIN CERTIFICATE").count() > 50);
    let of_config = &config["config"];
    assert_eq!(of_config["Entrypoint"][0], "/insula");
    assert_eq!(of_config["Cmd"][0], "start");
    let user = of_config["User"].as_str().unwrap();
    assert_eq!(user, "65532:65532");
    let environment = of_config["Env"].to_string();
    assert_known(variables(&environment), Path::new("the image"));

    let allowed = Command::new("chroot").args(["/", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: the layers are right, but this user may not change the root");
    }
    copy_libraries(&root);
    let port = unused_port();
    let mut start = Command::new("chroot");
    start.arg(format!("--userspec={user}")).arg(&root);
    start.args(["/insula", "start"]).env_clear();
    // Here the program `chroot` is found by it.
    start.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    for variable in of_config["Env"].as_array().unwrap() {
        let (name, value) = variable.as_str().unwrap().split_once('=').unwrap();
        start.env(name, value);
    }
    start.env("INSULA_LISTEN", format!("127.0.0.1:{port}"));
    let server = start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Running(server.spawn().unwrap());
    let data = root.join("var/lib/insula/data");
    until("the program in the image serves", || {
        let ended = server.0.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}");
        if !data.join("pki/ca.crt").is_file() {
            return None;
        }
        let client = Client::new(&format!("https://127.0.0.1:{port}"), &data, Who::Anonymous);
        let answer = client.try_send("GET", "/readyz", &[], Bytes::new()).ok()?;
        (answer.code == 200).then_some(())
    });
}
