//! Tables with one value for each byte.

/// A value for each byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByteTable<T>(pub(crate) [T; 256]);

#[allow(
    clippy::indexing_slicing,
    reason = "a byte is below the number of places"
)]
impl<T> ByteTable<T> {
    #[inline]
    pub(crate) fn of(&self, byte: u8) -> &T {
        &self.0[usize::from(byte)]
    }

    #[inline]
    pub(crate) fn of_mut(&mut self, byte: u8) -> &mut T {
        &mut self.0[usize::from(byte)]
    }
}
