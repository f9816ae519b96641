//! What holds for the chunks of every text under every bound.

use std::ops::Range;

use proptest::prelude::*;
use semlex_core::chunk::code::Language;
use semlex_core::chunk::offsets::OffsetConverter;
use semlex_core::chunk::tokens::{OffsetProblem, Tokens};
use semlex_core::chunk::words::word_offsets;
use semlex_core::chunk::{Chunks, Options, Structure, split_text};

fn text() -> impl Strategy<Value = String> {
    let block = prop_oneof![
        "(#{1,7} ?)?[a-c漢é.! ]{0,30}",
        "(```|~~~)[ -~]{0,5}",
        "(---|===|<!--|-->|> q|- i|    x)",
        "(a \\| b|-\\|-|==  ==|\\+--\\+|\\| c|x::|so:|\\.\\. (note|code|function|index):: ?a?|\\.\\. _l:| {1,3}y)",
        " {0,4}(class A:|def f\\(x\\):|fn g\\(\\) \\{|int h\\(\\)|\\{|\\}|// c|@d|\"\"\"|CREATE TABLE t \\(|\\[s\\])",
        any::<String>(),
    ];
    let gap = prop_oneof![Just("\n"), Just("\n\n"), Just("\r\n"), Just("\r")];
    prop::collection::vec((block, gap), 0..16).prop_map(|blocks| {
        blocks
            .into_iter()
            .fold(String::new(), |mut text, (block, gap)| {
                text.push_str(&block);
                text.push_str(gap);
                text
            })
    })
}

fn options() -> impl Strategy<Value = Options> {
    let bounds = (
        1_usize..30,
        any::<prop::sample::Index>(),
        0_usize..30,
        4_usize..200,
    );
    let structure = prop::sample::select(vec![
        Structure::Plain,
        Structure::Markdown,
        Structure::Restructured,
        Structure::Code(Language::Python),
        Structure::Code(Language::Braces),
        Structure::Code(Language::Sql),
        Structure::Code(Language::Brackets),
    ]);
    (bounds, structure).prop_map(
        |((max_tokens, overlap, min_tokens, max_bytes), structure)| Options {
            max_tokens,
            overlap_tokens: overlap.index(max_tokens),
            min_tokens,
            max_bytes,
            structure,
        },
    )
}

/// One token per character, or words.
fn pairs(text: &str, words: bool) -> Vec<(i64, i64)> {
    let found: Vec<(usize, usize)> = if words {
        word_offsets(text)
    } else {
        (0..text.chars().count())
            .map(|place| (place, place + 1))
            .collect()
    };
    found
        .into_iter()
        .map(|(start, end)| (start as i64, end as i64))
        .collect()
}

fn cut(text: &str, words: bool, options: &Options) -> (Tokens, Chunks) {
    let tokens = Tokens::from_characters(text, &pairs(text, words)).expect("offsets are in order");
    let chunks = split_text(text, &tokens, options);
    (tokens, chunks)
}

fn is_blank(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

proptest! {
    #[test]
    fn chunks_cover_fit_and_overlap_within_the_bound(text in text(), options in options(), words: bool) {
        let (tokens, found) = cut(&text, words, &options);
        let ranges: Vec<Range<usize>> = found.chunks.iter().map(|chunk| chunk.range.clone()).collect();
        let mut covered = 0;
        for range in &ranges {
            let gap = text.get(covered..range.start.max(covered)).expect("a boundary");
            prop_assert!(gap.chars().all(is_blank));
            let slice = text.get(range.clone()).expect("a boundary");
            prop_assert!(!slice.starts_with(is_blank) && !slice.ends_with(is_blank) && !slice.is_empty());
            prop_assert!(slice.len() <= options.max_bytes);
            prop_assert!(tokens.count(range) <= options.max_tokens || slice.chars().count() == 1);
            covered = range.end;
        }
        prop_assert!(text.get(covered..).expect("a boundary").chars().all(is_blank));
        for two in ranges.windows(2) {
            prop_assert!(two[0].start < two[1].start && two[0].end < two[1].end);
            if two[1].start < two[0].end {
                prop_assert!(tokens.count(&(two[1].start..two[0].end)) <= options.overlap_tokens);
            }
        }
        for three in ranges.windows(3) {
            prop_assert!(three[0].end <= three[2].start);
        }
    }

    #[test]
    fn a_greedy_chunk_leaves_no_room_for_the_next_word(text in "[a-z \n]{1,200}", max_tokens in 1_usize..20) {
        // Without overlap and structure every chunk but the last is full: the word behind it would not have fitted.
        let options = Options { max_tokens, overlap_tokens: 0, min_tokens: max_tokens, max_bytes: 10_000, structure: Structure::Plain };
        let (tokens, found) = cut(&text, true, &options);
        for two in found.chunks.windows(2) {
            let next = text[two[1].range.start..].find(is_blank).unwrap_or(text.len() - two[1].range.start);
            let joined = two[0].range.start..two[1].range.start + next;
            prop_assert!(tokens.count(&joined) > max_tokens);
        }
    }

    #[test]
    fn characters_and_bytes_translate_both_ways(text: String) {
        let (mut bytes, mut characters) = (OffsetConverter::new(&text), OffsetConverter::new(&text));
        for (number, (place, _)) in text.char_indices().enumerate() {
            prop_assert_eq!(bytes.byte(number), Some(place));
            prop_assert_eq!(characters.character(place), Some(number));
        }
        prop_assert_eq!(bytes.byte(text.chars().count()), Some(text.len()));
        prop_assert_eq!(bytes.byte(text.chars().count() + 1), None);
    }

    #[test]
    fn counting_is_counting_one_by_one(mut starts: Vec<u8>, range: (u8, u8)) {
        starts.sort_unstable();
        let rows: Vec<(i64, i64)> = starts.iter().map(|&start| (i64::from(start), i64::from(start) + 3)).collect();
        let tokens = Tokens::from_characters(&"x".repeat(300), &rows).expect("in order");
        let range = usize::from(range.0.min(range.1))..usize::from(range.0.max(range.1)) + 1;
        let touching = |&&start: &&u8| usize::from(start) < range.end && usize::from(start) + 3 > range.start;
        prop_assert_eq!(tokens.count(&range), starts.iter().filter(touching).count());
    }
}

#[test]
fn offsets_out_of_order_are_refused_with_their_row() {
    let problem = |pairs: &[(i64, i64)]| {
        let error = Tokens::from_characters("aé漢", pairs).expect_err("refused");
        (error.row, error.problem)
    };
    assert_eq!(problem(&[(0, 1), (-1, 1)]), (1, OffsetProblem::OutsideText));
    assert_eq!(problem(&[(0, 4)]), (0, OffsetProblem::OutsideText));
    assert_eq!(problem(&[(2, 1)]), (0, OffsetProblem::EndBeforeStart));
    assert_eq!(problem(&[(1, 3), (0, 3)]), (1, OffsetProblem::NotAscending));
    assert_eq!(problem(&[(0, 3), (0, 2)]), (1, OffsetProblem::NotAscending));
    assert!(Tokens::from_characters("aé漢", &[(0, 3), (3, 3)]).is_ok());
}
