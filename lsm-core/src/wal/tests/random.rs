//! Random logs, openings and power cuts, beside a model.

use super::*;

/// A log through several openings, and what of it is on the disk for certain.
struct Sim {
    rng: Rng,
    log: Log,
    /// Files as they were at the last sync; a file not listed may lose even its name.
    durable: Vec<(PathBuf, Vec<u8>)>,
    /// The newest segment.
    number: u64,
    /// The first segment of this opening; only those from it on are recycled.
    opening: u64,
    /// The lowest segment still needed.
    oldest: u64,
    /// Groups whose callers were told that they failed.
    burnt: Vec<Rec>,
    ever: Vec<Rec>,
    lost: usize,
    recycled: usize,
    torn: usize,
    burnt_seen: usize,
}

impl Sim {
    fn new(seed: u64) -> Sim {
        let mut log = Log::new();
        log.start(1, None);
        Sim {
            rng: Rng::new(seed),
            log,
            durable: Vec::new(),
            number: 1,
            opening: 1,
            oldest: 1,
            burnt: Vec::new(),
            ever: Vec::new(),
            lost: 0,
            recycled: 0,
            torn: 0,
            burnt_seen: 0,
        }
    }

    fn append(&mut self) {
        let n = if self.rng.below(20) == 0 { 9000 } else { self.rng.below(200) as usize };
        let payload = self.rng.bytes(n);
        self.log.append(1 + self.rng.below(4) as u32, &payload);
        self.ever.push(self.log.recs[self.log.recs.len() - 1].clone());
    }

    /// Syncs the log, segments and names.
    fn sync(&mut self) {
        self.snapshot();
        self.log.sync();
    }

    fn snapshot(&mut self) {
        let files = segments(&self.log.fs).into_iter();
        self.durable = files.map(|(_, file)| (file.clone(), self.log.fs.bytes(&file))).collect();
    }

    /// Starts a new segment behind `end`, in a recycled file where that is allowed.
    fn roll(&mut self, end: LogPosition) {
        self.number += 1 + self.rng.below(3);
        let previous = prev(end, self.log.synced >= end);
        let there = self.log.fs.exists(&path(self.oldest)).expect("asked");
        if !there || self.log.synced.segment.0 <= self.oldest || self.rng.below(2) == 0 {
            return self.log.start(self.number, previous);
        }
        let (old, new) = (path(self.oldest), path(self.number));
        self.log.recs.retain(|r| r.segment != self.oldest);
        if self.oldest < self.opening {
            self.log.fs.unlink(&old).expect("it was there");
            self.log.start(self.number, previous);
        } else {
            self.log.fs.rename(&old, &new).expect("renamed");
            for (name, _) in self.durable.iter_mut().filter(|(name, _)| *name == old) {
                *name = new.clone();
            }
            let file = self.log.fs.open(&new, Access::ReadWrite).expect("there");
            self.log.start_in(file, self.number, previous);
            self.recycled += 1;
        }
        let numbers = segments(&self.log.fs).into_iter().map(|(number, _)| number.0);
        self.oldest = numbers.filter(|n| *n > self.oldest).min().expect("the newest one is there");
    }

    /// A group reaches the file, its sync fails: the segment ends before it.
    fn burn(&mut self) {
        let end = self.log.writer().position();
        self.append();
        self.burnt.extend(self.log.recs.pop());
        self.roll(end);
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0 => self.burn(),
            1 | 2 => {
                let end = self.log.writer().position();
                self.roll(end);
            }
            3 | 4 => self.sync(),
            _ => self.append(),
        }
    }

    /// Loses names that were never durable, and pages written since the last sync, at random.
    fn cut_power(&mut self) {
        for (_, file) in segments(&self.log.fs) {
            let now = self.log.fs.bytes(&file);
            let old = self.durable.iter().find(|(name, _)| *name == file);
            if old.is_none() && self.rng.below(4) == 0 {
                self.log.fs.unlink(&file).expect("it was there");
                continue;
            }
            let mut image = old.map(|(_, bytes)| bytes.clone()).unwrap_or_default();
            let keep = match self.rng.below(3) {
                0 => now.len(),
                _ => self.rng.below(now.len() as u64 + 1) as usize,
            };
            image.resize(image.len().max(keep), 0);
            for from in (0..image.len().min(now.len())).step_by(512) {
                let to = (from + 512).min(now.len()).min(image.len());
                if self.rng.below(4) != 0 {
                    image[from..to].copy_from_slice(&now[from..to]);
                }
            }
            self.log.fs.put(&file, image);
        }
    }

    /// Replays, compares with the model and goes on in a new segment.
    fn reopen(&mut self) {
        let (recs, end) = run(&self.log.fs, PointInTime, self.oldest).expect("what was synced is whole");
        // A burnt group may be the last one, if the segment that disowns it is lost.
        let burnt = recs.last().is_some_and(|last| self.burnt.contains(last));
        let (prefix, tail) = recs.split_at(recs.len() - usize::from(burnt));
        assert!(self.log.recs.starts_with(prefix));
        let next = self.log.recs.get(prefix.len());
        assert!(tail.iter().all(|b| next.is_none_or(|r| r.first_seqno > b.first_seqno)));
        let must = self.log.recs.iter().filter(|r| at(r.segment, r.offset) < self.log.synced).count();
        assert!(prefix.len() >= must, "{} of {must} synced records", prefix.len());
        if let Ok((whole, absolute)) = run(&self.log.fs, AbsoluteConsistency, self.oldest) {
            assert!(end.torn.is_none() && whole == recs && absolute == end);
        }
        if let Ok((tolerated, outcome)) = run(&self.log.fs, TolerateCorruptedTail, self.oldest) {
            assert!(tolerated == recs && outcome == end);
        }
        let (salvaged, _) = run(&self.log.fs, SkipAnyCorrupted, self.oldest).expect("salvage");
        assert!(salvaged.len() >= recs.len() && salvaged.iter().all(|r| self.ever.contains(r)));

        self.lost += self.log.recs.len() - prefix.len();
        self.torn += usize::from(end.torn.is_some());
        self.burnt_seen += usize::from(burnt);
        // What an opening has shown is part of the log from now on.
        self.burnt.retain(|b| !recs.contains(b));
        self.log.recs = recs;
        // The opening syncs what it replayed.
        self.snapshot();
        self.log.synced = end.end.unwrap_or_default();
        self.number += 1;
        self.opening = self.number;
        self.log.start(self.number, end.end.and_then(|end| prev(end, true)));
    }
}

#[test]
fn random_power_cuts_keep_all_that_was_synced_and_a_prefix() {
    let (mut records, mut lost, mut recycled, mut torn, mut burnt_seen) = (0, 0, 0, 0, 0);
    for seed in 0..120 {
        let mut sim = Sim::new(seed);
        for _ in 0..5 {
            for _ in 0..sim.rng.below(60) {
                sim.step();
            }
            sim.cut_power();
            sim.reopen();
        }
        records += sim.ever.len();
        lost += sim.lost;
        recycled += sim.recycled;
        torn += sim.torn;
        burnt_seen += sim.burnt_seen;
    }
    assert!(records > 8000 && lost > 500, "{records} {lost}");
    assert!(recycled > 100 && torn > 100 && burnt_seen > 5, "{recycled} {torn} {burnt_seen}");
}

/// Whatever is flipped in log that later log calls synced: an error, or all data are there.
#[test]
fn random_rot_below_a_vouched_position_is_never_silent() {
    let (mut errors, mut harmless) = (0, 0);
    for seed in 0..300 {
        let mut sim = Sim::new(1000 + seed);
        for _ in 0..30 {
            sim.step();
        }
        sim.sync();
        let vouched = sim.log.synced;
        sim.append();
        let recs = sim.log.recs.clone();
        for _ in 0..5 {
            let below: Vec<_> = recs.iter().filter(|r| at(r.segment, r.offset) < vouched).collect();
            let Some(rec) = below.get(sim.rng.below(below.len() as u64) as usize) else { continue };
            let file = path(rec.segment);
            let pristine = sim.log.fs.bytes(&file);
            let padded = (RECORD_HEADER_BYTES + rec.payload.len()).next_multiple_of(8);
            let place = rec.offset + sim.rng.below(padded as u64);
            flip(&sim.log.fs, &file, place);
            for mode in [AbsoluteConsistency, TolerateCorruptedTail, PointInTime] {
                match run(&sim.log.fs, mode, sim.oldest) {
                    Ok((got, _)) => {
                        assert_eq!(got, recs);
                        harmless += 1;
                    }
                    Err(e) => {
                        assert_eq!((e.offset(), e.path()), (Some(rec.offset), Some(file.as_path())));
                        errors += 1;
                    }
                }
            }
            sim.log.fs.put(&file, pristine);
        }
    }
    assert!(errors > 3000 && harmless > 30, "{errors} {harmless}");
}
