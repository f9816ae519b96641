//! Identities of rows, which tell what must be equal for two rows to be the same; and places of words in tables.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

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

/// Hashes words of texts and of queries. It is seeded at random: who writes documents must not be able to choose words
/// that collide.
pub(crate) type WordState = foldhash::fast::RandomState;

/// A map by word.
pub(crate) type WordMap<K, V> = HashMap<K, V, WordState>;

/// The lower and the upper half of 16 bytes.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "halves are wanted")]
pub(crate) fn halves(bytes: u128) -> (u64, u64) {
    (bytes as u64, (bytes >> 64) as u64)
}

/// A hash of 16 bytes for a table in memory, of which any bits may be used.
///
/// The halves of a product, folded: every bit moves all others.
#[inline]
pub(crate) fn table_hash((lower, upper): (u64, u64), seed: (u64, u64)) -> u64 {
    let (low, high) = halves(u128::from(lower ^ seed.0) * u128::from(upper ^ seed.1));
    low ^ high
}

/// A seed of [`table_hash`] for a table in which a collision costs nothing: odd numbers without a pattern (those of
/// wyhash and of the golden ratio).
pub(crate) const FIXED_SEED: (u64, u64) = (0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03);

/// A seed of [`table_hash`] that nobody can foresee, the same as long as the process runs.
pub(crate) fn process_seed() -> (u64, u64) {
    static SEED: LazyLock<(u64, u64)> = LazyLock::new(|| {
        let random = || RandomState::new().build_hasher().finish();
        (random(), random())
    });
    *SEED
}

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
