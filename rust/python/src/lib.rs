//! `semlex._core`: arguments in, detach, call core, wrap. The module file lists names and nothing else.

mod arguments;
mod batching;
mod chunking;
mod errors;
mod fusion;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::batching::{BatchPlan, plan_batches};
    #[pymodule_export]
    use crate::chunking::{Chunks, split_text, word_offsets};
    #[pymodule_export]
    use crate::fusion::{linear_fusion, reciprocal_rank_fusion};

    /// True for a build without optimisations; benchmarks refuse to run on one.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("DEBUG_BUILD", cfg!(debug_assertions))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
