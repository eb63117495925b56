//! Verbs of requests for objects.

use std::fmt;

/// The verb of a request for objects, in Kubernetes' terms. The one list of verbs: documents, roles
/// and counters name them by [`Verb::name`].
///
/// Roles also grant words that are no request, such as `bind`: see `insula_auth::RoleVerb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// GET of an object.
    Get,
    /// GET of a collection.
    List,
    /// GET of the changes of a collection.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH, server-side apply included.
    Patch,
    /// DELETE of an object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// All verbs: first those that read.
    pub const ALL: [Verb; 8] = [
        Verb::Get,
        Verb::List,
        Verb::Watch,
        Verb::Create,
        Verb::Update,
        Verb::Patch,
        Verb::Delete,
        Verb::DeleteCollection,
    ];

    /// Returns the name in roles, documents and logs: `get`, `deletecollection`.
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// Finds a verb by its name.
    pub fn named(name: &str) -> Option<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.name() == name)
    }

    /// Returns true for the verbs that change nothing.
    pub const fn reads(self) -> bool {
        match self {
            Verb::Get | Verb::List | Verb::Watch => true,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => false,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_names_one_verb() {
        for verb in Verb::ALL {
            assert_eq!(Verb::named(verb.name()), Some(verb));
        }
        for name in ["", "GET", "bind", "*"] {
            assert_eq!(Verb::named(name), None, "{name}");
        }
        let (reading, writing) = Verb::ALL.split_at(3);
        assert!(reading.iter().all(|verb| verb.reads()) && !writing.iter().any(|verb| verb.reads()));
    }
}
