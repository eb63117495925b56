//! Lists the scripts of each folder of `scripts/`, so that a new script needs no line of code.

use std::{env, fs, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=scripts");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    for group in fs::read_dir("scripts").expect("the folder is there") {
        let group = group.expect("an entry");
        let files = fs::read_dir(group.path()).expect("a folder of scripts");
        let mut names: Vec<String> = files
            .map(|file| file.expect("an entry").path().with_extension(""))
            .map(|path| path.file_name().expect("a file").to_string_lossy().into_owned())
            .collect();
        names.sort();
        let group = group.file_name().to_string_lossy().into_owned();
        let text = format!("scripts!({group:?}: {});\n", names.join(", "));
        fs::write(Path::new(&out).join(format!("{group}.rs")), text).expect("is written");
    }
}
