//! Values of attributes.

use super::tags::after_word;
use crate::chunk::is_blank;

/// The values of the attributes with one of these names, which are in lower case. A name stands behind a blank or at the
/// beginning; what stands in another attribute's quotes is not told apart.
pub(super) fn values<'a>(
    attributes: &'a str,
    names: &'static [&'static str],
) -> impl Iterator<Item = &'a str> {
    let mut rest = attributes;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start_matches(is_blank);
            if rest.is_empty() {
                return None;
            }
            let found = names.iter().find_map(|name| value(after_word(rest, name)?));
            let behind = found.map_or(rest, |(_, behind)| behind);
            rest = behind
                .find(is_blank)
                .and_then(|blank| behind.get(blank..))
                .unwrap_or_default();
            if let Some((value, _)) = found {
                return Some(value);
            }
        }
    })
}

/// The value after an equals sign, and the rest of the text.
fn value(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches(is_blank).strip_prefix('=')?;
    let text = text.trim_start_matches(is_blank);
    for quote in ['"', '\''] {
        if let Some(quoted) = text.strip_prefix(quote) {
            return quoted.split_once(quote);
        }
    }
    let ends = |character: char| is_blank(character) || matches!(character, '"' | '\'');
    let found = text.split_at_checked(text.find(ends).unwrap_or(text.len()))?;
    (!found.0.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::values;

    fn found(attributes: &str) -> Vec<&str> {
        values(attributes, &["id", "class"]).collect()
    }

    #[test]
    fn values_are_found_in_each_notation() {
        assert_eq!(
            found(" id=a CLASS = \"b c\" class='' id\u{a0}=\n'd"),
            ["a", "b c", ""]
        );
        assert_eq!(found("id=a'b' class=c/"), ["a", "c/"]);
        assert_eq!(
            found(" x='id=a class=b' data-id=c idx=d id classé=e id=\"f\"id=g"),
            ["b", "f"]
        );
        assert_eq!(found("/id=a"), [""; 0]);
    }
}
