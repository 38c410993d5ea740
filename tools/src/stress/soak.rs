//! Full speed over a fixed range of keys for minutes, while what must stay bounded is looked at.
//!
//! ```text
//! writers ── put, put, put ──▶ database ◀── once a second: puts, retained and in-flight bytes, open
//!                                            files, memory, bytes on the disk
//! ```
//! Once it is warm, the range of keys does not grow, so neither may what lies on the disk. A bound that
//! the engine does not state is named and not checked.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dialsm::router::HashRouter;
use dialsm_core::{Db, Options, WriteOptions};
use dialsm_io::{OsEnv, SplitMix64};
use parking_lot::Mutex;

/// Files that a database has open beside its tables: log segments, the manifest, the lock, rings; and
/// tables that jobs write, or that a reader holds after they left the table cache.
const FILES_BESIDE_TABLES: u64 = 128;

/// How long a writer waits for one put before it counts as stuck, in nanoseconds.
const STUCK_AFTER: u64 = 120_000_000_000;

/// A soak.
#[derive(Clone, Debug)]
pub struct Soak {
    /// Where the database is made; it must be missing or empty.
    pub dir: PathBuf,
    /// How long, in minutes.
    pub minutes: f64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// How many keys there are.
    pub keys: u64,
    /// Writers.
    pub threads: u64,
    /// Whether writes go through the log.
    pub log: bool,
    /// Options of the engine, by name.
    pub options: Vec<(String, String)>,
    /// What the keys follow from.
    pub seed: u64,
}

/// What is looked at once a second.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    puts: u64,
    retained: u64,
    in_flight: u64,
    open_files: u64,
    memory: u64,
    disk: u64,
}

impl Sample {
    fn max(self, other: Sample) -> Sample {
        Sample {
            puts: self.puts.max(other.puts),
            retained: self.retained.max(other.retained),
            in_flight: self.in_flight.max(other.in_flight),
            open_files: self.open_files.max(other.open_files),
            memory: self.memory.max(other.memory),
            disk: self.disk.max(other.disk),
        }
    }
}

/// The engine's bounds, as far as it states them.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    retained: Option<u64>,
    in_flight: Option<u64>,
    open_files: u64,
}

impl Bounds {
    fn of(db: &Db, before: u64) -> Bounds {
        let option = |name: &str| {
            let mut values = db.property("dialsm.options")?.lines().find_map(|line| {
                let (found, value) = line.split_once(" = ")?;
                (found == name).then(|| value.to_owned())
            })?;
            let shift = match values.pop()? {
                'K' => 10,
                'M' => 20,
                'G' => 30,
                'T' => 40,
                digit => {
                    values.push(digit);
                    0
                }
            };
            values.parse::<u64>().ok().map(|n| n << shift)
        };
        let shown = |name: &str, bound: Option<u64>| db.property(name).and(bound);
        Bounds {
            retained: shown("dialsm.retained-bytes", option("retained_bytes_max")),
            in_flight: db.property("dialsm.in-flight-bytes-max").and_then(|text| text.parse().ok()),
            open_files: before + db.options().open_tables_max as u64 + FILES_BESIDE_TABLES,
        }
    }
}

/// What the writers share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    puts: AtomicU64,
    violations: Mutex<Vec<String>>,
}

/// Runs the soak and prints what it comes to; true if all stayed within bounds.
///
/// # Errors
/// Those of the directory, of the options and of the output.
pub fn soak(soak: &Soak, out: &mut dyn Write) -> io::Result<bool> {
    if soak.dir.exists() && std::fs::read_dir(&soak.dir)?.next().is_some() {
        return Err(io::Error::other(format!("{} is not empty", soak.dir.display())));
    }
    let failed = |error: dialsm_core::Error| io::Error::other(error.to_string());
    let mut options = Options { router: Some(HashRouter::object()), ..Options::default() };
    for (name, value) in &soak.options {
        options.set(name, value).map_err(failed)?;
    }
    let before = open_files();
    let db = Db::open(OsEnv::new(), &soak.dir, options).map_err(failed)?;
    let bounds = Bounds::of(&db, before);
    for (what, bound) in [("retained bytes", bounds.retained), ("bytes in flight", bounds.in_flight)] {
        if bound.is_none() {
            writeln!(out, "this build does not say how many {what} there are: not checked")?;
        }
    }
    let shared = Arc::new(Shared::default());
    let writers: Vec<_> = (0..soak.threads)
        .map(|thread| {
            let (db, soak, shared) = (db.clone(), soak.clone(), shared.clone());
            std::thread::spawn(move || put_for_ever(&db, &soak, thread, &shared))
        })
        .collect();
    let watched = watch(&db, soak, &shared, &bounds, out);
    shared.stop.store(true, Ordering::Relaxed);
    for writer in writers {
        if writer.join().is_err() {
            shared.violations.lock().push("a writer panicked".to_owned());
        }
    }
    let most = watched?;
    // At rest nothing is retained and nothing under way.
    match db.wait_until_idle() {
        Err(error) => shared.violations.lock().push(format!("it does not come to rest: {error}")),
        Ok(()) => {
            let rest = sample(&db, soak, &shared);
            if rest.retained > 0 || rest.in_flight > 0 {
                let text =
                    format!("at rest {} bytes are retained, {} in flight", rest.retained, rest.in_flight);
                shared.violations.lock().push(text);
            }
        }
    }
    if let Err(error) = db.close() {
        shared.violations.lock().push(format!("it does not close: {error}"));
    }
    let violations = judge(most, &bounds, &shared);
    for what in &violations {
        writeln!(out, "VIOLATION {what}")?;
    }
    let puts = shared.puts.load(Ordering::Relaxed);
    let bound = |bound: Option<u64>| bound.map_or("unknown".to_owned(), |n| n.to_string());
    writeln!(
        out,
        "soak: {} minutes, {puts} puts, retained max {} of {}, in flight max {} of {}, open files max {} of {}, {} violations",
        soak.minutes,
        most.retained,
        bound(bounds.retained),
        most.in_flight,
        bound(bounds.in_flight),
        most.open_files,
        bounds.open_files,
        violations.len()
    )?;
    Ok(violations.is_empty() && puts > 0)
}

/// Looks each second, prints every ten; the maxima.
fn watch(db: &Db, soak: &Soak, shared: &Shared, bounds: &Bounds, out: &mut dyn Write) -> io::Result<Sample> {
    let end = Instant::now() + Duration::from_secs_f64(soak.minutes * 60.0);
    let (mut most, mut last_puts, mut second) = (Sample::default(), 0, 0_u64);
    while Instant::now() < end && shared.violations.lock().is_empty() {
        std::thread::sleep(Duration::from_secs(1).min(end.saturating_duration_since(Instant::now())));
        second += 1;
        let now = sample(db, soak, shared);
        most = most.max(now);
        if second.is_multiple_of(10) {
            let rate = (now.puts - last_puts) / 10;
            last_puts = now.puts;
            let mib = |bytes: u64| bytes >> 20;
            writeln!(
                out,
                "{second} s: {rate} puts/s, retained {} MiB, in flight {} MiB, open files {} of {}, memory {} MiB, disk {} MiB",
                mib(now.retained),
                mib(now.in_flight),
                now.open_files,
                bounds.open_files,
                mib(now.memory),
                mib(now.disk)
            )?;
            out.flush()?;
        }
    }
    Ok(most)
}

fn put_for_ever(db: &Db, soak: &Soak, thread: u64, shared: &Shared) {
    let mut rng = SplitMix64::new(soak.seed ^ (thread + 1) << 40);
    // Bytes that do not compress, a different stretch of them for each value.
    let pool: Vec<u8> = (0..soak.value_bytes / 8 + 512).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    while !shared.stop.load(Ordering::Relaxed) {
        let key = format!("{:016}", rng.below(soak.keys));
        let at = rng.below(4096) as usize;
        let options = WriteOptions { disable_log: !soak.log, ..WriteOptions::default() };
        let started = Instant::now();
        if let Err(error) = db.put(&options, key.as_bytes(), &pool[at..at + soak.value_bytes]) {
            shared.violations.lock().push(format!("a put failed: {error}"));
            return;
        }
        if started.elapsed() > Duration::from_nanos(STUCK_AFTER) {
            shared.violations.lock().push(format!("a put took {:?}", started.elapsed()));
        }
        shared.puts.fetch_add(1, Ordering::Relaxed);
    }
}

fn number(db: &Db, name: &str) -> u64 {
    db.property(name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn sample(db: &Db, soak: &Soak, shared: &Shared) -> Sample {
    // The engine's own maxima, where it keeps them, miss nothing between two looks.
    let either = |now: &str, peak: &str| number(db, now).max(number(db, peak));
    let is_over = shared.stop.load(Ordering::Relaxed);
    let (retained, in_flight) = if is_over {
        (number(db, "dialsm.retained-bytes"), number(db, "dialsm.in-flight-bytes"))
    } else {
        let retained = either("dialsm.retained-bytes", "dialsm.retained-bytes-peak");
        (retained, either("dialsm.in-flight-bytes", "dialsm.in-flight-bytes-peak"))
    };
    Sample {
        puts: shared.puts.load(Ordering::Relaxed),
        retained,
        in_flight,
        open_files: open_files(),
        memory: memory_bytes(),
        disk: disk_bytes(&soak.dir),
    }
}

fn judge(most: Sample, bounds: &Bounds, shared: &Shared) -> Vec<String> {
    let mut violations = std::mem::take(&mut *shared.violations.lock());
    for (what, found, bound) in [
        ("retained bytes", most.retained, bounds.retained),
        ("bytes in flight", most.in_flight, bounds.in_flight),
        ("open files", most.open_files, Some(bounds.open_files)),
    ] {
        if let Some(bound) = bound.filter(|bound| found > *bound) {
            violations.push(format!("{found} {what}, where at most {bound} may be"));
        }
    }
    violations
}

/// Descriptors of this process.
fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}

/// Resident memory of this process.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}
