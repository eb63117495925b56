//! The texts of `config/crds` and `config/conversions`, which are packed in the program.

use flate2::read::ZlibDecoder;
use std::{io::Read, sync::LazyLock};

const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/definitions.z"));

/// Names and texts in turns, each with a byte after it that is in none of them.
static TEXTS: LazyLock<String> = LazyLock::new(|| {
    let mut texts = String::new();
    let unpacked = ZlibDecoder::new(PACKED).read_to_string(&mut texts);
    unpacked.expect("the build packs text");
    texts
});

/// Returns the text of a file of `config` by its folder and name.
///
/// # Panics
/// There is no such file.
pub(crate) fn text(file: &str) -> &'static str {
    let mut parts = TEXTS.split('\0');
    while let (Some(name), Some(text)) = (parts.next(), parts.next()) {
        if name == file {
            return text;
        }
    }
    panic!("config/{file}.yaml is missing")
}
