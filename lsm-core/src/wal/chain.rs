//! Which of the segments found in a directory make up the log, and in what order.
//!
//! Each segment names the one before, so the chain is followed from the newest one back:
//!
//! ```text
//! found    7    9    12   15        7 <- 12 <- 15, since 15 names 12 and 12 names 7.
//! log      7         12   15        9 was dropped with a torn tail by an earlier opening, whose
//!                                   first segment, 12, continued from 7.
//! ```
//! A segment that is named but not there, or whose front can't be read, is a hole. Below a hole
//! the chain goes on at the next older readable segment: if that one had been dropped before, the
//! damage that it was dropped for is still there and stops the replay again. Unreadable segments
//! newer than all readable ones are holes at the end (creation cut short by a crash); empty files
//! there are nothing at all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialsm_io::fs::Access;
use dialsm_io::{File, Fs};

use super::format::SegmentStart;
use super::reader::{Front, SegmentReader};
use crate::filename::FileName;
use crate::types::{DbId, FileNumber};
use crate::{ErrorKind, Result};

/// One segment of the chain.
pub(crate) struct Link {
    pub(crate) number: FileNumber,
    pub(crate) path: PathBuf,
    pub(crate) state: LinkState,
}

/// What is there of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Its start record, and the position of the first record after it.
    Readable(SegmentStart, u64),
    /// The file is there, its front is not; why.
    Unreadable(&'static str),
    /// There is no such file.
    Missing,
    /// A file without bytes.
    Empty,
}

impl Link {
    /// Opens the segment, unless it is missing.
    pub(crate) fn open(&self, fs: &dyn Fs, db_id: &DbId) -> Result<Option<SegmentReader>> {
        match open_file(fs, &self.path)? {
            Some(file) => SegmentReader::for_replay(file, db_id, self.number).map(Some),
            None => Ok(None),
        }
    }
}

fn open_file(fs: &dyn Fs, path: &Path) -> Result<Option<Arc<dyn File>>> {
    match fs.open(path, Access::Read) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The chain from the oldest segment at or above `start` to the newest.
pub(crate) fn build(
    fs: &dyn Fs,
    dir: &Path,
    segments: &[(FileNumber, PathBuf)],
    db_id: &DbId,
    start: FileNumber,
) -> Result<Vec<Link>> {
    // Newest first: `found` is consumed from its front while the chain goes back.
    let mut found = Vec::with_capacity(segments.len());
    for (number, path) in segments.iter().filter(|(number, _)| *number >= start) {
        found.push(look_at(fs, *number, path, db_id)?);
    }
    found.sort_by_key(|link| std::cmp::Reverse(link.number));
    found.dedup_by_key(|link| link.number);

    let readable = |link: &Link| matches!(link.state, LinkState::Readable(..));
    let newest = found.iter().position(readable).unwrap_or(found.len());
    let older = found.split_off(newest);
    let mut chain: Vec<Link> = found.into_iter().filter(|link| link.state != LinkState::Empty).collect();
    let mut named = older.first().map(|link| link.number);
    let mut older = older.into_iter().peekable();
    while let Some(number) = named {
        while older.next_if(|link| link.number > number).is_some() {}
        let link = older.next_if(|link| link.number == number).unwrap_or_else(|| Link {
            number,
            path: FileName::Log(number).path(dir),
            state: LinkState::Missing,
        });
        named = match link.state {
            LinkState::Readable(front, _) => {
                front.previous.map(|p| p.position.segment).filter(|segment| *segment >= start)
            }
            _ => {
                while older.next_if(|link| !readable(link)).is_some() {}
                older.peek().map(|link| link.number)
            }
        };
        chain.push(link);
    }
    chain.reverse();
    Ok(chain)
}

fn look_at(fs: &dyn Fs, number: FileNumber, path: &Path, db_id: &DbId) -> Result<Link> {
    let state = match open_file(fs, path)? {
        None => LinkState::Missing,
        Some(file) => {
            let mut reader = SegmentReader::for_replay(file, db_id, number)?;
            match reader.front(db_id)? {
                Front::Start(start, content) => LinkState::Readable(start, content),
                Front::Unreadable(_) if reader.file_bytes() == 0 => LinkState::Empty,
                Front::Unreadable(reason) => LinkState::Unreadable(reason),
            }
        }
    };
    Ok(Link { number, path: path.to_path_buf(), state })
}
