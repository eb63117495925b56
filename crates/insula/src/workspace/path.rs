//! The argument of `ws`, as kcp's plugin reads it.

/// Meaning of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    /// `.`: the current workspace, unchanged.
    Current,
    /// `-`: the previous one.
    Previous,
    /// `:`: the top of the current tree.
    Top,
    /// `~`, `home`, or nothing: the home workspace, or a path below it with its colon.
    Home(String),
    /// Any other path, for the URL to resolve.
    Path(String),
}

/// Reads an argument. `home_directory` is the user's: a shell replaces `~` by it.
pub(super) fn parse(argument: Option<&str>, home_directory: Option<&str>) -> Goal {
    let argument = argument.unwrap_or_default();
    let home_directory = home_directory.filter(|home| home.len() > 1);
    let expanded = home_directory.and_then(|home| argument.strip_prefix(home));
    let below = expanded.filter(|rest| rest.is_empty() || rest.starts_with('/') || rest.starts_with(':'));
    let name = match below {
        Some(rest) => format!("~{rest}"),
        None => argument.to_owned(),
    };
    let name = name.replace('/', ":");
    match name.as_str() {
        "" | "~" | "home" => Goal::Home(String::new()),
        "." => Goal::Current,
        "-" => Goal::Previous,
        ":" => Goal::Top,
        path => match path.strip_prefix('~') {
            Some(rest) if rest.starts_with(':') => Goal::Home(rest.to_owned()),
            _ => Goal::Path(path.to_owned()),
        },
    }
}

/// Returns the top of a path: `root` of `root:a:b`.
pub(super) fn top(path: &str) -> &str {
    match path.starts_with("system:") {
        true => path,
        false => path.split(':').next().unwrap_or(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_kcp_reads_them() {
        let path = |text: &str| Goal::Path(text.to_owned());
        let home = |text: &str| Goal::Home(text.to_owned());
        for (argument, want) in [
            (None, home("")),
            (Some("~"), home("")),
            (Some("home"), home("")),
            (Some("~:a"), home(":a")),
            (Some("~/a/b"), home(":a:b")),
            (Some("/home/ada"), home("")),
            (Some("/home/ada/a"), home(":a")),
            (Some("/home/adam"), path(":home:adam")),
            (Some("."), Goal::Current),
            (Some("-"), Goal::Previous),
            (Some(":"), Goal::Top),
            (Some("/"), Goal::Top),
            (Some(".."), path("..")),
            (Some("../.."), path("..:..")),
            (Some("a/b"), path("a:b")),
            (Some("/root/a"), path(":root:a")),
            (Some("root:a"), path("root:a")),
            (Some("homes"), path("homes")),
        ] {
            assert_eq!(parse(argument, Some("/home/ada")), want, "{argument:?}");
        }
        assert_eq!(parse(Some("/a"), Some("/")), path(":a"));
        assert_eq!((top("root:a:b"), top("system:admin")), ("root", "system:admin"));
    }
}
