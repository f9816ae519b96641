//! A cache that lives through commits, merges and older snapshots answers as one that has read nothing before.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use semlex_core::keyword::analyzer::TYPED_BIT;
use semlex_core::keyword::build::*;
use semlex_core::keyword::format::*;
use semlex_core::keyword::search::*;
use semlex_core::segments::*;

use super::stored::chunks::{Chunk, LANGUAGES, build, source, tables, terms};
use super::stored::{Tables, id_of, missing_rows};

#[derive(Clone, Debug)]
enum Step {
    /// Chunks of one language; ids between those of the addition before, or behind them.
    Add(usize, bool, Vec<Vec<String>>),
    /// Deletes chunks at regular steps of ids, from a first id on.
    Bury(prop::sample::Index, usize),
    /// Two segments become one; the tombstones become one as well, without what is done.
    Merge(prop::sample::Index, bool),
    /// A search in the state of this many commits ago.
    Search(usize, Vec<String>, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let chunks = || prop::collection::vec(terms(), 1..30);
    prop_oneof![
        3 => (0..2_usize, any::<bool>(), chunks()).prop_map(|(of, within, chunks)| Step::Add(of, within, chunks)),
        3 => (any::<prop::sample::Index>(), 1..20_usize).prop_map(|(at, share)| Step::Bury(at, share)),
        2 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(at, settle)| Step::Merge(at, settle)),
        6 => (prop_oneof![4 => Just(0_usize), 1 => 0..4_usize], terms(), 1..20_usize)
            .prop_map(|(ago, terms, k)| Step::Search(ago, terms, k)),
    ]
}

/// All states that the tables had, the last one at the end.
struct History {
    states: Vec<Tables>,
    /// Segments and tombstones so far.
    parts: usize,
    ids: Vec<i64>,
    next: i64,
}

impl History {
    fn id(&mut self) -> SegmentId {
        self.parts += 1;
        id_of(self.parts)
    }

    /// What the plan lacks of known segments, which may be gone.
    fn rows<'s>(&'s self, plan: &'s PostingPlan) -> Vec<GivenRow<'s>> {
        let segments = self.states.iter().flat_map(|tables| &tables.segments);
        missing_rows(plan, segments)
    }

    fn commit(&mut self, mut tables: Tables) {
        tables.ended += 1;
        self.states.push(tables);
    }

    fn last(&self) -> Tables {
        self.states[self.states.len() - 1].clone()
    }

    fn add(&mut self, language: usize, within: bool, chunks: Vec<Vec<String>>) {
        let first = if within { self.next - 59 } else { self.next };
        let chunks: Vec<_> = (0..)
            .zip(chunks)
            .map(|(place, terms)| Chunk {
                id: first + place * 2,
                language,
                terms,
            })
            .filter(|chunk| !self.ids.contains(&chunk.id))
            .collect();
        self.next += 60;
        self.ids.extend(chunks.iter().map(|chunk| chunk.id));
        let (id, mut tables) = (self.id(), self.last());
        let segment = (id, LANGUAGES[language].to_owned(), build(&id, &chunks));
        tables.segments.push(segment);
        self.commit(tables);
    }

    fn bury(&mut self, ids: Vec<i64>) {
        let (id, mut tables) = (self.id(), self.last());
        let data = encode_tombstone(&id, &IdSet::new(ids)).unwrap();
        tables.tombstones.push((id, data));
        self.commit(tables);
    }

    fn merge(&mut self, at: prop::sample::Index, settle: bool) {
        let (id, mut tables) = (self.id(), self.last());
        if tables.segments.is_empty() {
            return;
        }
        let at = at.index(tables.segments.len());
        let language = tables.segments[at].1.clone();
        let chosen: Vec<_> = (at..tables.segments.len())
            .filter(|other| tables.segments[*other].1 == language)
            .take(2)
            .collect();
        let read =
            |(id, data): &(SegmentId, Vec<u8>)| IdSet::from(&decode_tombstone(id, data).unwrap());
        let buried: Vec<_> = tables.tombstones.iter().map(read).collect();
        let dead = IdSet::union(&buried);
        let sources = chosen.iter().map(|place| &tables.segments[*place]);
        let held = sources.clone();
        let held = held
            .map(|(id, _, segment)| IdSet::from(&Header::decode(id, &segment.header).unwrap().ids));
        let held: Vec<_> = held.collect();
        let sources = sources.map(|(id, _, segment)| source(*id, segment));
        let merged = merge(&id, sources.collect(), &dead).unwrap();
        for place in chosen.into_iter().rev() {
            tables.segments.remove(place);
        }
        tables.segments.push((id, language, merged));
        if settle {
            let left = dead.difference(&IdSet::union(&held));
            let id = self.id();
            tables.tombstones = vec![(id, encode_tombstone(&id, &left).unwrap())];
        }
        self.commit(tables);
    }
}

/// How many words the chunks have that are searched for.
const WORDS: usize = 4;

fn word(number: usize) -> String {
    format!("word{number}")
}

fn rare_word() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![4 => Just(None), 1 => (0..WORDS).prop_map(Some)]
}

/// The language of a chunk, the words that it holds and how often, and how many other terms.
type Uneven = (usize, Vec<(usize, usize)>, usize);

/// Chunks, long and short, that hold some of the words once or often.
fn uneven(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Uneven>> {
    let words = prop::collection::vec((0..WORDS, 1..6_usize), 0..4);
    let others = prop_oneof![0..4_usize, 0..60_usize, 200..400_usize];
    prop::collection::vec((0..2_usize, words, others), count)
}

fn numbered(chunks: Vec<Uneven>, from: i64) -> Vec<Chunk> {
    let chunks = (from..).zip(chunks);
    let chunks = chunks.map(|(id, (language, words, others))| {
        let words = words.into_iter();
        let words = words.flat_map(|(number, times)| vec![word(number); times]);
        Chunk {
            id,
            language,
            terms: words.chain(vec!["other".to_owned(); others]).collect(),
        }
    });
    chunks.collect()
}

fn bits(scores: &[f64]) -> Vec<u64> {
    scores.iter().map(|score| score.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 64 } else { 600 }))]

    #[test]
    fn what_was_read_before_changes_no_answer(
        steps in prop::collection::vec(step(), 1..40),
        limit in prop_oneof![Just(0_usize), 1_usize..9_000, Just(usize::MAX)],
        small in prop_oneof![Just(0_usize), 1_usize..3_000, Just(usize::MAX)],
        followed in prop::collection::vec(any::<bool>(), 1..7),
    ) {
        let kept = PostingCache::with_small(limit, small);
        let mut followed = followed.iter().cycle();
        let mut history = History { states: vec![Tables::default()], parts: 0, ids: Vec::new(), next: 60 };
        for step in steps {
            match step {
                Step::Add(language, within, chunks) => history.add(language, within, chunks),
                Step::Bury(at, share) if !history.ids.is_empty() => {
                    let from = at.index(history.ids.len());
                    let ids = history.ids.iter().skip(from).step_by(share);
                    history.bury(ids.copied().collect());
                }
                Step::Bury(..) => {}
                Step::Merge(at, settle) => history.merge(at, settle),
                Step::Search(ago, terms, k) => {
                    let tables = &history.states[history.states.len().saturating_sub(ago + 1)];
                    let wanted = || (0..).zip(terms.clone()).collect::<Vec<_>>();
                    let queries = LANGUAGES.map(|language| LanguageQuery {
                        language: language.to_owned(),
                        wanted: wanted(),
                        ..LanguageQuery::default()
                    });
                    let all: Vec<_> = history.ids.iter().copied().chain([-1, i64::MAX]).collect();
                    let allowed: Vec<_> = all.iter().copied().step_by(3).collect();
                    let parameters = Parameters { k1: 1.2, b: 0.75 };
                    let follows = *followed.next().unwrap();
                    let new = PostingCache::new(0);
                    let answers = [(&kept, follows), (&new, false)].map(|(cache, follows)| {
                        let plan = cache.plan(&queries).unwrap();
                        // The same query in the state that the cache knows: few lists of it may be at hand.
                        let earlier = cache.complete(&plan, &history.rows(&plan)).unwrap();
                        let deep = k + terms.len() / 4;
                        let found = earlier.search(deep, parameters, None, &[]).unwrap();
                        let before = follows.then_some(Before { snapshot: &earlier, k: deep, best: &found.best });
                        let snapshot = match follows {
                            true => tables.followed(cache, &plan).unwrap(),
                            false => tables.snapshot(cache, &plan).unwrap(),
                        };
                        let search = |allowed, ids| snapshot.search_again(k, parameters, allowed, ids, before).unwrap();
                        let (found, few) = (search(None, &all), search(Some(&allowed), &[]));
                        let covered = snapshot.coverage(&all).unwrap();
                        (snapshot.chunks(), found.best, bits(&found.scores), few.best, bits(&covered))
                    });
                    prop_assert_eq!(&answers[0], &answers[1]);
                }
            }
            prop_assert!(kept.counters().bytes <= limit);
            prop_assert!(kept.counters().small_bytes <= small);
        }
    }
}

/// Searches to which what was found before gave the best, and those that read all lists again.
static KNOWN_AND_READ: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    fn a_search_before_a_commit_changes_no_answer(
        (stored, added) in (uneven(4..40), uneven(0..8)),
        (segments, shares) in (1..3_usize, [2..20_usize, 2..20]),
        (required, excluded) in (rare_word(), rare_word()),
    ) {
        let (stored, added) = (numbered(stored, 0), numbered(added, 100));
        let [dead, dead_later] = shares.map(|share| -> BTreeSet<i64> { (1..100).step_by(share).collect() });
        let earlier = tables(&stored, segments, &dead, 100);
        let mut later = tables(&stored, segments, &dead_later, 200);
        later.tombstones.extend(earlier.tombstones.clone());
        for (number, language) in LANGUAGES.iter().enumerate() {
            let own: Vec<_> = added.iter().filter(|chunk| chunk.language == number).cloned().collect();
            let id = id_of(300 + number);
            later.segments.push((id, (*language).to_owned(), build(&id, &own)));
        }
        later.ended = 1;
        // Two words, and each with its accents.
        let slots = [0, 1, u64::from(TYPED_BIT), u64::from(TYPED_BIT) | 1];
        for wanted in [&[0][..], &[0, 2], &[0, 1, 2, 3]] {
            let queries = LANGUAGES.map(|language| LanguageQuery {
                language: language.to_owned(),
                wanted: wanted.iter().map(|number| (slots[*number], word(*number))).collect(),
                phrases: required.iter().map(|number| vec![word(*number)]).collect(),
                excluded: excluded.iter().map(|number| vec![word(*number)]).collect(),
            });
            let cache = PostingCache::new(usize::MAX);
            earlier.snapshot(&cache, &cache.plan(&queries).unwrap()).unwrap();
            let plan = cache.plan(&queries).unwrap();
            let (known, snapshot) = (cache.complete(&plan, &[]).unwrap(), later.followed(&cache, &plan).unwrap());
            for (parameters, k) in [(1.2, 0.75), (20.0, 1.0)].into_iter().flat_map(|(k1, b)| {
                (1..4).map(move |k| (Parameters { k1, b }, k))
            }) {
                let found = snapshot.search(k, parameters, None, &[]).unwrap();
                for deep in [0, k, k + 1, k + 2, k + 4] {
                    let best = known.search(deep, parameters, None, &[]).unwrap().best;
                    let before = Before { snapshot: &known, k: deep, best: &best };
                    let again = snapshot.search_again(k, parameters, None, &[], Some(before)).unwrap();
                    prop_assert_eq!(&again.best, &found.best);
                    // What was added holds none of the words: whatever is read is of what stood before.
                    if deep > 0 && required.or(excluded).is_none() && snapshot.postings() == known.postings() && snapshot.postings() > 0 {
                        let is_read = again.work.postings + again.work.skipped_blocks > 0;
                        KNOWN_AND_READ[usize::from(is_read)].fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    }
}

#[test]
fn what_was_found_before_a_commit_changes_no_answer() {
    a_search_before_a_commit_changes_no_answer();
    let counts = KNOWN_AND_READ
        .each_ref()
        .map(|count| count.load(Ordering::Relaxed));
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}
