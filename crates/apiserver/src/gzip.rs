//! Compression of large answers for clients that accept gzip.
//!
//! As in Kubernetes, whole answers of 128 KiB or more are compressed, and watches never. Go's
//! clients accept gzip by default, so most lists are compressed on the wire. An answer is
//! compressed piece by piece while it is sent: no piece keeps a thread for long, and the server
//! does no work for pieces that a client does not read.

use crate::reply::Form;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::BodyExt;
use std::io::Write;

/// Bytes of the smallest answer that is compressed, as in kube-apiserver.
const BYTES_MIN: u64 = 128 << 10;
/// Bytes that are compressed before the task yields: less than a millisecond's work.
const PIECE_BYTES: usize = 64 << 10;

/// Compresses an answer that is large and whose client accepts gzip.
pub(crate) fn compress(response: Response<Body>, form: Form, request: &HeaderMap) -> Response<Body> {
    let length = response.body().size_hint().exact();
    let large = length.is_some_and(|bytes| bytes >= BYTES_MIN) || form == Form::InChunks;
    if !large || response.headers().contains_key(header::CONTENT_ENCODING) || !accepts(request) {
        return response;
    }
    let mut response = response.map(|body| {
        // Lists are repetitive: the fastest level is nearly as good as the best one.
        let packing = Packing {
            body,
            left: Bytes::new(),
            encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())),
        };
        Body::from_stream(futures_util::stream::unfold(packing, |mut packing| async move {
            let piece = packing.next().await.transpose()?;
            Some((piece, packing))
        }))
    });
    mark(&mut response);
    response
}

/// Sets the headers of a compressed body, which depends on `Accept-Encoding`.
pub(crate) fn mark<T>(response: &mut Response<T>) {
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Returns true for clients that name gzip with a quality above zero.
pub(crate) fn accepts(request: &HeaderMap) -> bool {
    let values = request.get_all(header::ACCEPT_ENCODING).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
            let refused = |part: &str| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
            named && !parts.any(refused)
        })
}

/// A body that is being compressed.
struct Packing {
    body: Body,
    left: Bytes,
    /// `None` after the last byte.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Packing {
    /// Returns the next compressed bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, axum::Error> {
        while let Some(encoder) = &mut self.encoder {
            if self.left.is_empty() {
                match self.body.frame().await {
                    Some(frame) => self.left = frame?.into_data().unwrap_or_default(),
                    None => return self.end(),
                }
                continue;
            }
            let piece = self.left.split_to(self.left.len().min(PIECE_BYTES));
            encoder.write_all(&piece).map_err(axum::Error::new)?;
            let out = std::mem::take(encoder.get_mut());
            tokio::task::yield_now().await;
            if !out.is_empty() {
                return Ok(Some(out.into()));
            }
        }
        Ok(None)
    }

    fn end(&mut self) -> Result<Option<Bytes>, axum::Error> {
        let last = self.encoder.take().map(GzEncoder::finish).transpose();
        Ok(last.map_err(axum::Error::new)?.map(Bytes::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::{self, Read};

    fn request(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            header::ACCEPT_ENCODING,
            HeaderValue::from_str(accept).expect("a header"),
        )])
    }

    async fn sent(bytes: Vec<u8>, accept: &str) -> (HeaderMap, Bytes) {
        let (head, body) = compress(Response::new(Body::from(bytes)), Form::Own, &request(accept)).into_parts();
        (head.headers, body.collect().await.expect("a body").to_bytes())
    }

    fn unpacked(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut out).expect("gzip");
        out
    }

    #[tokio::test]
    async fn large_answers_decompress_to_themselves() {
        let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i / 7 % 251) as u8).collect();
        let (headers, body) = sent(bytes.clone(), "deflate, gzip;q=0.5").await;
        assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
        assert_eq!(headers[header::VARY], "Accept-Encoding");
        assert!(body.len() < bytes.len() / 4, "{}", body.len());
        assert_eq!(unpacked(&body), bytes);
    }

    #[tokio::test]
    async fn small_answers_and_other_encodings_stay_uncompressed() {
        let large = vec![b'a'; BYTES_MIN as usize];
        for accept in ["identity", "gzip;q=0", "gzip; q=0.0, br", "*"] {
            let (headers, body) = sent(large.clone(), accept).await;
            assert!(headers.get(header::CONTENT_ENCODING).is_none(), "{accept}");
            assert_eq!(body, large, "{accept}");
        }
        let (headers, body) = sent(large[1..].to_vec(), "gzip").await;
        assert!(headers.is_empty());
        assert_eq!(body, large[1..]);
    }

    #[tokio::test]
    async fn streams_are_never_compressed() {
        let pieces = (0..4).map(|_| Ok::<_, io::Error>(Bytes::from(vec![b'a'; 100_000])));
        let stream = Body::from_stream(futures_util::stream::iter(pieces));
        let response = compress(Response::new(stream), Form::Own, &request("gzip"));
        assert!(response.headers().get(header::CONTENT_ENCODING).is_none());
    }
}
