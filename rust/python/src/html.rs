//! `HtmlReader`.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::PyString;
use semlex_core::html;

use crate::arguments::utf8;
use crate::errors::detached;

/// Reads web pages, from any number of threads.
///
/// Args:
///     entities: Text of each named character reference, by its name without the ampersand, as in
///         ``html.entities.html5``. A name that is listed without a semicolon is also replaced without one in
///         the page, even at the beginning of a longer word.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct HtmlReader {
    core: html::HtmlReader,
}

#[pymethods]
impl HtmlReader {
    #[new]
    #[pyo3(signature = (entities: "dict[str, str]"))]
    fn new(entities: HashMap<String, String>) -> Self {
        Self {
            core: html::HtmlReader::new(entities),
        }
    }

    /// Convert a page, or a part of one, to Markdown, in time linear in its length.
    ///
    /// Headings, paragraphs, lists, rows of tables, preformatted text and the alternative texts of pictures are kept;
    /// other elements keep only their text. Scripts, styles and templates are left out. Menus, side bars and link marks
    /// are left out if the page has other text. Malformed HTML is read roughly as browsers do.
    ///
    /// Args:
    ///     html: The page.
    ///
    /// Returns:
    ///     The Markdown, its blocks separated by blank lines, and the content of ``<title>``, else of the first
    ///     ``<h1>``, else None.
    ///
    /// Raises:
    ///     ValueError: The page holds a lone surrogate; the message names the character.
    #[pyo3(signature = (html: "str") -> "tuple[str, str | None]")]
    fn to_markdown(
        &self,
        py: Python<'_>,
        html: &Bound<'_, PyString>,
    ) -> PyResult<(String, Option<String>)> {
        let html = utf8("html", html)?;
        let found = detached(py, || self.core.to_markdown(html))?;
        Ok((found.text, found.title))
    }
}
