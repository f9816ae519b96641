//! A value for each character of Unicode.

use std::hash::Hash;

use regex_syntax::hir::{Class, HirKind};
use rustc_hash::FxHashMap;

const CODE_POINTS: usize = 0x11_0000;
const PAGE: usize = 256;

/// Pages of 256 code points; equal ones are stored once.
pub(crate) struct CharacterTable<T> {
    pages: Vec<u16>,
    values: Vec<T>,
}

impl<T: Copy + Default + Eq + Hash> CharacterTable<T> {
    /// The classes of all characters by regular expressions, of which later ones win, each made a value; nothing if the
    /// tables of Unicode are missing.
    pub(crate) fn new<C: Copy>(
        rest: C,
        rules: &[(&str, C)],
        value: impl Fn(u32, C) -> T,
    ) -> Option<Self> {
        let mut classes = vec![rest; CODE_POINTS];
        for (pattern, class) in rules {
            for (first, last) in ranges(pattern)? {
                classes
                    .get_mut(first as usize..=last as usize)?
                    .fill(*class);
            }
        }
        let mut known: FxHashMap<Vec<T>, u16> = FxHashMap::default();
        let (mut pages, mut values) = (Vec::new(), Vec::new());
        for (codes, page) in (0_u32..).step_by(PAGE).zip(classes.chunks(PAGE)) {
            let page = (codes..).zip(page).map(|(code, class)| value(code, *class));
            let page: Vec<T> = page.collect();
            let next = u16::try_from(known.len()).ok()?;
            let number = *known.entry(page.clone()).or_insert(next);
            if usize::from(number) * PAGE == values.len() {
                values.extend(page);
            }
            pages.push(number);
        }
        Some(Self { pages, values })
    }

    /// The value of a character.
    #[inline]
    pub(crate) fn get(&self, character: char) -> T {
        let code = character as usize;
        let page = self.pages.get(code / PAGE);
        let value = page.and_then(|page| {
            self.values
                .get(usize::from(*page) * PAGE + code % PAGE)
                .copied()
        });
        // Every character has a page.
        value.unwrap_or_default()
    }
}

/// The characters of a class, as ranges in ascending order.
pub(crate) fn ranges(pattern: &str) -> Option<Vec<(char, char)>> {
    let parsed = regex_syntax::parse(pattern).ok()?;
    match parsed.kind() {
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class.ranges().iter();
            Some(ranges.map(|range| (range.start(), range.end())).collect())
        }
        // A class of one character is a literal to the parser.
        HirKind::Literal(literal) => {
            let character = std::str::from_utf8(&literal.0).ok()?.chars().next()?;
            Some(vec![(character, character)])
        }
        _ => None,
    }
}
