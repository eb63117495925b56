//! Questions to a person at a terminal.

use std::io::{self, BufRead, IsTerminal, Write};

/// Returns true if somebody can answer: input and error output are a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question on standard error, and returns true for `y` or `yes`. The end of the input is a
/// no.
///
/// # Errors
/// The terminal cannot be read or written.
pub(crate) fn confirm(question: &str) -> io::Result<bool> {
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(is_yes(&line))
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_yes_is_yes() {
        assert!(["y", "Y\n", " yes\r\n"].iter().all(|line| is_yes(line)));
        assert!(!["", "\n", "n", "no", "yess", "ja"].iter().any(|line| is_yes(line)));
    }
}
