//! Strict parsing of the Authorization header: anything but exactly one well-formed bearer token is
//! refused, never treated as anonymous.
//!
//! Kubernetes ignores a malformed header. Here a client that failed to identify itself gets an
//! error, and no second credential can hide behind the first.

/// Maximum number of bytes of a token; real ones have about 1–4 KiB.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Refusal of a header: 401. The texts never contain parts of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BearerError {
    /// More than one header: the choice between them must not be arbitrary.
    #[error("more than one Authorization header; send one")]
    Several,
    /// Another scheme than `Bearer`.
    #[error("unsupported Authorization scheme; send `Bearer <token>`")]
    Scheme,
    /// The scheme without a token.
    #[error("empty bearer token; send `Bearer <token>`")]
    Empty,
    /// Spaces or other characters that tokens do not have.
    #[error("malformed bearer token: a token is one word of visible ASCII after `Bearer` and one space")]
    Malformed,
    /// Longer than [`TOKEN_BYTES_MAX`].
    #[error("bearer token too long: at most {TOKEN_BYTES_MAX} bytes")]
    TooLong,
}

/// Returns the token of a request, given the values of all its Authorization headers; `None`
/// without any header.
///
/// # Errors
/// Fails unless there is no header, or one well-formed token.
pub fn token<'a>(headers: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<&'a str>, BearerError> {
    let mut headers = headers.into_iter();
    let Some(value) = headers.next() else { return Ok(None) };
    if headers.next().is_some() {
        return Err(BearerError::Several);
    }
    let value = value.trim_ascii();
    let (scheme, rest) = value.split_at(value.iter().position(|b| *b == b' ').unwrap_or(value.len()));
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return Err(BearerError::Scheme);
    }
    let Some(token) = rest.strip_prefix(b" ") else {
        return Err(BearerError::Empty);
    };
    if token.len() > TOKEN_BYTES_MAX {
        return Err(BearerError::TooLong);
    }
    if !is_token(token) {
        return Err(BearerError::Malformed);
    }
    std::str::from_utf8(token).map(Some).map_err(|_| BearerError::Malformed)
}

/// Returns true for one word of visible ASCII. RFC 6750 allows fewer characters, but token files in
/// use have others.
pub(crate) fn is_token(token: &[u8]) -> bool {
    !token.is_empty() && token.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_well_formed_token_passes() {
        let long = format!("Bearer {}", "x".repeat(TOKEN_BYTES_MAX + 1));
        type Row<'a> = (&'a [&'a str], Result<Option<&'a str>, BearerError>);
        let rows: [Row<'_>; 18] = [
            (&[], Ok(None)),
            (&["Bearer abc"], Ok(Some("abc"))),
            (&["bearer abc"], Ok(Some("abc"))),
            (&["BEARER a.b-c_d~e+f/g=="], Ok(Some("a.b-c_d~e+f/g=="))),
            (&["  Bearer abc  "], Ok(Some("abc"))),
            (&[""], Err(BearerError::Scheme)),
            (&["Bearer"], Err(BearerError::Empty)),
            (&["Bearer "], Err(BearerError::Empty)),
            (&["bearer x y"], Err(BearerError::Malformed)),
            (&["Bearer  x"], Err(BearerError::Malformed)),
            (&["Bearer\tx"], Err(BearerError::Scheme)),
            (&["Bearer x\ty"], Err(BearerError::Malformed)),
            (&["Bearer ü"], Err(BearerError::Malformed)),
            (&["Basic YTpi"], Err(BearerError::Scheme)),
            (&["Bearerx"], Err(BearerError::Scheme)),
            (&["Bearer a", "Bearer a"], Err(BearerError::Several)),
            (&["Bearer a", ""], Err(BearerError::Several)),
            (&[long.as_str()], Err(BearerError::TooLong)),
        ];
        for (headers, want) in rows {
            assert_eq!(token(headers.iter().map(|h| h.as_bytes())), want, "{headers:?}");
        }
    }
}
