//! Inputs that crash a target: they are kept in a file and printed, so that they can become examples of tests.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Exit codes of a process that has reported its finding.
pub(crate) const PANICKED: u8 = 3;
pub(crate) const HANGS: u8 = 4;

/// Longer inputs are shown by their beginning.
const SHOWN_BYTES: usize = 4_096;

pub(crate) fn is_reported(code: i32) -> bool {
    code == i32::from(PANICKED) || code == i32::from(HANGS)
}

/// The folder with the inputs of a target.
pub(crate) fn folder(target: &str) -> PathBuf {
    Path::new(".state/fuzz").join(target)
}

/// The input that is in use.
pub(crate) fn current(target: &str) -> PathBuf {
    folder(target).join("current")
}

/// Keeps an input, and prints its bytes.
pub(crate) fn report(target: &str, input: &[u8]) -> io::Result<()> {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = folder(target).join(format!("finding-{:016x}", hasher.finish()));
    fs::write(&path, input)?;
    let shown = input.get(..SHOWN_BYTES).unwrap_or(input);
    println!(
        "{target}: {} bytes, kept in {}:\nb\"{}\"",
        input.len(),
        path.display(),
        shown.escape_ascii()
    );
    Ok(())
}
