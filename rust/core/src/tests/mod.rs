//! Tests of several modules together. Here, and not crates of their own, they need no second build of this one.

mod analyzing;
mod chunking;
mod matching;
mod pgcopy;
mod posting_cache;
mod queries;
mod ranking;
mod segment_building;
mod segment_search;
mod segments;
mod stored;
mod texts;
mod tokenizing;
