//! Building segments from texts: what a builder remembers changes nothing.

use proptest::prelude::*;
use semlex_core::keyword::TermSource;
use semlex_core::keyword::build::*;
use semlex_core::segments::*;

use super::stored::id_of;

/// Words by spaces, in small letters; "the" stands for nothing, a hyphen for two terms.
struct Words;

impl TermSource for Words {
    fn offsets(&self, text: &str, mut token: impl FnMut(usize, usize)) {
        let mut start = 0;
        for word in text.split(' ') {
            if !word.is_empty() {
                token(start, start + word.len());
            }
            start += word.len() + 1;
        }
    }

    fn terms(&self, token: &str, term: impl FnMut(&str)) {
        let lower = token.to_lowercase();
        if lower != "the" {
            lower
                .split('-')
                .filter(|part| !part.is_empty())
                .for_each(term);
        }
    }
}

proptest! {
    #[test]
    fn texts_give_the_terms_of_their_source(texts in prop::collection::vec(prop::collection::vec("(the|The|[aAbB]{1,2}(-[ab])?|x{60,70})( [aAb]{1,3}-?c?){0,9}", 0..3), 0..20)) {
        let (mut builder, mut by_terms) = (SegmentBuilder::new(), SegmentBuilder::new());
        for _ in 0..2 {
            for (id, texts) in (0..).zip(&texts) {
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                builder.add(id, &Words, &texts).unwrap();
                let mut terms = Vec::new();
                for text in texts {
                    Words.tokens(text, |token| Words.terms(token, |term| terms.push(term.to_owned())));
                }
                by_terms.add_terms(id, terms.iter().map(String::as_str)).unwrap();
            }
            prop_assert_eq!(builder.finish(&id_of(0)).unwrap(), by_terms.finish(&id_of(0)).unwrap());
        }
    }
}

/// As `Words`, but letters mean others.
struct Others;

impl TermSource for Others {
    fn offsets(&self, text: &str, token: impl FnMut(usize, usize)) {
        Words.offsets(text, token);
    }

    fn terms(&self, token: &str, mut term: impl FnMut(&str)) {
        Words.terms(token, |it| term(&it.replace('a', "c")));
    }
}

proptest! {
    #[test]
    fn what_is_remembered_changes_no_segment(
        batches in prop::collection::vec((any::<bool>(), prop::collection::vec("(the|The|[aAbB]{1,2}(-[ab])?|x{60,70})( [aAb]{1,3}-?c?){0,9}| ?a{129}", 0..9)), 0..6)
    ) {
        fn add(builder: &mut SegmentBuilder, others: bool, id: i64, text: &str) -> Result<(), SegmentError> {
            if others {
                builder.add(id, &Others, &[text])
            } else {
                builder.add(id, &Words, &[text])
            }
        }
        let (mut known, mut by_others) = (Vocabulary::default(), false);
        for (others, texts) in &batches {
            let (mut builder, mut plain) = (SegmentBuilder::new(), SegmentBuilder::new());
            builder.adopt(&mut known);
            prop_assert_eq!(known.memory(), 0);
            if *others != by_others {
                builder.forget_source();
            }
            by_others = *others;
            for (id, text) in (0..).zip(texts) {
                // A term that is too long is refused, and its chunk leaves no trace.
                let refused = add(&mut builder, *others, id, text).is_err();
                prop_assert_eq!(refused, text.contains(&"a".repeat(129)));
                prop_assert_eq!(add(&mut plain, *others, id, text).is_err(), refused);
            }
            prop_assert_eq!(builder.release().is_some(), builder.chunks() == 0);
            prop_assert_eq!(builder.finish(&id_of(0)), plain.finish(&id_of(0)));
            known = builder.release().unwrap();
        }
    }
}
