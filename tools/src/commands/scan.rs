//! Prints entries: `scan` a part of them, `dump` all.

use std::io::Write;

use super::Streams;
use crate::exit::Outcome;
use crate::progress::Progress;
use crate::store::{Range, Store};
use crate::text::Format;

pub(super) struct Scan<'a> {
    pub(super) range: &'a Range,
    pub(super) limit: Option<u64>,
    pub(super) format: Format,
    pub(super) progress: bool,
}

impl Scan<'_> {
    pub(super) fn run(&self, store: &dyn Store, streams: &mut Streams<'_>) -> Outcome {
        let terminal: Option<&mut dyn Write> = if self.progress { Some(&mut *streams.stderr) } else { None };
        let mut progress = Progress::new(terminal, "printed");
        let outcome = self.print(store, streams.stdout, &mut progress);
        progress.finish();
        outcome
    }

    fn print(&self, store: &dyn Store, out: &mut dyn Write, progress: &mut Progress<'_>) -> Outcome {
        let mut cursor = store.scan(self.range)?;
        let mut scratch = Vec::new();
        let mut left = self.limit.unwrap_or(u64::MAX);
        while left > 0
            && let Some((key, value)) = cursor.next_entry()?
        {
            self.format.write_entry(out, key, value, &mut scratch)?;
            progress.entry(key.len() + value.len());
            left -= 1;
        }
        Ok(())
    }
}
