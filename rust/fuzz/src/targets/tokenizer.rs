//! `tokenizer.json`, and texts for a tokenizer.

use std::sync::LazyLock;

use semlex_core::tokenizer::{ReadError, Tokenizer};

use super::{Target, behaviour, coarse};
use crate::inputs::Input;

pub(crate) const FILE: Target = Target {
    name: "tokenizer-file",
    run: file,
    examples: || vec![BYTES.to_vec(), SPACED.to_vec()],
    words: &[
        b"\"",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"null",
        b"true",
        b"4294967295",
        b"18446744073709551616",
        b"-1",
        b"1e9",
        b"\"\"",
        b"\\u0000",
        b"\\ud800",
        b"\"BPE\"",
        b"\"NFC\"",
        b"\"merges\"",
        b"\"vocab\"",
        b"\"added_tokens\"",
        b"<0x00>",
        b"\xe2\x96\x81",
    ],
};
pub(crate) const TEXT: Target = Target {
    name: "tokenizer-text",
    run: text,
    examples: || {
        let document = include_bytes!("../../corpus/document.md");
        vec![
            [&[0, 7], &document[..]].concat(),
            [&[1, 0], &document[..]].concat(),
        ]
    },
    words: &[
        b"<|end|>",
        b" ",
        b"  ",
        b"\n",
        b"\r\n",
        b"\t",
        b"'s",
        b"'LL",
        b"123456",
        b"\xcc\x81",
        b"e\xcc\x81",
        b"\xea\xb0\x80",
        b"\xe1\x84\x80\xe1\x85\xa1",
        b"\xf0\x9f\x98\x80",
        b"\xe2\x96\x81",
        b"\xe4\xb8\xad",
        b"aaaa",
        b"\xc2\xa0",
    ],
};

/// Of the kind that merges bytes, and of the kind that merges characters.
const BYTES: &[u8] = include_bytes!("../../corpus/bytes.json");
const SPACED: &[u8] = include_bytes!("../../corpus/spaced.json");

#[allow(clippy::expect_used, reason = "without them texts would not be read")]
static TOKENIZERS: LazyLock<[Tokenizer; 2]> = LazyLock::new(|| {
    [BYTES, SPACED].map(|file| Tokenizer::read(file).expect("an example that is whole"))
});

fn file(input: &[u8]) -> u64 {
    match Tokenizer::read(input) {
        Err(error) => behaviour(kind(&error)),
        Ok(tokenizer) => encoded(
            &tokenizer,
            "a text, the texts\n  of <|end|> h\u{e9}llo 12",
            16,
            true,
        ),
    }
}

/// What is wrong, without the place in the file.
fn kind(error: &ReadError) -> String {
    let message = error.to_string();
    message
        .chars()
        .filter(|letter| !letter.is_ascii_digit())
        .take(40)
        .collect()
}

fn text(input: &[u8]) -> u64 {
    let mut input = Input::new(input);
    let tokenizer = &TOKENIZERS[input.below(2)];
    let most = input.below(255);
    let text = input.text();
    behaviour([false, true].map(|special| encoded(tokenizer, &text, most, special)))
}

fn encoded(tokenizer: &Tokenizer, text: &str, most: usize, special_as_text: bool) -> u64 {
    let rows = tokenizer.encode([text].into_iter(), &[1], &[2], most, special_as_text);
    let count = tokenizer.count([text].into_iter(), special_as_text);
    let offsets = tokenizer.offsets(text, special_as_text);
    assert_eq!(
        count.first().map(|count| usize::try_from(*count)),
        Some(Ok(offsets.len()))
    );
    assert!(offsets.is_sorted() && rows.ids.len() <= most + 2);
    let characters = text.chars().count();
    let inside = |end: i64| usize::try_from(end).is_ok_and(|end| end <= characters);
    assert!(
        offsets
            .iter()
            .all(|(start, end)| start <= end && inside(*end))
    );
    behaviour((coarse(offsets.len()), rows.cut.len()))
}
