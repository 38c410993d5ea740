//! What a thread of each workload does, one loop a pattern of access.

use crate::engine::{BatchEntry, KvCursor};
use crate::generate::Permutation;
use crate::record::Kind;
use crate::runner::{SCAN_RUN, Worker};
use crate::workload::Workload;
use crate::ycsb::{Mix, Op, record_key};
use anyhow::Result;
use std::sync::atomic::Ordering;

/// Runs a worker to its end.
///
/// # Errors
/// The first failure of an operation.
pub(crate) fn run(worker: &mut Worker<'_>) -> Result<()> {
    match worker.job.workload {
        Workload::FillSeq | Workload::FillBatch => write_in_order(worker, &mut sequential()),
        Workload::FillRandom | Workload::FillSync | Workload::Overwrite => {
            write_in_order(worker, &mut random())
        }
        Workload::FillUniqueRandom => {
            let mut order = every_key_once(worker);
            write_in_order(worker, &mut order)
        }
        Workload::ReadRandom | Workload::ReadMissing | Workload::ReadWhileWriting => read_random(worker),
        Workload::MultiReadRandom => multi_read_random(worker),
        Workload::ReadSeq => scan(worker, true),
        Workload::ReadReverse => scan(worker, false),
        Workload::SeekRandom => seek_random(worker),
        Workload::ReadRandomWriteRandom => read_or_write(worker),
        Workload::DeleteRandom => delete_random(worker),
        Workload::ScanDeleted | Workload::ScanRangeDeleted => seek_to_first(worker),
        // The session's own: an engine that is being opened has no threads of its users.
        Workload::OpenKeyspaces => Ok(()),
        Workload::Flush => flush(worker),
        Workload::YcsbLoad => ycsb_load(worker),
        Workload::Ycsb(mix) => ycsb(worker, mix),
    }
}

/// The number of a worker's next key.
type Order<'o> = &'o mut dyn FnMut(&mut Worker<'_>) -> u64;

fn sequential() -> impl FnMut(&mut Worker<'_>) -> u64 {
    let mut next = 0;
    move |worker| {
        next += 1;
        (next - 1) % worker.job.config.num
    }
}

fn random() -> impl FnMut(&mut Worker<'_>) -> u64 {
    |worker| worker.rng.below(worker.job.config.num)
}

/// Keys of this thread's share, each once.
fn every_key_once(worker: &Worker<'_>) -> impl FnMut(&mut Worker<'_>) -> u64 + use<> {
    let config = worker.job.config;
    let order = Permutation::new(config.num, config.seed);
    let (mut at, step) = (worker.index, u64::from(config.threads));
    move |_| {
        let key = order.at(at);
        at += step;
        key
    }
}

fn write_in_order(worker: &mut Worker<'_>, order: Order<'_>) -> Result<()> {
    let (opts, entry_bytes) = (worker.job.write_opts(), worker.job.config.entry_bytes());
    let batch = u64::from(worker.job.batch());
    if batch > 1 {
        return write_batches(worker, order, batch);
    }
    while let Some(from) = worker.begin(1) {
        let number = order(worker);
        worker.engine.put(worker.key.set(number), worker.values.next_value(), opts)?;
        worker.finish_write(from, 1, entry_bytes);
        worker.job.live.insert(number);
    }
    Ok(())
}

fn write_batches(worker: &mut Worker<'_>, order: Order<'_>, batch: u64) -> Result<()> {
    let (opts, config) = (worker.job.write_opts(), worker.job.config);
    let (mut numbers, mut keys, mut places) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let count = worker.fitting(batch);
        let Some(from) = worker.begin(count) else { return Ok(()) };
        numbers.clear();
        keys.clear();
        places.clear();
        for _ in 0..count {
            let number = order(worker);
            numbers.push(number);
            keys.extend_from_slice(worker.key.set(number));
            places.push(worker.values.next_place());
        }
        let key_values = keys.chunks_exact(config.key_size).zip(&places);
        let entries: Vec<BatchEntry<'_>> = key_values
            .map(|(key, &place)| BatchEntry { key, value: Some(worker.values.at(place)) })
            .collect();
        worker.engine.write_batch(&entries, opts)?;
        worker.finish_write(from, count, count * config.entry_bytes());
        numbers.iter().for_each(|&number| worker.job.live.insert(number));
    }
}

fn read_random(worker: &mut Worker<'_>) -> Result<()> {
    let num = worker.job.config.num;
    while let Some(from) = worker.begin(1) {
        let number = worker.rng.below(num);
        read_one(worker, number)?;
        worker.finish(Kind::Read, from, 1);
    }
    Ok(())
}

/// Reads the key of `number` and notes what came back.
fn read_one(worker: &mut Worker<'_>, number: u64) -> Result<()> {
    let key_bytes = worker.job.config.key_size;
    let mut bytes = 0;
    let found = worker.engine.get(worker.key.set(number), &mut |value| bytes += key_bytes + value.len())?;
    worker.recorder.reads_found += u64::from(found);
    worker.recorder.user_bytes_read += bytes as u64;
    Ok(())
}

fn multi_read_random(worker: &mut Worker<'_>) -> Result<()> {
    let config = worker.job.config;
    let mut keys = Vec::new();
    loop {
        let count = worker.fitting(config.batch_size.into());
        let Some(from) = worker.begin(count) else { return Ok(()) };
        keys.clear();
        for _ in 0..count {
            let number = worker.rng.below(config.num);
            keys.extend_from_slice(worker.key.set(number));
        }
        let slices: Vec<&[u8]> = keys.chunks_exact(config.key_size).collect();
        let mut bytes = 0;
        let found = worker.engine.multi_get(&slices, &mut |value| bytes += config.key_size + value.len())?;
        worker.recorder.reads_found += found;
        worker.recorder.user_bytes_read += bytes as u64;
        worker.finish(Kind::Read, from, count);
    }
}

/// Notes the entry a cursor is on.
fn see(cursor: &dyn KvCursor, bytes: &mut usize) {
    *bytes += cursor.key().len() + cursor.value().len();
}

fn scan(worker: &mut Worker<'_>, forward: bool) -> Result<()> {
    let mut cursor = worker.engine.cursor()?;
    if forward {
        cursor.seek_to_first()?
    } else {
        cursor.seek_to_last()?
    }
    while cursor.valid() {
        let count = worker.fitting(SCAN_RUN);
        let Some(from) = worker.begin(count) else { break };
        let (mut seen, mut bytes) = (0, 0);
        while seen < count && cursor.valid() {
            see(cursor.as_ref(), &mut bytes);
            if forward {
                cursor.next()?
            } else {
                cursor.prev()?
            }
            seen += 1;
        }
        worker.recorder.reads_found += seen;
        worker.recorder.user_bytes_read += bytes as u64;
        worker.finish(Kind::Scan, from, seen);
    }
    Ok(())
}

fn seek_random(worker: &mut Worker<'_>) -> Result<()> {
    let config = worker.job.config;
    while let Some(from) = worker.begin(1) {
        let number = worker.rng.below(config.num);
        seek_and_step(worker, number, config.seek_nexts.into())?;
        worker.finish(Kind::Seek, from, 1);
    }
    Ok(())
}

/// Scans from the key of `number` on: the entry there or behind, and up to `steps` more.
fn seek_and_step(worker: &mut Worker<'_>, number: u64, steps: u64) -> Result<()> {
    let mut bytes = 0;
    let mut sink = |key: &[u8], value: &[u8]| bytes += key.len() + value.len();
    let seen = worker.engine.scan(worker.key.set(number), steps + 1, &mut sink)?;
    worker.recorder.reads_found += u64::from(seen > 0);
    worker.recorder.user_bytes_read += bytes as u64;
    Ok(())
}

/// Opens a cursor and goes to the first entry, over all that was deleted before it.
fn seek_to_first(worker: &mut Worker<'_>) -> Result<()> {
    while let Some(from) = worker.begin(1) {
        let mut bytes = 0;
        let mut cursor = worker.engine.cursor()?;
        cursor.seek_to_first()?;
        worker.recorder.reads_found += u64::from(cursor.valid());
        if cursor.valid() {
            see(cursor.as_ref(), &mut bytes);
        }
        drop(cursor);
        worker.recorder.user_bytes_read += bytes as u64;
        worker.finish(Kind::Seek, from, 1);
    }
    Ok(())
}

fn read_or_write(worker: &mut Worker<'_>) -> Result<()> {
    let (opts, config) = (worker.job.write_opts(), worker.job.config);
    while let Some(from) = worker.begin(1) {
        let number = worker.rng.below(config.num);
        if worker.rng.below(100) < config.readwritepercent.into() {
            read_one(worker, number)?;
            worker.finish(Kind::Read, from, 1);
        } else {
            worker.engine.put(worker.key.set(number), worker.values.next_value(), opts)?;
            worker.finish_write(from, 1, config.entry_bytes());
            worker.job.live.insert(number);
        }
    }
    Ok(())
}

fn delete_random(worker: &mut Worker<'_>) -> Result<()> {
    let (opts, config) = (worker.job.write_opts(), worker.job.config);
    while let Some(from) = worker.begin(1) {
        let number = worker.rng.below(config.num);
        worker.engine.delete(worker.key.set(number), opts)?;
        worker.finish_write(from, 1, config.key_size as u64);
        worker.job.live.remove(number);
    }
    Ok(())
}

fn flush(worker: &mut Worker<'_>) -> Result<()> {
    while let Some(from) = worker.begin(1) {
        worker.engine.flush()?;
        worker.finish(Kind::Write, from, 1);
    }
    Ok(())
}

/// The writer of `readwhilewriting`: overwrites random keys for as long as others read.
///
/// # Errors
/// A write failed.
pub(crate) fn write_beside(worker: &mut Worker<'_>) -> Result<()> {
    let (opts, config) = (worker.job.write_opts(), worker.job.config);
    while worker.others_run() {
        let Some(from) = worker.begin(1) else { break };
        let number = worker.rng.below(config.num);
        worker.engine.put(worker.key.set(number), worker.values.next_value(), opts)?;
        worker.finish_write(from, 1, config.entry_bytes());
        worker.job.live.insert(number);
    }
    Ok(())
}

fn ycsb_load(worker: &mut Worker<'_>) -> Result<()> {
    let (opts, config, records) = (worker.job.write_opts(), worker.job.config, &worker.job.live.records);
    while let Some(from) = worker.begin(1) {
        let record = records.fetch_add(1, Ordering::Relaxed);
        worker.engine.put(worker.key.set(record_key(record)), worker.values.next_value(), opts)?;
        worker.finish_write(from, 1, config.entry_bytes());
    }
    Ok(())
}

fn ycsb(worker: &mut Worker<'_>, mix: Mix) -> Result<()> {
    let (opts, config, records) = (worker.job.write_opts(), worker.job.config, &worker.job.live.records);
    let chooser = worker.shared.chooser.as_ref().expect("the runner makes one for every mix");
    let entry_bytes = config.entry_bytes();
    while let Some(from) = worker.begin(1) {
        let op = mix.op(worker.rng.unit());
        if op == Op::Insert {
            let record = records.fetch_add(1, Ordering::Relaxed);
            worker.engine.put(worker.key.set(record_key(record)), worker.values.next_value(), opts)?;
            worker.finish_write(from, 1, entry_bytes);
            continue;
        }
        // The newest records, one a thread, may not be written yet.
        let existing = records.load(Ordering::Relaxed).saturating_sub(config.threads.into()).max(1);
        let number = record_key(chooser.record(&mut worker.rng, existing));
        match op {
            Op::Read => {
                read_one(worker, number)?;
                worker.finish(Kind::Read, from, 1);
            }
            Op::Scan => {
                let length = 1 + worker.rng.below(config.scan_length);
                seek_and_step(worker, number, length - 1)?;
                worker.finish(Kind::Scan, from, 1);
            }
            Op::ReadModifyWrite => {
                read_one(worker, number)?;
                let read_end = worker.note_read(from);
                worker.engine.put(worker.key.set(number), worker.values.next_value(), opts)?;
                let end = worker.note_write(read_end, 1, entry_bytes);
                worker.completed_part(end);
            }
            Op::Update | Op::Insert => {
                worker.engine.put(worker.key.set(number), worker.values.next_value(), opts)?;
                worker.finish_write(from, 1, entry_bytes);
            }
        }
    }
    Ok(())
}
