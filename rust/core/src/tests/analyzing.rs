//! What holds for the terms of every text, and what the rules say of some.

use std::collections::HashSet;

use proptest::prelude::*;
use semlex_core::keyword::analyzer::{
    Analyzer, LANGUAGES, MAX_TERM_BYTES, MAX_TOKEN_BYTES, language_named,
};
use semlex_core::keyword::{TermSource, is_typed};
use unicode_normalization_alignments::UnicodeNormalization;
use unicode_normalization_alignments::char::is_combining_mark;

use super::texts::{analyzer, language, terms, text};

fn tokens<'t>(analyzer: &Analyzer, text: &'t str) -> Vec<&'t str> {
    let mut tokens = Vec::new();
    analyzer.tokens(text, |token| tokens.push(token));
    tokens
}

fn token_terms(analyzer: &Analyzer, token: &str) -> Vec<String> {
    let mut terms = Vec::new();
    analyzer.terms(token, |term| terms.push(term.to_owned()));
    terms
}

/// The terms without those that keep accents.
fn folded(analyzer: &Analyzer, text: &str) -> Vec<String> {
    let mut found = terms(analyzer, text);
    found.retain(|term| !is_typed(term));
    found
}

/// The folded terms in one line, without a language.
fn simple(text: &str) -> String {
    folded(&analyzer("simple"), text).join(" ")
}

/// The folded terms in one line.
fn of(language: &str, text: &str) -> String {
    folded(&analyzer(language), text).join(" ")
}

/// The tokens of ASCII text by the table of the rules, one character after the other.
fn slow_tokens(text: &str) -> Vec<&str> {
    let at = |place: usize| text.as_bytes().get(place).map_or(' ', |&byte| byte as char);
    let is_word = |place: usize| at(place).is_ascii_alphanumeric();
    let before = |place: usize| if place == 0 { ' ' } else { at(place - 1) };
    let joins = |place: usize| -> bool {
        let mut end = place + 1;
        let mut start = place;
        match at(place) {
            '-' | '/' | '@' | '\'' => {}
            '_' => {
                while at(end) == '_' {
                    end += 1;
                }
                while start > 0 && at(start - 1) == '_' {
                    start -= 1;
                }
            }
            ':' if at(place + 1) == ':' => end += 1,
            ':' if before(place) == ':' => start -= 1,
            '.' if at(place + 1).is_ascii_uppercase() && !before(place).is_ascii_uppercase() => {
                return false;
            }
            '.' => {}
            ',' => {
                let digits = text[..place]
                    .chars()
                    .rev()
                    .take_while(char::is_ascii_digit)
                    .count();
                let follows = text[place + 1..]
                    .chars()
                    .take_while(char::is_ascii_digit)
                    .count();
                let in_front = before(place - digits);
                return (1..=3).contains(&digits)
                    && follows == 3
                    && !in_front.is_ascii_alphabetic();
            }
            _ => return false,
        }
        start > 0 && is_word(start - 1) && is_word(end)
    };
    let mut tokens = Vec::new();
    let mut place = 0;
    while place < text.len() {
        if !is_word(place) {
            place += 1;
            continue;
        }
        let start = place;
        while is_word(place) || joins(place) {
            place += 1;
        }
        let suffix = match (at(place), at(place + 1)) {
            ('#', _) => 1,
            ('+', '+') => 2,
            _ => 0,
        };
        let next = at(place + suffix);
        if before(place).is_ascii_alphabetic()
            && !next.is_ascii_alphanumeric()
            && !"#+".contains(next)
        {
            place += suffix;
        }
        tokens.push(&text[start..place]);
    }
    tokens
}

#[test]
fn a_mark_on_a_letter_is_no_letter_of_its_own() {
    assert_eq!(simple("0'\u{1ff2}"), simple("0'\u{3c9}\u{300}\u{345}"));
    assert_eq!(simple("0'\u{622}"), simple("0'\u{627}\u{653}"));
}

proptest! {
    #[test]
    fn tokens_are_slices_in_order(text in text()) {
        let mut last = (0, 0);
        for token in tokens(&analyzer("simple"), &text) {
            let start = token.as_ptr() as usize - text.as_ptr() as usize;
            let place = (start, start + token.len());
            prop_assert_eq!(&text[place.0..place.1], token);
            prop_assert!(!token.is_empty() && token.len() <= MAX_TOKEN_BYTES);
            prop_assert!(place > last && place.1 >= last.1, "{:?} behind {:?}", place, last);
            last = place;
        }
    }

    #[test]
    fn tokens_of_ascii_follow_the_table(text in "[a-bA-B0-1._/@:,'#+ _-]{0,24}") {
        prop_assert_eq!(tokens(&analyzer("simple"), &text), slow_tokens(&text));
    }

    #[test]
    fn every_letter_is_in_a_token(text in text()) {
        let mut covered = HashSet::new();
        for token in tokens(&analyzer("simple"), &text) {
            let start = token.as_ptr() as usize - text.as_ptr() as usize;
            covered.extend(start..start + token.len());
        }
        for (place, character) in text.char_indices() {
            // Circled letters are symbols; modifier apostrophes and the sound marks join.
            let is_letter = character.is_alphanumeric()
                && character.is_lowercase() != character.is_uppercase()
                && !('\u{24b6}'..='\u{24e9}').contains(&character)
                && !('\u{1f130}'..='\u{1f189}').contains(&character)
                && !is_combining_mark(character);
            prop_assert!(!is_letter || covered.contains(&place), "{character:?} of {text:?}");
        }
    }

    #[test]
    fn terms_are_short_and_those_of_their_tokens(language in language(), text in text()) {
        let analyzer = analyzer(language);
        let mut expected = Vec::new();
        for token in tokens(&analyzer, &text) {
            expected.extend(token_terms(&analyzer, token));
        }
        let found = terms(&analyzer, &text);
        for term in &found {
            prop_assert!(!term.is_empty() && term.len() <= MAX_TERM_BYTES, "{term:?}");
            prop_assert!(!term.contains(|it: char| it.is_whitespace() || it.is_ascii_uppercase()));
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn what_is_taken_from_a_document_finds_it(language in language(), text in text()) {
        let analyzer = analyzer(language);
        let document: HashSet<String> = terms(&analyzer, &text).into_iter().collect();
        for token in tokens(&analyzer, &text) {
            for term in terms(&analyzer, token) {
                prop_assert!(document.contains(&term), "{term:?} of {token:?}");
            }
        }
    }

    #[test]
    fn forms_of_writing_are_one(text in text()) {
        // Thai and its like are cut before they are folded: there the forms of a text stay apart.
        let is_cut = |it: &char| {
            matches!(it, '\u{e00}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{1950}'..='\u{1aaf}')
        };
        let text: String = text.chars().filter(|it| !is_cut(it)).collect();
        let composed: String = text.nfc().map(|(it, _)| it).collect();
        let decomposed: String = text.nfd().map(|(it, _)| it).collect();
        prop_assert_eq!(simple(&composed), simple(&decomposed));
    }

    #[test]
    fn case_and_accents_do_not_count(
        language in language(),
        text in "([a-zà-öø-üšžčćřěůąęóőűăâîșțğışéúíñçёйўїієґа-яα-ωάέή]{1,9} ){0,6}",
    ) {
        let analyzer = analyzer(language);
        let found = folded(&analyzer, &text);
        prop_assert_eq!(folded(&analyzer, &text.to_uppercase()), found.clone());
        let cyrillic = |it: char| ('\u{400}'..='\u{4ff}').contains(&it);
        if !text.contains(cyrillic) {
            let plain: String = text.nfd().map(|(it, _)| it).filter(|&it| !is_combining_mark(it)).collect();
            prop_assert_eq!(folded(&analyzer, &plain), found);
        }
    }

    #[test]
    fn han_is_pairs_and_characters(text in "[一-鿿ぁ-ゔ]{1,20}") {
        let characters: Vec<char> = text.chars().collect();
        let mut expected: Vec<String> = characters.windows(2).map(|pair| pair.iter().collect()).collect();
        expected.extend(characters.iter().map(char::to_string));
        expected.sort();
        let mut found = terms(&analyzer("english"), &text);
        found.sort();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn thai_is_threes(text in "[ก-ะเ-ไ]{1,20}") {
        let characters: Vec<char> = text.chars().collect();
        let expected: Vec<String> = if characters.len() < 3 {
            vec![text.clone()]
        } else {
            characters.windows(3).map(|three| three.iter().collect()).collect()
        };
        prop_assert_eq!(terms(&analyzer("english"), &text), expected);
    }
}

#[test]
fn languages_have_names_and_codes() {
    assert!(LANGUAGES.is_sorted());
    for (name, expected) in [
        ("en", "english"),
        (" Spanish", "spanish"),
        ("NB", "norwegian"),
        ("zh", "chinese"),
        ("simple", "simple"),
    ] {
        assert_eq!(language_named(name), Ok(expected));
    }
    let message = language_named("klingon").expect_err("unknown").to_string();
    assert!(
        message.contains("klingon") && message.contains("yiddish"),
        "{message}"
    );
    // A list that is named but not to be had would be silently empty.
    let listed = [
        "ca", "da", "nl", "en", "fi", "fr", "de", "el", "hu", "it", "ne", "no", "pt", "ro", "ru",
        "es", "sv", "ta", "tr",
    ];
    for code in listed {
        let words = stop_words::lookup(code).expect("a list");
        assert!(words.len() <= 400, "{code}: {}", words.len());
        let with = analyzer(code);
        let left: Vec<_> = words
            .iter()
            .filter(|word| !word.contains(' ') && !terms(&with, word).is_empty())
            .collect();
        assert!(left.is_empty(), "{code}: {left:?}");
    }
}

#[test]
fn words_are_folded_and_stemmed() {
    assert_eq!(of("english", "The runners' running RUNS"), "runner run run");
    assert_eq!(
        of("german", "Häuser HAUSER Straße STRASSE"),
        "haus haus strass strass"
    );
    assert_eq!(
        of("spanish", "canción cancion CANCIONES"),
        "cancion cancion cancion"
    );
    assert_eq!(
        simple("ŁÓDŹ Ærø đ ﬁne ｆｕｌｌ ½ m² ① Ⅷ"),
        "lodz aero d fine full 1/2 m2 1 viii"
    );
    assert_eq!(simple("İstanbul ışık"), "istanbul isik");
    assert_eq!(simple("ё й за\u{301}мок Київ"), "е й замок київ");
    assert_eq!(simple("Άλφα ΣΊΣΥΦΟΣ"), "αλφα σισυφοσ");
    assert_eq!(simple("שָׁלוֹם צה״ל"), "שלום צהל");
    assert_eq!(
        simple("مُحَمَّد أحمد مـحـمـد کی مؤسسة"),
        "محمد احمد محمد كي مؤسسة"
    );
    assert_eq!(simple("हिन्दी ٣٤ ๒๕"), "हिन्दी 34 25");
    assert_eq!(simple("한국어를 API를 3월"), "한국어를 api 를 3 월");
    assert_eq!(of("russian", "новый новая"), "нов нов");
    assert_eq!(of("serbian", "човек čovek covek"), "covek covek covek");
    assert_eq!(of("persian", "کتاب‌ها كتاب"), of("persian", "کتاب کتاب"));
}

#[test]
fn compounds_are_found_whole_and_in_parts() {
    for (text, expected) in [
        ("snake_case", "snakecase snake case"),
        ("getHTTPUrl2", "gethttpurl2 get http url 2"),
        ("os.path.join", "os.path.join os path join"),
        ("src/app/main.rs", "src/app/main.rs src app main.rs main rs"),
        ("std::vec::Vec", "std::vec::vec std vec vec"),
        ("v1.20.3 3.11 1,000.5", "1.20.3 1.20 1 3.11 3 1000.5 1000"),
        ("1,2,3 10,000 1234,567", "1 2 3 10000 1234 567"),
        (
            "ORA-00942 E0502 p53 H2O",
            "ora00942 ora 00942 e0502 p53 h2o",
        ),
        ("state-of-the-art", "stateoftheart state of the art"),
        ("U.S.A. U.S. USA", "usa us usa"),
        ("iPhone PDFs 100km", "iphone pdfs 100km 100 km"),
        ("C++, C# F#. x++y", "c++ c c# c f# f x y"),
        ("a@b.org", "a@b.org a b.org b org"),
        ("https://a.org/b?c=1#d", "https a.org/b a.org a org b c 1 d"),
        ("__init__ foo__bar --flag -x", "init foobar foo bar flag x"),
        (
            "O'Brien Kant’s rock'n'roll",
            "obrien brien kant rocknroll rock roll",
        ),
    ] {
        assert_eq!(simple(text), expected, "{text}");
    }
    assert_eq!(of("english", "and/or don't DON’T it's we'll"), "");
    assert_eq!(
        of("english", "e-mails emails eMails"),
        "email e mail email email"
    );
    assert_eq!(
        of("french", "l'homme d'été aujourd'hui"),
        "homm aujourd hui"
    );
    assert_eq!(of("turkish", "Ankara'da Ankara’nın"), "ankar ankar");
}

#[test]
fn prose_makes_no_junk() {
    for text in [
        "end.Start of it...And so,on",
        "**end** [start](of) `it` … and—so “on”",
        "| end | start |\n|---|:-:|\n| of | it | and-- so/ on.",
        "end\u{fffd}start\u{200b}of it\u{a0}and; (so) -on",
        "<b>end</b> &start; 'of' \"it\" /and/ so: @on",
    ] {
        let words = ["end", "start", "of", "it", "and", "so", "on", "b"];
        let found = simple(text);
        assert!(
            found.split(' ').all(|term| words.contains(&term)),
            "{text}: {found}"
        );
    }
    for text in [
        "", " ", "-", "--", "*", "\u{301}", "\u{200d}", "😀™", "\u{fffd}", "…", "\0",
    ] {
        assert_eq!(simple(text), "", "{text:?}");
    }
}

#[test]
fn scripts_without_spaces_are_cut_into_runs() {
    assert_eq!(simple("iPhone手机"), "iphone 手机 手 机");
    assert_eq!(simple("データ、v2"), "デー デ ータ ー タ v2");
    assert_eq!(simple("ｶﾞｷﾞ がぎ"), "ガギ ガ ギ がぎ が ぎ");
    assert_eq!(simple("か\u{3099}き"), "がき が き");
    assert_eq!(simple("ไทย2 กข"), "ไทย 2 กข");
    assert_eq!(simple("ខ្មែរ"), "ខ្ម ្មែ មែរ");
}

#[test]
fn words_with_accents_have_a_second_term() {
    let both = |language, text| terms(&analyzer(language), text).join(" ");
    assert_eq!(both("simple", "ŁÓDŹ lodz"), "lodz =łódź lodz");
    assert_eq!(both("vietnamese", "má ma"), "ma =má ma");
    assert_eq!(both("spanish", "canción año"), "cancion ano =año");
    assert_eq!(both("german", "Häuser Straße"), "haus strass");
    assert_eq!(both("greek", "λόγος"), of("greek", "λόγος"));
}

#[test]
fn long_words_are_cut() {
    let long = "x".repeat(3 * MAX_TOKEN_BYTES / 2);
    let found = simple(&long);
    let found: Vec<&str> = found.split(' ').collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|term| term.len() == MAX_TERM_BYTES));
    assert_ne!(found[0], found[1]);
    assert_eq!(simple(&"é".repeat(64)), "e".repeat(64));
}
