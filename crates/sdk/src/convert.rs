//! Conversion between JSON and types, and between the types of two versions.

use crate::Resource;
use insula_api::Json;
use insula_conversion::Code;
use serde::Serialize;
use std::{fmt::Display, panic::catch_unwind, sync::Arc};

/// Reads an object as its type.
///
/// # Errors
/// Returns a sentence for the client.
pub(crate) fn read<T: Resource>(object: &Json) -> Result<T, String> {
    T::deserialize(object).map_err(|error| format!("cannot be read as {}: {error}", T::kind(&())))
}

/// Returns an object as JSON. Fields without a value are absent, whether their type leaves them out
/// or writes null.
///
/// # Errors
/// Returns why the type has no form in JSON.
pub(crate) fn json(object: &impl Serialize) -> Result<Json, String> {
    let mut json = serde_json::to_value(object).map_err(|error| error.to_string())?;
    drop_nulls(&mut json);
    Ok(json)
}

fn drop_nulls(value: &mut Json) {
    match value {
        Json::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Json::Array(items) => items.iter_mut().for_each(drop_nulls),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Returns the conversion from objects of `A` to those of `B`, by `TryFrom` or `From`.
pub(crate) fn code<A, B>() -> Code
where
    A: Resource,
    B: Resource + TryFrom<A>,
    B::Error: Display,
{
    // Conversions run in watches and in workers for many clients, where a panic would end more than
    // one request.
    let convert = |object: &Json| {
        let converted = catch_unwind(|| {
            let converted = B::try_from(read::<A>(object)?).map_err(|error| error.to_string())?;
            json(&converted)
        });
        let (from, to) = (A::version(&()), B::version(&()));
        converted.unwrap_or_else(|_| Err(format!("the conversion from {from} to {to} panicked")))
    };
    Code {
        from: A::version(&()).into_owned(),
        to: B::version(&()).into_owned(),
        convert: Arc::new(convert),
    }
}
