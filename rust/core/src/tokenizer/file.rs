//! `tokenizer.json`: what the encoder needs of it, and whether it can do what the file asks for.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::pieces::PATTERN;

/// Largest file: twenty times the largest that is known.
const MAX_BYTES: usize = 1 << 28;
/// Ids end before this one: tables are as long as the greatest id.
const MAX_IDS: u32 = 1 << 24;

/// Why a file is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// No program can read it.
    Malformed(String),
    /// It asks for something that is not done here.
    Unsupported(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(out, "malformed: {what}"),
            Self::Unsupported(what) => write!(out, "unsupported: {what}"),
        }
    }
}

/// A file whose every wish can be met.
pub(super) struct File {
    /// Spelling -> id.
    pub(super) vocabulary: FxHashMap<String, u32>,
    /// Bytes and id of every entry that is made of bytes.
    pub(super) entries: Vec<(Vec<u8>, u32)>,
    /// Ids of single bytes.
    pub(super) bytes: [u32; 256],
    /// (left, right, merged), in the order in which they were learnt.
    pub(super) merges: Vec<(u32, u32, u32)>,
    /// Whether a piece that the vocabulary holds is one token even if no merges lead there.
    pub(super) ignores_merges: bool,
    /// Whether texts are brought into normal form C.
    pub(super) normalises: bool,
    /// The added tokens and their ids.
    pub(super) added: Vec<(Added, u32)>,
    /// Ids that the file's own post-processor puts before and behind a text.
    pub(super) special_prefix_suffix: (Vec<i64>, Vec<i64>),
}

#[derive(Deserialize)]
struct TokenizerJson<'a> {
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(borrow)]
    model: &'a RawValue,
}

/// An added token as the file has it.
#[derive(Deserialize)]
pub(super) struct Added {
    id: u32,
    pub(super) content: String,
    pub(super) single_word: bool,
    pub(super) lstrip: bool,
    pub(super) rstrip: bool,
    pub(super) normalized: bool,
    pub(super) special: bool,
}

/// What decides whether the rest of the model is worth reading.
#[derive(Deserialize)]
struct Settings {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    dropout: Option<f64>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    ignore_merges: Option<bool>,
}

#[derive(Deserialize)]
struct Tables {
    vocab: FxHashMap<String, u32>,
    merges: Vec<Pair>,
}

/// `"a b"` or `["a", "b"]`; nothing for the line of old files that names their version.
struct Pair(Option<(String, String)>);

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairVisitor;

        impl<'de> Visitor<'de> for PairVisitor {
            type Value = Pair;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a merge: two tokens")
            }

            fn visit_str<E: serde::de::Error>(self, line: &str) -> Result<Pair, E> {
                if line.starts_with("#version") {
                    return Ok(Pair(None));
                }
                match line.split_once(' ') {
                    Some((left, right)) if !right.contains(' ') => {
                        Ok(Pair(Some((left.to_owned(), right.to_owned()))))
                    }
                    _ => Err(E::custom("a merge has not two tokens")),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Pair, A::Error> {
                match (
                    items.next_element()?,
                    items.next_element()?,
                    items.next_element::<String>()?,
                ) {
                    (Some(left), Some(right), None) => Ok(Pair(Some((left, right)))),
                    _ => Err(A::Error::custom("a merge has not two tokens")),
                }
            }
        }

        deserializer.deserialize_any(PairVisitor)
    }
}

fn malformed(error: &serde_json::Error) -> ReadError {
    ReadError::Malformed(error.to_string())
}

fn unsupported<T>(what: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError::Unsupported(what.into()))
}

impl File {
    /// Reads the bytes of a `tokenizer.json`.
    pub(super) fn read(content: &[u8]) -> Result<Self, ReadError> {
        if content.len() > MAX_BYTES {
            return unsupported(format!("a file of more than {MAX_BYTES} bytes"));
        }
        let top: TokenizerJson<'_> =
            serde_json::from_slice(content).map_err(|error| malformed(&error))?;
        if top.version.is_some_and(|version| version != "1.0") {
            return unsupported("another version of the format than 1.0");
        }
        let normalises = check_normaliser(&top.normalizer)?;
        check_splitting(&top.pre_tokenizer)?;
        let special_prefix_suffix = special_prefix_suffix(&top.post_processor)?;
        let settings: Settings =
            serde_json::from_str(top.model.get()).map_err(|error| malformed(&error))?;
        check_settings(&settings)?;
        let tables: Tables =
            serde_json::from_str(top.model.get()).map_err(|error| malformed(&error))?;
        let vocabulary = tables.vocab;
        if vocabulary.values().any(|&id| id >= MAX_IDS) {
            return unsupported(format!("token ids from {MAX_IDS}"));
        }
        let distinct: FxHashSet<u32> = vocabulary.values().copied().collect();
        if distinct.len() < vocabulary.len() {
            return unsupported("one id for two entries of the vocabulary");
        }
        let entries = byte_entries(&vocabulary);
        Ok(Self {
            bytes: single_bytes(&entries)?,
            entries,
            merges: merges(tables.merges, &vocabulary)?,
            ignores_merges: settings.ignore_merges == Some(true),
            normalises,
            added: added_ids(top.added_tokens, &vocabulary)?,
            special_prefix_suffix,
            vocabulary,
        })
    }
}

fn kind(part: &Value) -> &str {
    part.get("type")
        .and_then(Value::as_str)
        .unwrap_or("nothing")
}

fn is(part: &Value, name: &str, wanted: bool) -> bool {
    part.get(name).and_then(Value::as_bool) == Some(wanted)
}

fn check_normaliser(part: &Value) -> Result<bool, ReadError> {
    match (part.is_null(), kind(part)) {
        (true, _) => Ok(false),
        (_, "NFC") => Ok(true),
        (_, other) => unsupported(format!("normalizer {other}")),
    }
}

fn check_splitting(part: &Value) -> Result<(), ReadError> {
    let steps = part.get("pretokenizers").and_then(Value::as_array);
    let (Some(steps), "Sequence") = (steps, kind(part)) else {
        return unsupported(format!("pre_tokenizer {}", kind(part)));
    };
    let [split, byte_level] = steps.as_slice() else {
        return unsupported(format!("pre_tokenizer of {} steps", steps.len()));
    };
    let pattern = split.get("pattern").and_then(|it| it.get("Regex"));
    if kind(split) != "Split"
        || pattern.and_then(Value::as_str) != Some(PATTERN)
        || split.get("behavior").and_then(Value::as_str) != Some("Isolated")
        || !is(split, "invert", false)
    {
        return unsupported("another splitting pattern than Qwen's");
    }
    if kind(byte_level) != "ByteLevel"
        || !is(byte_level, "add_prefix_space", false)
        || !is(byte_level, "use_regex", false)
    {
        return unsupported("another second step of splitting than plain ByteLevel");
    }
    Ok(())
}

/// Ids before and behind a text.
fn special_prefix_suffix(part: &Value) -> Result<(Vec<i64>, Vec<i64>), ReadError> {
    match kind(part) {
        _ if part.is_null() => Ok((vec![], vec![])),
        "ByteLevel" if is(part, "trim_offsets", false) => Ok((vec![], vec![])),
        "ByteLevel" => unsupported("post_processor that trims offsets"),
        "TemplateProcessing" => template(part),
        "Sequence" => {
            let steps = part.get("processors").and_then(Value::as_array);
            let is_template = |step: &&Value| kind(step) == "TemplateProcessing";
            let steps = || steps.into_iter().flatten();
            if steps().filter(is_template).count() > 1 {
                return unsupported("post_processor of two templates");
            }
            for step in steps().filter(|step| !is_template(step)) {
                if kind(step) == "Sequence" {
                    return unsupported("post_processor Sequence in a Sequence");
                }
                special_prefix_suffix(step)?;
            }
            steps()
                .find(is_template)
                .map_or(Ok((vec![], vec![])), template)
        }
        other => unsupported(format!("post_processor {other}")),
    }
}

fn template(part: &Value) -> Result<(Vec<i64>, Vec<i64>), ReadError> {
    let (mut prefix, mut suffix, mut texts) = (vec![], vec![], 0);
    for piece in part
        .get("single")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if let Some(text) = piece.get("Sequence") {
            if text.get("id").and_then(Value::as_str) != Some("A") {
                return unsupported("post_processor with a second text");
            }
            texts += 1;
            continue;
        }
        let ids = piece
            .get("SpecialToken")
            .and_then(|token| token.get("id"))
            .and_then(Value::as_str)
            .and_then(|name| {
                part.get("special_tokens")?
                    .get(name)?
                    .get("ids")?
                    .as_array()
            })
            .and_then(|ids| ids.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>());
        match ids {
            Some(ids) if texts == 0 => prefix.extend(ids),
            Some(ids) => suffix.extend(ids),
            None => return unsupported("post_processor with a token without ids"),
        }
    }
    if texts == 1 {
        Ok((prefix, suffix))
    } else {
        unsupported(format!("post_processor that repeats a text {texts} times"))
    }
}

fn check_settings(settings: &Settings) -> Result<(), ReadError> {
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    match settings.kind.as_deref() {
        Some("BPE") => {}
        other => return unsupported(format!("model {}", other.unwrap_or("without a type"))),
    }
    if settings.dropout.is_some_and(|dropout| dropout != 0.0) {
        return unsupported("dropout");
    }
    if is_set(&settings.continuing_subword_prefix) || is_set(&settings.end_of_word_suffix) {
        return unsupported("prefixes or suffixes of words");
    }
    Ok(())
}

/// The byte that a character of the byte-level alphabet stands for: printable Latin-1 characters stand for themselves,
/// the other bytes, in ascending order, for U+0100 and what follows.
fn alphabet() -> FxHashMap<char, u8> {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let (plain, others): (Vec<u8>, Vec<u8>) = (0..=255).partition(|&byte| is_printable(byte));
    let plain = plain.into_iter().map(|byte| (char::from(byte), byte));
    plain.chain(('\u{100}'..).zip(others)).collect()
}

fn byte_entries(vocabulary: &FxHashMap<String, u32>) -> Vec<(Vec<u8>, u32)> {
    let alphabet = alphabet();
    let bytes = |text: &str| -> Option<Vec<u8>> {
        text.chars().map(|it| alphabet.get(&it).copied()).collect()
    };
    let entry = |(text, &id): (&String, &u32)| Some((bytes(text)?, id));
    vocabulary.iter().filter_map(entry).collect()
}

fn single_bytes(entries: &[(Vec<u8>, u32)]) -> Result<[u32; 256], ReadError> {
    let mut ids = [u32::MAX; 256];
    for (bytes, id) in entries {
        if let [byte] = bytes.as_slice()
            && let Some(place) = ids.get_mut(usize::from(*byte))
        {
            *place = *id;
        }
    }
    if ids.contains(&u32::MAX) {
        return unsupported("a vocabulary that lacks some of the 256 bytes");
    }
    Ok(ids)
}

fn merges(
    pairs: Vec<Pair>,
    vocabulary: &FxHashMap<String, u32>,
) -> Result<Vec<(u32, u32, u32)>, ReadError> {
    let mut found = Vec::with_capacity(pairs.len());
    for (left, right) in pairs.into_iter().filter_map(|pair| pair.0) {
        let ids = (vocabulary.get(&left), vocabulary.get(&right));
        let merged = vocabulary.get(&(left + &right));
        let ((Some(&left), Some(&right)), Some(&merged)) = (ids, merged) else {
            return unsupported("a merge of tokens that the vocabulary lacks");
        };
        found.push((left, right, merged));
    }
    Ok(found)
}

/// The ids that added tokens get when they are added one after the other, which must be those that the file states.
fn added_ids(
    tokens: Vec<Added>,
    vocabulary: &FxHashMap<String, u32>,
) -> Result<Vec<(Added, u32)>, ReadError> {
    let mut next = u32::try_from(vocabulary.len()).unwrap_or(MAX_IDS);
    let mut found = Vec::with_capacity(tokens.len());
    for token in tokens {
        if token.content.is_empty() {
            continue;
        }
        let id = vocabulary.get(&token.content).copied().unwrap_or_else(|| {
            next = next.saturating_add(1);
            next - 1
        });
        if id != token.id || id >= MAX_IDS {
            return unsupported("added tokens with other ids than their order gives them");
        }
        found.push((token, id));
    }
    Ok(found)
}
