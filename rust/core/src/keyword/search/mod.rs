//! Segments read through a cache, and scored by BM25.

mod bm25;
mod cache;
mod candidates;
mod changes;
mod live_segment;
mod plan;
mod read_segment;
mod score;
mod small_segments;
mod top;
mod view;

pub use bm25::Parameters;
pub use cache::{Counters, GivenRow, GivenSegment, GivenTombstone, PostingCache};
pub use changes::{Changes, NewSegment};
pub use plan::{LanguageQuery, PostingPlan};
pub use score::{Before, Found, Snapshot, Work};
