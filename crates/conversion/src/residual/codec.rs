//! Stored form of residuals: `{"v2": {"fields": {…}}, "v3": …}`; canonical, because maps and
//! patches are sorted.

use super::{BTreeMap, Item, Json, Map, Patch, Ref, json};

/// Encodes all residuals; `None` if there are none, so that absence has one form.
pub(crate) fn encode(residuals: &BTreeMap<String, Patch>) -> Option<Vec<u8>> {
    if residuals.is_empty() {
        return None;
    }
    let all: Map<String, Json> = residuals
        .iter()
        .map(|(version, patch)| (version.clone(), to_json(patch)))
        .collect();
    Some(Json::Object(all).to_string().into_bytes())
}

/// Decodes residuals, and returns what stands beside them under no version's name
/// (`bundle::written`).
pub(crate) fn decode(bytes: Option<&[u8]>) -> Result<(BTreeMap<String, Patch>, Option<Json>), String> {
    let Some(bytes) = bytes else {
        return Ok(Default::default());
    };
    let mut all: Map<String, Json> = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    let beside = all.remove("");
    let patches = all.into_iter().map(|(version, patch)| Ok((version, from_json(patch)?)));
    Ok((patches.collect::<Result<_, String>>()?, beside))
}

pub(super) fn to_json(patch: &Patch) -> Json {
    let mut out = Map::new();
    let guarded = match patch {
        Patch::Set { value, guard } => {
            out.insert("set".to_owned(), value.clone());
            guard
        }
        Patch::Unset { guard, hollow } => {
            let base = if *hollow { json!("hollow") } else { Json::Bool(true) };
            out.insert("unset".to_owned(), base);
            guard
        }
        Patch::Fields(fields) => {
            let fields = fields
                .iter()
                .map(|(name, patch)| (name.clone(), to_json(patch)))
                .collect();
            out.insert("fields".to_owned(), Json::Object(fields));
            &None
        }
        Patch::Within(entries) => {
            let entries = entries
                .iter()
                .map(|(at, patch)| json!({"at": reference(at), "patch": to_json(patch)}));
            out.insert("within".to_owned(), entries.collect());
            &None
        }
        Patch::Items { items, of, guard } => {
            let item = |item: &Item| match item {
                Item::Base(at, None) => json!({"at": reference(at)}),
                Item::Base(at, Some(patch)) => json!({"at": reference(at), "patch": to_json(patch)}),
                Item::New(value) => json!({"new": value}),
            };
            out.insert("items".to_owned(), items.iter().map(item).collect());
            out.insert("of".to_owned(), Json::from(*of));
            guard
        }
    };
    if let Some(guard) = guarded {
        out.insert("guard".to_owned(), Json::from(format!("{guard:016x}")));
    }
    Json::Object(out)
}

fn reference(at: &Ref) -> Json {
    match at {
        Ref::Index(index) => Json::from(*index),
        Ref::Key(key) => key.clone(),
    }
}

pub(super) fn from_json(json: Json) -> Result<Patch, String> {
    let Json::Object(mut map) = json else {
        return Err("an entry is no object".to_owned());
    };
    let guard = match map.remove("guard") {
        None => None,
        Some(Json::String(hex)) => Some(u64::from_str_radix(&hex, 16).map_err(|_| "a guard is no number".to_owned())?),
        Some(_) => return Err("a guard is no text".to_owned()),
    };
    if let Some(value) = map.remove("set") {
        return Ok(Patch::Set { value, guard });
    }
    if let Some(base) = map.remove("unset") {
        let hollow = base == "hollow";
        return Ok(Patch::Unset { guard, hollow });
    }
    if let Some(Json::Object(fields)) = map.remove("fields") {
        let fields = fields
            .into_iter()
            .map(|(name, patch)| Ok::<_, String>((name, from_json(patch)?)));
        return Ok(Patch::Fields(fields.collect::<Result<_, _>>()?));
    }
    if let Some(Json::Array(entries)) = map.remove("within") {
        let entry = |entry: Json| match item(entry)? {
            Item::Base(at, Some(patch)) => Ok((at, patch)),
            _ => Err("an entry has no patch".to_owned()),
        };
        return Ok(Patch::Within(entries.into_iter().map(entry).collect::<Result<_, _>>()?));
    }
    if let Some(Json::Array(items)) = map.remove("items") {
        let of = map
            .get("of")
            .and_then(Json::as_u64)
            .and_then(|n| usize::try_from(n).ok());
        let of = of.ok_or_else(|| "a sequence does not say of how many".to_owned())?;
        return Ok(Patch::Items {
            items: items.into_iter().map(item).collect::<Result<_, _>>()?,
            of,
            guard,
        });
    }
    Err("an entry of no known kind".to_owned())
}

fn item(json: Json) -> Result<Item, String> {
    let Json::Object(mut map) = json else {
        return Err("an item is no object".to_owned());
    };
    if let Some(value) = map.remove("new") {
        return Ok(Item::New(value));
    }
    let at = match map.remove("at") {
        Some(Json::Number(index)) => {
            let index = index.as_u64().and_then(|n| usize::try_from(n).ok());
            Ref::Index(index.ok_or_else(|| "an item's index is no index".to_owned())?)
        }
        Some(key @ Json::Array(_)) => Ref::Key(key),
        _ => return Err("an item names no item".to_owned()),
    };
    let patch = map.remove("patch").map(from_json).transpose()?;
    Ok(Item::Base(at, patch))
}
