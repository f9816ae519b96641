//! Boundaries inside compound words: `getHTTPUrl2`.

use super::characters::{CharacterKinds, is_upper};
use super::classes::{Classes, DIGIT, LOWER, UPPER};

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Upper,
    Other,
    Digit,
}

/// Calls `cut` with the places at which a word is cut, because its case or a number says so.
pub(super) fn each_cut(
    text: &str,
    classes: Classes,
    characters: &CharacterKinds,
    mut cut: impl FnMut(usize),
) {
    if classes.is(LOWER) || classes.is(UPPER) || classes.is(DIGIT) {
        return;
    }
    let is_lower = |text: &[u8]| text.iter().all(u8::is_ascii_lowercase);
    if let [first, rest @ ..] = text.as_bytes()
        && first.is_ascii_alphabetic()
        && is_lower(rest)
    {
        return;
    }
    // Marks and what is invisible have the shape of the letter before them.
    let mut letters = text
        .char_indices()
        .filter(|&(_, character)| characters.is_letter(character))
        .map(|(place, character)| (place, shape(character)))
        .peekable();
    let Some((_, mut before)) = letters.next() else {
        return;
    };
    // What is between two boundaries: where it begins, whether it is a single letter, and whether that before was.
    let mut start = None;
    let mut is_lone = before != Shape::Digit;
    let mut was_lone = false;
    while let Some((place, here)) = letters.next() {
        let is_boundary = match (before, here) {
            (Shape::Digit, Shape::Digit) => false,
            (Shape::Digit, _) | (_, Shape::Digit) | (Shape::Other, Shape::Upper) => true,
            // `HTTPServer`, but not `PDFs`.
            (Shape::Upper, Shape::Upper) => letters.peek().is_some_and(|&(next, shape)| {
                let is_plural = text.get(next..) == Some("s");
                shape == Shape::Other && !is_plural
            }),
            _ => false,
        };
        if is_boundary {
            start.filter(|_| !is_lone && !was_lone).map(&mut cut);
            start = Some(place);
            was_lone = is_lone;
        }
        is_lone = is_boundary && here != Shape::Digit;
        before = here;
    }
    start.filter(|_| !is_lone && !was_lone).map(&mut cut);
}

fn shape(character: char) -> Shape {
    if character.is_ascii() {
        match character {
            '0'..='9' => Shape::Digit,
            'A'..='Z' => Shape::Upper,
            _ => Shape::Other,
        }
    } else if character.is_numeric() {
        Shape::Digit
    } else if is_upper(character) {
        Shape::Upper
    } else {
        Shape::Other
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)] // a test fails by panicking

    use proptest::prelude::*;

    use super::{CharacterKinds, Classes, each_cut};

    fn cuts(text: &str, classes: Classes) -> Vec<usize> {
        let characters = CharacterKinds::shared().expect("the features of regex-syntax");
        let mut cuts = Vec::new();
        each_cut(text, classes, characters, |cut| cuts.push(cut));
        cuts
    }

    proptest! {
        #[test]
        fn quick_answers_are_those_of_the_long_way(text in "[a-cA-C0-1s]{0,6}|[a-z]{1,9}|[A-Z]{1,9}s?|[a-cA-Cé²É’,]{0,6}") {
            let of_more = Classes::of("aA0/.-,é");
            prop_assert_eq!(cuts(&text, Classes::of(&text)), cuts(&text, of_more));
        }

        #[test]
        fn a_cut_has_a_number_or_two_letters_on_both_sides(text in "[a-cA-C0-1]{0,9}") {
            let cuts = cuts(&text, Classes::of(&text));
            let starts = std::iter::once(0).chain(cuts.iter().copied());
            let pieces = starts.zip(cuts.iter().copied().chain([text.len()]));
            for (start, end) in pieces.filter(|_| !cuts.is_empty()) {
                let piece = &text[start..end];
                prop_assert!(piece.len() > 1 || piece.starts_with(|it: char| it.is_ascii_digit()));
            }
        }
    }
}
