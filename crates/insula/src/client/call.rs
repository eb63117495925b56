//! Calls of gRPC over the HTTP client.

use std::fmt;

use anyhow::{Context, anyhow, bail};
use bytes::{BufMut, Bytes, BytesMut};
use http::{
    HeaderMap, Request,
    header::{CONTENT_TYPE, TE},
};
use http_body_util::{BodyExt, Limited};
use insula_proto::Message;

use super::{ANSWER_BYTES_MAX, Client, RequestBody, whole};

/// Refusal of a call by its server: a gRPC status.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: u32,
    message: String,
}

/// Code of a refusal that ends when somebody changes the state, or gives a word.
const FAILED_PRECONDITION: u32 = 9;

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// Returns true for a refusal by the state that the server found, as without a word that it needs.
pub(crate) fn is_failed_precondition(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<Refusal>();
    refusal.is_some_and(|refusal| refusal.code == FAILED_PRECONDITION)
}

/// Bytes before a message: a flag for compression, and the length.
const FRAME: usize = 5;

impl Client {
    /// Calls a method, such as `/insula.admin.v1.ClusterService/GetInfo`. Fails with the server's
    /// message for any status but OK.
    pub(crate) async fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> anyhow::Result<A> {
        let body = whole(framed(request)?);
        self.call_with(method, body).await
    }

    /// Calls a method with the messages in a body.
    pub(super) async fn call_with<A: Message + Default>(&self, method: &str, body: RequestBody) -> anyhow::Result<A> {
        let (url, request) = self.posted(method, body)?;
        let exchange = async {
            let response = self.http.request(request).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| anyhow!("{error}"))?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            anyhow::Ok((head, trailers, body.to_bytes()))
        };
        let answered = tokio::time::timeout(self.timeout, exchange).await;
        let silent = || format!("{url}: no answer within {} s", self.timeout.as_secs());
        let (head, trailers, body) = match answered.with_context(silent)? {
            Ok(answer) => answer,
            Err(error) => return Err(self.unanswered(error, "POST", &url).await),
        };
        // A refusal without a message has its status among the headers.
        let status = [&trailers, &head.headers].into_iter().find_map(status);
        match status {
            Some((0, _)) => A::decode(message(&body)?).context("the answer is malformed"),
            Some((code, message)) => Err(Refusal { code, message }.into()),
            None => bail!("{url}: {}: this is no answer over gRPC", head.status),
        }
    }

    /// Calls a method that answers a stream of messages, and hands each of them over.
    pub(crate) async fn stream<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
        mut each: impl FnMut(A) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (url, request) = self.posted(method, whole(framed(request)?))?;
        let silent = || format!("{url}: nothing for {} s", self.timeout.as_secs());
        let sent = tokio::time::timeout(self.timeout, self.http.request(request)).await;
        let response = match sent.with_context(silent)? {
            Ok(response) => response,
            Err(error) => return Err(self.unanswered(error.into(), "POST", &url).await),
        };
        let (head, mut body) = response.into_parts();
        let mut ended = status(&head.headers);
        let mut waiting = BytesMut::new();
        loop {
            let frame = tokio::time::timeout(self.timeout, body.frame()).await;
            let Some(frame) = frame.with_context(silent)? else {
                break;
            };
            let frame = frame.with_context(|| url.clone())?;
            match frame.into_data() {
                Ok(data) => waiting.extend_from_slice(&data),
                Err(frame) => ended = ended.or_else(|| status(frame.trailers_ref()?)),
            }
            while let Some(message) = next(&mut waiting)? {
                each(A::decode(message).context("the answer is malformed")?)?;
            }
        }
        match ended {
            Some((0, _)) => Ok(()),
            Some((code, message)) => Err(Refusal { code, message }.into()),
            None => bail!("{url}: {}: the answer ended early", head.status),
        }
    }

    /// Returns the URL of a method, and the request of a call.
    fn posted(&self, method: &str, body: RequestBody) -> anyhow::Result<(String, Request<RequestBody>)> {
        let url = self.at_path(method).server;
        let builder = Request::post(&url)
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers");
        let mut request = builder.body(body)?;
        request.headers_mut().extend(self.identity.clone());
        Ok((url, request))
    }

    /// Returns the workspace of the kubeconfig's URL; root without one.
    pub(crate) fn workspace(&self) -> &str {
        let path = self.server.split_once("/clusters/").map(|(_, path)| path);
        path.and_then(|path| path.split('/').next()).unwrap_or("root")
    }
}

/// Returns a message with the bytes before it.
pub(super) fn framed(request: &impl Message) -> anyhow::Result<Bytes> {
    let mut body = BytesMut::with_capacity(FRAME + request.encoded_len());
    body.put_u8(0);
    body.put_u32(u32::try_from(request.encoded_len()).context("the request is too large")?);
    request.encode(&mut body)?;
    Ok(body.freeze())
}

fn status(headers: &HeaderMap) -> Option<(u32, String)> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers.get("grpc-message").and_then(|text| text.to_str().ok());
    Some((code, unescaped(message.unwrap_or_default())))
}

/// Decodes `%XX`, as gRPC escapes messages.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| first == b'%');
        let byte = escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        out.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Takes the next whole message from the bytes of a stream.
fn next(waiting: &mut BytesMut) -> anyhow::Result<Option<Bytes>> {
    let Some(head) = waiting.get(1..FRAME) else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(head.try_into().context("four bytes")?) as usize;
    if length > ANSWER_BYTES_MAX {
        bail!("a message of {length} bytes: no server sends one");
    }
    if waiting.len() < FRAME + length {
        return Ok(None);
    }
    let mut message = waiting.split_to(FRAME + length).freeze();
    Ok(Some(message.split_off(FRAME)))
}

fn message(body: &Bytes) -> anyhow::Result<&[u8]> {
    body.get(FRAME..).context("the answer is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_stream_are_taken_when_they_are_whole() {
        let mut waiting = BytesMut::from(&b"\0\0\0\0\x02ab\0\0\0\0\x01"[..]);
        assert_eq!(next(&mut waiting).unwrap().as_deref(), Some(&b"ab"[..]));
        assert_eq!(next(&mut waiting).unwrap(), None);
        waiting.extend_from_slice(b"c");
        assert_eq!(next(&mut waiting).unwrap().as_deref(), Some(&b"c"[..]));
        assert_eq!(next(&mut waiting).unwrap(), None);
    }

    #[test]
    fn statuses_are_read() {
        let mut headers = HeaderMap::new();
        assert_eq!(status(&headers), None);
        headers.insert("grpc-status", "5".parse().unwrap());
        headers.insert("grpc-message", "no %22x%22 at 5%, %zz".parse().unwrap());
        assert_eq!(status(&headers), Some((5, "no \"x\" at 5%, %zz".to_owned())));
    }
}
