//! Which pieces of a text are shown.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::lengths::{MAX_CHARACTERS, WANTED_CHARACTERS};
use super::pieces::{Piece, characters};

/// Words with the same first letters count as one word.
const STEM_LETTERS: usize = 5;

/// The numbers of the pieces that are shown, in order: those with the most matched words, as far as there is room.
pub(super) fn chosen(text: &str, pieces: &[Piece], matches: &[Range<usize>]) -> Vec<usize> {
    let sizes = pieces
        .iter()
        .map(|piece| characters(text, piece.range.clone()));
    let sizes: Vec<usize> = sizes.collect();
    if sizes.iter().sum::<usize>() <= MAX_CHARACTERS {
        return (0..pieces.len()).collect();
    }
    let size = |number: usize| {
        sizes
            .get(number)
            .map_or(0, |&size| size.min(MAX_CHARACTERS))
    };
    let mut words = words_by_piece(text, pieces, matches);
    let (mut room, mut known) = (MAX_CHARACTERS, BTreeSet::new());
    let mut taken = BTreeSet::new();
    let first = best(words.iter().map(|(&number, own)| (number, own.len()))).unwrap_or(0);
    let mut next = Some(first);
    while let Some(number) = next {
        taken.insert(number);
        room -= size(number);
        known.extend(words.remove(&number).unwrap_or_default());
        let fitting = words.iter().filter(|&(&number, _)| size(number) <= room);
        next = best(fitting.map(|(&number, own)| (number, own.difference(&known).count())));
    }
    // The first piece goes on, so that an excerpt is more than a few words.
    for number in first + 1..pieces.len() {
        let is_new = !taken.contains(&number);
        if MAX_CHARACTERS - room >= WANTED_CHARACTERS || (is_new && size(number) > room) {
            break;
        }
        if is_new {
            taken.insert(number);
            room -= size(number);
        }
    }
    taken.into_iter().collect()
}

/// The number with the greatest count above 0; the first one if several have it.
fn best(counts: impl Iterator<Item = (usize, usize)>) -> Option<usize> {
    let found = counts.max_by_key(|&(number, count)| (count, Reverse(number)));
    found
        .filter(|&(_, count)| count > 0)
        .map(|(number, _)| number)
}

/// The pieces that contain matched words, by their numbers, with these words.
fn words_by_piece(
    text: &str,
    pieces: &[Piece],
    matches: &[Range<usize>],
) -> BTreeMap<usize, BTreeSet<String>> {
    let mut words: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for place in matches {
        let behind = pieces.partition_point(|piece| piece.range.start <= place.start);
        let Some(number) = behind.checked_sub(1) else {
            continue;
        };
        if pieces
            .get(number)
            .is_some_and(|piece| place.end <= piece.range.end)
        {
            let word = text.get(place.clone()).unwrap_or_default().to_lowercase();
            let stem = word.chars().take(STEM_LETTERS).collect();
            words.entry(number).or_default().insert(stem);
        }
    }
    words
}
