//! Values that are read where they lie.

use dialsm::Slice;

/// A value, held where it lies, or none. To be used again and again. One thread at a time.
#[derive(Default)]
pub struct Pinned(Option<Slice>);

impl Pinned {
    /// Holds another value, or none.
    #[inline]
    pub fn set(&mut self, value: Option<Slice>) {
        self.0 = value;
    }

    /// The value, if there is one.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }
}

/// Values of several keys. To be used again and again. One thread at a time.
#[derive(Default)]
pub struct Values(Vec<Option<Slice>>);

impl Values {
    /// Holds others.
    pub fn set(&mut self, values: Vec<Option<Slice>>) {
        self.0 = values;
    }

    /// How many keys were asked for.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of key number `at`, if it has one.
    #[inline]
    pub fn value(&self, at: usize) -> Option<&[u8]> {
        self.0.get(at)?.as_deref()
    }
}
