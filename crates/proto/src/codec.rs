//! The codec of the generated servers.

use crate::{fault, nesting};
use prost::{Message, Name, bytes::Buf};
use std::marker::PhantomData;
use tonic::{
    Code, Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// tonic's codec, which refuses bytes that are no message as the caller's fault: INVALID_ARGUMENT
/// with the field, where tonic says INTERNAL. It also refuses messages that nest deeper than JSON
/// may, before they are decoded.
#[derive(Debug, Clone)]
pub struct CheckedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for CheckedCodec<T, U> {
    fn default() -> Self {
        CheckedCodec(PhantomData)
    }
}

impl<T, U> Codec for CheckedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CheckedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        CheckedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

/// Decoder of [`CheckedCodec`].
#[derive(Debug)]
pub struct CheckedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Name + Default> Decoder for CheckedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // A message is in one piece.
        nesting::check::<U>(from.chunk()).map_err(|why| fault::undecodable(&why))?;
        self.0.decode(from).map_err(|refusal| match refusal.code() {
            Code::Internal => fault::undecodable(refusal.message()),
            _ => refusal,
        })
    }
}
