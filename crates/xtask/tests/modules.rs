//! Every file of integration tests is compiled. Where a crate's tests are one program
//! (`autotests = false`), cargo does not look for others.

use std::{fs, path::Path};

/// Returns the files of `tests` that neither its `main.rs` nor the crate's manifest names.
fn forgotten(member: &Path) -> Vec<String> {
    let tests = member.join("tests");
    let Ok(main) = fs::read_to_string(tests.join("main.rs")) else {
        return Vec::new();
    };
    let manifest = fs::read_to_string(member.join("Cargo.toml")).expect("a member has a manifest");
    let files = tests.read_dir().expect("the folder of main.rs");
    let names = files.filter_map(|file| {
        let path = file.ok()?.path();
        let is_test = path.extension().is_some_and(|it| it == "rs") || path.join("mod.rs").is_file();
        is_test.then(|| path.file_stem().map(|it| it.to_string_lossy().into_owned()))?
    });
    let named = |name: &str| {
        name == "main"
            || main.lines().any(|line| line == format!("mod {name};"))
            || manifest.contains(&format!("[[test]]\nname = \"{name}\""))
    };
    names.filter(|name| !named(name)).collect()
}

#[test]
fn no_file_of_tests_is_forgotten() {
    let members = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut checked = 0;
    for member in members.read_dir().expect("the folder of the crates") {
        let member = member.expect("a crate").path();
        assert_eq!(forgotten(&member), Vec::<String>::new(), "{}", member.display());
        checked += usize::from(member.join("tests/main.rs").is_file());
    }
    assert!(checked > 3, "{checked} crates have one program of tests");
}
