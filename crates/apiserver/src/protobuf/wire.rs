//! Fields on the wire.

use super::ProtobufError;

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed64(u64),
    /// A number of 32 bits, which no field of the table has.
    Fixed32,
}

/// Fields of a message, in the order of the wire.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u32, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let count = self.varint()?;
                Value::Bytes(self.take(count)?)
            }
            5 => self.take(4).map(|_| Value::Fixed32)?,
            _ => return None,
        };
        Some((u32::try_from(tag >> 3).ok()?, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(ProtobufError::Malformed("cut short"));
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}
