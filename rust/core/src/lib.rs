//! The pure algorithms of semlex: no Python, no SQL, no IO.
//!
//! Each stage is one module; each function takes a whole batch and returns arrays or bytes.
#![forbid(unsafe_code)]
// Tests may fail by a panic.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

// The packed blocks of posting lists are in the order of bytes of the machine: another one would read other numbers.
#[cfg(target_endian = "big")]
compile_error!(
    "semlex stores posting lists in little-endian order; there is no build for big-endian machines"
);

pub mod batch;
mod byte_table;
pub mod chunk;
pub mod excerpts;
pub mod field_error;
pub mod fusion;
pub mod hashing;
pub mod html;
pub mod json;
pub mod keyword;
pub mod near_duplicates;
pub mod normalise;
pub mod pgcopy;
pub mod segments;
pub mod sentences;
mod short_string;
pub mod tokenizer;
pub mod validate;

#[cfg(test)]
extern crate self as semlex_core;
#[cfg(test)]
mod tests;
