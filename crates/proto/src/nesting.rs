//! Nesting of messages on the wire, known before they are decoded: the decoder recurses, and would
//! end the process at a message that nests without end.

use crate::json;
use prost::{Message, Name};
use prost_reflect::Kind;

/// Levels that a message may have. A level of JSON in a `google.protobuf.Struct` takes three, and
/// JSON over HTTP may have 128.
const LEVELS_MAX: usize = 384;

/// Checks the nesting of an encoded message. Looks at each byte at most once, and does not recurse.
/// Bytes that are no message are left to the decoder.
///
/// # Errors
/// The text says why it is not to be decoded.
pub(crate) fn check<M: Message + Name>(message: &[u8]) -> Result<(), String> {
    let Some(descriptor) = json::descriptor::<M>() else {
        return Ok(());
    };
    // The messages that are open, each with its end; the innermost at the end.
    let mut open = vec![(message.len(), descriptor)];
    let mut at = 0;
    while let Some((end, descriptor)) = open.last() {
        if at >= *end {
            at = *end;
            open.pop();
            continue;
        }
        let Some(field) = Field::read(message, at, *end) else {
            return Ok(());
        };
        match field {
            Field::Plain { next } => at = next,
            Field::Delimited { number, from, to } => {
                let kind = descriptor.get_field(number).map(|field| field.kind());
                let Some(Kind::Message(below)) = kind else {
                    at = to;
                    continue;
                };
                if open.len() == LEVELS_MAX {
                    return Err(format!("it nests more than {LEVELS_MAX} levels"));
                }
                at = from;
                open.push((to, below));
            }
            Field::Group => return Err("it has a group, which no message of this API has".to_owned()),
        }
    }
    Ok(())
}

/// The extent of a field.
enum Field {
    Plain { next: usize },
    Delimited { number: u32, from: usize, to: usize },
    Group,
}

impl Field {
    fn read(message: &[u8], at: usize, end: usize) -> Option<Field> {
        let (tag, at) = varint(message, at, end)?;
        let plain = |next: usize| (next <= end).then_some(Field::Plain { next });
        match tag & 7 {
            0 => plain(varint(message, at, end)?.1),
            1 => plain(at + 8),
            5 => plain(at + 4),
            2 => {
                let number = u32::try_from(tag >> 3).ok()?;
                let (length, from) = varint(message, at, end)?;
                let to = from.checked_add(usize::try_from(length).ok()?)?;
                (to <= end).then_some(Field::Delimited { number, from, to })
            }
            3 | 4 => Some(Field::Group),
            _ => None,
        }
    }
}

fn varint(message: &[u8], at: usize, end: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for (n, byte) in message.get(at..end)?.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return Some((value, at + n + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::v1::PublishApiRequest;
    use prost::encoding;

    /// Returns an encoded request with a manifest of so many levels of JSON.
    fn nested(levels: usize) -> Vec<u8> {
        let within = |tag: u32, content: &[u8]| {
            let mut message = Vec::new();
            encoding::bytes::encode(tag, &content.to_vec(), &mut message);
            message
        };
        let mut object = Vec::new();
        for _ in 1..levels {
            // A Struct in a Value, as the value of an entry of a Struct.
            let value = within(5, &object);
            let entry = [within(1, b"a"), within(2, &value)].concat();
            object = within(1, &entry);
        }
        within(3, &object)
    }

    #[test]
    fn as_many_levels_as_json_has_are_decoded() {
        let deep = nested(127);
        assert_eq!(check::<PublishApiRequest>(&deep), Ok(()));
        let request = PublishApiRequest::decode(&*deep).unwrap();
        assert_eq!(request.encode_to_vec(), deep);
        for levels in [130, 3000] {
            let refused = check::<PublishApiRequest>(&nested(levels)).unwrap_err();
            assert!(refused.contains("384 levels"), "{refused}");
        }
        assert!(check::<PublishApiRequest>(&[0x0b; 1000]).unwrap_err().contains("group"));
    }

    #[test]
    fn values_and_malformed_bytes_are_no_levels() {
        for byte in ["c", "\n", "z", "[", "\u{b}"] {
            let request = PublishApiRequest {
                workspace: byte.repeat(5000),
                ..PublishApiRequest::default()
            };
            assert_eq!(check::<PublishApiRequest>(&request.encode_to_vec()), Ok(()), "{byte:?}");
        }
        for wrong in [&[0x80_u8; 20][..], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0x07], &[]] {
            assert_eq!(check::<PublishApiRequest>(wrong), Ok(()));
        }
    }
}
