//! Tests of several modules together. Here, and not crates of their own, they need no second build of this one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking"
)]

mod analyzing;
mod chunking;
mod every_form;
mod index_histories;
mod matching;
mod pgcopy;
mod posting_cache;
mod queries;
mod ranking;
mod resealed;
mod segment_building;
mod segment_search;
mod segments;
mod stored;
mod texts;
mod tokenizing;
