//! Replaying the log: what was acknowledged and is in no table comes back into the memtable.
//!
//! Entries below the tree's floor are in tables and are skipped, part by part (rule 12). A memtable
//! that fills up on the way is flushed at once, so that a long log needs no more memory than
//! running did. What was replayed is synced, and a torn end is cut off, before anything new is
//! written (rule 18). An opening for reading only does none of the three.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dialsm_io::fs::Access;

use crate::batch::OpIter;
use crate::engine::Engine;
use crate::filename::FileName;
use crate::types::{FileNumber, SeqNo};
use crate::wal::log::OldSegment;
use crate::wal::replay::{Record, replay as replay_log};
use crate::{Error, Result, flush};

/// Replays all segments that the manifest needs into the engine's tree.
///
/// # Errors
/// `Corruption` as the recovery mode says, those of the files, and those of a flush on the way.
pub(crate) fn replay(engine: &Arc<Engine>) -> Result<()> {
    let fs = engine.env.fs();
    let from = engine.replay_start;
    let mut segments = Vec::new();
    for name in fs.list(&engine.dir)? {
        if let Some(FileName::Log(number)) = FileName::parse(&name)
            && number >= from
        {
            segments.push((number, engine.dir.join(&name)));
        }
    }
    segments.sort();
    let mut last_in: Vec<(FileNumber, SeqNo)> = Vec::new();
    let mode = engine.options.load().recovery_mode;
    let end =
        replay_log(fs.as_ref(), &engine.dir, &segments, &engine.db_id, mode, from, &mut |record: Record<
            '_,
        >| {
            let last = record.first_seqno + u64::from(record.count) - 1;
            match last_in.last_mut() {
                Some((segment, seqno)) if *segment == record.segment => *seqno = last,
                _ => last_in.push((record.segment, last)),
            }
            apply(engine, &record, last)
        })?;
    if let Some(torn) = &end.torn
        && engine.first_record_torn
        && end.records == 0
        && !fs.exists(&torn.path)?
    {
        // Before that record was begun the segments' names were made durable (a torn mark, behind a
        // later record, says nothing of the kind): the front of the log was let go of, so the record
        // had been settled.
        let text = "the manifest's first record is damaged, and the log it was settled for is gone";
        return Err(Error::corruption(text).at_path(&torn.path).at_offset(0));
    }
    engine.commit.restart_at(engine.commit.visible().load(Ordering::Acquire));
    if engine.read_only {
        return Ok(());
    }
    let mut old = Vec::new();
    for (number, path) in segments {
        let Some(last) = end.end.filter(|last| number <= last.segment) else { continue };
        let file = fs.open(&path, Access::ReadWrite)?;
        let mut valid_end = file.len()?;
        if number == last.segment && valid_end > last.offset {
            file.set_len(last.offset)?;
            valid_end = last.offset;
        }
        file.sync_data()?;
        let last_seqno = last_in.iter().find(|(segment, _)| *segment == number).map_or(0, |(_, last)| *last);
        old.push(OldSegment { number, path, file, end: valid_end, last_seqno });
    }
    engine.log.adopt(old);
    Ok(())
}

fn apply(engine: &Arc<Engine>, record: &Record<'_>, last: SeqNo) -> Result<()> {
    let tree = &engine.tree;
    let floor = tree.lock().durable_floor;
    let buffer = tree.view().active.clone();
    for (seqno, op) in (record.first_seqno..).zip(OpIter::new(record.payload)) {
        let op = op?;
        if seqno >= floor {
            buffer.table.insert(op.key, seqno, op.kind, op.value);
        }
    }
    engine.commit.visible().fetch_max(last, Ordering::AcqRel);
    if !engine.read_only && buffer.table.bytes_used() as u64 >= engine.options.write_buffer_bytes() {
        let mut state = tree.lock();
        tree.switch(&mut state, last);
        drop(state);
        flush::run(engine, tree, &buffer)?.sync(engine)?;
    }
    Ok(())
}
