//! Commit and target of the build, the list of samples, and link options of the release build.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    identify();
    write_locked();
    write_samples();
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        for option in link_options() {
            println!("cargo::rustc-link-arg-bins={option}");
        }
    }
}

/// Returns the options with which LLD makes the program smaller; none for other linkers.
///
/// Generic code makes thousands of equal functions; LLD keeps one of each, and the program gets a
/// tenth smaller. Relocations take a sixteenth of the space when packed.
fn link_options() -> Vec<&'static str> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    if variable("RUSTC_LINKER").ends_with("rust-lld") {
        // Without a compiler in between. The program unpacks relocations by itself where musl is
        // linked in, as `cargo xtask dist` does.
        let packs = variable("CARGO_CFG_TARGET_ENV") == "musl";
        let packed = if packs {
            ["-z", "pack-relative-relocs"].as_slice()
        } else {
            &[]
        };
        return [&["--icf=all"], packed].concat();
    }
    if !links_with_lld() {
        return Vec::new();
    }
    let packed = loader_unpacks_relocations().then_some("-Wl,-z,pack-relative-relocs");
    [Some("-Wl,--icf=all"), packed].into_iter().flatten().collect()
}

/// Tells the program its commit, the date of the commit, and its target. The same commit gives the
/// same program; packagers who build without git set `INSULA_COMMIT` and `INSULA_COMMIT_DATE`.
fn identify() {
    for name in ["INSULA_COMMIT", "INSULA_COMMIT_DATE"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for path in ["HEAD", "logs/HEAD"]
        .into_iter()
        .filter_map(|name| git(&["rev-parse", "--git-path", name]))
    {
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let given = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let commit = given("INSULA_COMMIT").or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let date = given("INSULA_COMMIT_DATE").or_else(|| git(&["show", "-s", "--format=%cs", "HEAD"]));
    let unknown = || "unknown".to_owned();
    println!(
        "cargo::rustc-env=INSULA_BUILD_COMMIT={}",
        commit.unwrap_or_else(unknown)
    );
    println!("cargo::rustc-env=INSULA_BUILD_DATE={}", date.unwrap_or_else(unknown));
    println!(
        "cargo::rustc-env=INSULA_BUILD_TARGET={}",
        env::var("TARGET").unwrap_or_else(|_| unknown())
    );
}

/// Writes the lock file for `insula version`, without checksums, and of sources only that there is
/// one.
fn write_locked() {
    let locked = Path::new("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", locked.display());
    let text = fs::read_to_string(locked).expect("the workspace has a lock file");
    let kept = text.lines().filter(|line| !line.starts_with("checksum = "));
    let short: Vec<&str> = kept
        .map(|line| {
            if line.starts_with("source = ") {
                "source = \"\""
            } else {
                line
            }
        })
        .collect();
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("locked.txt"), short.join("\n")).expect("the folder is writable");
}

/// Writes the list of all samples, `SAMPLES` of `sample_sets.rs`: the folders of
/// `config/samples/conversions` with a `conversion.yaml`. Those without belong to the guide.
fn write_samples() {
    let root = Path::new("../../config/samples/conversions");
    println!("cargo::rerun-if-changed={}", root.display());
    let folders = entries(root)
        .into_iter()
        .filter(|folder| folder.join("conversion.yaml").exists());
    let samples: Vec<String> = folders.map(|folder| sample(&folder)).collect();
    let text = format!(
        "static SAMPLES: [Sample; {}] = [\n{}];\n",
        samples.len(),
        samples.concat()
    );
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("samples.rs"), text).expect("the folder is writable");
}

/// Returns the source of a sample: its name, the first sentence of the schema's comment, and the
/// paths of its files.
fn sample(folder: &Path) -> String {
    let folder = fs::canonicalize(folder).expect("the folder exists");
    let schema = fs::read_to_string(folder.join("schema.yaml")).expect("a sample has a schema");
    let comment: Vec<&str> = schema.lines().map_while(|line| line.strip_prefix("# ")).collect();
    let comment = comment.join(" ");
    let ends = [". ", ": ", "; "].iter().filter_map(|end| comment.find(end));
    let about = &comment[..ends.min().unwrap_or(comment.len())];
    assert!(!about.is_empty(), "{}: the schema has no comment", folder.display());
    format!(
        "Sample {{ name: {:?}, about: {:?}, schema: include_str!({:?}), rules: include_str!({:?}), \
         object: include_str!({:?}) }},\n",
        folder.file_name().expect("a folder has a name"),
        about.trim_end_matches('.'),
        folder.join("schema.yaml"),
        folder.join("conversion.yaml"),
        object(&folder)
    )
}

/// Returns the object that shows most: the largest file among those of v1, or among those of the
/// version that wrote the object, which `<case>-of-<version>.<version>.yaml` names.
fn object(folder: &Path) -> PathBuf {
    let shows = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (case, version) = name.split_once('.').unwrap_or_default();
        match case.split_once("-of-") {
            Some((_, writer)) => writer == version,
            None => version == "v1",
        }
    };
    let files = entries(&folder.join("objects")).into_iter().filter(shows);
    let largest = files.max_by_key(|path| fs::metadata(path).map_or(0, |metadata| metadata.len()));
    largest.unwrap_or_else(|| panic!("{}: there is no object to show", folder.display()))
}

/// Returns the entries of a folder, by name.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = read.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Returns the first line that git prints; `None` without git, or outside of its repositories.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next().filter(|line| !line.is_empty())?;
    output.status.success().then(|| line.to_owned())
}

/// Returns true if this machine's loader reads packed relocations, as glibc does since 2.36. A
/// program that has them says so, and an older loader refuses it.
fn loader_unpacks_relocations() -> bool {
    let is_native = env::var("HOST").ok() == env::var("TARGET").ok();
    let version = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let minor = version
        .ok()
        .and_then(|text| text.trim().strip_prefix("glibc 2.")?.parse().ok());
    is_native && minor.is_some_and(|minor: u32| minor >= 36)
}

/// Returns true if the compiler links with the LLD that it brings along, as it does on Linux unless
/// another linker is set.
fn links_with_lld() -> bool {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let target = variable("TARGET");
    let is_default = variable("RUSTC_LINKER").is_empty() && !variable("CARGO_ENCODED_RUSTFLAGS").contains("link");
    let sysroot = Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output();
    let Ok(sysroot) = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()) else {
        return false;
    };
    let lld = Path::new(&sysroot).join(format!("lib/rustlib/{target}/bin/gcc-ld/ld.lld"));
    is_default && target == "x86_64-unknown-linux-gnu" && lld.exists()
}
