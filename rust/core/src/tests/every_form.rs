//! A segment with lists of every form, to be damaged; the targets of fuzzing read it as well.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use semlex_core::keyword::build::SegmentBuilder;
use semlex_core::keyword::format::EncodedSegment;
use semlex_core::segments::SegmentId;

/// A segment of 1,500 chunks with common words, and rare ones.
pub fn segment(id: &SegmentId) -> EncodedSegment {
    let mut builder = SegmentBuilder::new();
    for id in 0..1_500_i64 {
        let mut terms = vec![
            "common".to_owned(),
            format!("rare{}", id % 97),
            format!("once{id}"),
        ];
        terms.extend((0..id % 5).map(|_| "often".to_owned()));
        // Gaps, so that there are several ranges of ids.
        let id = id + id / 100 * 3;
        builder
            .add_terms(id, terms.iter().map(String::as_str))
            .expect("ids ascend");
    }
    builder.finish(id).expect("a small segment")
}
