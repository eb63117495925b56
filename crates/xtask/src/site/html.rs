//! Markdown's events as HTML, without styles and scripts: the policy of the site forbids both.
//!
//! The library's own writer gives cells of tables styles, and is a feature that the program would
//! have to select as well (`crates/features`).

use anyhow::{Result, bail};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, Tag, TagEnd};

/// Returns the HTML of a document.
///
/// # Errors
/// Fails for HTML in it, and for parts of Markdown that documents do not use.
pub(super) fn render(events: Vec<Event<'_>>) -> Result<String> {
    let mut writer = Writer::default();
    for event in events {
        writer.event(event)?;
    }
    Ok(writer.html)
}

/// Returns a text for HTML, also for values of attributes.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[derive(Default)]
struct Writer {
    html: String,
    /// Columns of the present table, and the next cell of its row.
    columns: Vec<Alignment>,
    column: usize,
    is_head: bool,
    /// Ends of the open lists.
    lists: Vec<&'static str>,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) -> Result<()> {
        match event {
            Event::Start(tag) => self.start(tag)?,
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.html += &escaped(&text),
            Event::Code(code) => self.html += &format!("<code>{}</code>", escaped(&code)),
            Event::SoftBreak => self.html.push('\n'),
            Event::HardBreak => self.html += "<br>\n",
            Event::Rule => self.html += "<hr>\n",
            other => bail!("documents do not use {other:?}"),
        }
        Ok(())
    }

    fn start(&mut self, tag: Tag<'_>) -> Result<()> {
        let html = match tag {
            Tag::Paragraph => "<p>".into(),
            Tag::Heading { level, id, .. } => {
                format!("<{level} id=\"{}\">", escaped(id.as_deref().unwrap_or_default()))
            }
            Tag::BlockQuote(_) => "<blockquote>\n".into(),
            // The keyboard scrolls what is wider than the page.
            Tag::CodeBlock(kind) => {
                let tag = match &kind {
                    CodeBlockKind::Fenced(tag) => tag.split_whitespace().next().unwrap_or("text"),
                    CodeBlockKind::Indented => "text",
                };
                format!("<pre tabindex=\"0\" data-language=\"{}\"><code>", escaped(tag))
            }
            Tag::List(first) => {
                let (begin, end) = match first {
                    None => ("<ul>\n".into(), "</ul>\n"),
                    Some(1) => ("<ol>\n".into(), "</ol>\n"),
                    Some(first) => (format!("<ol start=\"{first}\">\n"), "</ol>\n"),
                };
                self.lists.push(end);
                begin
            }
            Tag::Item => "<li>".into(),
            Tag::Table(columns) => {
                self.columns = columns;
                "<div class=\"table\" tabindex=\"0\"><table>\n".into()
            }
            Tag::TableHead => {
                (self.is_head, self.column) = (true, 0);
                "<thead><tr>".into()
            }
            Tag::TableRow => {
                self.column = 0;
                "<tr>".into()
            }
            Tag::TableCell => {
                let is_number = self.columns.get(self.column) == Some(&Alignment::Right);
                self.column += 1;
                format!("<{}{}>", self.cell(), if is_number { " class=\"number\"" } else { "" })
            }
            Tag::Emphasis => "<em>".into(),
            Tag::Strong => "<strong>".into(),
            Tag::Link { dest_url, .. } => format!("<a href=\"{}\">", escaped(&dest_url)),
            Tag::Image { dest_url, .. } => format!("<img src=\"{}\" alt=\"", escaped(&dest_url)),
            Tag::HtmlBlock => bail!("it has HTML"),
            other => bail!("documents do not use {other:?}"),
        };
        self.html += &html;
        Ok(())
    }

    fn end(&mut self, tag: TagEnd) {
        let html = match tag {
            TagEnd::Paragraph => "</p>\n".into(),
            TagEnd::Heading(level) => format!("</{level}>\n"),
            TagEnd::BlockQuote(_) => "</blockquote>\n".into(),
            TagEnd::CodeBlock => "</code></pre>\n".into(),
            TagEnd::List(_) => self.lists.pop().unwrap_or_default().into(),
            TagEnd::Item => "</li>\n".into(),
            TagEnd::Table => "</tbody></table></div>\n".into(),
            TagEnd::TableHead => {
                self.is_head = false;
                "</tr></thead>\n<tbody>\n".into()
            }
            TagEnd::TableRow => "</tr>\n".into(),
            TagEnd::TableCell => format!("</{}>", self.cell()),
            TagEnd::Emphasis => "</em>".into(),
            TagEnd::Strong => "</strong>".into(),
            TagEnd::Link => "</a>".into(),
            // Begun by `start`: the text of a picture is its alternative.
            TagEnd::Image => "\">".into(),
            // `start` let no other begin.
            _ => String::new(),
        };
        self.html += &html;
    }

    fn cell(&self) -> &'static str {
        if self.is_head { "th" } else { "td" }
    }
}

#[cfg(test)]
mod tests {
    use pulldown_cmark::{Options, Parser};

    use super::*;

    fn html(text: &str) -> Result<String> {
        render(Parser::new_ext(text, Options::ENABLE_TABLES).collect())
    }

    #[test]
    fn documents_become_html() {
        for (text, want) in [
            (
                "a *b* **c** `<d>`\n",
                "<p>a <em>b</em> <strong>c</strong> <code>&lt;d&gt;</code></p>\n",
            ),
            ("- a\n- b\n", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n"),
            ("2. a\n", "<ol start=\"2\">\n<li>a</li>\n</ol>\n"),
            ("[a \"b\"](c)\n", "<p><a href=\"c\">a &quot;b&quot;</a></p>\n"),
            ("![a \"b\"](c)\n", "<p><img src=\"c\" alt=\"a &quot;b&quot;\"></p>\n"),
            (
                "```sh\n<a> & b\n```\n",
                "<pre tabindex=\"0\" data-language=\"sh\"><code>&lt;a&gt; &amp; b\n</code></pre>\n",
            ),
            (
                "| a | b |\n|---|--:|\n| 1 | 2 |\n",
                "<div class=\"table\" tabindex=\"0\"><table>\n\
                 <thead><tr><th>a</th><th class=\"number\">b</th></tr></thead>\n\
                 <tbody>\n<tr><td>1</td><td class=\"number\">2</td></tr>\n</tbody></table></div>\n",
            ),
        ] {
            assert_eq!(html(text).expect("documents use it"), want);
        }
    }

    #[test]
    fn html_in_a_document_is_refused() {
        for text in ["<script>a</script>\n", "a <b>c</b>\n", "<!-- a -->\n"] {
            assert!(html(text).is_err(), "{text}");
        }
    }
}
