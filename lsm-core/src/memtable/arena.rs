//! Bump arena: memory for entries and nodes, given out concurrently, given back all at once.
//!
//! ```text
//! chunk = [ ChunkHead: used, bytes, prev ][ allocation ][ allocation ] ... [ rest ]
//! ```
//! Chunks grow with the arena, from 4 KiB to 1 MiB, so that hundreds of idle memtables cost
//! kilobytes and a busy one few calls of the allocator. What would waste a good part of a chunk
//! gets one of its own, of exactly its size.
//!
//! Invariants: a chunk is freed only by the arena's drop; two allocations never overlap (each owns
//! the range its `fetch_add` took); `allocated` counts whole chunks, used or not.
//!
//! Absent on purpose: freeing single allocations, and zeroing.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Alignment of chunks, and the largest alignment an arena gives.
pub(super) const CHUNK_ALIGN: usize = 64;
const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// A new chunk holds this part of what the arena holds already: bounds the unused rest.
const GROWTH_DIVISOR: usize = 4;
/// An allocation above this part of a fresh chunk gets a chunk of its own.
const OWN_CHUNK_DIVISOR: usize = 4;

#[repr(C, align(64))]
struct ChunkHead {
    /// Offset of the first free byte; may run past `bytes` when allocations race at the end.
    used: AtomicUsize,
    /// Size of the chunk, this head included.
    bytes: usize,
    /// The chunk made before this one, or null.
    prev: *mut ChunkHead,
}

/// See the module header.
pub(super) struct Arena {
    /// Chunk that small allocations come from; null before the first.
    current: AtomicPtr<ChunkHead>,
    /// All chunks, newest first. The lock also serializes growth.
    newest: Mutex<NewestChunk>,
    allocated: AtomicUsize,
    align: usize,
}

struct NewestChunk(*mut ChunkHead);

// SAFETY: the pointer is to memory that the arena owns; nothing in it belongs to a thread.
unsafe impl Send for NewestChunk {}

impl Arena {
    /// An empty arena whose allocations are aligned to `align` bytes; takes no memory yet.
    pub(super) fn new(align: usize) -> Arena {
        assert!(align.is_power_of_two() && align <= CHUNK_ALIGN);
        Arena {
            current: AtomicPtr::new(ptr::null_mut()),
            newest: Mutex::new(NewestChunk(ptr::null_mut())),
            allocated: AtomicUsize::new(0),
            align,
        }
    }

    /// Bytes held from the allocator.
    pub(super) fn allocated(&self) -> usize {
        self.allocated.load(Ordering::Relaxed)
    }

    /// `size` uninitialized bytes that no one else has, valid until the arena is dropped.
    #[inline]
    pub(super) fn allocate(&self, size: usize) -> NonNull<u8> {
        let size = size.next_multiple_of(self.align);
        loop {
            let chunk = self.current.load(Ordering::Acquire);
            if let Some(start) = Arena::bump(chunk, size) {
                return start;
            }
            if let Some(start) = self.grow(chunk, size) {
                return start;
            }
        }
    }

    #[inline]
    fn bump(chunk: *mut ChunkHead, size: usize) -> Option<NonNull<u8>> {
        if chunk.is_null() {
            return None;
        }
        // SAFETY: `chunk` was published by `grow` with its head written, and lives as the arena does.
        let head = unsafe { &(*chunk).used };
        // SAFETY: as above; `bytes` is never written after publication.
        let bytes = unsafe { (*chunk).bytes };
        // The look before the add keeps a chunk usable for smaller requests after one failed.
        if head.load(Ordering::Relaxed).checked_add(size)? > bytes {
            return None;
        }
        let at = head.fetch_add(size, Ordering::Relaxed);
        if at.checked_add(size)? > bytes {
            return None;
        }
        // SAFETY: `at + size` lies within the chunk.
        NonNull::new(unsafe { chunk.cast::<u8>().add(at) })
    }

    /// Makes a chunk, unless another thread replaced `seen` meanwhile (then `None`: try again).
    #[cold]
    fn grow(&self, seen: *mut ChunkHead, size: usize) -> Option<NonNull<u8>> {
        let mut newest = self.newest.lock();
        if self.current.load(Ordering::Relaxed) != seen {
            return None;
        }
        let next_bytes = (self.allocated() / GROWTH_DIVISOR)
            .next_multiple_of(CHUNK_BYTES_MIN)
            .clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let own = size > next_bytes / OWN_CHUNK_DIVISOR;
        let bytes = if own { size + size_of::<ChunkHead>() } else { next_bytes };
        let layout = chunk_layout(bytes);
        // SAFETY: the layout's size is not zero.
        let chunk = unsafe { alloc(layout) }.cast::<ChunkHead>();
        if chunk.is_null() {
            handle_alloc_error(layout);
        }
        let at = size_of::<ChunkHead>();
        let head = ChunkHead { used: AtomicUsize::new(at + size), bytes, prev: newest.0 };
        // SAFETY: fresh memory, large and aligned enough for the head.
        unsafe { chunk.write(head) };
        newest.0 = chunk;
        self.allocated.fetch_add(bytes, Ordering::Relaxed);
        if !own {
            self.current.store(chunk, Ordering::Release);
        }
        // SAFETY: `at + size <= bytes`: an own chunk was sized so, a shared one is larger than that.
        NonNull::new(unsafe { chunk.cast::<u8>().add(at) })
    }
}

fn chunk_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, CHUNK_ALIGN).expect("chunks are far below isize::MAX")
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut chunk = self.newest.get_mut().0;
        while !chunk.is_null() {
            // SAFETY: each chunk in the list was allocated by `grow` and is visited once.
            let (bytes, prev) = unsafe { ((*chunk).bytes, (*chunk).prev) };
            // SAFETY: allocated with this layout; `&mut self` shows that no one uses it any more.
            unsafe { dealloc(chunk.cast(), chunk_layout(bytes)) };
            chunk = prev;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_small_grows_and_counts_whole_chunks() {
        let arena = Arena::new(4);
        assert_eq!(arena.allocated(), 0);
        arena.allocate(100);
        assert_eq!(arena.allocated(), CHUNK_BYTES_MIN);
        for _ in 0..200 {
            arena.allocate(1000);
        }
        assert!(arena.allocated() >= 200_000 && arena.allocated() < 270_000, "{}", arena.allocated());
    }

    #[test]
    fn a_large_allocation_leaves_the_shared_chunk_in_use() {
        let arena = Arena::new(8);
        let first = arena.allocate(16).as_ptr() as usize;
        arena.allocate(3 << 20);
        let before = arena.allocated();
        assert!(before < (3 << 20) + 8192);
        assert_eq!(arena.allocate(16).as_ptr() as usize, first + 16);
        assert_eq!(arena.allocated(), before);
    }

    #[test]
    fn concurrent_allocations_are_aligned_and_never_overlap() {
        let arena = Arena::new(8);
        let count = if cfg!(miri) { 60 } else { 5000 };
        let mut ranges: Vec<(usize, usize)> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3usize)
                .map(|worker| {
                    let arena = &arena;
                    scope.spawn(move || {
                        let mut taken = Vec::new();
                        for i in 0..count {
                            let size = 1 + (i * 37 + worker * 11) % 300;
                            let start = arena.allocate(size).as_ptr();
                            // SAFETY: the arena gave `size` bytes to this thread alone.
                            unsafe { ptr::write_bytes(start, worker as u8, size) };
                            taken.push((start as usize, size));
                        }
                        taken
                    })
                })
                .collect();
            workers.into_iter().flat_map(|w| w.join().expect("worker")).collect()
        });
        assert_eq!(ranges.len(), 3 * count);
        ranges.sort_unstable();
        assert!(ranges.iter().all(|(start, _)| start % 8 == 0));
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }
}
