//! Parsing of source text to a tree with positions: the `cel` crate's ANTLR parser, which has
//! cel-go's grammar and messages, with the macros of [`crate::expand`]. The checker, the estimate
//! and lowering all read this tree.

use crate::error::{CompileError, Issue, Lines};
use crate::expand;
use crate::mistakes::Mistakes;
use crate::nodes;
use cel::common::ast::{Expr, IdedExpr, LiteralValue, SourceInfo};
use cel::{ParseError, ParseErrors};
use std::cell::OnceCell;

/// Nesting limit of the parser itself. The earlier scan refuses less nesting, so this limit is not
/// reached in practice.
const PARSER_DEPTH_MAX: u16 = 250;

/// A parsed expression with the position of each node.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) tree: IdedExpr,
    info: SourceInfo,
    /// Lines of the source, computed for the first issue.
    lines: OnceCell<Lines>,
}

impl Parsed {
    /// Returns the byte offset at which cel-go reports the node: its operator, parenthesis or first
    /// character.
    pub(crate) fn offset(&self, id: u64) -> Option<usize> {
        offset(&self.info, id)
    }

    /// Returns an issue at a node.
    pub(crate) fn issue(&self, id: u64, message: impl Into<String>) -> Issue {
        let lines = self.lines.get_or_init(|| Lines::new(&self.info.source));
        match self.offset(id) {
            Some(offset) => lines.issue(offset, message),
            None => Issue::whole(message),
        }
    }
}

/// Parses a source that is within the limits of [`crate::scan`]. `conversion`: with the macros that
/// only conversion rules have.
pub(crate) fn parse(source: &str, conversion: bool) -> Result<Parsed, CompileError> {
    let (tree, mut info) = expand::environment(conversion)
        .parser()
        .enable_optional_syntax(true)
        .max_recursion_depth(PARSER_DEPTH_MAX)
        .parse_with_source_info(source)
        .map_err(|errors| refused(source, errors))?;
    nodes::each(&tree, &mut |node| place_sign(&mut info, node));
    Ok(Parsed {
        tree,
        info,
        lines: OnceCell::new(),
    })
}

fn offset(info: &SourceInfo, id: u64) -> Option<usize> {
    let (start, _) = info.offset_for(id)?;
    usize::try_from(start).ok()
}

/// Moves a negative number's position to its sign; the parser has that of its digits.
fn place_sign(info: &mut SourceInfo, node: &IdedExpr) {
    let negative = match &node.expr {
        Expr::Literal(LiteralValue::Int(int)) => *int.inner() < 0,
        Expr::Literal(LiteralValue::Double(double)) => double.inner().is_sign_negative(),
        _ => false,
    };
    if !negative {
        return;
    }
    let Some((start, stop)) = info.offset_for(node.id) else {
        return;
    };
    let before = info.source.get(..start as usize).unwrap_or_default().trim_ascii_end();
    if let Some(sign) = before.strip_suffix('-').and_then(|s| u32::try_from(s.len()).ok()) {
        info.add_offset(node.id, sign, stop);
    }
}

fn refused(source: &str, errors: ParseErrors) -> CompileError {
    let (lines, mut mistakes) = (Lines::new(source), Mistakes::new(source));
    let issues: Vec<Issue> = errors
        .errors
        .into_iter()
        .filter(|e| !is_aftermath(&e.msg))
        .map(|e| issue(source, &lines, &mut mistakes, e))
        .collect();
    if issues.is_empty() {
        return CompileError::whole("Syntax error");
    }
    CompileError::collect(issues)
}

/// Returns true for the parser's message that a node is incomplete. The syntax error that caused it
/// is another entry.
fn is_aftermath(message: &str) -> bool {
    message.starts_with("Incomplete ") || message.starts_with("No `") || message == "UNKNOWN"
}

const QUOTED_NAME: &str = "unsupported syntax: '`'";

fn issue(source: &str, lines: &Lines, mistakes: &mut Mistakes<'_>, error: ParseError) -> Issue {
    if let Some(id) = expand::failed_node(&error) {
        let place = error.source_info.as_deref().and_then(|info| offset(info, id));
        return match place {
            Some(offset) => lines.issue(offset, error.msg),
            None => Issue::whole(error.msg),
        };
    }
    let (Ok(line), Ok(column)) = (u32::try_from(error.pos.0), u32::try_from(error.pos.1)) else {
        return Issue::whole(error.msg);
    };
    let Some(offset) = lines.offset(line, column) else {
        return Issue::whole(error.msg);
    };
    if error.msg == QUOTED_NAME {
        // The parser reports the dot; cel-go reports the name itself.
        let name = source.get(offset..).and_then(|rest| rest.find('`')).unwrap_or(0);
        return lines.issue(offset + name, error.msg);
    }
    let message = mistakes.reword(offset, error.msg);
    // An empty source has no column.
    let column = if source.is_empty() { 0 } else { column };
    lines.on(line, column, message)
}

#[cfg(test)]
mod tests {
    use super::parse;
    use cel::common::ast::{Expr, IdedExpr};
    use expect_test::expect;

    fn refusal(source: &str) -> String {
        match parse(source, false) {
            Ok(parsed) => panic!("{source:?} parses: {:?}", parsed.tree),
            Err(error) => error.to_string(),
        }
    }

    /// The tokens that may begin an expression, as messages list them.
    const ALTERNATIVES: &str = "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
        NUM_UINT, STRING, BYTES, IDENTIFIER";

    #[test]
    fn syntax_errors_are_those_of_the_reference() {
        let table = [
            (
                "self >",
                expect![[r#"
                ERROR: <input>:1:7: Syntax error: mismatched input '<EOF>' expecting {ALTERNATIVES}
                 | self >
                 | ......^"#]],
            ),
            (
                "(self > 1",
                expect![[r#"
                ERROR: <input>:1:10: Syntax error: missing ')' at '<EOF>'
                 | (self > 1
                 | .........^"#]],
            ),
            (
                "self = 1",
                expect![[r#"
                ERROR: <input>:1:6: Syntax error: token recognition error at: '= '
                 | self = 1
                 | .....^
                ERROR: <input>:1:8: Syntax error: extraneous input '1' expecting <EOF>
                 | self = 1
                 | .......^"#]],
            ),
            (
                "self == 'open",
                expect![[r#"
                ERROR: <input>:1:9: Syntax error: token recognition error at: ''open'
                 | self == 'open
                 | ........^
                ERROR: <input>:1:14: Syntax error: mismatched input '<EOF>' expecting {ALTERNATIVES}
                 | self == 'open
                 | .............^"#]],
            ),
            (
                "é == for",
                expect![[r#"
                ERROR: <input>:1:1: Syntax error: token recognition error at: 'é'
                 | é == for
                 | ＾
                ERROR: <input>:1:3: Syntax error: extraneous input '==' expecting {ALTERNATIVES}
                 | é == for
                 | ．.^
                ERROR: <input>:1:6: reserved identifier: for
                 | é == for
                 | ．....^"#]],
            ),
            (
                "'é' == for",
                expect![[r#"
                ERROR: <input>:1:8: reserved identifier: for
                 | 'é' == for
                 | .．.....^"#]],
            ),
            (
                "1 +\n\tfor",
                expect![[r#"
                ERROR: <input>:2:2: reserved identifier: for
                 |  for
                 | .^"#]],
            ),
        ];
        for (source, want) in table {
            want.assert_eq(&refusal(source).replace(ALTERNATIVES, "ALTERNATIVES"));
        }
    }

    #[test]
    fn macros_are_refused_where_their_argument_is() {
        let table = [
            ("has(a)", 5, "invalid argument to has() macro"),
            (
                "'é' == 'é' && [1, 2].all(1 + 2, true)",
                28,
                "argument must be a simple name",
            ),
            (
                "[1, 2].all(__result__, true)",
                12,
                "iteration variable overwrites accumulator variable",
            ),
            ("a.map(1, b)", 7, "argument is not an identifier"),
            ("a.filter(b.c, b)", 11, "argument is not an identifier"),
            ("a.all(i, i, i < i)", 10, "duplicate variable name: i"),
            ("a.transformMap(1, i, i)", 16, "argument must be a simple name"),
            (
                "x.optMap(y.z, y.z + 1)",
                11,
                "optMap() variable name must be a simple identifier",
            ),
            (
                "x.optFlatMap(y.z, 1)",
                15,
                "optFlatMap() variable name must be a simple identifier",
            ),
            (
                "'b'.sortBy(x, x)",
                1,
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
            ),
        ];
        for (source, column, message) in table {
            let error = parse(source, false).err().map(|e| e.issues).unwrap_or_default();
            let found: Vec<_> = error.iter().map(|i| (i.column, i.message.as_str())).collect();
            assert_eq!(found, [(column, message)], "{source}");
        }
    }

    fn offsets(source: &str, at: impl Fn(&Expr) -> bool) -> Vec<usize> {
        let parsed = parse(source, false).expect(source);
        let mut found = Vec::new();
        crate::nodes::each(&parsed.tree, &mut |e: &IdedExpr| {
            if at(&e.expr) {
                found.extend(parsed.offset(e.id));
            }
        });
        found
    }

    #[test]
    fn nodes_have_the_places_that_errors_are_reported_at() {
        let call = |e: &Expr| matches!(e, Expr::Call(_));
        assert_eq!(offsets("'é' + b", call), ["'é' ".len()]);
        assert_eq!(offsets("a.b.size()", call), [8]);
        let ident = |e: &Expr| matches!(e, Expr::Ident(name) if name == "b");
        assert_eq!(offsets("'é' + b", ident), ["'é' + ".len()]);
        let fold = |e: &Expr| matches!(e, Expr::Comprehension(_));
        assert_eq!(offsets("a.all(k, v, v)", fold), [5]);
        let test = |e: &Expr| matches!(e, Expr::Select(s) if s.test);
        assert_eq!(offsets("has(a.b)", test), [3]);
    }
}
