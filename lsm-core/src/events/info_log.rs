//! LOG: what a database did, a line an event, for people.
//!
//! ```text
//! 2026-03-01T12:00:00.123456Z INFO  flush_end job=7 keyspace=default shard=0 outputs=[L0:000012:65536] ...
//! ```
//! Each opening starts a new file, and so does one that has grown to its size; the old one becomes
//! `LOG.old.T`, T the microseconds since 1970 at which it was put away, or the first greater number
//! that is free: so they ascend by age whatever the clock does. The oldest go. Each file begins with the
//! version, the identity of the database, its keyspaces, and the options that are not at their defaults.
//!
//! INVARIANT: nobody waits for this file and nothing fails because of it. It is written by a thread of its
//! own, never synced; what can't be written is counted and left out. Nothing but people reads it, so
//! recovery, verification and checkpoints leave it alone; its name is among those that a removal knows.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dialsm_io::File;
use dialsm_io::env::Nanos;

use super::outlet::Sink;
use super::text::{put_text, put_time};
use super::{Event, Record, Severity};
use crate::engine::Engine;
use crate::filename::FileName;
use crate::options::{self, InfoLogLevel, Options};
use crate::{Result, properties};

/// Lines are gathered up to this while events come without a pause.
const GATHERED_BYTES: usize = 64 << 10;

/// After a file could not be made, no other is tried for so long.
const RETRY_AFTER: Nanos = 1_000_000_000;

/// Of stalls, which may begin and end hundreds of times a second, so many lines at most in each second.
const STALL_LINES_MAX: u32 = 20;

/// See the module header.
pub(super) struct InfoLog {
    engine: Arc<Engine>,
    level: Severity,
    bytes_max: u64,
    files_max: usize,
    stats_every: Nanos,
    /// The file and its length.
    file: Option<(Arc<dyn File>, u64)>,
    /// Its header is being written, which is never parted, however long.
    is_in_header: bool,
    /// Bytes of the header.
    header_bytes: u64,
    lines: String,
    /// Lines among them; lines that could not be written.
    gathered: u64,
    lost: u64,
    retry_at: Nanos,
    stats_at: Nanos,
    /// The second of the last line about a stall, how many there were in it, and how many were left out.
    stalls: (u64, u32, u64),
}

impl InfoLog {
    pub(super) fn new(engine: Arc<Engine>) -> InfoLog {
        let options = engine.options.now();
        let stats_every = options.stats_dump_period_sec.saturating_mul(1_000_000_000);
        let stats_at = engine.env.now().saturating_add(stats_every);
        let mut log = InfoLog {
            level: severity(options.info_log_level),
            bytes_max: options.max_log_file_size,
            files_max: options.keep_log_file_num,
            stats_every,
            file: None,
            is_in_header: false,
            header_bytes: 0,
            lines: String::new(),
            gathered: 0,
            lost: 0,
            retry_at: 0,
            stats_at,
            stalls: (0, 0, 0),
            engine,
        };
        log.start_file();
        log
    }

    /// Begins a line.
    fn begin(&mut self, wall_us: u64, severity: Severity, name: &str) {
        put_time(&mut self.lines, wall_us);
        let _ = write!(self.lines, " {} {name}", severity.tag());
    }

    fn end(&mut self) {
        self.lines.push('\n');
        self.gathered += 1;
        if self.lines.len() >= GATHERED_BYTES {
            self.write();
        }
    }

    /// Whether a line about an event is one too many.
    fn is_left_out(&mut self, record: &Record) -> bool {
        let is_stall =
            matches!(record.event, Event::StallBegin(_) | Event::StallChanged(_) | Event::StallEnd(_));
        if !is_stall {
            return false;
        }
        let second = record.wall_us / 1_000_000;
        if self.stalls.0 != second {
            let left_out = std::mem::take(&mut self.stalls.2);
            self.stalls = (second, 0, 0);
            if left_out > 0 {
                self.begin(record.wall_us, Severity::Warn, "stall_lines_left_out");
                let _ = write!(self.lines, " count={left_out}");
                self.end();
            }
        }
        self.stalls.1 += 1;
        let is_too_many = self.stalls.1 > STALL_LINES_MAX;
        self.stalls.2 += u64::from(is_too_many);
        is_too_many
    }

    /// Writes what was gathered, into the next file if this one is full.
    fn write(&mut self) {
        // At least as much as the header, so that a long one does not leave room for nothing else.
        let bytes_max = self.bytes_max.max(2 * self.header_bytes);
        let may_end = self.bytes_max > 0 && !self.is_in_header;
        let is_full = may_end && self.file.as_ref().is_some_and(|(_, len)| *len >= bytes_max);
        let may_start = self.file.is_none() && !self.is_in_header && self.engine.env.now() >= self.retry_at;
        if is_full || may_start {
            let (lines, gathered) = (std::mem::take(&mut self.lines), std::mem::take(&mut self.gathered));
            self.start_file();
            self.lines.push_str(&lines);
            self.gathered += gathered;
        }
        self.append();
    }

    fn append(&mut self) {
        if self.lost > 0 && self.file.is_some() {
            let mut told = String::new();
            put_time(&mut told, self.engine.env.wall_us());
            let _ = writeln!(told, " {} lines_lost count={}", Severity::Warn.tag(), self.lost);
            self.lines.insert_str(0, &told);
        }
        let written = self.file.as_mut().is_some_and(|(file, len)| {
            let is_written = file.write_at(self.lines.as_bytes(), *len).is_ok();
            *len += if is_written { self.lines.len() as u64 } else { 0 };
            is_written
        });
        match written {
            true => self.lost = 0,
            false => {
                self.lost += self.gathered;
                self.engine.events.log_failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.lines.clear();
        self.gathered = 0;
    }

    /// Puts the present file away and begins the next one.
    fn start_file(&mut self) {
        self.file = None;
        match self.create() {
            Ok(file) => {
                self.file = Some((file, 0));
                self.is_in_header = true;
                self.put_header();
                self.append();
                self.is_in_header = false;
                self.header_bytes = self.file.as_ref().map_or(0, |(_, len)| *len);
            }
            Err(_) => {
                self.engine.events.log_failures.fetch_add(1, Ordering::Relaxed);
                self.retry_at = self.engine.env.now() + RETRY_AFTER;
            }
        }
    }

    fn create(&self) -> Result<Arc<dyn File>> {
        let (fs, dir) = (self.engine.env.fs(), &self.engine.dir);
        let old_number = |name: &String| match FileName::parse(name) {
            Some(FileName::OldInfoLog(number)) => Some(number),
            _ => None,
        };
        let path = FileName::InfoLog.path(dir);
        let names = fs.list(dir)?;
        let mut old: Vec<u64> = names.iter().filter_map(old_number).collect();
        old.sort_unstable();
        if names.contains(&FileName::InfoLog.to_string()) {
            let after_last = old.last().map_or(0, |last| last.saturating_add(1));
            let number = self.engine.env.wall_us().max(after_last);
            fs.rename(&path, &FileName::OldInfoLog(number).path(dir))?;
            old.push(number);
        }
        let keep = self.files_max.saturating_sub(1);
        for number in &old[..old.len().saturating_sub(keep)] {
            // One that stays is tried again with the next file.
            let _ = fs.unlink(&FileName::OldInfoLog(*number).path(dir));
        }
        fs.create(&path)
    }

    fn put_header(&mut self) {
        let (engine, now) = (self.engine.clone(), self.engine.env.wall_us());
        self.begin(now, Severity::Info, "database");
        let id: String = engine.db_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = write!(self.lines, " version={} db_id={id}", env!("CARGO_PKG_VERSION"));
        put_text(&mut self.lines, "dir", &engine.dir.to_string_lossy());
        self.end();
        let all = options::live::all(&engine);
        self.put_options(now, "default", &all.options, &Options::default());
        for (name, own) in &all.keyspaces {
            self.begin(now, Severity::Info, "keyspace");
            put_text(&mut self.lines, "name", name);
            self.end();
            let mut options = (*all.options).clone();
            options.set_keyspace(own);
            self.put_options(now, name, &options, &all.options);
        }
    }

    /// A line for each option that is not as in `usual`.
    fn put_options(&mut self, now: u64, keyspace: &str, options: &Options, usual: &Options) {
        for (name, value, usual) in options.differing(usual) {
            self.begin(now, Severity::Info, "option");
            put_text(&mut self.lines, "keyspace", keyspace);
            put_text(&mut self.lines, "name", name);
            put_text(&mut self.lines, "value", &value);
            put_text(&mut self.lines, "usual", &usual);
            self.end();
        }
    }

    fn put_stats(&mut self) {
        let engine = self.engine.clone();
        let trees = engine.keyspaces.alive().trees.clone();
        let stats = properties::get(&engine, &trees, "dialsm.stats").unwrap_or_default();
        let now = engine.env.wall_us();
        for line in stats.lines().filter(|line| !line.trim().is_empty()) {
            self.begin(now, Severity::Info, "stats");
            let _ = write!(self.lines, " {}", line.trim_end());
            self.end();
        }
    }
}

impl Sink for InfoLog {
    fn take(&mut self, record: &Record) {
        let severity = record.event.severity();
        if severity > self.level || self.is_left_out(record) {
            return;
        }
        self.begin(record.wall_us, severity, record.event.name());
        record.event.write_fields(&mut self.lines);
        self.end();
    }

    fn pause(&mut self) {
        let now = self.engine.env.now();
        if self.wakes_at().is_some_and(|at| at <= now) {
            self.stats_at = now.saturating_add(self.stats_every);
            self.put_stats();
        }
        if !self.lines.is_empty() {
            self.write();
        }
    }

    fn wakes_at(&self) -> Option<Nanos> {
        (self.stats_every > 0 && self.level >= Severity::Info).then_some(self.stats_at)
    }
}

/// The least severity that is written.
fn severity(level: InfoLogLevel) -> Severity {
    match level {
        InfoLogLevel::Debug => Severity::Debug,
        InfoLogLevel::Info => Severity::Info,
        InfoLogLevel::Warn => Severity::Warn,
        InfoLogLevel::Error | InfoLogLevel::Off => Severity::Error,
    }
}
