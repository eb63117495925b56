//! Token files in the format of Kubernetes and kcp: lines of `token,user,uid,"group1,group2"`.
//!
//! Memory holds only digests of tokens, and a lookup takes equally long for a wrong token and a
//! right one. Kubernetes skips bad lines and lets the last of two entries win; this parser refuses
//! both: a misread credential file grants rights by accident.

use crate::bearer::is_token;
use crate::user::UserInfo;
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fmt, hint::black_box};

/// Maximum number of lines of a file: each lookup compares all of them.
pub(crate) const TOKEN_FILE_LINES_MAX: usize = 10_000;

/// Users by token digest.
#[derive(Clone, Default)]
pub struct TokenFile {
    entries: Vec<([u8; 32], UserInfo)>,
}

/// Error of one line. The text never contains a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TokenLineError {
    /// Line number from 1.
    pub line: usize,
    /// The problem, with the correct form.
    pub problem: String,
}

/// Refusal of a file, with the errors of all lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFileError(pub Vec<TokenLineError>);

impl std::error::Error for TokenFileError {}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if index > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Digests of weak tokens can be guessed; logs show none.
        f.debug_struct("TokenFile")
            .field("tokens", &self.entries.len())
            .finish()
    }
}

impl TokenFile {
    /// Parses a token file. Skips empty lines.
    ///
    /// # Errors
    /// Returns an error for each bad line; then none of the file is used.
    pub fn parse(csv: &str) -> Result<TokenFile, TokenFileError> {
        let (mut file, mut errors) = (TokenFile::default(), Vec::new());
        let mut first_lines: BTreeMap<[u8; 32], usize> = BTreeMap::new();
        let csv = csv.strip_prefix('\u{feff}').unwrap_or(csv);
        for (index, text) in csv.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            let line = index + 1;
            let mut refuse = |problem: String| errors.push(TokenLineError { line, problem });
            if file.entries.len() >= TOKEN_FILE_LINES_MAX {
                refuse(format!("more than {TOKEN_FILE_LINES_MAX} tokens"));
                break;
            }
            match entry(text) {
                Err(problem) => refuse(problem.to_owned()),
                Ok((digest, user)) => match first_lines.get(&digest) {
                    Some(first) => refuse(format!("the same token as in line {first}; each token must be unique")),
                    None => {
                        first_lines.insert(digest, line);
                        file.entries.push((digest, user));
                    }
                },
            }
        }
        if errors.is_empty() {
            Ok(file)
        } else {
            Err(TokenFileError(errors))
        }
    }

    /// Returns the user of a token, or `None` if it is unknown.
    pub fn lookup(&self, token: &str) -> Option<&UserInfo> {
        self.find(token).map(|(_, user)| user)
    }

    /// Returns the digest of a token, or `None` if it is unknown.
    pub fn digest(&self, token: &str) -> Option<&[u8; 32]> {
        self.find(token).map(|(digest, _)| digest)
    }

    /// Returns the digests of all tokens.
    pub fn digests(&self) -> impl Iterator<Item = &[u8; 32]> {
        self.entries.iter().map(|(digest, _)| digest)
    }

    fn find(&self, token: &str) -> Option<&([u8; 32], UserInfo)> {
        let wanted: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let mut found = None;
        for entry in &self.entries {
            let difference = entry
                .0
                .iter()
                .zip(&wanted)
                .fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
            // No early exit: the time must reveal neither the position nor a common prefix.
            if black_box(difference) == 0 {
                found = Some(entry);
            }
        }
        found
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn entry(line: &str) -> Result<([u8; 32], UserInfo), &'static str> {
    let fields = fields(line)?;
    let (token, user, uid, groups) = match fields.as_slice() {
        [token, user, uid] => (token, user, uid, ""),
        [token, user, uid, groups] => (token, user, uid, groups.as_str()),
        [_, _, _, _, ..] => {
            return Err("more than 4 fields; several groups are one field in quotes: token,user,uid,\"a,b\"");
        }
        _ => return Err("fewer than 3 fields; want token,user,uid and if any \"group1,group2\""),
    };
    if !is_token(token.as_bytes()) {
        return Err("the token is empty, or has characters that no Authorization header can carry");
    }
    if user.is_empty() {
        return Err("the user name is empty");
    }
    let groups = groups
        .split(',')
        .map(str::trim)
        .filter(|group| !group.is_empty())
        .map(str::to_owned)
        .collect();
    let digest = Sha256::digest(token.as_bytes()).into();
    Ok((digest, UserInfo::authenticated(user.as_str(), uid.as_str(), groups)))
}

/// Splits one line of RFC 4180 into fields. Refuses a quoted field that spans lines: no field here
/// needs it.
fn fields(line: &str) -> Result<Vec<String>, &'static str> {
    let (mut fields, mut rest) = (Vec::new(), line);
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                if rest[..end].contains('"') {
                    return Err("a quote inside a field that does not begin with one");
                }
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(fields),
            None => return Err("text after a closing quote"),
        }
    }
}

fn quoted_field(mut rest: &str) -> Result<(String, &str), &'static str> {
    let mut field = String::new();
    loop {
        let Some((text, after)) = rest.split_once('"') else {
            return Err("a quote that is not closed");
        };
        field.push_str(text);
        match after.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None => return Ok((field, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_find_their_users() {
        let file = TokenFile::parse(
            "\u{feff}t1,ada,1,\"dev, ops,\"\r\n\nt2,bob,2\nt3,\"o\"\"neil, eve\",,system:masters\nt4,zoë,4,\"\"\n",
        )
        .expect("a token file");
        assert_eq!(file.len(), 4);
        type Row<'a> = (&'a str, Option<(&'a str, &'a str, Vec<&'a str>)>);
        let rows: [Row<'_>; 7] = [
            ("t1", Some(("ada", "1", vec!["dev", "ops", "system:authenticated"]))),
            ("t2", Some(("bob", "2", vec!["system:authenticated"]))),
            (
                "t3",
                Some(("o\"neil, eve", "", vec!["system:masters", "system:authenticated"])),
            ),
            ("t4", Some(("zoë", "4", vec!["system:authenticated"]))),
            ("t5", None),
            ("", None),
            ("T1", None),
        ];
        for (token, want) in rows {
            let got = file.lookup(token);
            let got = got.map(|u| {
                (
                    u.name.as_str(),
                    u.uid.as_str(),
                    u.groups.iter().map(String::as_str).collect::<Vec<_>>(),
                )
            });
            assert_eq!(got, want, "{token}");
        }
        assert_eq!(format!("{file:?}"), "TokenFile { tokens: 4 }");
        assert!(TokenFile::parse("").expect("may be empty").is_empty());
    }

    #[test]
    fn bad_lines_are_refused_by_number_and_without_the_token() {
        let rows = [
            (
                "secret",
                "line 1: fewer than 3 fields; want token,user,uid and if any \"group1,group2\"",
            ),
            (
                "\nsecret,ada",
                "line 2: fewer than 3 fields; want token,user,uid and if any \"group1,group2\"",
            ),
            (
                "secret,ada,1,dev,ops",
                "line 1: more than 4 fields; several groups are one field in quotes: token,user,uid,\"a,b\"",
            ),
            (
                ",ada,1",
                "line 1: the token is empty, or has characters that no Authorization header can carry",
            ),
            (
                "se cret,ada,1",
                "line 1: the token is empty, or has characters that no Authorization header can carry",
            ),
            ("secret,,1", "line 1: the user name is empty"),
            (
                "secret,ada,1\nother,bob,2\nsecret,eve,3",
                "line 3: the same token as in line 1; each token must be unique",
            ),
            (
                "secret,a\"da,1",
                "line 1: a quote inside a field that does not begin with one",
            ),
            ("secret,\"ada,1", "line 1: a quote that is not closed"),
            ("secret,\"ada\"x,1", "line 1: text after a closing quote"),
            (
                "secret\nsecret,,",
                "line 1: fewer than 3 fields; want token,user,uid and if any \"group1,group2\"; line 2: the user \
                    name is empty",
            ),
        ];
        for (text, want) in rows {
            let error = TokenFile::parse(text).expect_err(text).to_string();
            assert_eq!(error, want, "{text:?}");
            assert!(!error.contains("secret"));
        }
    }

    #[test]
    fn too_many_lines_are_refused() {
        let line = |n: usize| format!("t{n},u,\n");
        let text: String = (0..=TOKEN_FILE_LINES_MAX).map(line).collect();
        let error = TokenFile::parse(&text).expect_err("too many").to_string();
        assert_eq!(error, "line 10001: more than 10000 tokens");
    }
}
