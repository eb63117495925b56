//! The frame of a page: its head, the navigation, the outline.

use std::fmt::Write;

use super::{
    html::escaped,
    page::{Group, Page},
};

/// Returns a page as an HTML document.
pub(super) fn framed(page: &Page, navigation: &[Group]) -> String {
    let Page { title, up, html, .. } = page;
    let title = escaped(title);
    let whole = if page.address == "index.html" {
        title
    } else {
        format!("{title} · Insula")
    };
    format!(
        "<!doctype html>\n\
         <html lang=\"en\">\n\
         <head>\n\
         <meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{whole}</title>\n\
         <link rel=\"icon\" href=\"{up}assets/icon.svg\">\n\
         <link rel=\"stylesheet\" href=\"{up}assets/docs.css\">\n\
         <script type=\"module\" src=\"{up}assets/docs.js\"></script>\n\
         </head>\n\
         <body>\n\
         <a class=\"skip\" href=\"#content\">Skip to the text</a>\n\
         <header><a class=\"brand\" href=\"{up}index.html\">\
         <img src=\"{up}assets/icon.svg\" alt=\"\" width=\"20\" height=\"20\">Insula</a>\
         <div id=\"search\" role=\"search\"></div></header>\n\
         <div class=\"frame\">\n\
         <nav aria-label=\"Documents\">\n{}</nav>\n\
         <main id=\"content\">\n{html}</main>\n\
         {}</div>\n\
         </body>\n\
         </html>\n",
        documents(page, navigation),
        outline(page),
    )
}

fn documents(page: &Page, navigation: &[Group]) -> String {
    let mut out = String::new();
    for Group { heading, links } in navigation {
        writeln!(out, "<h2>{}</h2>\n<ul>", escaped(heading)).expect("a text takes every byte");
        for (address, text) in links {
            let current = if *address == page.address {
                " aria-current=\"page\""
            } else {
                ""
            };
            let text = escaped(text);
            writeln!(out, "<li><a href=\"{}{address}\"{current}>{text}</a></li>", page.up)
                .expect("a text takes every byte");
        }
        out.push_str("</ul>\n");
    }
    out
}

/// Returns the headings of a page with more than one.
fn outline(page: &Page) -> String {
    if page.outline.len() < 2 {
        return String::new();
    }
    let items = page
        .outline
        .iter()
        .map(|(anchor, text)| format!("<li><a href=\"#{anchor}\">{}</a></li>\n", escaped(text)));
    let items: String = items.collect();
    format!("<aside aria-label=\"On this page\">\n<h2>On this page</h2>\n<ul>\n{items}</ul>\n</aside>\n")
}
