//! Pages of lists: their size, and opaque tokens that lead from one page to the next.
//!
//! A token holds the revision of the first page and a position, behind a code that authenticates
//! both, the method and the fields that select what is listed. The key of the code is of the
//! installation. Both are hidden under the code, because a position may name an object that the
//! caller may not see. A token gives no right: each page is authorised at the latest state.

use crate::{
    session::Session,
    status::{self, Fault},
};
use data_encoding::HEXLOWER;
use insula_api::{ClusterName, ObjectKey, Revision, Scope, names::well_known};
use insula_catalog::ids;
use insula_proto::admin::v1::ErrorReason;
use insula_store::{Gone, Snapshot};
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use tonic::{Code, Status};

/// Entries of a page where the caller names no number, and the most that a page has.
const SIZE_DEFAULT: usize = 100;
const SIZE_MAX: usize = 1000;
/// Maximum number of digits of a token.
const TOKEN_CHARS_MAX: usize = 8192;
/// Bytes of a token before its position: the code and the revision.
const CODE_BYTES: usize = 16;
const HEAD_BYTES: usize = CODE_BYTES + 8;
/// Bytes that one hash hides.
const BLOCK_BYTES: usize = 32;
/// The export of `root` whose identity is the key of the codes. Every installation has it from its
/// first start, all servers of one store read the same, and only administrators may read it.
const KEY_EXPORT: &str = "tenancy.kcp.io";
/// Time that a page waits for a revision that this server has not seen yet.
const REVISION_WAIT: Duration = Duration::from_secs(3);

/// The page that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    /// Entries at most.
    pub(crate) size: usize,
    /// Revision of the list and the position after which the page begins; `None` for the first
    /// page.
    pub(crate) after: Option<(Revision, String)>,
    codes: Codes,
}

/// Codes of the tokens of one method with some fields: half a hash of a key, under the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Codes(Sha256Key);

type Sha256Key = [u8; 32];

impl Codes {
    fn new<'a>(secret: &[u8], texts: impl Iterator<Item = &'a str>) -> Self {
        let mut key = Sha256::new_with_prefix(secret);
        for text in texts {
            key.update((text.len() as u64).to_be_bytes());
            key.update(text);
        }
        Codes(key.finalize().into())
    }

    /// Returns the code of a revision with a position. The outer hash keeps others from appending
    /// to the position.
    fn code(&self, signed: &[u8]) -> [u8; CODE_BYTES] {
        let inner = Sha256::new_with_prefix(self.0).chain_update(signed).finalize();
        let outer = Sha256::new_with_prefix(self.0).chain_update(inner).finalize();
        std::array::from_fn(|index| outer[index])
    }

    /// Hides text under a code, or shows it again: each code has a stream of its own.
    fn hide(&self, code: &[u8], text: &mut [u8]) {
        for (block, bytes) in (0_u64..).zip(text.chunks_mut(BLOCK_BYTES)) {
            let stream = Sha256::new_with_prefix(self.0).chain_update(b"hide").chain_update(code);
            let stream = stream.chain_update(block.to_be_bytes()).finalize();
            bytes.iter_mut().zip(stream).for_each(|(byte, hidden)| *byte ^= hidden);
        }
    }

    fn token(&self, revision: Revision, position: &str) -> String {
        let mut text = [&revision.0.to_be_bytes(), position.as_bytes()].concat();
        let code = self.code(&text);
        self.hide(&code, &mut text);
        HEXLOWER.encode(&[&code[..], &text].concat())
    }

    fn position(&self, token: &str) -> Option<(Revision, String)> {
        let read = HEXLOWER.decode(token.as_bytes()).ok();
        let bytes = read.filter(|bytes| token.len() <= TOKEN_CHARS_MAX && bytes.len() >= HEAD_BYTES)?;
        let (code, hidden) = bytes.split_at_checked(CODE_BYTES)?;
        let mut signed = hidden.to_vec();
        self.hide(code, &mut signed);
        let signed = &signed[..];
        let (revision, position) = signed.split_at_checked(HEAD_BYTES - CODE_BYTES)?;
        let revision = u64::from_be_bytes(revision.try_into().ok()?);
        let position = String::from_utf8(position.to_vec()).ok()?;
        (self.code(signed) == *code).then_some((Revision(revision), position))
    }
}

/// Returns the key of the codes. It begins empty on an installation that is only starting.
fn secret(session: &Session) -> Vec<u8> {
    let key = ObjectKey {
        resource: ids::secrets(),
        cluster: ClusterName::root(),
        namespace: well_known::IDENTITY_NAMESPACE.into(),
        name: KEY_EXPORT.into(),
    };
    let secret = session.snapshot.get(&key).map(|entry| entry.object.body_value());
    let text = secret.as_ref().and_then(|secret| secret["data"]["key"].as_str());
    text.unwrap_or_default().as_bytes().to_vec()
}

impl Page {
    /// Reads the page of a request. `filter` has all fields that select what is listed.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a negative size, and for a token of another method or filter.
    pub(crate) fn read(session: &Session, filter: &[&str], page_size: i32, page_token: &str) -> Result<Page, Status> {
        let secret = secret(session);
        Page::parse(&secret, session.caller.method(), filter, page_size, page_token)
    }

    pub(crate) fn parse(
        secret: &[u8],
        method: &str,
        filter: &[&str],
        page_size: i32,
        page_token: &str,
    ) -> Result<Page, Status> {
        let size = match usize::try_from(page_size) {
            Ok(0) => SIZE_DEFAULT,
            Ok(size) => size.min(SIZE_MAX),
            Err(_) => return Err(status::invalid("page_size", "must not be negative")),
        };
        let codes = Codes::new(secret, std::iter::once(method).chain(filter.iter().copied()));
        let after = match page_token {
            "" => None,
            token => Some(codes.position(token).ok_or_else(wrong_token)?),
        };
        Ok(Page { size, after, codes })
    }

    /// Returns the state that the page is of: that of the first page.
    ///
    /// # Errors
    /// OUT_OF_RANGE once its revision is compacted, INVALID_ARGUMENT for one that this server does
    /// not see in time: the store has gone back to an earlier state.
    pub(crate) async fn snapshot(&self, session: &Session) -> Result<Snapshot, Status> {
        let Some((revision, _)) = self.after else {
            return Ok(session.snapshot.clone());
        };
        let store = &session.api.registry.store;
        let seen = match store.at_revision(revision) {
            Err(Gone::Future { .. }) => {
                let seen = tokio::time::timeout(REVISION_WAIT, store.snapshot(revision)).await;
                seen.is_ok().then(|| store.at_revision(revision))
            }
            known => Some(known),
        }
        .ok_or_else(wrong_token)?;
        // What a page reads is not known here.
        seen.and_then(|snapshot| {
            snapshot
                .check_scope(&Scope::everything())
                .map(|()| snapshot.charged_to(session.caller.work()))
        })
        .map_err(|gone| compacted(&format!("page_token: {gone}: begin with the first page again")))
    }

    /// Returns the token of the page that begins after a position of a list at a revision.
    pub(crate) fn next(&self, revision: Revision, position: &str) -> String {
        self.codes.token(revision, position)
    }
}

/// Returns the refusal of a revision that is compacted.
pub(crate) fn compacted(message: &str) -> Status {
    Fault::new(Code::OutOfRange, ErrorReason::RevisionCompacted, message).status()
}

fn wrong_token() -> Status {
    let problem = "is none of this method and these fields: send next_page_token of the page before, \
                   with all other fields unchanged";
    Fault::new(
        Code::InvalidArgument,
        ErrorReason::WrongPageToken,
        format!("page_token: {problem}"),
    )
    .field("page_token", problem, "")
    .status()
}

/// Hashes texts (FNV-1a, which stays the same in other versions of the program).
pub(crate) fn hash<'a>(texts: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = texts.flat_map(|text| text.bytes().chain(std::iter::once(0)));
    hash_bytes(bytes)
}

/// Hashes bytes as [`hash`] does.
pub(crate) fn hash_bytes(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_default_and_a_limit() {
        for (asked, want) in [(0, Some(100)), (1, Some(1)), (1001, Some(1000)), (-1, None)] {
            let page = Page::parse(b"k", "/m", &[], asked, "");
            assert_eq!(page.map(|page| page.size).ok(), want, "{asked}");
        }
    }

    #[test]
    fn tokens_are_bound_to_method_and_filter() {
        let first = Page::parse(b"k", "/m", &["root:a", "x=y"], 2, "").expect("a page");
        let token = first.next(Revision(7), "name/é");
        let next = Page::parse(b"k", "/m", &["root:a", "x=y"], 9, &token).expect("the next page");
        assert!(
            !token.contains(&HEXLOWER.encode(b"name")),
            "the position is readable: {token}"
        );
        assert_eq!((next.size, next.after), (9, Some((Revision(7), "name/é".to_owned()))));
        for (method, filter) in [
            ("/other", ["root:a", "x=y"]),
            ("/m", ["root:b", "x=y"]),
            ("/m", ["root:ax", "=y"]),
        ] {
            let refused = Page::parse(b"k", method, &filter, 2, &token).expect_err("another request");
            assert_eq!(refused.code(), Code::InvalidArgument, "{method} {filter:?}");
        }
        let edited = |at: usize| {
            let digit = if &token[at..=at] == "0" { "1" } else { "0" };
            format!("{}{digit}{}", &token[..at], &token[at + 1..])
        };
        let edits = (0..token.len()).map(edited);
        let cuts = (2..token.len()).step_by(2).map(|end| token[..end].to_owned());
        for wrong in edits.chain(cuts).chain([format!("{token}61")]) {
            let refused = Page::parse(b"k", "/m", &["root:a", "x=y"], 2, &wrong).expect_err("another token");
            assert_eq!(refused.code(), Code::InvalidArgument, "{wrong}");
        }
        let foreign = Page::parse(b"l", "/m", &["root:a", "x=y"], 2, &token).expect_err("another installation");
        assert_eq!(foreign.code(), Code::InvalidArgument);
        for nonsense in ["x", "00", "zz", &token[1..], &"0".repeat(10_000)] {
            let refused = Page::parse(b"k", "/m", &["root:a", "x=y"], 2, nonsense).expect_err("no token");
            assert_eq!(refused.code(), Code::InvalidArgument, "{nonsense}");
        }
    }
}
