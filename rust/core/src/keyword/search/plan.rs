//! Plans: the posting lists that a query needs in each language, and those that are at hand.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::read_segment::ReadSegment;
use super::score::SegmentLists;
use crate::hashing::WordMap;
use crate::keyword::analyzer::TYPED_BIT;
use crate::keyword::format::list::List;
use crate::segments::known_index::KnownIndex;
use crate::segments::{SegmentError, SegmentId, impossible};

/// A term's list in a segment; `None` if the segment is known not to contain the term.
pub(crate) type CachedList = Option<Arc<List>>;

/// Lists of one term, by segment.
pub(crate) type TermLists = FxHashMap<SegmentId, CachedList>;

/// A query, analysed in one language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanguageQuery {
    /// The language, as the segments name it.
    pub language: String,
    /// (slot, term): a slot is one word of the query, numbered alike in all languages.
    pub wanted: Vec<(u64, String)>,
    /// Groups of terms of which every chunk must hold all.
    pub phrases: Vec<Vec<String>>,
    /// A chunk that holds the term of a group of one is left out; longer groups are left to the caller.
    pub excluded: Vec<Vec<String>>,
}

/// One language of a plan.
#[derive(Debug)]
pub(crate) struct PlannedLanguage {
    pub(crate) language: String,
    pub(crate) terms: Vec<String>,
    /// For each term, what was found in the cache.
    pub(crate) held: Vec<TermLists>,
    /// For each term, whether a known segment of the language lacks it in the cache.
    pub(crate) cold: Vec<bool>,
    /// (place of the slot, place of the term), by slot.
    wanted: Vec<(usize, usize)>,
    /// The places of the slots alone.
    asked: Arc<[usize]>,
    required: Vec<usize>,
    excluded: Vec<usize>,
}

/// The rows that a query needs, and those that are at hand. A plan keeps what it found, whatever happens to the cache.
#[derive(Debug)]
pub struct PostingPlan {
    pub(crate) languages: Vec<PlannedLanguage>,
    /// For each slot the one of the folded term, if its own keeps the accents of the word.
    pub(crate) folded: Vec<Option<usize>>,
    pub(crate) known: Arc<KnownIndex<ReadSegment>>,
}

impl PostingPlan {
    /// Sorts out the terms of each language.
    pub(crate) fn new(queries: &[LanguageQuery]) -> Result<Self, SegmentError> {
        let mut slots: Vec<u64> = queries
            .iter()
            .flat_map(|query| query.wanted.iter().map(|(slot, _)| *slot))
            .collect();
        slots.sort_unstable();
        slots.dedup();
        let mut names = FxHashSet::default();
        if !queries.iter().all(|query| names.insert(&query.language)) {
            return Err(SegmentError::Refused(
                "languages: a language is named twice",
            ));
        }
        let folded = |slot: &u64| {
            let base = slot & !u64::from(TYPED_BIT);
            (base != *slot).then(|| slots.binary_search(&base).ok())?
        };
        let languages = queries
            .iter()
            .map(|query| PlannedLanguage::new(query, &slots));
        Ok(Self {
            languages: languages.collect::<Result<_, _>>()?,
            folded: slots.iter().map(folded).collect(),
            known: Arc::default(),
        })
    }

    /// Segments whose headers are at hand.
    pub fn known_segments(&self) -> impl Iterator<Item = &SegmentId> {
        self.known.listed.iter().map(|segment| &segment.header.id)
    }

    /// Tombstones that are at hand.
    pub fn known_tombstones(&self) -> impl Iterator<Item = &SegmentId> {
        self.known.buried.iter().map(|(id, _)| id)
    }

    /// (segment, term) of the lists that are needed of known segments and not at hand.
    pub fn missing(&self) -> impl Iterator<Item = (&SegmentId, &str)> {
        self.languages.iter().flat_map(|planned| {
            planned.segments(&self.known).flat_map(|id| {
                let terms = planned.terms.iter().zip(&planned.held);
                let missing = terms.filter(move |(_, held)| !held.contains_key(id));
                missing.map(move |(term, _)| (id, term.as_str()))
            })
        })
    }

    /// The lists of wanted terms that are at hand, with their segments.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (&SegmentId, &List)> {
        self.languages.iter().flat_map(|planned| {
            let held = planned.wanted.iter();
            let held = held.filter_map(|(_, place)| planned.held.get(*place));
            held.flatten()
                .filter_map(|(id, list)| Some((id, &**list.as_ref()?)))
        })
    }

    /// (language, term) of the terms that are needed from all segments (`cold`), or else only from unknown ones.
    pub fn terms(&self, cold: bool) -> impl Iterator<Item = (&str, &str)> {
        self.languages.iter().flat_map(move |planned| {
            let terms = planned.terms.iter().zip(&planned.cold);
            terms
                .filter(move |(_, is_cold)| **is_cold == cold)
                .map(|(term, _)| (planned.language.as_str(), term.as_str()))
        })
    }
}

impl PlannedLanguage {
    fn new(query: &LanguageQuery, slots: &[u64]) -> Result<Self, SegmentError> {
        let mut planned = Self {
            language: query.language.clone(),
            terms: Vec::new(),
            held: Vec::new(),
            cold: Vec::new(),
            wanted: Vec::new(),
            asked: Arc::default(),
            required: Vec::new(),
            excluded: Vec::new(),
        };
        let mut places = WordMap::default();
        for (slot, term) in &query.wanted {
            let place = planned.place(&mut places, term);
            planned
                .wanted
                .push((slots.partition_point(|other| other < slot), place));
        }
        planned.wanted.sort_unstable();
        let repeated = planned.wanted.iter().zip(planned.wanted.iter().skip(1));
        if repeated
            .into_iter()
            .any(|((slot, _), (next, _))| slot == next)
        {
            return Err(SegmentError::Refused(
                "wanted: a slot has two terms in one language",
            ));
        }
        planned.asked = planned.wanted.iter().map(|(slot, _)| *slot).collect();
        for term in query.phrases.iter().flatten() {
            let place = planned.place(&mut places, term);
            planned.required.push(place);
        }
        for group in &query.excluded {
            if let [term] = group.as_slice() {
                let place = planned.place(&mut places, term);
                planned.excluded.push(place);
            }
        }
        for places in [&mut planned.required, &mut planned.excluded] {
            places.sort_unstable();
            places.dedup();
        }
        Ok(planned)
    }

    /// The segments of the language.
    pub(crate) fn segments<'a>(
        &'a self,
        known: &'a KnownIndex<ReadSegment>,
    ) -> impl Iterator<Item = &'a SegmentId> {
        let own = known.listed.iter();
        own.filter(move |segment| *segment.language == *self.language)
            .map(|segment| &segment.header.id)
    }

    fn place<'t>(&mut self, places: &mut WordMap<&'t str, usize>, term: &'t str) -> usize {
        *places.entry(term).or_insert_with(|| {
            self.terms.push(term.to_owned());
            self.held.push(TermLists::default());
            self.cold.push(false);
            self.terms.len() - 1
        })
    }

    /// The lists of one segment, given those of each term of the plan.
    pub(crate) fn lists(&self, held: &[CachedList]) -> Result<SegmentLists, SegmentError> {
        if held.len() != self.terms.len() {
            return Err(impossible("a term of the plan has no list"));
        }
        let list = |place: &usize| held.get(*place).and_then(Clone::clone);
        let required: Vec<_> = self.required.iter().filter_map(list).collect();
        Ok(SegmentLists {
            wanted: self
                .wanted
                .iter()
                .filter_map(|(slot, place)| Some((*slot, list(place)?)))
                .collect(),
            asked: Arc::clone(&self.asked),
            unsatisfiable: required.len() < self.required.len(),
            required,
            excluded: self.excluded.iter().filter_map(list).collect(),
        })
    }
}
