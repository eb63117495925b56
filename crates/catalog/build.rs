//! Packs the definitions and rules of the built-in kinds: their text is a tenth of its size then.
#![expect(
    clippy::disallowed_methods,
    reason = "the environment is how cargo talks to a build script"
)]

use flate2::{Compression, write::ZlibEncoder};
use std::{env, error::Error, fs, io::Write, path::Path};

const FOLDERS: [&str; 2] = ["crds", "conversions"];

fn main() -> Result<(), Box<dyn Error>> {
    let config = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../config");
    let packed = Path::new(&env::var("OUT_DIR")?).join("definitions.z");
    let mut packed = ZlibEncoder::new(fs::File::create(packed)?, Compression::best());
    for folder in FOLDERS {
        let path = config.join(folder);
        // Relative, so that the same sources at another path are not built again.
        println!("cargo::rerun-if-changed=../../config/{folder}");
        let mut files: Vec<_> = fs::read_dir(path)?.collect::<Result<_, _>>()?;
        files.sort_by_key(fs::DirEntry::file_name);
        for file in files {
            let name = file.file_name().into_string().map_err(|_| "a name is not UTF-8")?;
            let name = name.strip_suffix(".yaml").ok_or("a file is not YAML")?;
            // A byte that is in no text ends a name and a text.
            write!(packed, "{folder}/{name}\0{}\0", fs::read_to_string(file.path())?)?;
        }
    }
    packed.finish()?;
    Ok(())
}
