//! Static tokens: those of a file that is read again when it changes, and the marks of certificates
//! that were made with one of them.
//!
//! By example: with the token of bob's line bob gets a certificate, which bears the mark of that
//! token. Once the line is gone, or has another token, both are refused.

use insula_auth::{
    TokenFile, UserInfo,
    certificate::{Mark, MarkKey},
};
use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock},
};

/// The static tokens that are valid now.
#[derive(Default)]
pub struct StaticTokens {
    key: Option<MarkKey>,
    known: RwLock<Arc<Known>>,
}

#[derive(Default)]
struct Known {
    file: TokenFile,
    marks: HashSet<Mark>,
}

impl StaticTokens {
    /// Returns the tokens of a file.
    pub fn new(file: TokenFile) -> Self {
        let tokens = StaticTokens::default();
        tokens.replace(file);
        tokens
    }

    /// Sets the secret from which marks are made.
    pub fn with_key(mut self, key: Option<MarkKey>) -> Self {
        self.key = key;
        let file = self.known().file.clone();
        self.replace(file);
        self
    }

    /// Replaces the tokens. Those that are no longer among them are refused from now on, with the
    /// certificates that were made with them.
    pub fn replace(&self, file: TokenFile) {
        let marks = file.digests().filter_map(|digest| self.mark_of(digest)).collect();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Known { file, marks });
    }

    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn mark_of(&self, digest: &[u8; 32]) -> Option<Mark> {
        Some(Mark::of_token(self.key?, digest))
    }

    /// Returns the user of a token, if it is one.
    pub(crate) fn user(&self, token: &str) -> Option<UserInfo> {
        self.known().file.lookup(token).cloned()
    }

    /// Returns the mark of certificates that are made with a token; `None` if it is not one of
    /// these.
    pub(crate) fn mark(&self, token: &str) -> Option<Mark> {
        self.mark_of(self.known().file.digest(token)?)
    }

    /// Returns true while the token that a mark stands for is valid.
    pub(crate) fn has(&self, mark: &Mark) -> bool {
        self.known().marks.contains(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_ends_with_its_token() {
        let file = |text: &str| TokenFile::parse(text).expect("a file");
        let tokens = StaticTokens::new(file("first,bob,1\nother,eve,2\n"));
        assert_eq!(tokens.mark("first"), None, "without a secret there are no marks");
        let tokens = tokens.with_key(Some(MarkKey::from_ca_key("secret")));
        let (mark, other) = (
            tokens.mark("first").expect("a mark"),
            tokens.mark("other").expect("a mark"),
        );
        assert_eq!(tokens.mark("unknown"), None);
        assert!(mark != other && tokens.has(&mark) && tokens.has(&other));
        tokens.replace(file("second,bob,1\nother,eve,2\n"));
        assert!(!tokens.has(&mark) && tokens.has(&other));
        assert_eq!(tokens.user("first"), None);
        assert_eq!(tokens.user("second").map(|user| user.name), Some("bob".to_owned()));
    }
}
