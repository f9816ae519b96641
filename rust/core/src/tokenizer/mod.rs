//! Byte pair encoding as Qwen's models use it, and as those do that stem from SentencePiece: token ids, counts and
//! offsets of whole batches of texts.
//!
//! A text passes five steps: added tokens are taken out; the rest is brought into normal form C; those added tokens that
//! are searched for there are taken out; Qwen's pattern cuts what remains into pieces; and the bytes of each piece are
//! merged pair by pair. In the second kind, spaces become marks instead of normal form C, what begins as tokens are
//! characters, and pieces end where no merge can join what stands on both sides. The ids are those of the tokenizers library, for every text.

mod added;
mod characters;
mod ends;
mod entries;
mod file;
mod known_pieces;
mod merges;
mod normal;
mod offsets;
mod parts;
mod pieces;
mod sink;
mod spaced;

use std::borrow::Cow;
use std::sync::Mutex;

use rustc_hash::FxHashMap;

use added::{AddedToken, AddedTokens};
use characters::CharacterProperties;
use file::{Added, File};
use known_pieces::{KnownPieces, RecentPieces};
use merges::{Merges, Workspace};
use normal::Form;
use offsets::Offsets;
pub use parts::ReadError;
pub use pieces::PATTERN;
use pieces::Splitter;
use sink::{Count, Ids, Sink, signed};
use spaced::Joints;

/// An encoder of texts; safe for several threads.
pub struct Tokenizer {
    characters: &'static CharacterProperties,
    splitter: Splitter,
    /// Cuts texts in place of the pattern.
    joints: Option<Joints>,
    merges: Merges,
    known: KnownPieces,
    form: Form,
    /// Searched for in texts as they are.
    added: AddedTokens,
    /// Searched for in texts in normal form.
    added_to_normal: AddedTokens,
    vocabulary: FxHashMap<String, u32>,
    /// Bytes of every token of the vocabulary, by id.
    lengths: Vec<usize>,
    special_prefix_suffix: (Vec<i64>, Vec<i64>),
    /// Memory that one call leaves to the next.
    memory: Mutex<Option<Box<Memory>>>,
}

/// Rows of token ids, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows {
    /// The ids of all rows.
    pub ids: Vec<i64>,
    /// Row i is `ids[offsets[i]..offsets[i + 1]]`.
    pub offsets: Vec<i64>,
    /// Numbers of the rows that lost tokens, ascending.
    pub cut: Vec<i64>,
}

struct Memory {
    recent: RecentPieces,
    workspace: Workspace,
    ids: Vec<u32>,
}

impl Tokenizer {
    /// Reads the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// The file is malformed, or asks for something else than what this module does.
    pub fn read(content: &[u8]) -> Result<Self, ReadError> {
        let unsupported = |what: &str| ReadError::Unsupported(what.to_owned());
        let characters = CharacterProperties::shared().ok_or_else(|| {
            unsupported("this build, because the Unicode tables are missing from it")
        })?;
        let file = File::read(content)?;
        let merges = Merges::new(file.first, file.merges.into_iter())
            .ok_or_else(|| unsupported("more merges than 32-bit numbers can count"))?;
        let (mut lengths, mut known) = (Vec::new(), KnownPieces::default());
        let (mut workspace, mut ids) = (Workspace::default(), Vec::new());
        for (bytes, id) in &file.entries {
            let place = *id as usize;
            if lengths.len() <= place {
                lengths.resize(place + 1, 0);
            }
            if let Some(length) = lengths.get_mut(place) {
                *length = bytes.len();
            }
            // Only what merges to itself may be looked up as a whole.
            ids.clear();
            merges.encode(bytes, &mut workspace, &mut ids);
            if file.ignores_merges || ids == [*id] {
                known.insert(bytes, *id);
            }
        }
        let mut vocabulary = file.vocabulary;
        let (mut added, mut added_to_normal) = (Vec::new(), Vec::new());
        for (token, id) in file.added {
            vocabulary.insert(token.content.clone(), id);
            let list = if token.normalized {
                &mut added_to_normal
            } else {
                &mut added
            };
            let spelling = if token.normalized && file.form == Form::Composed {
                normal::normalised(&token.content, characters).into_owned()
            } else {
                token.content.clone()
            };
            list.push(added_token(&token, id, spelling));
        }
        Ok(Self {
            characters,
            splitter: Splitter::new(characters),
            joints: file.joints,
            merges,
            known,
            form: file.form,
            added: AddedTokens::new(added)?,
            added_to_normal: AddedTokens::new(added_to_normal)?,
            vocabulary,
            lengths,
            special_prefix_suffix: file.special_prefix_suffix,
            memory: Mutex::new(None),
        })
    }

    /// The id of a token, as the vocabulary spells it.
    #[must_use]
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.vocabulary.get(token).copied()
    }

    /// The ids that the file's own post-processor puts before and behind a text.
    #[must_use]
    pub fn special_prefix_suffix(&self) -> (&[i64], &[i64]) {
        (&self.special_prefix_suffix.0, &self.special_prefix_suffix.1)
    }

    /// The tokens of each text between `head` and `tail`; of a text with more than `most` tokens, the first ones.
    pub fn encode<'a>(
        &self,
        texts: impl Iterator<Item = &'a str>,
        head: &[i64],
        tail: &[i64],
        most: usize,
        special_as_text: bool,
    ) -> Rows {
        let mut rows = Rows {
            offsets: vec![0],
            ..Rows::default()
        };
        self.with_memory(|memory| {
            for (row, text) in (0_i64..).zip(texts) {
                rows.ids.extend_from_slice(head);
                let start = rows.ids.len();
                let mut sink = Ids {
                    ids: &mut rows.ids,
                    end: start.saturating_add(most),
                };
                self.walk(text, special_as_text, memory, &mut sink);
                if sink.is_full() {
                    rows.ids.truncate(start.saturating_add(most));
                    rows.cut.push(row);
                }
                rows.ids.extend_from_slice(tail);
                rows.offsets.push(signed(rows.ids.len()));
            }
        });
        rows
    }

    /// The number of tokens of each text.
    pub fn count<'a>(
        &self,
        texts: impl Iterator<Item = &'a str>,
        special_as_text: bool,
    ) -> Vec<i64> {
        self.with_memory(|memory| {
            let count = |text| {
                let mut count = Count(0);
                self.walk(text, special_as_text, memory, &mut count);
                count.0
            };
            texts.map(count).collect()
        })
    }

    /// Start and end of every token in characters of the text as given; both ascend.
    #[must_use]
    pub fn offsets(&self, text: &str, special_as_text: bool) -> Vec<(i64, i64)> {
        let mut offsets = Offsets::new(&self.lengths);
        self.with_memory(|memory| self.walk(text, special_as_text, memory, &mut offsets));
        offsets.into_pairs()
    }

    /// Lends the memory of the call before, or new one where another thread has it.
    fn with_memory<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        let kept = self.memory.lock().ok().and_then(|mut kept| kept.take());
        let mut memory = kept.unwrap_or_else(|| {
            Box::new(Memory {
                recent: RecentPieces::new(),
                workspace: Workspace::default(),
                ids: Vec::new(),
            })
        });
        let result = work(&mut memory);
        memory.workspace.release_excess();
        if let Ok(mut kept) = self.memory.lock() {
            *kept = Some(memory);
        }
        result
    }

    fn walk<'a>(
        &self,
        text: &'a str,
        special_as_text: bool,
        memory: &mut Memory,
        sink: &mut impl Sink<'a>,
    ) {
        for span in self.added.split(text, special_as_text) {
            let given = text.get(span.bytes).unwrap_or_default();
            if let Some(id) = span.token {
                sink.stretch(given, Form::AsGiven);
                sink.added(id, given.len());
            } else {
                self.walk_stretch(given, special_as_text, memory, sink);
            }
            if sink.is_full() {
                return;
            }
        }
    }

    fn walk_stretch<'a>(
        &self,
        given: &'a str,
        special_as_text: bool,
        memory: &mut Memory,
        sink: &mut impl Sink<'a>,
    ) {
        let normal = match self.form {
            Form::AsGiven => Cow::Borrowed(given),
            Form::Composed => normal::normalised(given, self.characters),
            Form::Spaced => Cow::Owned(spaced::spaced(given)),
        };
        let is_changed = matches!(normal, Cow::Owned(_));
        sink.stretch(given, if is_changed { self.form } else { Form::AsGiven });
        for span in self.added_to_normal.split(&normal, special_as_text) {
            if let Some(id) = span.token {
                sink.added(id, span.bytes.len());
            } else if let Some(part) = normal.get(span.bytes) {
                self.walk_pieces(part, memory, sink);
            }
            if sink.is_full() {
                return;
            }
        }
    }

    fn walk_pieces<'a>(&self, text: &str, memory: &mut Memory, sink: &mut impl Sink<'a>) {
        let mut start = 0;
        while start < text.len() && !sink.is_full() {
            let end = match &self.joints {
                Some(joints) => joints.piece_end(text, start),
                None => self.splitter.piece_end(text, start),
            };
            self.piece(text.as_bytes(), start, end, memory, sink);
            start = end;
        }
    }

    #[inline]
    fn piece<'a>(
        &self,
        text: &[u8],
        start: usize,
        end: usize,
        memory: &mut Memory,
        sink: &mut impl Sink<'a>,
    ) {
        let key = known_pieces::short(text, start, end);
        if let Some(found) = key.and_then(|key| memory.recent.get(key)) {
            sink.tokens(found.ids());
            return;
        }
        let piece = text.get(start..end).unwrap_or_default();
        let Memory {
            recent,
            workspace,
            ids,
        } = memory;
        ids.clear();
        let word = match key {
            Some(key) => self.known.short(key),
            None => self.known.long(piece),
        };
        match word {
            Some(id) => ids.push(id),
            None => self.merges.encode(piece, workspace, ids),
        }
        if let Some(key) = key {
            recent.set(key, ids);
        }
        sink.tokens(ids);
    }
}

fn added_token(token: &Added, id: u32, spelling: String) -> AddedToken {
    AddedToken {
        id,
        spelling,
        is_special: token.special,
        is_whole_word: token.single_word,
        takes_blanks_before: token.lstrip,
        takes_blanks_behind: token.rstrip,
    }
}
