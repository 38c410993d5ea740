//! A line on the terminal that shows how a long command gets on. Silent unless standard error is a
//! terminal; it writes nothing that a script would have to skip.

use std::io::Write;
use std::time::{Duration, Instant};

/// Entries from one look at the clock to the next.
const LOOK_EVERY: u64 = 1024;

const SHOW_EVERY: Duration = Duration::from_millis(200);

/// The line.
pub struct Progress<'a> {
    out: Option<&'a mut dyn Write>,
    verb: &'static str,
    start: Instant,
    shown: Instant,
    entries: u64,
    bytes: u64,
    width: usize,
}

impl<'a> Progress<'a> {
    /// Starts counting. `out` is the terminal, if there is one.
    pub fn new(out: Option<&'a mut dyn Write>, verb: &'static str) -> Progress<'a> {
        let now = Instant::now();
        Progress { out, verb, start: now, shown: now, entries: 0, bytes: 0, width: 0 }
    }

    /// One more entry of `bytes` bytes.
    pub fn entry(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes as u64;
        if self.out.is_some() && self.entries.is_multiple_of(LOOK_EVERY) && self.shown.elapsed() >= SHOW_EVERY
        {
            self.shown = Instant::now();
            self.show();
        }
    }

    /// `done` of `total` bytes are behind.
    pub fn share(&mut self, done: u64, total: u64) {
        if self.out.is_some() && self.shown.elapsed() >= SHOW_EVERY {
            self.shown = Instant::now();
            let percent = done as f64 * 100.0 / total.max(1) as f64;
            self.write(&format!("{} {percent:.0} %", self.verb));
        }
    }

    fn show(&mut self) {
        let seconds = self.start.elapsed().as_secs_f64().max(1e-9);
        self.write(&line(self.verb, self.entries, self.bytes, seconds));
    }

    fn write(&mut self, line: &str) {
        if let Some(out) = &mut self.out {
            // A terminal that cannot be written is no reason to stop the work.
            let _ = write!(out, "\r{line:<width$}", width = self.width).and_then(|()| out.flush());
            self.width = line.len();
        }
    }

    /// Wipes the line, if one was shown.
    pub fn finish(mut self) {
        if self.width > 0
            && let Some(out) = &mut self.out
        {
            let _ = write!(out, "\r{:width$}\r", "", width = self.width).and_then(|()| out.flush());
        }
    }
}

fn line(verb: &str, entries: u64, bytes: u64, seconds: f64) -> String {
    let rate = entries as f64 / seconds;
    format!("{verb} {entries} entries, {:.1} MiB, {rate:.0} entries/s", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_counts_and_stays_silent_without_a_terminal() {
        assert_eq!(line("loaded", 3000, 3 << 20, 2.0), "loaded 3000 entries, 3.0 MiB, 1500 entries/s");
        let mut out = Vec::new();
        let mut progress = Progress::new(Some(&mut out), "loaded");
        progress.entry(5);
        progress.show();
        progress.finish();
        let text = String::from_utf8(out).expect("plain text");
        assert!(text.starts_with("\rloaded 1 entries, 0.0 MiB") && text.ends_with("\r"), "{text:?}");
        let mut silent = Progress::new(None, "loaded");
        silent.entry(5);
        silent.show();
        silent.finish();
    }
}
