//! A cache of immutable rows: headers and tombstones while snapshots list them, posting lists within a limit.
//!
//! Keys carry the segment's id, which is never used again, so nothing in here can grow stale.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustc_hash::FxHashMap;

use super::changes::Changes;
use super::plan::{CachedList, LanguageQuery, PostingPlan, TermLists};
use super::read_segment::ReadSegment;
use super::score::{SegmentLists, Snapshot};
use super::small_segments::{SmallSegment, SmallSegments};
use super::view::View;
use crate::hashing::{WordMap, WordSet};
use crate::keyword::format::Header;
use crate::keyword::format::rows::find_terms;
use crate::segments::known_index::{KnownIndex, Tombstone};
use crate::segments::{SegmentError, SegmentId, decode_tombstone, impossible};

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
    /// First term and data of the row with the greatest first term up to that term; `None` if none exists.
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
    /// Bytes of segments with all their rows.
    pub small_bytes: usize,
}

/// New segments with all their rows.
type SmallLists = FxHashMap<SegmentId, Arc<SmallSegment>>;

/// Immutable rows of one collection that queries have read. All methods may be called from many threads.
#[derive(Debug)]
pub struct PostingCache {
    limit: AtomicUsize,
    /// Maximum bytes of small segments.
    small_limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: Arc<KnownIndex<ReadSegment>>,
    /// How many transactions had ended when the known state of the tables was read.
    ended: u64,
    /// Known segments with all their rows.
    small: SmallSegments,
    /// For each known segment the names of the terms that have a list, or an absence, of it.
    fed: FxHashMap<SegmentId, WordSet<Arc<[u8]>>>,
    /// By language, NUL, term.
    terms: WordMap<Arc<[u8]>, Entry>,
    /// When each term was last used, the longest unused first.
    used: BTreeMap<u64, Arc<[u8]>>,
    clock: u64,
    counters: Counters,
    view: Option<Arc<View>>,
    /// The last view of a snapshot that was older than the known state.
    older: Option<Arc<View>>,
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
    /// An empty cache that keeps up to `limit` bytes of posting lists, and no small segment.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self::with_small(limit, 0)
    }

    /// The same with up to `small_limit` bytes of small segments, which are kept with all their rows.
    #[must_use]
    pub fn with_small(limit: usize, small_limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            small_limit,
            state: Mutex::default(),
        }
    }

    /// Hits, misses, bytes.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let state = self.state();
        Counters {
            terms: state.terms.len(),
            small_bytes: state.small.bytes(),
            ..state.counters
        }
    }

    /// Keeps up to another number of bytes of posting lists from now on.
    ///
    /// # Errors
    ///
    /// Only a defect of the program.
    pub fn resize(&self, limit: usize) -> Result<(), SegmentError> {
        let mut state = self.state();
        self.limit.store(limit, Ordering::Relaxed);
        state.evict(limit)
    }

    /// Forgets all posting lists; headers and tombstones stay.
    pub fn clear(&self) {
        let mut state = self.state();
        state.terms.clear();
        state.used.clear();
        state.fed.clear();
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
        plan.known = Arc::clone(&state.known);
        for planned in &mut plan.languages {
            let known = planned.segments(&plan.known).count();
            let places = planned
                .terms
                .iter()
                .zip(&mut planned.held)
                .zip(&mut planned.cold);
            for ((term, held), cold) in places {
                let key = key(&planned.language, term);
                if let Some(found) = state.touch(&key)? {
                    held.clone_from(found);
                }
                let of_small = state.of_small(&planned.language, term, held)?;
                held.extend(of_small.iter().map(|(id, list)| (*id, list.clone())));
                state.feed(&key, of_small)?;
                // Lists are fed after the segments are known, and leave with them: none is of another segment.
                *cold = held.len() < known;
            }
        }
        state.evict(self.limit.load(Ordering::Relaxed))?;
        Ok(plan)
    }

    /// About how many postings [`Self::complete`] and [`Self::follow`] read of the lists at hand, to count those of
    /// chunks that were deleted since other searches used them.
    #[must_use]
    pub fn uncounted_postings(&self, plan: &PostingPlan) -> usize {
        let view = self.state().view_of(&plan.known);
        let segments = view.iter().flat_map(|view| &view.segments);
        let segments: FxHashMap<_, _> = segments.map(|live| (&live.header().id, live)).collect();
        let uncounted = plan.wanted().map(|(id, list)| {
            // If the view has to be made again, so have the counts.
            let live = segments.get(id);
            live.map_or(list.count() as usize, |live| live.uncounted_postings(list))
        });
        uncounted.sum()
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
        self.assemble(plan, &plan.known, rows, &SmallLists::default(), None)
    }

    /// Completes the plan for a later state of the tables, and keeps what was read: `rows` has one entry for each of
    /// [`PostingPlan::missing`]. `ended` is as in [`Self::snapshot`].
    ///
    /// # Errors
    ///
    /// Damaged blobs; whatever is needed and was not given.
    pub fn follow(
        &self,
        plan: &PostingPlan,
        changes: &Changes,
        rows: &[GivenRow<'_>],
        ended: u64,
    ) -> Result<Snapshot, SegmentError> {
        let listed = self.shared(changes.listed.clone());
        let seen = Arc::new(KnownIndex::new(listed, changes.buried.clone()));
        // What a merge has taken away is not needed any more.
        let rows = rows.iter().copied();
        let rows: Vec<_> = rows
            .filter(|row| seen.segment(&row.segment).is_some())
            .collect();
        self.assemble(plan, &seen, &rows, &changes.small, Some(ended))
    }

    /// Completes the plan with what one snapshot of the tables holds, and keeps what was read.
    ///
    /// `segments` and `tombstones` are all that the snapshot lists; `rows` has one entry for each cold term in each
    /// segment of its language, and for each warm term in each such segment that the plan did not know. `ended` counts the
    /// transactions that had ended: a snapshot with fewer is older, and what is known stays that of the later one.
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
        ended: u64,
    ) -> Result<Snapshot, SegmentError> {
        let listed = self.shared(listed_segments(plan, segments)?);
        let buried = listed_tombstones(plan, tombstones)?;
        let seen = Arc::new(KnownIndex::new(listed, buried));
        self.assemble(plan, &seen, rows, &SmallLists::default(), Some(ended))
    }

    /// The segments, of which another search may have read some meanwhile.
    fn shared(&self, mut listed: Vec<Arc<ReadSegment>>) -> Vec<Arc<ReadSegment>> {
        let state = self.state();
        for segment in &mut listed {
            if let Some(known) = state.known.segment(&segment.header.id)
                && known.language == segment.language
            {
                *segment = Arc::clone(known);
            }
        }
        listed
    }

    /// The snapshot of a state of the tables. `ended` counts the transactions that had ended when the state was read;
    /// nothing if the plan knew the state.
    fn assemble(
        &self,
        plan: &PostingPlan,
        seen: &Arc<KnownIndex<ReadSegment>>,
        rows: &[GivenRow<'_>],
        small: &SmallLists,
        ended: Option<u64>,
    ) -> Result<Snapshot, SegmentError> {
        let mut read = ReadRows::new(plan, seen, rows)?;
        read.add(plan, seen, small)?;
        let (lists, hits) = read.lists(plan, &seen.listed)?;
        let languages = languages_of(plan, &seen.listed);
        let (is_latest, view, latest) = {
            let mut state = self.state();
            state.counters.hits += hits;
            state.counters.misses += read.count;
            if let Some(ended) = ended
                && ended >= state.ended
            {
                state.ended = ended;
                state.keep(seen)?;
            }
            for (id, segment) in small {
                if state.known.segment(id).is_some() {
                    state.small.keep(*id, segment, self.small_limit);
                }
            }
            for (planned, found) in plan.languages.iter().zip(read.found) {
                for (term, found) in planned.terms.iter().zip(found) {
                    state.feed(&key(&planned.language, term), found)?;
                }
            }
            state.evict(self.limit.load(Ordering::Relaxed))?;
            (
                state.known.equals(seen),
                state.view_of(seen),
                state.view.clone(),
            )
        };
        let view = match view {
            Some(view) => view,
            None => {
                let view = Arc::new(View::new(latest.as_deref(), seen)?);
                let mut state = self.state();
                let place = if state.known.equals(seen) {
                    &mut state.view
                } else {
                    &mut state.older
                };
                *place = Some(Arc::clone(&view));
                view
            }
        };
        Snapshot::new(view, plan.folded.clone(), lists, languages, is_latest)
    }
}

fn listed_segments(
    plan: &PostingPlan,
    given: &[GivenSegment<'_>],
) -> Result<Vec<Arc<ReadSegment>>, SegmentError> {
    let listed = given.iter().map(|(id, language, header)| {
        let header = match (plan.known.segment(id), header) {
            (Some(known), _) if *known.language == **language => return Ok(Arc::clone(known)),
            (Some(known), _) => Arc::clone(&known.header),
            (None, Some(header)) => Arc::new(Header::decode(id, header)?),
            (None, None) => {
                return Err(SegmentError::Refused(
                    "segments: the header of a segment that the plan does not know must not be None",
                ));
            }
        };
        Ok(Arc::new(ReadSegment::new(language, header)))
    });
    listed.collect()
}

/// The languages of the segments, and those of them that the plan lacks.
fn languages_of(plan: &PostingPlan, listed: &[Arc<ReadSegment>]) -> (Vec<String>, Vec<String>) {
    let languages: BTreeSet<&str> = listed.iter().map(|segment| &*segment.language).collect();
    let languages: Vec<String> = languages.into_iter().map(str::to_owned).collect();
    let mut missing = languages.clone();
    missing.retain(|language| {
        plan.languages
            .iter()
            .all(|planned| planned.language != *language)
    });
    (languages, missing)
}

fn listed_tombstones(
    plan: &PostingPlan,
    given: &[GivenTombstone<'_>],
) -> Result<Vec<Tombstone>, SegmentError> {
    let buried = given
        .iter()
        .map(|(id, data)| match (plan.known.tombstone(id), data) {
            (Some(known), _) => Ok(known.clone()),
            (None, Some(data)) => Ok((*id, Arc::new(decode_tombstone(id, data)?))),
            (None, None) => Err(SegmentError::Refused(
                "tombstones: the data of a tombstone that the plan does not know must not be None",
            )),
        });
    buried.collect()
}

/// A row of a segment: key and data, a term that it was looked up for, and the places of language and term in the plan.
type StoredRow<'a> = (
    &'a Arc<ReadSegment>,
    (&'a [u8], &'a [u8]),
    &'a [u8],
    (usize, usize),
);

/// The rows of a snapshot, decoded: for each language of the plan, for each of its terms, lists by segment.
struct ReadRows {
    found: Vec<Vec<TermLists>>,
    count: u64,
}

impl ReadRows {
    fn new(
        plan: &PostingPlan,
        seen: &KnownIndex<ReadSegment>,
        rows: &[GivenRow<'_>],
    ) -> Result<Self, SegmentError> {
        if seen.lists_one_twice() {
            return Err(SegmentError::Refused("segments: a segment is listed twice"));
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
        let mut stored = Vec::with_capacity(rows.len());
        for given in rows {
            let Some(segment) = seen.segment(&given.segment) else {
                return Err(SegmentError::Refused(
                    "rows: a row belongs to a segment that is not in segments",
                ));
            };
            // The same words may have been looked up in segments of other languages; there they mean nothing.
            let Some(place) = places.get(&(&*segment.language, given.term)) else {
                continue;
            };
            read.count += 1;
            match given.row {
                Some((first_term, _)) if first_term > given.term => {
                    return Err(SegmentError::Refused(
                        "rows: the first term of a row is greater than the term that it was read for",
                    ));
                }
                Some(row) => stored.push((segment, row, given.term, *place)),
                None => read.insert(given.segment, *place, None)?,
            }
        }
        // Terms that share a row are read together.
        stored.sort_unstable_by_key(|(segment, row, term, _)| (segment.header.id, row.0, *term));
        stored.dedup_by_key(|(segment, row, term, _)| (segment.header.id, *row, *term));
        let is_shared =
            |one: &StoredRow<'_>, two: &StoredRow<'_>| Arc::ptr_eq(one.0, two.0) && one.1 == two.1;
        for shared in stored.chunk_by(is_shared) {
            let Some((segment, (first_term, data), ..)) = shared.first() else {
                continue;
            };
            let terms = shared.iter().map(|(_, _, term, _)| *term);
            let lists = find_terms(&segment.header, first_term, data, terms)?;
            for ((.., place), list) in shared.iter().zip(lists) {
                read.insert(segment.header.id, *place, list.map(Arc::new))?;
            }
        }
        Ok(read)
    }

    /// Adds the lists of segments whose rows are all at hand.
    fn add(
        &mut self,
        plan: &PostingPlan,
        seen: &KnownIndex<ReadSegment>,
        small: &SmallLists,
    ) -> Result<(), SegmentError> {
        for (id, rows) in small {
            let segment = seen
                .segment(id)
                .ok_or_else(|| impossible("a new segment is not listed"))?;
            for (planned, found) in plan.languages.iter().zip(&mut self.found) {
                if planned.language != *segment.language {
                    continue;
                }
                for (term, lists) in planned.terms.iter().zip(found) {
                    lists.insert(*id, rows.list(&segment.header, term.as_bytes())?);
                    self.count += 1;
                }
            }
        }
        Ok(())
    }

    fn insert(
        &mut self,
        segment: SegmentId,
        (language, term): (usize, usize),
        list: CachedList,
    ) -> Result<(), SegmentError> {
        let terms = self.found.get_mut(language);
        let lists = terms.and_then(|terms| terms.get_mut(term));
        let lists = lists.ok_or_else(|| impossible("a term is missing from the plan"))?;
        lists.insert(segment, list);
        Ok(())
    }

    /// The lists of each segment, and how many of them were at hand.
    fn lists(
        &self,
        plan: &PostingPlan,
        listed: &[Arc<ReadSegment>],
    ) -> Result<(Vec<SegmentLists>, u64), SegmentError> {
        let mut hits = 0;
        let lists =
            listed.iter().map(|segment| {
                let header = &segment.header;
                let mut languages = plan.languages.iter().zip(&self.found);
                let of_language =
                    languages.find(|(planned, _)| *planned.language == *segment.language);
                let Some((planned, found)) = of_language else {
                    return Ok(SegmentLists::default());
                };
                let held = planned.held.iter().zip(found).map(|(held, found)| {
                    match found.get(&header.id) {
                        Some(list) => Ok(list.clone()),
                        None => {
                            hits += 1;
                            let missing = || {
                                SegmentError::Refused(
                                    "rows: the row of a term that the plan reports as missing must be given",
                                )
                            };
                            held.get(&header.id).cloned().ok_or_else(missing)
                        }
                    }
                });
                planned.lists(&held.collect::<Result<Vec<_>, _>>()?)
            });
        let lists = lists.collect::<Result<Vec<_>, _>>()?;
        Ok((lists, hits))
    }
}

impl State {
    /// The view of a state of the tables, if it is kept.
    fn view_of(&self, seen: &KnownIndex<ReadSegment>) -> Option<Arc<View>> {
        let mut kept = self.view.iter().chain(&self.older);
        kept.find(|view| view.known.equals(seen)).cloned()
    }

    /// The lists of a term in those small segments of which they are not at hand.
    fn of_small(
        &mut self,
        language: &str,
        term: &str,
        held: &TermLists,
    ) -> Result<TermLists, SegmentError> {
        let mut found = TermLists::default();
        if self.small.is_empty() {
            return Ok(found);
        }
        for segment in &self.known.listed {
            let id = &segment.header.id;
            if *segment.language != *language || held.contains_key(id) {
                continue;
            }
            let rows = self.small.get(id);
            match rows.map(|rows| rows.list(&segment.header, term.as_bytes())) {
                None => {}
                Some(Ok(list)) => {
                    found.insert(*id, list);
                }
                // It is read again, and reported unless it was replaced meanwhile.
                Some(Err(SegmentError::Damaged { .. })) => self.small.forget(id),
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(found)
    }

    /// The lists of a term, which becomes the one used last.
    fn touch(&mut self, key: &[u8]) -> Result<Option<&TermLists>, SegmentError> {
        let Some(entry) = self.terms.get_mut(key) else {
            return Ok(None);
        };
        let name = self.used.remove(&entry.used).ok_or_else(unknown_term)?;
        self.clock += 1;
        entry.used = self.clock;
        self.used.insert(self.clock, name);
        Ok(Some(&entry.lists))
    }

    /// Knows what a snapshot lists, and forgets the lists of segments that are gone.
    fn keep(&mut self, seen: &Arc<KnownIndex<ReadSegment>>) -> Result<(), SegmentError> {
        if self.known.equals(seen) {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.known, Arc::clone(seen));
        let ids = before.listed.iter().map(|segment| &segment.header.id);
        for id in ids.filter(|id| seen.segment(id).is_none()) {
            self.small.forget(id);
            for name in self.fed.remove(id).into_iter().flatten() {
                let entry = self.terms.get_mut(&name).ok_or_else(unknown_term)?;
                let freed = bytes_of(&entry.lists.remove(id).ok_or_else(unknown_term)?);
                entry.bytes = freed_from(entry.bytes, freed)?;
                self.counters.bytes = freed_from(self.counters.bytes, freed)?;
                if entry.lists.is_empty() {
                    self.counters.bytes = freed_from(self.counters.bytes, entry.bytes)?;
                    self.used.remove(&entry.used);
                    self.terms.remove(&name);
                }
            }
        }
        Ok(())
    }

    /// Adds lists of a term, as far as their segments are known.
    fn feed(&mut self, key: &[u8], mut found: TermLists) -> Result<(), SegmentError> {
        found.retain(|id, _| self.known.segment(id).is_some());
        if found.is_empty() {
            return Ok(());
        }
        if self.touch(key)?.is_none() {
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
        let entry = self.terms.get_mut(key).ok_or_else(unknown_term)?;
        let name = self.used.get(&entry.used).ok_or_else(unknown_term)?;
        for (id, held) in found {
            self.fed.entry(id).or_default().insert(Arc::clone(name));
            let added = bytes_of(&held);
            let replaced = entry
                .lists
                .insert(id, held)
                .map_or(0, |held| bytes_of(&held));
            entry.bytes = freed_from(entry.bytes + added, replaced)?;
            self.counters.bytes = freed_from(self.counters.bytes + added, replaced)?;
        }
        Ok(())
    }

    /// Forgets the terms that were not used for the longest time, until the rest is within the limit.
    fn evict(&mut self, limit: usize) -> Result<(), SegmentError> {
        while self.counters.bytes > limit
            && let Some((_, name)) = self.used.pop_first()
        {
            let entry = self.terms.remove(&name).ok_or_else(unknown_term)?;
            for id in entry.lists.keys() {
                let names = self.fed.get_mut(id).ok_or_else(unknown_term)?;
                names.remove(&name);
            }
            self.counters.bytes = freed_from(self.counters.bytes, entry.bytes)?;
        }
        Ok(())
    }
}

fn unknown_term() -> SegmentError {
    impossible("the cache names a term that it does not hold")
}

/// What is left of some bytes.
fn freed_from(bytes: usize, freed: usize) -> Result<usize, SegmentError> {
    let left = bytes.checked_sub(freed);
    left.ok_or_else(|| impossible("the cache has freed more than it held"))
}
