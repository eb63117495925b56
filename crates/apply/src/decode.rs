//! Decoding of patches from request bodies, and the extent of JSON values.

use crate::error::PatchError;
use insula_api::Json;
use serde_json::error::Category;

/// Decodes the body of a patch.
///
/// # Errors
/// Returns [`PatchError::Malformed`] if the body is not JSON.
pub fn decode(body: &[u8]) -> Result<Json, PatchError> {
    serde_json::from_slice(body).map_err(|error| {
        // Clients are known to look for this text only; the others name line and column.
        let problem = match error.classify() {
            Category::Eof => "unexpected end of JSON input".to_owned(),
            Category::Io | Category::Syntax | Category::Data => error.to_string(),
        };
        PatchError::Malformed(format!("error decoding patch: {problem}"))
    })
}

/// Size and depth of a value, measured without recursion, so that later recursive walks are safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) nodes: usize,
    pub(crate) depth: usize,
    /// Bytes of compact JSON, approximately: escape sequences count as the characters that they
    /// stand for.
    pub(crate) bytes: usize,
}

pub(crate) fn extent(value: &Json) -> Extent {
    let mut found = Extent {
        nodes: 0,
        depth: 0,
        bytes: 0,
    };
    let mut stack = vec![(value, 1usize)];
    while let Some((value, depth)) = stack.pop() {
        found.nodes += 1;
        found.depth = found.depth.max(depth);
        match value {
            Json::Object(map) => {
                found.bytes += 2;
                for (key, child) in map {
                    found.bytes += key.len() + 4;
                    stack.push((child, depth + 1));
                }
            }
            Json::Array(list) => {
                found.bytes += 2 + list.len();
                stack.extend(list.iter().map(|child| (child, depth + 1)));
            }
            Json::String(text) => found.bytes += text.len() + 2,
            Json::Number(_) | Json::Bool(_) | Json::Null => found.bytes += 4,
        }
    }
    found
}
