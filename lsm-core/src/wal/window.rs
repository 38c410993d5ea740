//! A bounded window over a file that is read from front to back, shared by the readers of the log
//! and of the manifest.
//!
//! Nothing is allocated for a length that a file merely claims: callers check it against
//! [`Window::file_bytes`] and verify long stretches with [`Window::extend_crc`], which keeps to
//! the window, before they ask for them in one piece.

use std::path::Path;
use std::sync::Arc;

use dialsm_io::File;

use crate::{Error, Result, checksum};

/// Bytes read at once.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// The window.
pub(crate) struct Window {
    file: Arc<dyn File>,
    file_bytes: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// A window over the file as long as it is now.
    pub(crate) fn new(file: Arc<dyn File>) -> Result<Window> {
        let file_bytes = file.len()?;
        Ok(Window { file, file_bytes, start: 0, bytes: Vec::new() })
    }

    /// The file's length when the window was made.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The file's name.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// The bytes at `offset..offset + want`, fewer where the file ends.
    pub(crate) fn view(&mut self, offset: u64, want: usize) -> Result<&[u8]> {
        let want = (want as u64).min(self.file_bytes.saturating_sub(offset)) as usize;
        if want == 0 {
            return Ok(&[]);
        }
        let inside = offset >= self.start && offset + want as u64 <= self.start + self.bytes.len() as u64;
        if !inside {
            self.refill(offset, want)?;
        }
        let at = (offset.max(self.start) - self.start) as usize;
        let end = (at + want).min(self.bytes.len());
        Ok(self.bytes.get(at..end).unwrap_or_default())
    }

    fn refill(&mut self, offset: u64, want: usize) -> Result<()> {
        let room = (self.file_bytes - offset).min(want.max(CHUNK_BYTES) as u64) as usize;
        // On an error the window is empty rather than wrong.
        self.bytes.clear();
        if self.bytes.capacity() > room.max(CHUNK_BYTES) {
            self.bytes.shrink_to(room.max(CHUNK_BYTES));
        }
        self.start = offset;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(room, 0);
        let got = self.file.read_at(&mut bytes, offset)?;
        bytes.truncate(got);
        self.bytes = bytes;
        Ok(())
    }

    /// Extends a CRC32C over `offset..offset + bytes`; `None` if the file ends before.
    pub(crate) fn extend_crc(&mut self, mut crc: u32, offset: u64, bytes: u64) -> Result<Option<u32>> {
        let mut at = offset;
        let end = offset + bytes;
        while at < end {
            let piece = self.view(at, (end - at).min(CHUNK_BYTES as u64) as usize)?;
            if piece.is_empty() {
                return Ok(None);
            }
            crc = checksum::extend(crc, piece);
            at += piece.len() as u64;
        }
        Ok(Some(crc))
    }

    /// The bytes at `offset..offset + want`, all of them.
    pub(crate) fn exact(&mut self, offset: u64, want: usize) -> Result<&[u8]> {
        if self.view(offset, want)?.len() < want {
            return Err(self.shrunk(offset));
        }
        self.view(offset, want)
    }

    fn shrunk(&self, offset: u64) -> Error {
        let text = "the file became shorter while it was read";
        Error::corruption(text).at_offset(offset).at_path(self.path())
    }

    /// Fills `out` from `offset` on, past the window.
    pub(crate) fn read_past(&self, out: &mut [u8], offset: u64) -> Result<()> {
        if self.file.read_at(out, offset)? < out.len() {
            return Err(self.shrunk(offset));
        }
        Ok(())
    }
}
