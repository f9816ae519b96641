//! A cache of immutable rows: headers and tombstones while snapshots list them, posting lists within a limit.
//!
//! Keys carry the segment's id, which is never used again, so nothing in here can grow stale.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustc_hash::FxHashMap;

use super::header::Header;
use super::ids::IdRanges;
use super::plan::{CachedList, LanguageQuery, PostingPlan, TermLists};
use super::rows::find_term;
use super::score::{SegmentLists, Snapshot};
use super::tombstone::decode_tombstone;
use super::view::View;
use super::{SegmentError, SegmentId};
use crate::hashing::WordMap;

/// Bytes that a list, or the absence of one, costs besides itself.
const ENTRY_BYTES: usize = 64;

/// Bytes that a term costs besides its name and lists: entries of two maps, and the least map of lists.
const TERM_BYTES: usize = size_of::<Entry>() + 160;

/// A segment that a snapshot lists: id, language, header unless the plan knew it.
pub type GivenSegment<'a> = (SegmentId, &'a str, Option<&'a [u8]>);

/// A tombstone that a snapshot lists: id, data unless the plan knew it.
pub type GivenTombstone<'a> = (SegmentId, Option<&'a [u8]>);

/// A posting row that a snapshot holds.
#[derive(Clone, Copy, Debug)]
pub struct GivenRow<'a> {
    /// The segment.
    pub segment: SegmentId,
    /// The term that it was looked up for.
    pub term: &'a [u8],
    /// First term and data of the row with the greatest first term up to that term; nothing when there is none.
    pub row: Option<(&'a [u8], &'a [u8])>,
}

/// Hits, misses and size of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lists, or absences, that were at hand when a query needed them.
    pub hits: u64,
    /// Those that had to be read.
    pub misses: u64,
    /// Bytes of the lists at hand.
    pub bytes: usize,
    /// Terms with a list, or an absence, at hand.
    pub terms: usize,
}

/// Immutable rows of one collection that queries have read. All methods may be called from many threads.
#[derive(Debug)]
pub struct PostingCache {
    limit: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    segments: FxHashMap<SegmentId, (Arc<str>, Arc<Header>)>,
    tombstones: FxHashMap<SegmentId, Arc<IdRanges>>,
    /// By language, NUL, term.
    terms: WordMap<Arc<[u8]>, Entry>,
    /// When each term was last used, the longest unused first.
    used: BTreeMap<u64, Arc<[u8]>>,
    clock: u64,
    counters: Counters,
    view: Option<Arc<View>>,
}

#[derive(Debug, Default)]
struct Entry {
    lists: TermLists,
    bytes: usize,
    used: u64,
}

fn key(language: &str, term: &str) -> Vec<u8> {
    [language.as_bytes(), &[0], term.as_bytes()].concat()
}

fn bytes_of(held: &CachedList) -> usize {
    ENTRY_BYTES + held.as_ref().map_or(0, |list| list.memory())
}

impl PostingCache {
    /// An empty cache that keeps up to `limit` bytes of posting lists.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            state: Mutex::default(),
        }
    }

    /// Hits, misses, bytes.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let state = self.state();
        Counters {
            terms: state.terms.len(),
            ..state.counters
        }
    }

    /// Keeps up to another number of bytes of posting lists from now on.
    pub fn resize(&self, limit: usize) {
        let mut state = self.state();
        self.limit.store(limit, Ordering::Relaxed);
        state.evict(limit);
    }

    /// Forgets all posting lists; headers and tombstones stay.
    pub fn clear(&self) {
        let mut state = self.state();
        state.terms.clear();
        state.used.clear();
        state.counters.bytes = 0;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| {
            // A panic left it half-done: all is read again.
            let mut state = poisoned.into_inner();
            *state = State::default();
            self.state.clear_poison();
            state
        })
    }

    /// What the query needs, and what of it is at hand.
    ///
    /// # Errors
    ///
    /// Refuses a language that is named twice, and a slot with two terms in one language.
    pub fn plan(&self, queries: &[LanguageQuery]) -> Result<PostingPlan, SegmentError> {
        let mut plan = PostingPlan::new(queries)?;
        let mut state = self.state();
        plan.segments.clone_from(&state.segments);
        plan.tombstones.clone_from(&state.tombstones);
        for planned in &mut plan.languages {
            let known = plan
                .segments
                .values()
                .filter(|(language, _)| **language == *planned.language)
                .count();
            let places = planned
                .terms
                .iter()
                .zip(&mut planned.held)
                .zip(&mut planned.cold);
            for ((term, held), cold) in places {
                if let Some(found) = state.touch(&key(&planned.language, term)) {
                    held.clone_from(found);
                }
                // Lists are fed after the segments are known, and leave with them: none is of another segment.
                *cold = held.len() < known;
            }
        }
        Ok(plan)
    }

    /// Completes the plan for the tables as it knows them, and keeps what was read: `rows` has one entry for each of
    /// [`PostingPlan::missing`].
    ///
    /// # Errors
    ///
    /// Damaged blobs; whatever is needed and was not given.
    pub fn complete(
        &self,
        plan: &PostingPlan,
        rows: &[GivenRow<'_>],
    ) -> Result<Snapshot, SegmentError> {
        let listed = plan.segments.values().cloned().collect();
        let buried = plan.tombstones.iter();
        let buried = buried.map(|(id, ids)| (*id, Arc::clone(ids))).collect();
        self.assemble(plan, listed, buried, rows, false)
    }

    /// Completes the plan with what one snapshot of the tables holds, and keeps what was read.
    ///
    /// `segments` and `tombstones` are all that the snapshot lists; `rows` has one entry for each cold term in each
    /// segment of its language, and for each warm term in each such segment that the plan did not know.
    ///
    /// # Errors
    ///
    /// Damaged blobs; whatever is needed and was not given.
    pub fn snapshot(
        &self,
        plan: &PostingPlan,
        segments: &[GivenSegment<'_>],
        tombstones: &[GivenTombstone<'_>],
        rows: &[GivenRow<'_>],
    ) -> Result<Snapshot, SegmentError> {
        let listed = listed_segments(plan, segments)?;
        let buried = listed_tombstones(plan, tombstones)?;
        self.assemble(plan, listed, buried, rows, true)
    }

    /// The snapshot of these segments and tombstones, which are what others will know when they are news.
    fn assemble(
        &self,
        plan: &PostingPlan,
        mut listed: ListedSegments,
        mut buried: Tombstones,
        rows: &[GivenRow<'_>],
        is_news: bool,
    ) -> Result<Snapshot, SegmentError> {
        // Large ones first: a high threshold early spares work later.
        listed.sort_unstable_by_key(|(_, header)| (u32::MAX - header.chunks(), header.id));
        buried.sort_unstable_by_key(|(id, _)| *id);
        let read = ReadRows::new(plan, &listed, rows)?;
        let (lists, hits) = read.lists(plan, &listed)?;
        let (languages, missing) = languages_of(plan, &listed);
        let kept = {
            let mut state = self.state();
            state.counters.hits += hits;
            state.counters.misses += read.count;
            if is_news {
                state.keep(&listed, &buried);
            }
            for (planned, found) in plan.languages.iter().zip(read.found) {
                for (term, found) in planned.terms.iter().zip(found) {
                    state.feed(&key(&planned.language, term), found);
                }
            }
            state.evict(self.limit.load(Ordering::Relaxed));
            state.view.clone()
        };
        let ids = || listed.iter().map(|(_, header)| &header.id);
        let view = match kept.filter(|view| view.shows(ids(), buried.iter().map(|(id, _)| id))) {
            Some(view) => view,
            None => {
                let headers = listed
                    .iter()
                    .map(|(_, header)| Arc::clone(header))
                    .collect();
                let view = Arc::new(View::new(headers, &buried)?);
                self.state().view = Some(Arc::clone(&view));
                view
            }
        };
        Ok(Snapshot::new(
            view,
            plan.folded.clone(),
            lists,
            languages,
            missing,
        ))
    }
}

type ListedSegments = Vec<(Arc<str>, Arc<Header>)>;

fn listed_segments(
    plan: &PostingPlan,
    given: &[GivenSegment<'_>],
) -> Result<ListedSegments, SegmentError> {
    let listed = given.iter().map(
        |(id, language, header)| match (plan.segments.get(id), header) {
            (Some((_, header)), _) => Ok((Arc::from(*language), Arc::clone(header))),
            (None, Some(header)) => {
                Ok((Arc::from(*language), Arc::new(Header::decode(id, header)?)))
            }
            (None, None) => Err(SegmentError::refused(
                "segments: a header is missing that the plan did not know",
            )),
        },
    );
    listed.collect()
}

/// The languages of the segments, and those of them that the plan lacks.
fn languages_of(plan: &PostingPlan, listed: &ListedSegments) -> (Vec<String>, Vec<String>) {
    let languages = listed.iter().map(|(language, _)| (**language).to_owned());
    let mut languages: Vec<String> = languages.collect();
    languages.sort_unstable();
    languages.dedup();
    let mut missing = languages.clone();
    missing.retain(|language| {
        plan.languages
            .iter()
            .all(|planned| planned.language != *language)
    });
    (languages, missing)
}

type Tombstones = Vec<(SegmentId, Arc<IdRanges>)>;

fn listed_tombstones(
    plan: &PostingPlan,
    given: &[GivenTombstone<'_>],
) -> Result<Tombstones, SegmentError> {
    let buried = given
        .iter()
        .map(|(id, data)| match (plan.tombstones.get(id), data) {
            (Some(ids), _) => Ok((*id, Arc::clone(ids))),
            (None, Some(data)) => Ok((*id, Arc::new(decode_tombstone(id, data)?))),
            (None, None) => Err(SegmentError::refused(
                "tombstones: data is missing that the plan did not know",
            )),
        });
    buried.collect()
}

/// The rows of a snapshot, decoded: for each language of the plan, for each of its terms, lists by segment.
struct ReadRows {
    found: Vec<Vec<TermLists>>,
    count: u64,
}

impl ReadRows {
    fn new(
        plan: &PostingPlan,
        listed: &ListedSegments,
        rows: &[GivenRow<'_>],
    ) -> Result<Self, SegmentError> {
        let headers: FxHashMap<_, _> = listed
            .iter()
            .map(|(language, header)| (header.id, (language, header)))
            .collect();
        if headers.len() < listed.len() {
            return Err(SegmentError::refused("segments: one is listed twice"));
        }
        let mut places = WordMap::default();
        for (language, planned) in plan.languages.iter().enumerate() {
            for (term, text) in planned.terms.iter().enumerate() {
                places.insert(
                    (planned.language.as_str(), text.as_bytes()),
                    (language, term),
                );
            }
        }
        let found = plan
            .languages
            .iter()
            .map(|planned| vec![TermLists::default(); planned.terms.len()]);
        let mut read = Self {
            found: found.collect(),
            count: 0,
        };
        for given in rows {
            let Some((language, header)) = headers.get(&given.segment) else {
                return Err(SegmentError::refused(
                    "rows: one belongs to a segment that is not listed",
                ));
            };
            // The same words may have been looked up in segments of other languages; there they mean nothing.
            let Some((language, term)) = places.get(&(&***language, given.term)) else {
                continue;
            };
            let held = match given.row {
                Some((first_term, data)) => find_term(header, first_term, data, given.term)?,
                None => None,
            };
            let lists = read
                .found
                .get_mut(*language)
                .and_then(|terms| terms.get_mut(*term));
            if let Some(lists) = lists {
                lists.insert(given.segment, held.map(Arc::new));
                read.count += 1;
            }
        }
        Ok(read)
    }

    /// The lists of each segment, and how many of them were at hand.
    fn lists(
        &self,
        plan: &PostingPlan,
        listed: &ListedSegments,
    ) -> Result<(Vec<SegmentLists>, u64), SegmentError> {
        let mut hits = 0;
        let lists =
            listed.iter().map(|(language, header)| {
                let languages = plan.languages.iter().zip(&self.found);
                let mut of_language =
                    languages.filter(|(planned, _)| *planned.language == **language);
                let Some((planned, found)) = of_language.next() else {
                    return Ok(SegmentLists::default());
                };
                let held = planned.held.iter().zip(found).map(|(held, found)| {
                    match found.get(&header.id) {
                        Some(list) => Ok(list.clone()),
                        None => {
                            hits += 1;
                            let missing = || {
                                SegmentError::refused(
                                    "rows: none was given for a term that is not at hand",
                                )
                            };
                            held.get(&header.id).cloned().ok_or_else(missing)
                        }
                    }
                });
                Ok(planned.lists(&held.collect::<Result<Vec<_>, _>>()?))
            });
        let lists = lists.collect::<Result<Vec<_>, _>>()?;
        Ok((lists, hits))
    }
}

impl State {
    /// The lists of a term, which becomes the one used last.
    fn touch(&mut self, key: &[u8]) -> Option<&TermLists> {
        let entry = self.terms.get_mut(key)?;
        let name = self.used.remove(&entry.used)?;
        self.clock += 1;
        entry.used = self.clock;
        self.used.insert(self.clock, name);
        Some(&entry.lists)
    }

    /// Knows what a snapshot lists, and forgets the rest.
    fn keep(&mut self, listed: &ListedSegments, buried: &Tombstones) {
        let segments: FxHashMap<_, _> = listed
            .iter()
            .map(|listed| (listed.1.id, (Arc::clone(&listed.0), Arc::clone(&listed.1))))
            .collect();
        let gone = self.segments.keys().any(|id| !segments.contains_key(id));
        self.segments = segments;
        self.tombstones = buried
            .iter()
            .map(|(id, ids)| (*id, Arc::clone(ids)))
            .collect();
        if gone {
            let (segments, used, counters) = (&self.segments, &mut self.used, &mut self.counters);
            self.terms.retain(|name, entry| {
                counters.bytes -= entry.bytes;
                entry.lists.retain(|id, _| segments.contains_key(id));
                if entry.lists.is_empty() {
                    used.remove(&entry.used);
                    return false;
                }
                let lists: usize = entry.lists.values().map(bytes_of).sum();
                entry.bytes = TERM_BYTES + name.len() + lists;
                counters.bytes += entry.bytes;
                true
            });
        }
    }

    /// Adds lists of a term, as far as their segments are known.
    fn feed(&mut self, key: &[u8], mut found: TermLists) {
        found.retain(|id, _| self.segments.contains_key(id));
        if found.is_empty() {
            return;
        }
        if self.touch(key).is_none() {
            self.clock += 1;
            let name: Arc<[u8]> = key.into();
            self.used.insert(self.clock, Arc::clone(&name));
            self.terms.insert(
                name,
                Entry {
                    used: self.clock,
                    bytes: TERM_BYTES + key.len(),
                    ..Entry::default()
                },
            );
            self.counters.bytes += TERM_BYTES + key.len();
        }
        let Some(entry) = self.terms.get_mut(key) else {
            return;
        };
        for (id, held) in found {
            let added = bytes_of(&held);
            let replaced = entry
                .lists
                .insert(id, held)
                .map_or(0, |held| bytes_of(&held));
            entry.bytes = entry.bytes + added - replaced;
            self.counters.bytes = self.counters.bytes + added - replaced;
        }
    }

    /// Forgets the terms that were not used for the longest time, until the rest is within the limit.
    fn evict(&mut self, limit: usize) {
        while self.counters.bytes > limit
            && let Some((_, name)) = self.used.pop_first()
        {
            let bytes = self.terms.remove(&name).map_or(0, |entry| entry.bytes);
            self.counters.bytes -= bytes;
        }
    }
}
