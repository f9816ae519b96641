//! Identities of rows, which tell what must be equal for two rows to be the same; and hash maps of words.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};

/// Length of an identity: as long as a uuid, and long enough that no two texts of one database meet by chance.
pub const IDENTITY_BYTES: usize = 16;

/// The first 16 bytes of SHA-256 over `label` and the fields, each behind a NUL.
///
/// No field may contain a NUL (validation refuses it), so different fields give different input.
#[must_use]
pub fn identity<'a>(
    label: &str,
    fields: impl IntoIterator<Item = &'a str>,
) -> [u8; IDENTITY_BYTES] {
    let mut hash = Sha256::new();
    hash.update(label.as_bytes());
    for field in fields {
        hash.update([0]);
        hash.update(field.as_bytes());
    }
    let digest = hash.finalize();
    let mut identity = [0; IDENTITY_BYTES];
    for (byte, whole) in identity.iter_mut().zip(digest) {
        *byte = whole;
    }
    identity
}

/// Hashes words of texts and of queries. It is seeded at random, so that writers of documents cannot choose words that
/// collide.
pub(crate) type WordState = foldhash::fast::RandomState;

/// A map by word.
pub(crate) type WordMap<K, V> = HashMap<K, V, WordState>;

/// A set of words.
pub(crate) type WordSet<K> = HashSet<K, WordState>;

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn fields_do_not_run_together() {
        assert_ne!(identity("a", ["bc"]), identity("a", ["b", "c"]));
        assert_ne!(identity("ab", ["c"]), identity("a", ["bc"]));
        assert_ne!(identity("a", [""]), identity("a", []));
        assert_eq!(identity("a", ["b", "c"]), identity("a", ["b", "c"]));
    }
}
