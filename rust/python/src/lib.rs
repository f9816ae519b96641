//! `semlex._core`: arguments in, detach, call core, wrap. The module file lists names and nothing else.
//!
//! What Python sees is described where it is written: docstrings in `///`, types in `#[pyo3(signature)]`, types of
//! properties and constants behind `// ->`. `rust/python/generate_stub.py` (`./x stubs`) makes `_core.pyi` of them.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

mod analyzing;
mod arguments;
mod arrays;
mod batching;
mod buffers;
mod cells;
mod chunking;
mod columns;
mod copy;
mod decoded;
mod errors;
mod excerpts;
mod fusion;
mod hashing;
mod html;
mod json;
mod near_duplicates;
mod normalise;
mod objects;
mod scoring;
mod segments;
mod sentences;
mod tokenizing;
mod validation;

use pyo3::prelude::*;

// Arrays of the caller are read while other threads of Python run: a build without its lock is not claimed to be safe.
#[pymodule(gil_used = true)]
mod _core {
    use pyo3::prelude::*;
    use pyo3::types::PyDict;
    use semlex_core::keyword::analyzer::{ANALYZER_VERSION, LANGUAGES};

    #[pymodule_export]
    use crate::copy::{CopyEncoder, decode_copy, decode_copy_buffers};
    #[pymodule_export]
    use crate::hashing::hash_rows;
    #[pymodule_export]
    use crate::json::to_json;
    #[pymodule_export]
    use crate::validation::{validate_identifier, validate_rows};

    #[pymodule_export]
    use crate::analyzing::{Analyzer, Query, language_named};
    #[pymodule_export]
    use crate::batching::{BatchPlan, TokenBatch, TokenPlan, common_prefix, plan_batches};
    #[pymodule_export]
    use crate::chunking::{Chunks, count_words, split_text, word_offsets};
    #[pymodule_export]
    use crate::excerpts::excerpts;
    #[pymodule_export]
    use crate::fusion::{completed_fusion, fuse_legs, linear_fusion, reciprocal_rank_fusion};
    #[pymodule_export]
    use crate::html::HtmlReader;
    #[pymodule_export]
    use crate::near_duplicates::shared_shingles;
    #[pymodule_export]
    use crate::normalise::normalise_rows;
    #[pymodule_export]
    use crate::scoring::{PostingCache, PostingChanges, PostingPlan, PostingSnapshot};
    #[pymodule_export]
    use crate::segments::{
        _panic, EncodedSegment, IdSet, SegmentBuilder, decode_tombstone, encode_tombstone,
        keys_hash, merge_segments, segment_ids,
    };
    #[pymodule_export]
    use crate::sentences::{rank_sentences, split_sentences};
    #[pymodule_export]
    use crate::tokenizing::BpeTokenizer;

    /// True for a build without optimisations; benchmarks refuse to run on one.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let codes = PyDict::new(module.py());
        for code in semlex_core::field_error::Code::ALL {
            codes.set_item(code.name(), code.meaning())?;
        }
        // An attribute, and no name that is exported.
        module.setattr("_panic", wrap_pyfunction!(crate::segments::_panic, module)?)?;
        // Code of every rule (``FieldError.code``) -> what the rule demands, in one line.
        module.add("ERROR_CODES", codes)?; // -> dict[str, str]
        // Goes up with every change of the terms of any text.
        module.add("ANALYZER_VERSION", ANALYZER_VERSION)?; // -> int
        // Names of the languages that `Analyzer` knows, in the order of the alphabet.
        module.add("ANALYZER_LANGUAGES", LANGUAGES.to_vec())?; // -> list[str]
        module.add("DEBUG_BUILD", cfg!(debug_assertions))?; // -> bool
        module.add("__version__", env!("CARGO_PKG_VERSION")) // -> str
    }
}
