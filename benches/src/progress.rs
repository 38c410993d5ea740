//! How far a run is, shown on a terminal while it lasts.
//!
//! ```text
//!   workers ── Counter ── ticker thread ── lines on the child's stdout ── Bar on the parent's stderr
//! ```
//! Workers add to the counter once in 100 ms, so it costs them nothing. Without a terminal there is
//! neither ticker nor bar.

use anyhow::Result;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is being run and how far it is.
pub(crate) struct Counter {
    done: AtomicU64,
    phase: Mutex<Phase>,
}

struct Phase {
    name: String,
    total: u64,
    /// Seconds after which the phase ends; 0 is none.
    duration: u64,
    begun: Instant,
}

impl Counter {
    pub(crate) fn new() -> Counter {
        let phase = Phase { name: String::new(), total: 0, duration: 0, begun: Instant::now() };
        Counter { done: AtomicU64::new(0), phase: Mutex::new(phase) }
    }

    /// A phase begins, of `total` operations or `duration` seconds (the one that is not 0).
    pub(crate) fn begin(&self, name: &str, total: u64, duration: u64) {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        *phase = Phase { name: name.to_owned(), total, duration, begun: Instant::now() };
        self.done.store(0, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, operations: u64) {
        self.done.fetch_add(operations, Ordering::Relaxed);
    }

    /// The line the parent gets: tenths of a per cent done, and the phase.
    fn line(&self) -> String {
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let share = if phase.duration > 0 {
            phase.begun.elapsed().as_secs_f64() / phase.duration as f64
        } else {
            self.done.load(Ordering::Relaxed) as f64 / phase.total.max(1) as f64
        };
        format!("{} {}", (share.min(1.0) * 1000.0) as u64, phase.name)
    }
}

/// Between two lines.
const TICK: Duration = Duration::from_millis(200);

/// Prints a counter to standard output for as long as the process lives.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start_ticker(counter: Arc<Counter>) -> Result<()> {
    std::thread::Builder::new().name("ticker".into()).spawn(move || {
        loop {
            std::thread::sleep(TICK);
            if writeln!(std::io::stdout(), "{}", counter.line()).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// One line at the bottom of a terminal.
pub(crate) struct Bar {
    title: String,
    drawn: bool,
}

const BAR_CELLS: u64 = 24;

impl Bar {
    /// Whether there is a terminal to draw on.
    pub(crate) fn wanted() -> bool {
        std::io::stderr().is_terminal()
    }

    pub(crate) fn new(title: String) -> Bar {
        Bar { title, drawn: false }
    }

    /// Draws what a child's line says; a line of another form is ignored.
    pub(crate) fn show(&mut self, line: &str) {
        if let Some(text) = render(&self.title, line) {
            self.drawn = true;
            eprint!("\r\x1b[K{text}");
        }
    }
}

fn render(title: &str, line: &str) -> Option<String> {
    let (tenths, phase) = line.split_once(' ')?;
    let tenths = tenths.parse::<u64>().ok()?.min(1000);
    let full = tenths * BAR_CELLS / 1000;
    let cells: String = (0..BAR_CELLS).map(|cell| if cell < full { '█' } else { '░' }).collect();
    Some(format!("{title} {phase:<24} {cells} {:>3} %", tenths / 10))
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.drawn {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_tells_its_share_and_a_bar_shows_it() {
        let counter = Counter::new();
        counter.begin("fillseq", 200, 0);
        counter.add(50);
        assert_eq!(counter.line(), "250 fillseq");
        counter.add(1000);
        assert_eq!(counter.line(), "1000 fillseq");
        counter.begin("settling", 0, 0);
        assert_eq!(counter.line(), "0 settling");
        let drawn = render("round 1", "500 fillseq").unwrap();
        assert!(drawn.contains("████████████░") && drawn.ends_with(" 50 %"), "{drawn}");
        assert_eq!(render("round 1", "rubbish"), None);
    }
}
