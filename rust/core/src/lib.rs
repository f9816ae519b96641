//! The pure algorithms of semlex: no Python, no SQL, no IO.
//!
//! Each stage is one module; each function takes a whole batch and returns arrays or bytes.
#![forbid(unsafe_code)]

pub mod batch;
pub mod chunk;
pub mod fault;
pub mod fusion;
pub mod hashing;
pub mod json;
pub mod lexical;
pub mod pgcopy;
pub mod tokenizer;
pub mod unit;
pub mod validate;
