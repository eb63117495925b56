//! A document as a page: HTML, the links and headings in it, and its text for the search.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::{address, html};

/// A document.
#[derive(Debug)]
pub(super) struct Page {
    /// The heading at its top.
    pub(super) title: String,
    /// Way from the page to the root of the site, such as `../`.
    pub(super) up: String,
    /// Its path in the site.
    pub(super) address: String,
    pub(super) html: String,
    pub(super) links: Vec<Link>,
    pub(super) anchors: BTreeSet<String>,
    /// Headings of the second level: anchor and text.
    pub(super) outline: Vec<(String, String)>,
    pub(super) parts: Vec<Part>,
    /// The first link of each item of a list, below the headings of the second level.
    pub(super) navigation: Vec<Group>,
}

/// A link to a file of the repository.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Path from the root of the repository.
    pub(super) file: String,
    pub(super) anchor: Option<String>,
}

/// A heading with the text below it, for the search.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) anchor: Option<String>,
    pub(super) heading: String,
    pub(super) text: String,
}

/// Links of the navigation below a heading.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) heading: String,
    /// Address and text.
    pub(super) links: Vec<(String, String)>,
}

/// Parses a document.
///
/// # Errors
/// Fails for HTML in it, for a link that leaves the repository, for a picture of another site, and
/// without a heading at its top.
pub(super) fn parse(file: &str, text: &str) -> Result<Page> {
    let own = address(file);
    let mut page = Page {
        title: String::new(),
        up: "../".repeat(own.matches('/').count()),
        address: own,
        html: String::new(),
        links: Vec::new(),
        anchors: BTreeSet::new(),
        outline: Vec::new(),
        parts: Vec::new(),
        navigation: Vec::new(),
    };
    let events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let events = page.take_headings(events);
    page.take_text(&events);
    page.take_navigation(file, &events)?;
    let events = page.rewrite_links(file, events)?;
    page.html = html::render(events)?;
    if page.title.is_empty() {
        bail!("it has no heading at its top");
    }
    Ok(page)
}

impl Page {
    /// Gives each heading its anchor, as GitHub does.
    fn take_headings<'a>(&mut self, mut events: Vec<Event<'a>>) -> Vec<Event<'a>> {
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for index in 0..events.len() {
            let Event::Start(Tag::Heading { level, .. }) = &events[index] else {
                continue;
            };
            let level = *level;
            let heading = heading_text(&events[index..]);
            let slug = slug(&heading);
            let before = times.entry(slug.clone()).or_default();
            let anchor = if *before == 0 { slug } else { format!("{slug}-{before}") };
            *before += 1;
            if let Event::Start(Tag::Heading { id, .. }) = &mut events[index] {
                *id = Some(anchor.clone().into());
            }
            match level {
                HeadingLevel::H1 if self.title.is_empty() => self.title = heading,
                HeadingLevel::H2 => self.outline.push((anchor.clone(), heading)),
                _ => {}
            }
            self.anchors.insert(anchor);
        }
        events
    }

    /// Collects the text below each heading.
    fn take_text(&mut self, events: &[Event<'_>]) {
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Start(Tag::Heading { level, id, .. }) => {
                    let anchor = id.as_ref().map(ToString::to_string);
                    self.parts.push(Part {
                        // The top of a page needs no anchor.
                        anchor: anchor.filter(|_| *level != HeadingLevel::H1),
                        heading: heading_text(&events[index..]),
                        text: String::new(),
                    });
                }
                Event::Text(text) | Event::Code(text) => self.add_text(text),
                Event::SoftBreak | Event::HardBreak => self.add_text(" "),
                Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell | TagEnd::Heading(_)) => {
                    self.add_text(" ");
                }
                _ => {}
            }
        }
        for part in &mut self.parts {
            let text = part.text.strip_prefix(part.heading.as_str()).unwrap_or(&part.text);
            part.text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
    }

    fn add_text(&mut self, text: &str) {
        if let Some(part) = self.parts.last_mut() {
            part.text.push_str(text);
        }
    }

    /// Collects the first link of each item of a list, by heading.
    fn take_navigation(&mut self, file: &str, events: &[Event<'_>]) -> Result<()> {
        let mut is_first = false;
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Start(Tag::Heading {
                    level: HeadingLevel::H2,
                    ..
                }) => {
                    let heading = heading_text(&events[index..]);
                    let links = Vec::new();
                    self.navigation.push(Group { heading, links });
                }
                Event::Start(Tag::Item) => is_first = true,
                Event::Start(Tag::Link { dest_url, .. }) if is_first => {
                    is_first = false;
                    let text = text_until(&events[index..], |event| matches!(event, Event::End(TagEnd::Link)));
                    if let (Some(group), Some(link)) = (self.navigation.last_mut(), target(file, dest_url)?) {
                        group.links.push((address(&link.file), text));
                    }
                }
                _ => {}
            }
        }
        self.navigation.retain(|group| !group.links.is_empty());
        Ok(())
    }

    /// Makes links lead to pages of the site, and collects their targets.
    fn rewrite_links<'a>(&mut self, file: &str, mut events: Vec<Event<'a>>) -> Result<Vec<Event<'a>>> {
        for event in &mut events {
            let (dest_url, is_picture) = match event {
                Event::Start(Tag::Link { dest_url, .. }) => (dest_url, false),
                Event::Start(Tag::Image { dest_url, .. }) => (dest_url, true),
                _ => continue,
            };
            let Some(link) = target(file, dest_url)? else {
                ensure!(!is_picture, "the picture {dest_url} is of another site");
                continue;
            };
            let anchor = link
                .anchor
                .as_ref()
                .map_or(String::new(), |anchor| format!("#{anchor}"));
            *dest_url = if link.file == file {
                anchor.into()
            } else {
                format!("{}{}{anchor}", self.up, address(&link.file)).into()
            };
            self.links.push(link);
        }
        Ok(events)
    }
}

/// Returns the file that a link leads to; none for another site.
fn target(file: &str, link: &str) -> Result<Option<Link>> {
    if link.starts_with("https://") || link.starts_with("http://") {
        return Ok(None);
    }
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_owned())),
        None => (link, None),
    };
    if path.contains(':') || path.starts_with('/') {
        bail!("the link {link} leads to no file");
    }
    if path.is_empty() {
        let file = file.to_owned();
        return Ok(Some(Link { file, anchor }));
    }
    let mut steps: Vec<&str> = file.split('/').collect();
    steps.pop();
    for step in path.split('/') {
        match step {
            ".." => drop(steps.pop().with_context(|| format!("{link} leaves the repository"))?),
            "." => {}
            step => steps.push(step),
        }
    }
    let file = steps.join("/");
    Ok(Some(Link { file, anchor }))
}

/// Returns the text of the heading that begins the events.
fn heading_text(events: &[Event<'_>]) -> String {
    text_until(events, |event| matches!(event, Event::End(TagEnd::Heading(_))))
}

/// Returns the text of events until one of them ends it.
fn text_until(events: &[Event<'_>], is_end: impl Fn(&Event<'_>) -> bool) -> String {
    let inner = events.iter().take_while(|event| !is_end(event));
    inner
        .filter_map(|event| match event {
            Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
            Event::SoftBreak => Some(" "),
            _ => None,
        })
        .collect()
}

/// Returns the anchor of a heading by GitHub's rule: letters, digits, `-` and `_`.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then_some(c),
    });
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_anchors_of_github() {
        for (heading, want) in [
            ("The path of a request", "the-path-of-a-request"),
            (
                "A definition and its rules, in any order",
                "a-definition-and-its-rules-in-any-order",
            ),
            ("`insula docs` — a site", "insula-docs--a-site"),
        ] {
            assert_eq!(slug(&heading.replace('`', "")), want);
        }
        let page = parse("docs/a.md", "# A\n## B\n## B\n").unwrap();
        assert_eq!(page.anchors.into_iter().collect::<Vec<_>>(), ["a", "b", "b-1"]);
    }

    #[test]
    fn links_lead_to_pages() {
        let text = "# A\n[b](../b.md#c) [d](#a) [e](https://e) [f](../../config/f.yaml) ![g](../g.svg)\n";
        let page = parse("docs/guides/a.md", text).unwrap();
        for wanted in [
            "href=\"../b.html#c\"",
            "href=\"#a\"",
            "href=\"https://e\"",
            "href=\"../repository/config/f.yaml\"",
            "src=\"../g.svg\"",
        ] {
            assert!(page.html.contains(wanted), "{wanted}: {}", page.html);
        }
        let files: Vec<&str> = page.links.iter().map(|link| link.file.as_str()).collect();
        assert_eq!(files, ["docs/b.md", "docs/guides/a.md", "config/f.yaml", "docs/g.svg"]);
        for wrong in [
            "[x](../../../x.md)",
            "[x](/etc/passwd)",
            "[x](javascript:y)",
            "![x](https://y)",
        ] {
            assert!(parse("docs/a.md", &format!("# A\n{wrong}\n")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_search_has_the_text_below_each_heading() {
        let page = parse("docs/a.md", "# A\nOne `two`\nthree.\n## B\n- four\n").unwrap();
        let parts: Vec<_> = page
            .parts
            .iter()
            .map(|part| (part.heading.as_str(), part.text.as_str()))
            .collect();
        assert_eq!(parts, [("A", "One two three."), ("B", "four")]);
    }
}
