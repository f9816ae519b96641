//! The encoder against the slow and obvious form of byte pair encoding.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use semlex_core::tokenizer::{PATTERN, ReadError, Tokenizer};
use serde_json::{Value, json};

/// A byte as `tokenizer.json` spells it.
fn spelt(byte: u8) -> char {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if is_printable(&byte) {
        return char::from(byte);
    }
    let place = (0..byte).filter(|byte| !is_printable(byte)).count();
    char::from_u32(0x100 + u32::try_from(place).expect("small")).expect("a character")
}

/// Merges, each of two tokens that are there already; the token of a byte has its number, merged ones follow.
#[derive(Debug, Clone, Default)]
struct Learnt {
    pairs: Vec<(usize, usize)>,
    tokens: Vec<Vec<u8>>,
}

fn learnt(alphabet: &'static [u8]) -> impl Strategy<Value = Learnt> {
    prop::collection::vec((any::<Index>(), any::<Index>()), 0..60).prop_map(move |choices| {
        let mut learnt = Learnt {
            pairs: vec![],
            tokens: (0..=255).map(|byte| vec![byte]).collect(),
        };
        for (left, right) in choices {
            let known: Vec<usize> = (0..learnt.tokens.len())
                .filter(|&token| token >= 256 || alphabet.contains(&learnt.tokens[token][0]))
                .collect();
            let (left, right) = (*left.get(&known), *right.get(&known));
            let merged = [&*learnt.tokens[left], &*learnt.tokens[right]].concat();
            if !learnt.tokens.contains(&merged) && merged.len() < 40 {
                learnt.pairs.push((left, right));
                learnt.tokens.push(merged);
            }
        }
        learnt
    })
}

fn file(learnt: &Learnt) -> Value {
    let text =
        |token: usize| -> String { learnt.tokens[token].iter().copied().map(spelt).collect() };
    let vocabulary: BTreeMap<String, usize> = (0..learnt.tokens.len())
        .map(|token| (text(token), token))
        .collect();
    let merges: Vec<[String; 2]> = learnt
        .pairs
        .iter()
        .map(|&(left, right)| [text(left), text(right)])
        .collect();
    json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
        ]},
        "post_processor": null,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    })
}

fn tokenizer(learnt: &Learnt) -> Tokenizer {
    Tokenizer::read(file(learnt).to_string().as_bytes()).expect("a good file")
}

/// Again and again the pair that was learnt first, at its leftmost place.
fn twin(learnt: &Learnt, piece: &str) -> Vec<i64> {
    let mut ids: Vec<usize> = piece.bytes().map(usize::from).collect();
    loop {
        let ranked = ids.windows(2).enumerate().filter_map(|(place, window)| {
            let pair = (window[0], window[1]);
            let rank = learnt.pairs.iter().position(|learnt| *learnt == pair)?;
            Some((rank, place))
        });
        let Some((rank, place)) = ranked.min() else {
            return ids.into_iter().map(|id| id as i64).collect();
        };
        ids.splice(place..place + 2, [256 + rank]);
    }
}

fn encode(tokenizer: &Tokenizer, texts: &[&str], most: usize) -> Vec<Vec<i64>> {
    let rows = tokenizer.encode(texts.iter().copied(), &[], &[], most, false);
    let place = |offset: i64| usize::try_from(offset).expect("not negative");
    rows.offsets
        .windows(2)
        .map(|ends| rows.ids[place(ends[0])..place(ends[1])].to_vec())
        .collect()
}

proptest! {
    /// Letters alone are one piece; long ones take another way than short ones.
    #[test]
    fn a_piece_is_merged_as_its_twin(learnt in learnt(b"abc"), piece in "[abc]{1,14}|[abc]{80,260}|(ab){1,90}|a{1,200}") {
        let found = encode(&tokenizer(&learnt), &[&piece, &piece], usize::MAX);
        let expected = twin(&learnt, &piece);
        prop_assert_eq!(found, vec![expected.clone(), expected]);
    }

    #[test]
    fn tokens_are_the_bytes_of_the_text(learnt in learnt("aé 漢\n'".as_bytes()), text in "[aé 漢\n'.0-9]{0,60}") {
        let found = encode(&tokenizer(&learnt), &[&text], usize::MAX);
        let bytes: Vec<u8> = found[0]
            .iter()
            .flat_map(|&id| learnt.tokens[usize::try_from(id).expect("an id")].clone())
            .collect();
        prop_assert_eq!(String::from_utf8(bytes).expect("UTF-8"), text);
    }

    #[test]
    fn a_batch_is_its_texts_one_by_one(learnt in learnt(b"ab '"), texts in prop::collection::vec(any::<String>(), 0..6), most in 0_usize..9) {
        let (together, apart) = (tokenizer(&learnt), tokenizer(&learnt));
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let whole = encode(&together, &texts, usize::MAX);
        let lengths: Vec<i64> = whole.iter().map(|row| row.len() as i64).collect();
        prop_assert_eq!(together.count(texts.iter().copied(), false), lengths.clone());
        let cut = together.encode(texts.iter().copied(), &[7], &[8, 9], most, false);
        let long = (0..).zip(&lengths).filter(|&(_, &length)| length > most as i64).map(|(row, _)| row);
        prop_assert_eq!(cut.cut, long.collect::<Vec<i64>>());
        let expected: Vec<i64> = whole
            .iter()
            .flat_map(|row| [vec![7], row.iter().copied().take(most).collect(), vec![8, 9]].concat())
            .collect();
        prop_assert_eq!(cut.ids, expected);
        for (text, row) in texts.iter().zip(whole) {
            prop_assert_eq!(encode(&apart, &[text], usize::MAX), vec![row]);
        }
    }

    #[test]
    fn offsets_ascend_and_cover_the_text(learnt in learnt("aé 漢".as_bytes()), text in any::<String>()) {
        let tokenizer = tokenizer(&learnt);
        let offsets = tokenizer.offsets(&text, false);
        prop_assert_eq!(offsets.len() as i64, tokenizer.count([&*text].into_iter(), false)[0]);
        prop_assert!(offsets.iter().all(|&(start, end)| 0 <= start && start < end));
        prop_assert!(offsets.is_sorted_by(|left, right| left.0 <= right.0 && left.1 <= right.1));
        prop_assert!(offsets.last().is_none_or(|last| last.1 <= text.chars().count() as i64));
        if text.is_ascii() {
            prop_assert!(offsets.windows(2).all(|pair| pair[0].1 == pair[1].0));
        }
    }

    #[test]
    fn damaged_files_do_no_harm(places in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4)) {
        let mut content = file(&Learnt { pairs: vec![], tokens: (0..=255).map(|byte| vec![byte]).collect() })
            .to_string()
            .into_bytes();
        for (place, byte) in places {
            let length = content.len();
            content[place.index(length)] = byte;
        }
        if let Ok(tokenizer) = Tokenizer::read(&content) {
            tokenizer.count(["a text"].into_iter(), false);
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    assert!(matches!(
        Tokenizer::read(b"{"),
        Err(ReadError::Malformed(_))
    ));
    let mut other = file(&Learnt {
        pairs: vec![],
        tokens: (0..=255).map(|byte| vec![byte]).collect(),
    });
    other["normalizer"] = json!({"type": "Lowercase"});
    let error = Tokenizer::read(other.to_string().as_bytes()).err();
    let error = error.expect("refused").to_string();
    assert_eq!(error, "unsupported: normalizer Lowercase");
}
