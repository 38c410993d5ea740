//! Watches what a database takes on disk while it is worked on.
//!
//! A thread of its own adds up the blocks of all files, a few times a second, from the start of the timed
//! part until the database is settled. What a compaction replaces but must keep shows here and nowhere else.

use crate::measure::disk_bytes;
use crate::result::DiskPoint;
use anyhow::{Result, anyhow};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(200);

/// A watch that has begun.
pub(crate) struct DiskWatch {
    end: Sender<()>,
    thread: JoinHandle<Vec<DiskPoint>>,
}

impl DiskWatch {
    /// Begins to watch `dir`, whose time begins now.
    ///
    /// # Errors
    /// There can be no more threads.
    pub(crate) fn begin(dir: &Path) -> Result<DiskWatch> {
        let (end, ended) = channel::<()>();
        let (dir, start) = (dir.to_owned(), Instant::now());
        let watch = move || {
            let mut points = Vec::new();
            loop {
                // A directory that is just being made anew has nothing to tell.
                if let Ok(bytes) = disk_bytes(&dir) {
                    points.push(DiskPoint { t_ms: start.elapsed().as_millis() as u64, bytes });
                }
                if ended.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return points;
                }
            }
        };
        let thread = std::thread::Builder::new().name("bench-disk".into()).spawn(watch)?;
        Ok(DiskWatch { end, thread })
    }

    /// Ends it.
    ///
    /// # Errors
    /// The watch panicked.
    pub(crate) fn end(self) -> Result<Vec<DiskPoint>> {
        drop(self.end);
        self.thread.join().map_err(|_| anyhow!("the watch of the disk panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tempdir::TempDir;

    #[test]
    fn what_comes_and_goes_is_seen() {
        let dir = TempDir::new().unwrap();
        let watch = DiskWatch::begin(dir.path()).unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, vec![1u8; 1 << 20]).unwrap();
        std::thread::sleep(3 * INTERVAL);
        std::fs::remove_file(&file).unwrap();
        std::thread::sleep(3 * INTERVAL);
        let points = watch.end().unwrap();
        assert!(points.len() >= 3, "{points:?}");
        assert!(points.iter().any(|point| point.bytes >= 1 << 20), "{points:?}");
        assert!(points.last().unwrap().bytes < 1 << 20, "{points:?}");
        assert!(points.windows(2).all(|pair| pair[0].t_ms < pair[1].t_ms));
        assert!(DiskWatch::begin(Path::new("/nowhere")).unwrap().end().unwrap().is_empty());
    }
}
