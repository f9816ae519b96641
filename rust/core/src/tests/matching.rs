//! What of a query stands in a text: phrases and matches.

use std::collections::HashSet;

use proptest::prelude::*;
use semlex_core::keyword::analyzer::parse_query;
use semlex_core::keyword::is_typed;

use super::texts::{analyzer, language, terms, text};

proptest! {
    #[test]
    fn a_phrase_of_the_text_is_in_it(
        language in language(), text in text(), range in any::<(prop::sample::Index, prop::sample::Index)>()
    ) {
        let analyzer = analyzer(language);
        let words: Vec<&str> = text.split_whitespace().collect();
        let (first, last) = (range.0.index(words.len() + 1), range.1.index(words.len() + 1));
        let phrase = words[first.min(last)..first.max(last)].join(" ").replace('"', " ");
        let query = format!("\"{phrase}\"");
        for terms in analyzer.query(&parse_query(&query), 10_000).phrases {
            prop_assert_eq!(analyzer.matches([&*text], &[terms], &[]), [true]);
        }
    }

    #[test]
    fn a_phrase_of_plain_words_is_a_window(text in "([a-c] ){0,12}", phrase in "([a-c] ){1,3}") {
        let words: Vec<&str> = text.split_whitespace().collect();
        let wanted: Vec<&str> = phrase.split_whitespace().collect();
        let expected = words.windows(wanted.len()).any(|window| window == wanted);
        let wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
        let simple = analyzer("simple");
        let wanted = [wanted];
        prop_assert_eq!(simple.matches([&*text], &wanted, &[]), [expected]);
        prop_assert_eq!(simple.matches([&*text], &[], &wanted), [!expected]);
    }

    #[test]
    fn a_batch_of_texts_is_matched_as_each_alone(
        texts in prop::collection::vec("([a-c-]{1,3} ){0,9}", 0..6),
        phrases in prop::collection::vec(prop::collection::vec("[a-c]", 0..3), 0..3),
        excluded in prop::collection::vec(prop::collection::vec("[a-c]", 1..3), 0..2),
    ) {
        let simple = analyzer("simple");
        let found = simple.matches(texts.iter().map(String::as_str), &phrases, &excluded);
        for (text, found) in texts.iter().zip(found) {
            let holds = |phrase: &Vec<String>| simple.matches([&**text], std::slice::from_ref(phrase), &[]) == [true];
            prop_assert_eq!(found, phrases.iter().all(holds) && !excluded.iter().any(holds));
        }
    }

    #[test]
    fn the_places_are_those_of_words_with_a_wanted_term(text in text(), wanted in text()) {
        let analyzer = analyzer("simple");
        let wanted: Vec<String> = analyzer.query(&parse_query(&wanted), 64).wanted.into_iter().map(|it| it.1).collect();
        let found = analyzer.match_places([&*text, "", &*text], &wanted);
        prop_assert_eq!(&found[0], &found[2]);
        prop_assert!(found[1].is_empty());
        for (place, next) in found[0].iter().zip(found[0].iter().skip(1)) {
            prop_assert!(place.end <= next.start);
        }
        for place in &found[0] {
            let word = &text[place.clone()];
            let own = terms(&analyzer, word);
            prop_assert!(own.iter().any(|term| wanted.contains(term)), "{word:?} {own:?} {wanted:?}");
        }
    }

    #[test]
    fn no_word_with_a_wanted_term_is_left_out(
        language in language(), words in prop::collection::vec("[A-Z]?[a-z]{1,9}(ly|ing|en|heit|mente|ions|s)?", 1..20),
        wanted in any::<prop::sample::Index>(),
    ) {
        let analyzer = analyzer(language);
        let wanted = terms(&analyzer, wanted.get(&words).as_str());
        let mut expected = Vec::new();
        let mut start = 0;
        for word in &words {
            if terms(&analyzer, word).iter().any(|term| wanted.contains(term)) {
                expected.push(start..start + word.len());
            }
            start += word.len() + 1;
        }
        prop_assert_eq!(&analyzer.match_places([&*words.join(" ")], &wanted)[0], &expected);
    }

    #[test]
    fn a_query_asks_once_for_each_term(language in language(), text in text(), most in 0_usize..9) {
        let analyzer = analyzer(language);
        let parsed = parse_query(&text);
        let query = analyzer.query(&parsed, most);
        let mut expected = Vec::new();
        for piece in &parsed.wanted {
            for term in terms(&analyzer, piece) {
                if !is_typed(&term) && !expected.contains(&term) {
                    expected.push(term);
                }
            }
        }
        prop_assert_eq!(query.total, expected.len());
        expected.truncate(most);
        let slots: Vec<u64> = query.wanted.iter().map(|&(slot, _)| slot).collect();
        prop_assert_eq!(slots.iter().collect::<HashSet<_>>().len(), slots.len());
        let found = query.wanted.into_iter().map(|(_, term)| term);
        let found: Vec<String> = found.filter(|term| !is_typed(term)).collect();
        prop_assert_eq!(found, expected);
        let conditions: Vec<_> = query.phrases.iter().chain(&query.excluded).collect();
        prop_assert!(conditions.iter().all(|phrase| !phrase.is_empty()));
        let given: usize = conditions.iter().map(|phrase| phrase.len()).sum();
        prop_assert_eq!(given, if query.conditions <= most { query.conditions } else { 0 });
    }

    #[test]
    fn the_place_of_a_wanted_word_is_found(before in "([a-mä]{1,8} ){0,60}", behind in "([a-m]{1,8} ){0,60}") {
        let text = format!("{before}xyz {behind}xyz");
        let (first, last) = (before.len(), text.len() - 3);
        let found = analyzer("simple").match_places([&*text], &["xyz".to_owned()]);
        prop_assert_eq!(&found[0], &[first..first + 3, last..last + 3]);
    }
}
