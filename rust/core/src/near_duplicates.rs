//! How much of one text another contains: the share of its shingles (runs of words) that occur there.
//!
//! Shingles are compared as they are, not by samples of their hashes: a context has hundreds of texts, not millions.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::chunk::words::word_ranges;
use crate::hashing::WordMap;

/// Words of a shingle. Shorter runs are shared by texts of one language, longer ones break at every small change.
pub const SHINGLE_WORDS: usize = 5;

/// Ids of the words of a shingle; a text that has fewer words is one shingle, filled up with `NONE`.
type Shingle = [usize; SHINGLE_WORDS];

const NONE: usize = usize::MAX;

/// Shares of n texts, n rows of n: row i, column j is the share of the different shingles of text i that occur in
/// text j, 0 to 1.
///
/// Words are those of Unicode, in lower case. A text without a word is one shingle by itself, equal to the same text
/// only; so is an empty one.
#[must_use]
pub fn shared_shingles(texts: &[&str]) -> Vec<f64> {
    let count = texts.len();
    let mut words: WordMap<String, usize> = WordMap::default();
    let mut holders: HashMap<Shingle, Vec<usize>, RandomState> = HashMap::default();
    for (number, text) in texts.iter().enumerate() {
        let ids = word_ids(text, &mut words);
        let mut hold = |shingle: Shingle| {
            let holding = holders.entry(shingle).or_default();
            if holding.last() != Some(&number) {
                holding.push(number);
            }
        };
        if ids.len() < SHINGLE_WORDS {
            let mut short = [NONE; SHINGLE_WORDS];
            for (place, id) in short.iter_mut().zip(&ids) {
                *place = *id;
            }
            hold(short);
        }
        let runs = ids.windows(SHINGLE_WORDS);
        runs.filter_map(|run| Shingle::try_from(run).ok())
            .for_each(hold);
    }
    let mut shared = vec![0_u32; count * count];
    for holding in holders.values() {
        for &number in holding {
            let Some(row) = shared.get_mut(number * count..(number + 1) * count) else {
                continue;
            };
            for &other in holding {
                if let Some(found) = row.get_mut(other) {
                    *found += 1;
                }
            }
        }
    }
    let mut shares = Vec::with_capacity(shared.len());
    for (number, row) in shared.chunks(count.max(1)).enumerate() {
        let all = f64::from(row.get(number).copied().unwrap_or(1));
        shares.extend(row.iter().map(|&found| f64::from(found) / all));
    }
    shares
}

/// The ids of the words of a text; one that holds none is a word by itself.
fn word_ids(text: &str, words: &mut WordMap<String, usize>) -> Vec<usize> {
    let mut id_of = |word: String| {
        let next = words.len();
        *words.entry(word).or_insert(next)
    };
    let ids: Vec<usize> = word_ranges(text)
        .into_iter()
        .filter_map(|(start, end)| text.get(start..end))
        .map(|word| id_of(word.to_lowercase()))
        .collect();
    if ids.is_empty() {
        return vec![id_of(text.trim().to_owned())];
    }
    ids
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::{SHINGLE_WORDS, shared_shingles};
    use crate::chunk::words::word_ranges;

    /// The different shingles of a text, as words.
    fn shingles(text: &str) -> HashSet<Vec<String>> {
        let words: Vec<String> = word_ranges(text)
            .into_iter()
            .map(|(start, end)| text[start..end].to_lowercase())
            .collect();
        if words.is_empty() {
            return HashSet::from([vec![text.trim().to_owned()]]);
        }
        let runs = words.windows(SHINGLE_WORDS.min(words.len()));
        runs.map(<[String]>::to_vec).collect()
    }

    proptest! {
        #[test]
        fn equals_the_definition(texts in prop::collection::vec("[ab .]{0,30}|\\PC{0,10}", 0..6)) {
            let given: Vec<&str> = texts.iter().map(String::as_str).collect();
            let sets: Vec<_> = texts.iter().map(|text| shingles(text)).collect();
            let expected: Vec<f64> = sets
                .iter()
                .flat_map(|one| sets.iter().map(|other| share(one, other)))
                .collect();
            prop_assert_eq!(shared_shingles(&given), expected);
        }
    }

    fn share(one: &HashSet<Vec<String>>, other: &HashSet<Vec<String>>) -> f64 {
        let shared: f64 = one.intersection(other).map(|_| 1.0).sum();
        shared / one.iter().map(|_| 1.0).sum::<f64>()
    }

    #[test]
    fn a_part_is_wholly_in_the_whole() {
        let whole = "Rotate every key after ninety days, and tell whoever holds one.";
        let shares = shared_shingles(&[whole, "rotate EVERY key after ninety days"]);
        assert_eq!(shares, [1.0, 2.0 / 7.0, 1.0, 1.0]);
        assert!(shared_shingles(&[]).is_empty());
    }
}
