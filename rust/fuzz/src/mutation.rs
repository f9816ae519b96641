//! Changes of an input.

use crate::random::Random;

/// Maximum length of an input: long enough to find code that takes more than linear time, by the limit of a hang.
const MAX_BYTES: usize = 1 << 16;

/// Bytes at which counts, lengths and characters change their meaning.
const EDGES: [u8; 10] = [0, 1, 0x0a, 0x20, 0x7f, 0x80, 0xc3, 0xf0, 0xfe, 0xff];

/// Changes `input` a few times. `words` are pieces that the format gives a meaning to, `others` are inputs to take from.
pub(crate) fn mutate(
    random: &mut Random,
    input: &mut Vec<u8>,
    words: &[&[u8]],
    others: &[Vec<u8>],
) {
    for _ in 0..=random.below(5) {
        change(random, input, words, others);
    }
    input.truncate(MAX_BYTES);
}

fn change(random: &mut Random, input: &mut Vec<u8>, words: &[&[u8]], others: &[Vec<u8>]) {
    let place = random.below(input.len() + 1);
    let most = 1 + random.below(64);
    let end = place + random.below((input.len() - place).min(most) + 1);
    match random.below(11) {
        0 => {
            if let Some(byte) = input.get_mut(place) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(place) {
                *byte = random.byte();
            }
        }
        2 => {
            let edge = random.choose(&EDGES).copied().unwrap_or_default();
            if let Some(byte) = input.get_mut(place) {
                *byte = edge;
            }
        }
        3 => input.insert(place, random.byte()),
        4 => drop(input.drain(place..end)),
        5 => input.truncate(place),
        6 | 7 => {
            let word = random.choose(words).copied().unwrap_or(b"\xff\xff\xff\xff");
            insert(input, place, word);
        }
        8 => {
            // A piece many times: nesting, and whatever is read again for each repetition.
            let piece = input.get(place..end).unwrap_or_default();
            let often = if random.below(16) == 0 { 13 } else { 5 };
            let times = 1 << random.below(often);
            let times = times.min(MAX_BYTES / piece.len().max(1));
            let repeated = piece.repeat(times);
            insert(input, place, &repeated);
        }
        9 => {
            let other: &[u8] = random.choose(others).map_or(&[], Vec::as_slice);
            let from = random.below(other.len() + 1);
            let piece = other.get(from..).unwrap_or_default();
            let piece = piece.get(..random.below(piece.len() + 1));
            insert(input, place, piece.unwrap_or_default());
        }
        _ => {
            // Counts stand at the front.
            let place = random.below(16);
            if let Some(byte) = input.get_mut(place) {
                *byte = byte.wrapping_add(random.byte() >> 5).wrapping_sub(3);
            }
        }
    }
}

fn insert(input: &mut Vec<u8>, place: usize, piece: &[u8]) {
    input.splice(place..place, piece.iter().copied());
}
