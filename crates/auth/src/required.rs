//! Required groups of a workspace, for every user who enters it: `a,b;c` means (a and b) or c.

use crate::identities::Identities;

/// Alternatives, each a list of groups that a user needs together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredGroups(Vec<Vec<String>>);

/// Error of an invalid list. Displays how to correct it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequiredGroupsError {
    /// A group without a name, which has no members: nobody could enter.
    #[error("has a group without a name; write `a,b;c` for (a and b) or c, without blanks")]
    Nameless,
    /// Longer than any meaningful list.
    #[error("is too long: at most {BYTES_MAX} bytes")]
    TooLong,
}

/// Maximum number of bytes of a list: every request to the workspace is compared with all of it.
const BYTES_MAX: usize = 4096;

impl RequiredGroups {
    /// Parses a stored list. Malformed parts become groups without members.
    pub fn read(text: &str) -> Self {
        let groups = |one: &str| one.split(',').map(str::to_owned).collect();
        RequiredGroups(text.split(';').map(groups).collect())
    }

    /// Parses a new list.
    ///
    /// # Errors
    /// Fails for lists that cannot be intended.
    pub fn parse(text: &str) -> Result<Self, RequiredGroupsError> {
        let read = Self::read(text);
        let nameless = |group: &String| group.is_empty() || group.contains(char::is_whitespace);
        if text.len() > BYTES_MAX {
            Err(RequiredGroupsError::TooLong)
        } else if read.0.iter().flatten().any(nameless) {
            Err(RequiredGroupsError::Nameless)
        } else {
            Ok(read)
        }
    }

    /// Returns true if the user is in all groups of one of the alternatives.
    pub(crate) fn has(&self, user: &Identities<'_>) -> bool {
        let all = |groups: &Vec<String>| groups.iter().all(|group| user.is_in(group));
        self.0.iter().any(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::UserInfo;

    #[test]
    fn alternatives_of_groups_that_go_together() {
        for (text, groups, want) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a,b", "a", false),
            ("a,b", "b,a,c", true),
            ("a,b;c", "c", true),
            ("a,b;c", "a", false),
            ("", "a", false),
            (";", "a", false),
            ("a;", "b", false),
            ("a, b", "a,b", false),
        ] {
            let user = UserInfo::authenticated("ada", "", groups.split(',').map(str::to_owned).collect());
            let has = RequiredGroups::read(text).has(&Identities::in_cluster(&user, None));
            assert_eq!(has, want, "{text:?} of {groups}");
        }
    }

    #[test]
    fn only_what_can_be_meant_is_written() {
        assert_eq!(RequiredGroups::parse("a,b;c"), Ok(RequiredGroups::read("a,b;c")));
        for bad in ["", ";", "a;", "a,,b", "a, b", " a"] {
            assert_eq!(
                RequiredGroups::parse(bad),
                Err(RequiredGroupsError::Nameless),
                "{bad:?}"
            );
        }
        let long = "a".repeat(BYTES_MAX + 1);
        assert_eq!(RequiredGroups::parse(&long), Err(RequiredGroupsError::TooLong));
    }
}
