//! Segments from texts, and segments from segments.

mod builder;
mod dictionary;
mod merge;
mod vocabulary;

pub use builder::SegmentBuilder;
pub use merge::{Source, merge};
pub use vocabulary::{Vocabularies, Vocabulary};
