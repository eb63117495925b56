//! Nesting of messages on the wire, known before they are decoded: the decoder recurses, and would
//! end the process at a message that nests without end.

use crate::json;
use prost::{
    Message, Name,
    encoding::{WireType, decode_key, decode_varint},
};
use prost_reflect::Kind;

/// Levels that a message may have. A level of JSON in a `google.protobuf.Struct` takes three, and
/// JSON over HTTP may have 128.
const LEVELS_MAX: usize = 384;

/// Checks the nesting of an encoded message. Looks at each byte at most once, and does not recurse.
/// Refuses what is no message, too: the decoder goes into a message that ends beyond the one around
/// it, and notices on the way out.
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
            return Err("it is malformed".to_owned());
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
    /// Reads a field up to its content; `None` if it is malformed or does not end within `end`.
    fn read(message: &[u8], at: usize, end: usize) -> Option<Field> {
        let mut rest = message.get(at..end)?;
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        match wire_type {
            WireType::Varint => drop(decode_varint(&mut rest).ok()?),
            WireType::SixtyFourBit => rest = rest.get(8..)?,
            WireType::ThirtyTwoBit => rest = rest.get(4..)?,
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
                let (from, to) = (end - rest.len(), end - rest.get(length..)?.len());
                return Some(Field::Delimited { number, from, to });
            }
            WireType::StartGroup | WireType::EndGroup => return Some(Field::Group),
        }
        Some(Field::Plain { next: end - rest.len() })
    }
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
    fn values_are_no_levels() {
        for byte in ["c", "\n", "z", "[", "\u{b}"] {
            let request = PublishApiRequest {
                workspace: byte.repeat(5000),
                ..PublishApiRequest::default()
            };
            assert_eq!(check::<PublishApiRequest>(&request.encode_to_vec()), Ok(()), "{byte:?}");
        }
        assert_eq!(check::<PublishApiRequest>(&[]), Ok(()));
    }

    #[test]
    fn malformed_bytes_are_refused_before_the_decoder_goes_into_them() {
        for wrong in [&[0x80_u8; 20][..], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0x07]] {
            assert!(check::<PublishApiRequest>(wrong).unwrap_err().contains("malformed"));
        }
        // A manifest of two bytes, in which a message begins that ends far beyond it.
        let mut beyond = nested(3000);
        let end = beyond.iter().position(|byte| byte & 0x80 == 0).unwrap();
        let length = beyond[1..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        assert!(end == 0 && length > 1);
        beyond.splice(1..=length, [2]);
        assert!(check::<PublishApiRequest>(&beyond).unwrap_err().contains("malformed"));
    }
}
