//! The log as a whole: its chain of segments, what of it is durable, and when a segment may go.
//!
//! ```text
//!  spare ◄── retired ◄── closed, oldest first ◄── current ◄── append (leader only)
//!    └────────────── renamed and overwritten ────────▲
//! ```
//! Invariants:
//! - A synced write is acknowledged only after every earlier segment is synced, then its own, then
//!   the directory that names it (rule 17).
//! - A segment goes only when the durable manifest says that replay begins with a later one, which
//!   it says when each part that the segment holds is below the durable floor of the tree it went
//!   into, or that tree is gone (rule 12). So each segment knows the trees with parts in it, and of
//!   each the highest sequence; a tree that is not written holds no segment.
//! - Only segments of this opening are recycled (rule 18). A recycled file gets its new header
//!   before its new name: under the old name nobody looks at it any more.
//! - After a failed append the segment is closed, and the next one's header says where it validly
//!   ends; the sequence numbers of the failed group are burnt.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use dialsm_io::{File, Fs};
use parking_lot::Mutex;

use crate::engine::Engine;
use crate::events::LogRotated;
use crate::filename::FileName;
use crate::gate::Gate;
use crate::metrics::Counter;
use crate::tree::Tree;
use crate::types::{DbId, FileNumber, SeqNo, TreeId};
use crate::wal::format::{LogPosition, PrevEnd};
use crate::wal::writer::SegmentWriter;
use crate::{Error, ErrorKind, Result};

/// The first sequence of each tree that is not in its settled tables.
pub(crate) type Floors = BTreeMap<TreeId, SeqNo>;

/// The trees with entries in a segment and the highest sequence of each, by id.
pub(crate) type Parts = Vec<(TreeId, SeqNo)>;

/// Notes that a group up to `last` has entries of `tree`.
pub(crate) fn note_part(parts: &mut Parts, tree: TreeId, last: SeqNo) {
    match parts.binary_search_by_key(&tree, |(id, _)| *id) {
        Ok(at) => parts[at].1 = last,
        Err(at) => parts.insert(at, (tree, last)),
    }
}

struct Segment {
    number: FileNumber,
    file: Arc<dyn File>,
    path: PathBuf,
    /// Where its last good record ends.
    end: u64,
    /// Up to where it is durable.
    synced: u64,
    /// Its last record's last sequence number; 0 if it has none.
    last_seqno: SeqNo,
    parts: Parts,
    /// Written by this opening, so that it may be recycled.
    ours: bool,
}

#[derive(Default)]
struct Segments {
    /// Oldest first; the last one is the current one, if the writer has one open.
    chain: VecDeque<Segment>,
    /// Retired files, oldest first. The oldest is reused first, so that of what was retired a front
    /// is gone: recovery could tell a hole in the middle from a torn log only by luck.
    spare: VecDeque<(Arc<dyn File>, PathBuf)>,
    /// Names made so far, and how many of them are durable.
    names_made: u64,
    names_synced: u64,
    /// Copies being made of segments: nothing is recycled meanwhile.
    pins: usize,
    synced: LogPosition,
    /// Up to this sequence all that was logged is durable.
    synced_seqno: SeqNo,
    /// Set by a failed sync: what the log holds unsynced is in doubt from then on, and a sync that
    /// succeeds afterwards proves nothing.
    sync_failure: Option<Error>,
}

/// The shared side of the log: what may be synced and retired while the leader appends.
pub(crate) struct Log {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    db_id: DbId,
    /// No segment of this opening has a lower number, and those found that do are in the chain or
    /// not wanted.
    first_own: FileNumber,
    segment_bytes: AtomicU64,
    total_bytes_max: AtomicU64,
    over_bound: AtomicBool,
    spare_max: AtomicUsize,
    syncing: Gate,
    segments: Mutex<Segments>,
}

/// A segment found at open.
pub(crate) struct OldSegment {
    pub(crate) number: FileNumber,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) end: u64,
    pub(crate) parts: Parts,
}

impl Log {
    pub(crate) fn new(
        env: &dyn dialsm_io::Env,
        dir: PathBuf,
        db_id: DbId,
        first_own: FileNumber,
        segment_bytes: u64,
        total_bytes_max: u64,
        spare_max: usize,
    ) -> Log {
        Log {
            fs: env.fs().clone(),
            dir,
            db_id,
            first_own,
            segment_bytes: AtomicU64::new(segment_bytes),
            total_bytes_max: AtomicU64::new(total_bytes_max),
            over_bound: AtomicBool::new(false),
            spare_max: AtomicUsize::new(spare_max),
            syncing: Gate::new(env),
            segments: Mutex::new(Segments::default()),
        }
    }

    /// Changes the bounds. The current segment keeps its size, closed ones and spare ones go by the
    /// new bounds from now on.
    pub(crate) fn set_bounds(&self, segment_bytes: u64, total_bytes_max: u64, spare_max: usize) {
        self.segment_bytes.store(segment_bytes, Ordering::Relaxed);
        self.total_bytes_max.store(total_bytes_max, Ordering::Relaxed);
        self.spare_max.store(spare_max, Ordering::Relaxed);
        let mut segments = self.segments.lock();
        self.note_size(&segments);
        let surplus = segments.spare.len().saturating_sub(spare_max);
        let unlink: Vec<_> = segments.spare.drain(..surplus).collect();
        drop(segments);
        for (_, path) in unlink {
            let _ = self.fs.unlink(&path);
        }
    }

    /// Takes over the segments that were replayed; they are synced.
    pub(crate) fn adopt(&self, old: Vec<OldSegment>) {
        let mut segments = self.segments.lock();
        if let Some(last) = old.last() {
            segments.synced = LogPosition { segment: last.number, offset: last.end };
        }
        segments.chain = old
            .into_iter()
            .map(|s| Segment {
                number: s.number,
                file: s.file,
                path: s.path,
                end: s.end,
                synced: s.end,
                last_seqno: s.parts.iter().map(|(_, last)| *last).max().unwrap_or(0),
                parts: s.parts,
                ours: false,
            })
            .collect();
        segments.synced_seqno = segments.chain.iter().map(|s| s.last_seqno).max().unwrap_or(0);
    }

    /// The numbers of the segments in the chain.
    pub(crate) fn numbers(&self) -> Vec<FileNumber> {
        self.segments.lock().chain.iter().map(|s| s.number).collect()
    }

    /// Makes durable all that was appended before the call.
    ///
    /// # Errors
    /// Those of the file system. After one the log's unsynced end is not to be trusted: the caller
    /// stops the database, and every later call is `Poisoned`.
    pub(crate) fn sync(&self) -> Result<()> {
        let _only_one = self.syncing.enter();
        if let Some(error) = &self.segments.lock().sync_failure {
            return Err(error.clone());
        }
        self.sync_chain().inspect_err(|error| self.note_failed_sync(error))
    }

    fn note_failed_sync(&self, error: &Error) {
        let text = format!("an earlier sync of the log failed: {}", error.message());
        self.segments.lock().sync_failure = Some(Error::new(ErrorKind::Poisoned, text));
    }

    /// Whether all that was logged up to `seqno` is durable already.
    pub(crate) fn is_synced_through(&self, seqno: SeqNo) -> bool {
        self.segments.lock().synced_seqno >= seqno
    }

    fn sync_chain(&self) -> Result<()> {
        let (todo, names, dir, last) = {
            let segments = self.segments.lock();
            let last = segments.chain.iter().map(|s| s.last_seqno).max().unwrap_or(0);
            let todo: Vec<_> = segments
                .chain
                .iter()
                .filter(|s| s.synced < s.end)
                .map(|s| (s.number, s.file.clone(), s.end))
                .collect();
            (todo, segments.names_made, segments.names_synced < segments.names_made, last)
        };
        for (_, file, _) in &todo {
            file.sync_data()?;
        }
        if dir {
            self.fs.sync_dir(&self.dir)?;
        }
        let mut segments = self.segments.lock();
        segments.names_synced = segments.names_synced.max(names);
        for (number, _, end) in todo {
            if let Some(segment) = segments.chain.iter_mut().find(|s| s.number == number) {
                segment.synced = segment.synced.max(end);
            }
            let position = LogPosition { segment: number, offset: end };
            segments.synced = segments.synced.max(position);
        }
        segments.synced_seqno = segments.synced_seqno.max(last);
        Ok(())
    }

    /// The newest segment.
    pub(crate) fn newest(&self) -> Option<FileNumber> {
        self.segments.lock().chain.back().map(|s| s.number)
    }

    /// Makes the segments' names durable, whatever of their bytes is; returns the newest of them.
    ///
    /// # Errors
    /// As [`Log::sync`], which fails after a failure here, too: the names are not to be trusted.
    pub(crate) fn sync_names(&self) -> Result<Option<FileNumber>> {
        let (newest, names) = {
            let segments = self.segments.lock();
            if let Some(error) = &segments.sync_failure {
                return Err(error.clone());
            }
            let newest = segments.chain.back().map(|s| s.number);
            if segments.names_synced >= segments.names_made {
                return Ok(newest);
            }
            (newest, segments.names_made)
        };
        self.fs.sync_dir(&self.dir).inspect_err(|error| {
            if !error.is_out_of_descriptors() {
                self.note_failed_sync(error);
            }
        })?;
        let mut segments = self.segments.lock();
        segments.names_synced = segments.names_synced.max(names);
        Ok(newest)
    }

    /// Lets go of the segments before the one that replay begins with by the word of the durable
    /// manifest. What the floor would allow beyond that (a segment may have got a successor since
    /// the word was written) waits for the next word: until then a power cut would have it replayed,
    /// so it must be synced with the others.
    pub(crate) fn retire_before(&self, replay_start: FileNumber) {
        let mut unlink = Vec::new();
        {
            let spare_max = self.spare_max.load(Ordering::Relaxed);
            let mut segments = self.segments.lock();
            while segments.chain.len() > 1 && segments.chain[0].number < replay_start {
                let segment = segments.chain.pop_front().expect("the length was just checked");
                if segments.pins > 0 {
                    // Older ones first, so that of what was retired a front is gone.
                    unlink.extend(segments.spare.drain(..).map(|(_, path)| path));
                }
                if !segment.ours || spare_max == 0 || segments.pins > 0 {
                    unlink.push(segment.path);
                    continue;
                }
                segments.spare.push_back((segment.file, segment.path));
                if segments.spare.len() > spare_max {
                    unlink.extend(segments.spare.pop_front().map(|(_, path)| path));
                }
            }
            self.note_size(&segments);
        }
        for path in unlink {
            // A file that stays is found as an orphan by the next opening.
            let _ = self.fs.unlink(&path);
        }
    }

    /// The segments from `first` on, as far as they are written now; what is retired while the pin is
    /// held is unlinked, and never overwritten.
    pub(crate) fn pin(&self, first: FileNumber) -> LogPin<'_> {
        let mut state = self.segments.lock();
        state.pins += 1;
        let wanted = state.chain.iter().filter(|s| s.number >= first);
        let segments =
            wanted.map(|s| PinnedSegment { number: s.number, file: s.file.clone(), end: s.end }).collect();
        LogPin { log: self, segments }
    }

    /// The oldest segment that recovery would need with the trees' floors at `floors`. While there is
    /// none, none that an earlier opening left is: not the next file number, which a segment that
    /// is just being opened may have got already.
    pub(crate) fn first_needed(&self, floors: &Floors) -> FileNumber {
        let segments = self.segments.lock();
        let last = segments.chain.len().saturating_sub(1);
        let is_needed = |(id, last): &(TreeId, SeqNo)| floors.get(id).is_some_and(|floor| *last >= *floor);
        let needed =
            segments.chain.iter().enumerate().find(|(i, s)| *i == last || s.parts.iter().any(is_needed));
        needed.map_or(self.first_own, |(_, s)| s.number)
    }

    /// The trees with entries in the oldest segment, which is what keeps the log long, unless it is
    /// the only one.
    pub(crate) fn oldest_parts(&self) -> Parts {
        let segments = self.segments.lock();
        if segments.chain.len() < 2 { Parts::new() } else { segments.chain[0].parts.clone() }
    }

    /// Bytes in all segments, and how many there are, spare ones left out.
    pub(crate) fn size(&self) -> (u64, usize) {
        let segments = self.segments.lock();
        (segments.chain.iter().map(|s| s.end).sum(), segments.chain.len())
    }

    /// Cuts off the current segment, which is closed, behind its last good record: a record that
    /// failed but got there all the same must not come to life at the next opening, and on a full
    /// disk the space that it took, or that was set aside, is what others need now.
    fn cut_back(&self) {
        let current = self.segments.lock().chain.back().map(|s| (s.file.clone(), s.end));
        if let Some((file, end)) = current {
            // Where it fails, the next segment's header still says where this one ends.
            let _ = file.set_len(end);
        }
    }

    /// Whether the log has outgrown its bound, so that the memtables that pin it should be flushed.
    #[inline]
    pub(crate) fn is_over_bound(&self) -> bool {
        self.over_bound.load(Ordering::Relaxed)
    }

    /// Looks whether the segments, the current one left out, have outgrown the bound.
    fn note_size(&self, segments: &Segments) {
        let closed = segments.chain.len().saturating_sub(1);
        let bytes: u64 = segments.chain.iter().take(closed).map(|s| s.end).sum();
        let bound = self.total_bytes_max.load(Ordering::Relaxed);
        self.over_bound.store(bytes > bound, Ordering::Relaxed);
    }

    /// Unlinks what was kept for recycling.
    pub(crate) fn drop_spares(&self) {
        // Not in the head of the loop, where the lock would be held over the calls.
        let spare = std::mem::take(&mut self.segments.lock().spare);
        for (_, path) in spare {
            let _ = self.fs.unlink(&path);
        }
    }
}

/// A segment to be copied: its first `end` bytes do not change any more.
pub(crate) struct PinnedSegment {
    pub(crate) number: FileNumber,
    pub(crate) file: Arc<dyn File>,
    pub(crate) end: u64,
}

/// Keeps the bytes of segments until it is dropped.
pub(crate) struct LogPin<'a> {
    log: &'a Log,
    /// Oldest first.
    pub(crate) segments: Vec<PinnedSegment>,
}

impl Drop for LogPin<'_> {
    fn drop(&mut self) {
        self.log.segments.lock().pins -= 1;
    }
}

/// The leader's side of the log.
#[derive(Default)]
pub(crate) struct LogWriter {
    current: Option<SegmentWriter>,
}

impl LogWriter {
    /// Appends one record for a whole group: `count` operations from `first_seqno` on, for `trees`.
    ///
    /// # Errors
    /// Those of the file system. The group does not count then; once another segment follows, which
    /// says where this one ends, it never will.
    pub(crate) fn append(
        &mut self,
        engine: &Engine,
        first_seqno: SeqNo,
        count: u32,
        parts: &[&[u8]],
        trees: &[Arc<Tree>],
    ) -> Result<()> {
        let log = &engine.log;
        if self
            .current
            .as_ref()
            .is_none_or(|current| current.size() >= log.segment_bytes.load(Ordering::Relaxed))
        {
            self.current = None;
            self.current = Some(roll(engine, first_seqno)?);
            engine.handoff.wake.notify();
        }
        let writer = self.current.as_mut().expect("a segment was just opened");
        let synced = log.segments.lock().synced;
        let before = writer.written_bytes();
        let appended = writer.append(first_seqno, count, parts, synced);
        engine.metrics.add(Counter::LogBytes, writer.written_bytes() - before);
        match appended {
            Ok(end) => {
                let mut segments = log.segments.lock();
                let current = segments.chain.back_mut().expect("the writer's segment is in the chain");
                current.end = end.offset;
                let last = first_seqno + u64::from(count) - 1;
                current.last_seqno = last;
                trees.iter().for_each(|tree| note_part(&mut current.parts, tree.id, last));
                Ok(())
            }
            Err(error) => {
                self.current = None;
                log.cut_back();
                if !error.is_passing() {
                    engine.error.latch("a log write", &error);
                }
                Err(error)
            }
        }
    }

    /// Makes durable all that was appended.
    ///
    /// # Errors
    /// Those of the file system; the database takes no more writes then.
    pub(crate) fn sync(&mut self, engine: &Engine) -> Result<()> {
        let result = sync(engine);
        if let Err(error) = &result {
            self.current = None;
            engine.error.latch_lasting("a log sync", error);
        }
        result
    }
}

/// [`Log::sync`], counted.
///
/// # Errors
/// Those of it.
pub(crate) fn sync(engine: &Engine) -> Result<()> {
    let started = engine.env.now();
    let result = engine.log.sync();
    engine.metrics.add_log_sync(engine.env.now() - started);
    result
}

/// Opens the next segment, on a spare file where there is one.
fn roll(engine: &Engine, first_seqno: SeqNo) -> Result<SegmentWriter> {
    let log = &engine.log;
    let number = engine.new_file_number();
    let path = FileName::Log(number).path(&log.dir);
    let (prev, spare) = {
        let mut segments = log.segments.lock();
        let prev = segments.chain.back().map(|s| {
            let position = LogPosition { segment: s.number, offset: s.end };
            PrevEnd { position, synced: segments.synced >= position }
        });
        (prev, segments.spare.pop_front())
    };
    let is_recycled = spare.is_some();
    let writer = match spare {
        Some((file, old_path)) => {
            let writer = SegmentWriter::create(file, &log.db_id, number, prev, first_seqno)?;
            log.fs.rename(&old_path, &path)?;
            writer
        }
        None => {
            let file = log.fs.create(&path)?;
            let opened = file
                .allocate(0, log.segment_bytes.load(Ordering::Relaxed))
                .and_then(|()| SegmentWriter::create(file, &log.db_id, number, prev, first_seqno));
            if opened.is_err() {
                let _ = log.fs.unlink(&path);
            }
            opened?
        }
    };
    engine.metrics.add_all(&[(Counter::LogSegments, 1), (Counter::LogBytes, writer.written_bytes())]);
    let mut segments = log.segments.lock();
    segments.names_made += 1;
    segments.chain.push_back(Segment {
        number,
        file: writer.file().clone(),
        path,
        end: writer.size(),
        synced: 0,
        last_seqno: 0,
        parts: Parts::new(),
        ours: true,
    });
    log.note_size(&segments);
    drop(segments);
    engine.events.emit(|| LogRotated { number: number.0, is_recycled, first_seqno }.into());
    Ok(writer)
}
