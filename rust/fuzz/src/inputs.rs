//! Bytes as the values that a target needs. Bytes that are missing read as 0.

/// Takes values from the front of an input.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next byte, as a count below `end`.
    pub(crate) fn below(&mut self, end: u8) -> usize {
        usize::from(self.byte() % end)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        for (to, from) in taken.iter_mut().zip(self.take(N)) {
            *to = *from;
        }
        taken
    }

    /// Up to `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All bytes that are left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// All bytes that are left, as text.
    pub(crate) fn text(self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }
}
