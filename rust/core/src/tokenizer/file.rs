//! `tokenizer.json`: what the encoder needs of it, and whether it can do what the file asks for.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::ends::special_prefix_suffix;
use super::entries::{byte_entries, named_byte, named_bytes, single_bytes, spelt_entries};
use super::normal::Form;
use super::parts::{ReadError, is, kind, unsupported};
use super::pieces::PATTERN;
use super::spaced::{CharacterTokens, Joints, MARK};

/// Largest file: twenty times the largest that is known.
const MAX_BYTES: usize = 1 << 28;
/// Ids end before this one: tables are as long as the greatest id.
const MAX_IDS: u32 = 1 << 24;

/// The content of a file that the encoder supports.
pub(super) struct File {
    /// Spelling -> id.
    pub(super) vocabulary: FxHashMap<String, u32>,
    /// Bytes and id of every entry that a text can have.
    pub(super) entries: Vec<(Vec<u8>, u32)>,
    /// The tokens that pieces begin as.
    pub(super) first: FirstTokens,
    /// Where texts may be cut; `None` if Qwen's pattern cuts them.
    pub(super) joints: Option<Joints>,
    /// (left, right, merged), in the order in which they were learnt.
    pub(super) merges: Vec<(u32, u32, u32)>,
    /// Whether a piece that the vocabulary holds is one token even if no merges lead there.
    pub(super) ignores_merges: bool,
    /// The normal form of texts.
    pub(super) form: Form,
    /// The added tokens and their ids.
    pub(super) added: Vec<(Added, u32)>,
    /// Ids that the file's own post-processor puts before and behind a text.
    pub(super) special_prefix_suffix: (Vec<i64>, Vec<i64>),
}

/// The tokens that pieces begin as.
pub(super) enum FirstTokens {
    /// Those of their bytes.
    Bytes(Box<[u32; 256]>),
    /// Those of their characters.
    Characters(Box<CharacterTokens>),
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
    #[serde(default)]
    byte_fallback: Option<bool>,
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
                out.write_str("a merge of two tokens")
            }

            fn visit_str<E: serde::de::Error>(self, line: &str) -> Result<Pair, E> {
                if line.starts_with("#version") {
                    return Ok(Pair(None));
                }
                match line.split_once(' ') {
                    Some((left, right)) if !right.contains(' ') => {
                        Ok(Pair(Some((left.to_owned(), right.to_owned()))))
                    }
                    _ => Err(E::custom("a merge must have exactly two tokens")),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Pair, A::Error> {
                match (
                    items.next_element()?,
                    items.next_element()?,
                    items.next_element::<String>()?,
                ) {
                    (Some(left), Some(right), None) => Ok(Pair(Some((left, right)))),
                    _ => Err(A::Error::custom("a merge must have exactly two tokens")),
                }
            }
        }

        deserializer.deserialize_any(PairVisitor)
    }
}

fn malformed(error: &serde_json::Error) -> ReadError {
    ReadError::Malformed(error.to_string())
}

impl File {
    /// Reads the bytes of a `tokenizer.json`.
    pub(super) fn read(content: &[u8]) -> Result<Self, ReadError> {
        if content.len() > MAX_BYTES {
            return unsupported(format!(
                "a file of {} bytes; the maximum is {MAX_BYTES}",
                content.len()
            ));
        }
        let top: TokenizerJson<'_> =
            serde_json::from_slice(content).map_err(|error| malformed(&error))?;
        if let Some(version) = top.version.filter(|version| version != "1.0") {
            return unsupported(format!("format version {version:?}, expected \"1.0\""));
        }
        let form = form(&top.normalizer)?;
        check_splitting(&top.pre_tokenizer, form)?;
        let special_prefix_suffix = special_prefix_suffix(&top.post_processor)?;
        let settings: Settings =
            serde_json::from_str(top.model.get()).map_err(|error| malformed(&error))?;
        check_settings(&settings, form)?;
        if form == Form::Spaced && top.added_tokens.iter().any(|token| token.normalized) {
            return unsupported(
                "an added token with normalized true, together with a normalizer that replaces spaces with ▁",
            );
        }
        let tables: Tables =
            serde_json::from_str(top.model.get()).map_err(|error| malformed(&error))?;
        let vocabulary = tables.vocab;
        if let Some(id) = vocabulary.values().find(|&&id| id >= MAX_IDS) {
            return unsupported(format!("token id {id}, expected below {MAX_IDS}"));
        }
        let distinct: FxHashSet<u32> = vocabulary.values().copied().collect();
        if distinct.len() < vocabulary.len() {
            return unsupported("two tokens of the vocabulary with the same id");
        }
        let (entries, first, joints) = if form == Form::Spaced {
            let tokens = CharacterTokens::new(&vocabulary, named_bytes(&vocabulary)?);
            let Some(tokens) = tokens else {
                return unsupported(
                    "a vocabulary without the token ▁, together with a normalizer that replaces spaces with ▁",
                );
            };
            let first = FirstTokens::Characters(Box::new(tokens));
            (
                spelt_entries(&vocabulary),
                first,
                Some(joints(&tables.merges)?),
            )
        } else {
            let entries = byte_entries(&vocabulary);
            let first = FirstTokens::Bytes(Box::new(single_bytes(&entries)?));
            (entries, first, None)
        };
        Ok(Self {
            entries,
            first,
            joints,
            merges: merges(tables.merges, &vocabulary)?,
            ignores_merges: settings.ignore_merges == Some(true),
            form,
            added: added_ids(top.added_tokens, &vocabulary)?,
            special_prefix_suffix,
            vocabulary,
        })
    }
}

fn form(part: &Value) -> Result<Form, ReadError> {
    match (part.is_null(), kind(part)) {
        (true, _) => Ok(Form::AsGiven),
        (_, "NFC") => Ok(Form::Composed),
        (_, "Sequence") if is_spacing(part) => Ok(Form::Spaced),
        (_, other) => unsupported(format!("normalizer {other}")),
    }
}

/// Whether a normaliser puts a mark in front and one in the place of every space.
fn is_spacing(part: &Value) -> bool {
    let steps = part.get("normalizers").and_then(Value::as_array);
    let Some([prepend, replace]) = steps.map(Vec::as_slice) else {
        return false;
    };
    let is_mark = |mark: Option<&Value>| {
        let mark = mark.and_then(Value::as_str);
        mark.is_some_and(|mark| mark.chars().eq([MARK]))
    };
    let replaced = replace.get("pattern").and_then(|it| it.get("String"));
    kind(prepend) == "Prepend"
        && is_mark(prepend.get("prepend"))
        && kind(replace) == "Replace"
        && replaced.and_then(Value::as_str) == Some(" ")
        && is_mark(replace.get("content"))
}

fn check_splitting(part: &Value, form: Form) -> Result<(), ReadError> {
    if form == Form::Spaced {
        return match part {
            Value::Null => Ok(()),
            _ => unsupported(format!(
                "pre_tokenizer {}, together with a normalizer that replaces spaces with ▁",
                kind(part)
            )),
        };
    }
    let steps = part.get("pretokenizers").and_then(Value::as_array);
    let (Some(steps), "Sequence") = (steps, kind(part)) else {
        return unsupported(format!("pre_tokenizer {}", kind(part)));
    };
    let [split, byte_level] = steps.as_slice() else {
        return unsupported(format!(
            "pre_tokenizer Sequence of {} steps, expected 2: Split, ByteLevel",
            steps.len()
        ));
    };
    let pattern = split.get("pattern").and_then(|it| it.get("Regex"));
    if kind(split) != "Split"
        || pattern.and_then(Value::as_str) != Some(PATTERN)
        || split.get("behavior").and_then(Value::as_str) != Some("Isolated")
        || !is(split, "invert", false)
    {
        return unsupported(
            "first step of pre_tokenizer, expected Split with Qwen's pattern, behavior Isolated and invert false",
        );
    }
    if kind(byte_level) != "ByteLevel"
        || !is(byte_level, "add_prefix_space", false)
        || !is(byte_level, "use_regex", false)
    {
        return unsupported(
            "second step of pre_tokenizer, expected ByteLevel with add_prefix_space false and use_regex false",
        );
    }
    Ok(())
}

fn check_settings(settings: &Settings, form: Form) -> Result<(), ReadError> {
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    match settings.kind.as_deref() {
        Some("BPE") => {}
        Some(other) => return unsupported(format!("model type {other}, expected BPE")),
        None => return unsupported("model whose type is missing, expected BPE"),
    }
    if let Some(dropout) = settings.dropout.filter(|dropout| *dropout != 0.0) {
        return unsupported(format!("model with dropout {dropout}, expected 0"));
    }
    if is_set(&settings.continuing_subword_prefix) || is_set(&settings.end_of_word_suffix) {
        return unsupported("model with continuing_subword_prefix or end_of_word_suffix");
    }
    if form == Form::Spaced {
        if settings.byte_fallback != Some(true) {
            return unsupported(
                "model without byte_fallback, together with a normalizer that replaces spaces with ▁",
            );
        }
        if settings.ignore_merges == Some(true) {
            return unsupported(
                "model with ignore_merges true, together with a normalizer that replaces spaces with ▁",
            );
        }
    }
    Ok(())
}

fn joints(pairs: &[Pair]) -> Result<Joints, ReadError> {
    let pairs = || pairs.iter().filter_map(|pair| pair.0.as_ref());
    let names_byte = |text: &str| named_byte(text).is_some();
    for (left, right) in pairs() {
        // The token of a byte has one length in a text, and joins no neighbour.
        if names_byte(left) || names_byte(right) || names_byte(&format!("{left}{right}")) {
            return unsupported("a merge with the token of a byte, such as <0x0A>");
        }
    }
    Ok(Joints::new(
        pairs().map(|(left, right)| (&**left, &**right)),
    ))
}

fn merges(
    pairs: Vec<Pair>,
    vocabulary: &FxHashMap<String, u32>,
) -> Result<Vec<(u32, u32, u32)>, ReadError> {
    let mut found = Vec::with_capacity(pairs.len());
    for (place, pair) in pairs.into_iter().enumerate() {
        let Some((left, right)) = pair.0 else {
            continue;
        };
        let ids = (vocabulary.get(&left), vocabulary.get(&right));
        let merged = vocabulary.get(&(left + &right));
        let ((Some(&left), Some(&right)), Some(&merged)) = (ids, merged) else {
            return unsupported(format!(
                "merges[{place}], because a token of it or the merged token is not in the vocabulary"
            ));
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
    for (place, token) in tokens.into_iter().enumerate() {
        if token.content.is_empty() {
            continue;
        }
        let id = vocabulary.get(&token.content).copied().unwrap_or_else(|| {
            next = next.saturating_add(1);
            next - 1
        });
        if id != token.id {
            return unsupported(format!(
                "id {} of added_tokens[{place}], expected {id} from the vocabulary or the order of the list",
                token.id
            ));
        }
        if id >= MAX_IDS {
            return unsupported(format!("token id {id}, expected below {MAX_IDS}"));
        }
        found.push((token, id));
    }
    Ok(found)
}
