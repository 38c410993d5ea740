//! The engine that does nothing: what it shows is the harness's own cost.

use crate::engine::{BatchEntry, EngineStats, KvCursor, KvEngine, Pending, WriteOpts};
use anyhow::Result;
use std::hint::black_box;

pub(crate) struct NullEngine;

impl KvEngine for NullEngine {
    fn put(&self, key: &[u8], value: &[u8], _: WriteOpts) -> Result<()> {
        black_box((key, value));
        Ok(())
    }

    fn delete(&self, key: &[u8], _: WriteOpts) -> Result<()> {
        black_box(key);
        Ok(())
    }

    fn write_batch(&self, entries: &[BatchEntry<'_>], _: WriteOpts) -> Result<()> {
        black_box(entries.len());
        Ok(())
    }

    fn create_keyspaces(&self, _count: u32) -> Result<()> {
        Ok(())
    }

    fn delete_range(&self, _from: &[u8], _to: &[u8]) -> Result<()> {
        Ok(())
    }

    fn get(&self, key: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<bool> {
        sink(black_box(key));
        Ok(true)
    }

    fn cursor(&self) -> Result<Box<dyn KvCursor + '_>> {
        Ok(Box::new(NullCursor))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn pending(&self) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn stats(&self) -> Result<EngineStats> {
        Ok(EngineStats::default())
    }

    fn options_text(&self) -> String {
        "none".into()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Always on an entry of no bytes, so that a scan is as long as it is asked to be.
struct NullCursor;

impl KvCursor for NullCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        black_box(key);
        Ok(())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        Ok(())
    }

    fn valid(&self) -> bool {
        true
    }

    fn key(&self) -> &[u8] {
        b""
    }

    fn value(&self) -> &[u8] {
        b""
    }
}
