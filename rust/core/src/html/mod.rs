//! HTML to Markdown: headings, paragraphs, lists, tables and code; the rest is its text, without menus and side bars.
//!
//! Two steps: `tags` cuts a page into tags and texts, `writer` makes Markdown of them. No tree is built, and a character
//! is looked at a bounded number of times, however malformed the page is. Letters of names are equal in either case for
//! ASCII alone, as HTML has it; blanks are those of Python's `str.isspace`.

mod attributes;
mod references;
mod tags;
mod writer;

use references::References;
use tags::{Token, Tokens};
pub use writer::MarkdownText;
use writer::Writer;

/// Reads web pages; made once, for its table of character references.
#[derive(Debug)]
pub struct HtmlReader {
    references: References,
}

impl HtmlReader {
    /// Takes the named character references (without their ampersand, with their semicolon where they must have one),
    /// and what they stand for.
    #[must_use]
    pub fn new(named: impl IntoIterator<Item = (String, String)>) -> Self {
        Self {
            references: References::new(named),
        }
    }

    /// Turns a page, or a part of one, into Markdown whose headings are its own. What surrounds the text is left out
    /// where there is other text.
    #[must_use]
    pub fn to_markdown(&self, html: &str) -> MarkdownText {
        let found = self.converted(html, true);
        if found.text.is_empty() {
            return self.converted(html, false);
        }
        found
    }

    fn converted(&self, html: &str, without_surroundings: bool) -> MarkdownText {
        let mut writer = Writer::new(&self.references, without_surroundings);
        for token in Tokens::new(html) {
            match token {
                Token::Text(text) => writer.add(text),
                Token::Start { name, attributes } => writer.start(name, attributes),
                Token::End { name } => writer.end(&name),
            }
        }
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HtmlReader, MarkdownText};

    fn read(html: &str) -> MarkdownText {
        let named = [
            ("amp", "&"),
            ("amp;", "&"),
            ("lt;", "<"),
            ("nbsp;", "\u{a0}"),
        ];
        HtmlReader::new(named.map(|(name, value)| (name.to_owned(), value.to_owned())))
            .to_markdown(html)
    }

    #[test]
    fn a_page_becomes_markdown() {
        let page = "<title>A  &amp; b</title><nav>menu</nav><H1>One<br>two</H1><p>text <b>bold</b><br># no heading\
                    <ul><li>first<li>second</ul><table><tr><td>1<td>2</table><pre>\n ``` \n</pre><img alt='a b'>&lt;";
        let found = read(page);
        assert_eq!(found.title.as_deref(), Some("A & b"));
        assert_eq!(
            found.text,
            "# One two\n\ntext bold\n\\# no heading\n\n- first\n\n- second\n\n1 | 2\n\n````\n ``` \n````\n\na b <"
        );
    }

    #[test]
    fn what_surrounds_is_kept_where_nothing_else_is() {
        assert_eq!(read("<nav>a<nav>b</nav>c</nav>text").text, "text");
        assert_eq!(read("<nav>only</nav>").text, "only");
    }

    #[test]
    fn letters_beyond_ascii_are_no_letters_of_tags() {
        assert_eq!(read("a</é>b").text, "a</é>b");
        assert_eq!(read("<script>a</\u{17f}cript>b</SCRIPT >c").text, "c");
    }

    /// What a page is made of, and what is easily misread.
    fn page() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "</?(p|h[1-6]|li|pre|title|script|nav|div|td|br|img|svg|x)( (class|alt|id)=?[\"' a-z]{0,6})?/?>?",
            "<!--|-->|<!|<\\?|</|<|>|=|\"|'|&|&#|&#x",
            "&(amp|lt|nbsp|#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,7});?",
            "[ \t\r\n\u{b}\u{c}\u{1c}\u{85}\u{a0}\u{2028}]{1,3}|[#=~`-]{1,4}",
            any::<String>(),
        ];
        prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn every_page_ends(page in page()) {
            let found = read(&page);
            prop_assert!(found.title.is_none_or(|title| !title.is_empty()));
            prop_assert!(!found.text.starts_with('\n') && !found.text.ends_with(' '));
        }

        #[test]
        fn what_is_escaped_comes_back(text in "[^`]*") {
            let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
            let found = read(&format!("<pre>x{escaped}x</pre>"));
            prop_assert_eq!(found.text, format!("```\nx{text}x\n```"));
        }
    }
}
