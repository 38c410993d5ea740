//! One entry in the arena, immutable once it is in the tree; and the keys to search for.
//!
//! ```text
//! offset  size  field
//!      0     4  value bytes       native endian: never leaves memory
//!      4     4  internal key bytes
//!      8     k  user key
//!    8+k     8  trailer           little-endian, as in every internal key
//!   16+k     v  value
//! ```
//! Aligned to 4 bytes. Key and trailer are contiguous, so that a cursor hands out the internal key
//! as it lies.

#![allow(unsafe_code)]

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use super::arena::Arena;
use crate::key::{self, Comparator, KEY_BYTES_MAX, TRAILER_BYTES, VALUE_BYTES_MAX};

/// Alignment that [`EntryRef::write`] needs of its arena.
pub(super) const ENTRY_ALIGN: usize = 4;
const LENGTHS_BYTES: usize = 8;
const _: () = assert!(VALUE_BYTES_MAX + KEY_BYTES_MAX + TRAILER_BYTES <= u32::MAX as usize);

/// A pointer to an entry that is wholly written and lives for `'a`.
#[derive(Clone, Copy)]
pub(super) struct EntryRef<'a>(NonNull<u8>, PhantomData<&'a [u8]>);

// SAFETY: it is a shared reference to bytes that nobody writes.
unsafe impl Send for EntryRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for EntryRef<'_> {}

impl<'a> EntryRef<'a> {
    /// Writes an entry into `arena`.
    ///
    /// # Panics
    /// If key or value is longer than the format allows.
    #[inline]
    pub(super) fn write(arena: &'a Arena, user_key: &[u8], trailer: u64, value: &[u8]) -> EntryRef<'a> {
        assert!(user_key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX);
        let internal_bytes = user_key.len() + TRAILER_BYTES;
        let start = arena.allocate(LENGTHS_BYTES + internal_bytes + value.len());
        let at = start.as_ptr();
        // SAFETY: the arena gave this many bytes, aligned to 4, to this call alone; the five fields
        // lie side by side in them.
        unsafe {
            at.cast::<u32>().write(value.len() as u32);
            at.add(4).cast::<u32>().write(internal_bytes as u32);
            ptr::copy_nonoverlapping(user_key.as_ptr(), at.add(LENGTHS_BYTES), user_key.len());
            let trailer_at = at.add(LENGTHS_BYTES + user_key.len());
            ptr::copy_nonoverlapping(trailer.to_le_bytes().as_ptr(), trailer_at, TRAILER_BYTES);
            ptr::copy_nonoverlapping(value.as_ptr(), trailer_at.add(TRAILER_BYTES), value.len());
        }
        EntryRef(start, PhantomData)
    }

    /// The entry at `raw`, or `None` for null.
    ///
    /// # Safety
    /// Unless null, `raw` came from [`EntryRef::as_raw`] of an entry that lives for `'a`, and the
    /// writes of that entry happened before this call.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *mut u8) -> Option<EntryRef<'a>> {
        NonNull::new(raw).map(|start| EntryRef(start, PhantomData))
    }

    #[inline]
    pub(super) fn as_raw(self) -> *mut u8 {
        self.0.as_ptr()
    }

    #[inline]
    fn lengths(self) -> (usize, usize) {
        // SAFETY: both fields were written by `write`, aligned to 4.
        let (value, key) = unsafe { (self.0.cast::<u32>().read(), self.0.add(4).cast::<u32>().read()) };
        (value as usize, key as usize)
    }

    #[inline]
    pub(super) fn internal_key(self) -> &'a [u8] {
        let (_, key_bytes) = self.lengths();
        // SAFETY: that many bytes follow the lengths, and nobody writes them any more.
        unsafe { slice::from_raw_parts(self.0.as_ptr().add(LENGTHS_BYTES), key_bytes) }
    }

    #[inline]
    pub(super) fn user_key(self) -> &'a [u8] {
        key::user_key(self.internal_key())
    }

    #[inline]
    pub(super) fn trailer(self) -> u64 {
        key::trailer_of(self.internal_key())
    }

    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let (value_bytes, key_bytes) = self.lengths();
        // SAFETY: the value follows the key, and nobody writes it any more.
        unsafe { slice::from_raw_parts(self.0.as_ptr().add(LENGTHS_BYTES + key_bytes), value_bytes) }
    }
}

/// An internal key to search for, its two parts not necessarily side by side.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) user_key: &'a [u8],
    pub(super) trailer: u64,
}

impl<'a> Target<'a> {
    #[inline]
    pub(super) fn of(entry: EntryRef<'a>) -> Target<'a> {
        Target::of_internal(entry.internal_key())
    }

    #[inline]
    pub(super) fn of_internal(internal: &'a [u8]) -> Target<'a> {
        Target { user_key: key::user_key(internal), trailer: key::trailer_of(internal) }
    }

    /// The place just behind this one: no entry lies between. (Trailers descend; that of an entry
    /// is never 0, because no kind is.)
    #[inline]
    pub(super) fn just_after(self) -> Target<'a> {
        Target { trailer: self.trailer.saturating_sub(1), ..self }
    }

    /// How `entry` lies to this target.
    #[inline]
    pub(super) fn order_of(&self, entry: EntryRef<'_>, order: &Comparator) -> Ordering {
        let internal = entry.internal_key();
        match order.compare(key::user_key(internal), self.user_key) {
            Ordering::Equal => self.trailer.cmp(&key::trailer_of(internal)),
            unequal => unequal,
        }
    }
}
