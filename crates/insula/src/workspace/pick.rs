//! Choice of a workspace from the tree, at a terminal.

use std::io::{self, BufRead, Write};

use anyhow::{Context, bail};

use super::{enter, path::top, tree};
use crate::{ask, client::Client, connection::Connection};

pub(super) fn run(connection: &Connection, short: bool) -> anyhow::Result<()> {
    if !ask::is_interactive() {
        bail!("interactive mode needs a terminal; in scripts, name the workspace");
    }
    let resolved = connection.resolve()?;
    let current = resolved.url.current()?.to_owned();
    let client = Client::new(&resolved)?;
    let runtime = crate::runtime()?;
    let tree = runtime.block_on(tree::read(&client, &resolved, top(&current), false))?;
    let paths = tree::paths(&tree);
    let Some(chosen) = choose(&paths, &current, &mut io::stdin().lock(), &mut io::stderr())? else {
        return Ok(());
    };
    enter::show(runtime.block_on(enter::go(&client, &resolved, chosen, short))?)
}

/// Lists the workspaces with numbers, and reads one. Returns `None` for an empty line.
fn choose<'a>(
    paths: &[&'a str],
    current: &str,
    input: &mut impl BufRead,
    out: &mut impl Write,
) -> anyhow::Result<Option<&'a str>> {
    for (index, path) in paths.iter().enumerate() {
        let mark = if *path == current { '*' } else { ' ' };
        writeln!(out, "{mark}{:>4}  {path}", index + 1)?;
    }
    write!(out, "Workspace [1-{}]: ", paths.len())?;
    out.flush()?;
    let mut line = String::new();
    input.read_line(&mut line).context("cannot read the terminal")?;
    let line = line.trim();
    if line.is_empty() {
        return Ok(None);
    }
    let number = line
        .parse()
        .ok()
        .and_then(|number: usize| paths.get(number.checked_sub(1)?));
    let named = paths.iter().find(|path| **path == line);
    match number.or(named) {
        Some(path) => Ok(Some(path)),
        None => bail!("{line:?} is none of the workspaces"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_a_path_chooses() {
        let paths = ["root", "root:a"];
        let pick = |line: &str| {
            let mut out = Vec::new();
            let chosen = choose(&paths, "root:a", &mut line.as_bytes(), &mut out);
            (
                chosen.map_err(|error| error.to_string()),
                String::from_utf8(out).unwrap(),
            )
        };
        let (chosen, shown) = pick("1\n");
        assert_eq!(chosen, Ok(Some("root")));
        assert_eq!(shown, "    1  root\n*   2  root:a\nWorkspace [1-2]: ");
        assert_eq!(pick("root:a\n").0, Ok(Some("root:a")));
        assert_eq!(pick("\n").0, Ok(None));
        for wrong in ["0", "3", "x"] {
            assert!(pick(wrong).0.is_err(), "{wrong}");
        }
    }
}
