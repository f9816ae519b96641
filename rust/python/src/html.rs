//! `HtmlReader`.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::PyString;
use semlex_core::html;

use crate::arguments::utf8;
use crate::errors::detached;

/// Web pages as Markdown; see the stub.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct HtmlReader {
    core: html::HtmlReader,
}

#[pymethods]
impl HtmlReader {
    #[new]
    fn new(entities: HashMap<String, String>) -> Self {
        Self {
            core: html::HtmlReader::new(entities),
        }
    }

    /// The Markdown of a page, and its title.
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
