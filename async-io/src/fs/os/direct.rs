//! Transfers past the page cache: which handles make them, and how one that is not aligned is made all
//! the same.
//!
//! ```text
//!   aligned      address, offset, length  --> as it is
//!   other read   [blocks around it] --> buffer --> the part asked for
//!   other write  first and last block --> buffer, bytes put in --> [blocks] --> cut to length
//! ```
//!
//! INVARIANT: an unaligned write is alone among the writes by calls of this handle, for it writes
//! back what it read around its bytes, and may pass the file's end for a moment. Upheld by the
//! lock; attacked by `unaligned_writes_keep_their_neighbours`. Writes of a ring know nothing of
//! the lock: who mixes the two keeps them apart (a stream makes no unaligned ones).

use std::fs::File as StdFile;
use std::io;
use std::os::unix::fs::FileExt;

use parking_lot::RwLock;
use rustix::fs::{AtFlags, OFlags, StatxFlags};

use super::{OsFile, retry};
use crate::error::Result;
use crate::ring::{BUF_ALIGN, Buf, is_aligned};

/// Bytes of the buffer at most.
const BOUNCE_BYTES: usize = 256 << 10;

/// Makes the handle go past the page cache; returns whether it does now.
pub(super) fn make_direct(file: &StdFile) -> bool {
    // Kernels since 6.1 say what the file takes; of older ones, and where this fails, nothing is known.
    if let Ok(stat) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        let (offset, memory) = (stat.stx_dio_offset_align as usize, stat.stx_dio_mem_align as usize);
        let is_known = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        if is_known && (offset == 0 || offset > BUF_ALIGN || memory > BUF_ALIGN) {
            return false;
        }
    }
    // Set afterwards: an open with the flag that is refused may have made the file.
    let flags = rustix::fs::fcntl_getfl(file);
    flags.and_then(|flags| rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)).is_ok()
}

fn no_progress() -> io::Error {
    io::Error::other("a transfer past the page cache made no progress")
}

/// Whole blocks that hold `len` bytes from `offset` on, no more of them than the buffer has: where they
/// begin, bytes before the first one, and bytes of the range.
fn window(offset: u64, len: usize) -> (u64, usize, usize) {
    let skip = (offset % BUF_ALIGN as u64) as usize;
    (offset - skip as u64, skip, len.min(BOUNCE_BYTES - skip))
}

impl OsFile {
    pub(super) fn read_direct(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let rest = &mut buf[done..];
            let read = if is_aligned(rest, at) {
                retry(|| self.file.read_at(rest, at))
            } else {
                self.read_around(rest, at)
            };
            match read {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) => return Err(self.failed(&e, "read").at_offset(at)),
            }
        }
        Ok(done)
    }

    /// Reads some bytes by way of a buffer; 0 at the file's end only.
    fn read_around(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let (at, skip, len) = window(offset, into.len());
        let mut blocks = Buf::zeroed((skip + len).next_multiple_of(BUF_ALIGN));
        let n = retry(|| self.file.read_at(&mut blocks, at))?;
        let got = n.saturating_sub(skip).min(len);
        // Less than a block may come back where the file goes on only if the device failed midway.
        if got == 0 && retry(|| self.file.metadata())?.len() > offset {
            return Err(no_progress());
        }
        into[..got].copy_from_slice(&blocks[skip..skip + got]);
        Ok(got)
    }

    pub(super) fn write_direct(&self, lock: &RwLock<()>, buf: &[u8], offset: u64) -> Result<()> {
        let failed = |e, at| self.failed(&e, "write").at_offset(at);
        if is_aligned(buf, offset) {
            let _shared = lock.read();
            return self.write_blocks(buf, offset).map_err(|e| failed(e, offset));
        }
        let _alone = lock.write();
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            done += self.write_around(&buf[done..], at).map_err(|e| failed(e, at))?;
        }
        Ok(())
    }

    /// Writes some bytes by way of a buffer that has what lies around them.
    fn write_around(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let (at, skip, len) = window(offset, bytes.len());
        let mut blocks = Buf::zeroed((skip + len).next_multiple_of(BUF_ALIGN));
        let file_len = retry(|| self.file.metadata())?.len();
        let last = blocks.len() - BUF_ALIGN;
        // What ends early is followed by zeros, as the file would be.
        if skip > 0 || len < BUF_ALIGN {
            self.read_block(&mut blocks[..BUF_ALIGN], at, file_len)?;
        }
        if last > 0 && !(skip + len).is_multiple_of(BUF_ALIGN) {
            self.read_block(&mut blocks[last..], at.saturating_add(last as u64), file_len)?;
        }
        blocks[skip..skip + len].copy_from_slice(&bytes[..len]);
        self.write_blocks(&blocks, at)?;
        let end = file_len.max(offset.saturating_add(len as u64));
        if at.saturating_add(blocks.len() as u64) > end {
            self.file.set_len(end)?;
        }
        Ok(len)
    }

    /// Fills a block with what the file has of it.
    fn read_block(&self, block: &mut [u8], at: u64, file_len: u64) -> io::Result<()> {
        let wanted = file_len.saturating_sub(at).min(block.len() as u64) as usize;
        let n = if wanted > 0 { retry(|| self.file.read_at(block, at))? } else { 0 };
        if n < wanted { Err(no_progress()) } else { Ok(()) }
    }

    /// Writes whole blocks. What the kernel leaves of a transfer begins at a block of the device.
    fn write_blocks(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < blocks.len() {
            match retry(|| self.file.write_at(&blocks[done..], offset.saturating_add(done as u64)))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        Ok(())
    }
}
