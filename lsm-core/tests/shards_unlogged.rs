//! Small random histories over two shards with the log off, cut short by power cuts, and judged by floors.
//!
//! Each tree comes back to its own last flush (rule 19). With `f` the floor of a key's primary and `g` that
//! of its fallback, in operations, what is left of the key is what remains of these, in their order:
//!
//! | operation | is left |
//! |---|---|
//! | native, delete, range delete | below `f` |
//! | redirected | below `g`: its clue is there or is made again; |
//! | | from `g` up to `f` only if a rollback had brought it home: may or may not be |
//!
//! Some of the openings in between have a log. No floor is known, but one pair of them has to explain all keys, and lie above the last flush that ended.
//! So nothing is resurrected, lost, or hidden by a clue whose value is gone.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{DIR, Model, contents};
use dialsm_core::options::Compression;
use dialsm_core::routing::{Router, RouterObject, ShardState};
use dialsm_core::{
    CompactRangeOptions, Db, FlushOptions, Options, ReadOptions, Snapshot, WriteOptions, merge_operator,
};
use dialsm_io::{CrashPolicy, Env, Fs, SimEnv, SimFs, SplitMix64};
use parking_lot::Mutex;

/// Keys that begin with `b` or `d` belong to shard 1; values go to the other shard while it is on.
struct Detour(AtomicBool);

fn shard_of(key: &[u8]) -> usize {
    usize::from(key[0] - b'a') % 2
}

impl Router for Detour {
    fn place(&self, _: &[u8; 16], _: u16, key: &[u8]) -> u16 {
        shard_of(key) as u16
    }

    fn fallback(&self, primary: u16, _: &[ShardState]) -> Option<u16> {
        self.0.load(Ordering::Relaxed).then_some(1 - primary)
    }

    fn shards_by_default(&self, _: usize) -> u16 {
        2
    }

    fn is_asked_always(&self) -> bool {
        true
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>),
    Merge(Vec<u8>),
    Delete,
    /// From the key up to this one.
    DeleteRange(Vec<u8>),
}

#[derive(Clone)]
struct Write {
    key: Vec<u8>,
    op: Op,
    redirected: bool,
}

impl Write {
    fn concerns(&self, key: &[u8]) -> bool {
        match &self.op {
            Op::DeleteRange(end) => self.key.as_slice() <= key && key < end.as_slice(),
            _ => self.key == key,
        }
    }

    /// What it makes of a key's value.
    fn apply(&self, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match (&self.op, value) {
            (Op::Put(new), _) => Some(new.clone()),
            (Op::Merge(operand), Some(old)) => Some([old.as_slice(), operand].join(&b'+')),
            (Op::Merge(operand), None) => Some(operand.clone()),
            (Op::Delete | Op::DeleteRange(_), _) => None,
        }
    }
}

/// What was written since the last cut, and how much of it is known to be in durable tables.
#[derive(Clone, Default)]
struct History {
    base: Model,
    writes: Vec<Write>,
    durable: usize,
}

impl History {
    fn model(&self) -> Model {
        all_keys().into_iter().filter_map(|key| self.value(&key, |_, _| true).map(|v| (key, v))).collect()
    }

    fn value(&self, key: &[u8], is_left: impl Fn(usize, &Write) -> bool) -> Option<Vec<u8>> {
        let left = self.writes.iter().enumerate().filter(|(at, w)| w.concerns(key) && is_left(*at, w));
        left.fold(self.base.get(key).cloned(), |value, (_, write)| write.apply(value))
    }

    /// Whether the floors `f` of its primary and `g` of its fallback explain what was found of the key.
    fn explains(&self, key: &[u8], found: Option<&Vec<u8>>, f: usize, g: usize) -> bool {
        let is_open = |at: usize, w: &Write| w.redirected && (g..f).contains(&at);
        let open: Vec<usize> = (g..f.max(g).min(self.writes.len()))
            .filter(|at| self.writes[*at].concerns(key) && is_open(*at, &self.writes[*at]))
            .collect();
        assert!(open.len() < 16, "too many ways to look at");
        (0..1u32 << open.len()).any(|home| {
            let is_left = |at: usize, w: &Write| match open.iter().position(|other| *other == at) {
                Some(place) => home >> place & 1 == 1,
                None => at < if w.redirected { g } else { f },
            };
            self.value(key, is_left).as_ref() == found
        })
    }

    /// Whether some floors explain all that was found.
    fn allows(&self, found: &Model) -> bool {
        let keys = all_keys();
        assert!(found.keys().all(|key| keys.contains(key)), "a key that never was");
        let floors = self.durable..=self.writes.len();
        floors.clone().any(|f0| {
            floors.clone().any(|f1| {
                let floor = [f0, f1];
                let explains = |key: &Vec<u8>| {
                    let primary = shard_of(key);
                    self.explains(key, found.get(key), floor[primary], floor[1 - primary])
                };
                keys.iter().all(explains)
            })
        })
    }
}

fn all_keys() -> Vec<Vec<u8>> {
    b"abcd".iter().flat_map(|letter| b"012".iter().map(|n| vec![*letter, *n])).collect()
}

struct Cut {
    image: Arc<SimFs>,
    history: History,
}

#[derive(Default, Debug)]
struct Driven {
    redirects: u64,
    rolled_back: u64,
    collected: u64,
    cuts: u64,
    second_cuts: u64,
    /// Cuts that lost something; that left something but not all since the last flush.
    lossy: u64,
    partial: u64,
    snapshot_reads: u64,
}

struct Run {
    env: Arc<SimEnv>,
    detour: Arc<Detour>,
    options: Options,
    rng: SplitMix64,
    db: Db,
    history: Arc<Mutex<History>>,
    cuts: Arc<Mutex<Vec<Cut>>>,
    snapshots: Vec<(Snapshot, Model)>,
    serial: u64,
}

impl Run {
    fn new(env: &Arc<SimEnv>, seed: u64) -> Run {
        let mut rng = SplitMix64::new(seed ^ 0x0ff);
        let detour = Arc::new(Detour(AtomicBool::new(false)));
        let options = Options {
            log: false,
            shards: 2,
            router: Some(RouterObject(detour.clone())),
            write_buffer_bytes: 64 << 10,
            level0_compaction_trigger: 1 + rng.below(3) as usize,
            level0_slowdown_trigger: 16,
            level0_stop_trigger: 20,
            level_base_bytes: 64 << 10,
            automatic_compaction: rng.chance(1, 2),
            rollback: rng.chance(1, 4),
            clue_capping: rng.chance(3, 4),
            deferred_sync: rng.chance(3, 4),
            compression: Compression::None,
            compression_bottom: Compression::None,
            merge_operator: Some(merge_operator::append(b"+")),
            ..Options::default()
        };
        let db = open(env, &options);
        let run = Run {
            env: env.clone(),
            detour,
            options,
            rng,
            db,
            history: Arc::default(),
            cuts: Arc::default(),
            snapshots: Vec::new(),
            serial: 0,
        };
        run.cut_at_calls(seed);
        run
    }

    /// Takes an image at one in so many calls.
    fn cut_at_calls(&self, seed: u64) {
        let disk = self.env.sim_fs().clone();
        let rng = Mutex::new(SplitMix64::new(seed ^ 0xca11));
        let (into, history, of) = (self.cuts.clone(), self.history.clone(), disk.clone());
        disk.add_call_hook(Arc::new(move |_| {
            let mut rng = rng.lock();
            if rng.chance(1, 12) {
                let image = of.crash_image(policy(&mut rng));
                into.lock().push(Cut { image, history: history.lock().clone() });
            }
        }));
    }

    fn write(&mut self) {
        let keys = all_keys();
        let key = keys[self.rng.below(keys.len() as u64) as usize].clone();
        self.serial += 1;
        let mut value = format!("{}.", self.serial).into_bytes();
        value.resize([6, 30, 3000][self.rng.below(3) as usize], b'x');
        let op = match self.rng.below(16) {
            0..8 => Op::Put(value),
            8..12 => Op::Merge(value),
            12..15 => Op::Delete,
            _ => {
                Op::DeleteRange([keys[self.rng.below(keys.len() as u64) as usize].as_slice(), b"~"].concat())
            }
        };
        if matches!(&op, Op::DeleteRange(end) if *end <= key) {
            return;
        }
        let redirected = matches!(op, Op::Put(_) | Op::Merge(_)) && self.rng.chance(1, 2);
        self.detour.0.store(redirected, Ordering::Relaxed);
        println!("  {} {redirected} {}", String::from_utf8_lossy(&key), name(&op));
        self.history.lock().writes.push(Write { key: key.clone(), op: op.clone(), redirected });
        let (db, options) = (&self.db, WriteOptions::default());
        match &op {
            Op::Put(value) => db.put(&options, &key, value),
            Op::Merge(operand) => db.merge(&options, &key, operand),
            Op::Delete => db.delete(&options, &key),
            Op::DeleteRange(end) => db.delete_range(&options, &key, end),
        }
        .expect("write");
    }

    fn step(&mut self, driven: &mut Driven) {
        match self.rng.below(36) {
            0..22 => self.write(),
            22 => {
                println!("  flush");
                let count = self.history.lock().writes.len();
                self.db.flush().expect("flush");
                self.history.lock().durable = count;
            }
            23 | 24 => {
                println!("  flush later");
                self.db.flush_with(&FlushOptions { wait: false, ..Default::default() }).expect("flush");
            }
            25 | 26 => self.flush_one(),
            27 | 28 => {
                let target_level = [None, Some(1), Some(2)][self.rng.below(3) as usize];
                println!("  compact {target_level:?}");
                let options = CompactRangeOptions { target_level, rewrite_bottom: true, cancel: None };
                self.db.compact_range(&options, None, None).expect("compact");
            }
            29 | 30 => {
                println!("  roll back");
                self.db.rollback().expect("rollback");
            }
            31 => self.env.sleep(self.rng.below(3_000_000)),
            32 => self.snapshots.push((self.db.snapshot(), self.history.lock().model())),
            33 => drop(self.snapshots.pop()),
            _ => {
                assert!(contents(&self.db).expect("read") == self.history.lock().model());
                for (snapshot, model) in &self.snapshots {
                    let at = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
                    for key in all_keys() {
                        let found = self.db.get(&at, &key).expect("get").map(|value| value.to_vec());
                        assert!(found.as_ref() == model.get(&key), "{}", String::from_utf8_lossy(&key));
                    }
                    driven.snapshot_reads += 1;
                }
            }
        }
    }

    /// One shard's memtable becomes full, and the other's is not flushed.
    fn flush_one(&mut self) {
        let key = [b'a' + self.rng.below(2) as u8, b'0'];
        println!("  fill {}", String::from_utf8_lossy(&key));
        self.detour.0.store(false, Ordering::Relaxed);
        let before = self.db.metrics().counters.flushes;
        for _ in 0..60 {
            self.serial += 1;
            let mut value = format!("{}.", self.serial).into_bytes();
            value.resize(20_000, b'y');
            let op = Op::Put(value.clone());
            self.history.lock().writes.push(Write { key: key.to_vec(), op, redirected: false });
            self.db.put(&WriteOptions::default(), &key, &value).expect("put");
            self.env.sleep(100_000);
            if self.db.metrics().counters.flushes > before {
                break;
            }
        }
    }

    /// What is found in a cut, after it was judged.
    fn judge(&self, cut: &Cut, driven: &mut Driven) -> Model {
        let env = self.env.on_fs(cut.image.clone(), cut.image.clone() as Arc<dyn Fs>);
        let db = open(&env, &self.options);
        let found = contents(&db).expect("read after the cut");
        if !cut.history.allows(&found) {
            cut.history.writes.iter().enumerate().for_each(|(at, w)| {
                println!("{at}: {} {} {}", String::from_utf8_lossy(&w.key), w.redirected, name(&w.op));
            });
            panic!("no floors from {} on explain {}", cut.history.durable, show(&found));
        }
        for key in all_keys() {
            let value = db.get(&ReadOptions::default(), &key).expect("get").map(|value| value.to_vec());
            assert!(value.as_ref() == found.get(&key), "look-up and scan differ");
        }
        driven.cuts += 1;
        let all = cut.history.model();
        let least =
            History { writes: cut.history.writes[..cut.history.durable].to_vec(), ..cut.history.clone() };
        driven.lossy += u64::from(found != all);
        driven.partial += u64::from(found != all && found != least.model());
        // Nothing of it comes undone.
        db.rollback().expect("rollback");
        db.compact_range(&CompactRangeOptions { rewrite_bottom: true, ..Default::default() }, None, None)
            .expect("compact");
        assert!(contents(&db).expect("read") == found, "a rollback or a compaction changed what was found");
        found
    }

    /// Cuts the power while the image is opened: what is left must be legal, too; and what an opening has
    /// shown, no later cut takes back.
    fn cut_again(&mut self, cut: &Cut, driven: &mut Driven) {
        let image = cut.image.crash_image(CrashPolicy::KeepAll);
        let second: Arc<Mutex<Option<Arc<SimFs>>>> = Arc::default();
        let (policy, at, calls) = (policy(&mut self.rng), self.rng.below(90), AtomicU64::new(0));
        let (taken, fs) = (second.clone(), image.clone());
        image.add_call_hook(Arc::new(move |_| {
            if calls.fetch_add(1, Ordering::Relaxed) == at {
                *taken.lock() = Some(fs.crash_image(policy));
                fs.power_off();
            }
        }));
        let env = self.env.on_fs(image.clone(), image.clone() as Arc<dyn Fs>);
        let opened: Arc<dyn Env> = env.clone();
        // Whatever comes of it: the power went.
        drop(Db::open(opened, Path::new(DIR), self.options.clone()));
        image.clear_call_hooks();
        if let Some(image) = second.lock().take() {
            self.judge(&Cut { image, history: cut.history.clone() }, driven);
            driven.second_cuts += 1;
        }
        let image = cut.image.crash_image(CrashPolicy::KeepAll);
        let env = self.env.on_fs(image.clone(), image.clone() as Arc<dyn Fs>);
        let db = open(&env, &self.options);
        let shown = contents(&db).expect("read");
        let again = image.crash_image(CrashPolicy::DropUnsynced);
        drop(db);
        let history = History { base: shown.clone(), ..History::default() };
        let found = self.judge(&Cut { image: again, history }, driven);
        assert!(found == shown, "a later cut took back what was shown");
    }

    /// Judges all cuts so far and goes on from one of them.
    fn cut_power(&mut self, seed: u64, driven: &mut Driven) {
        println!("  power cut");
        self.env.sim_fs().clear_call_hooks();
        let image = self.env.sim_fs().crash_image(policy(&mut self.rng));
        let mut cuts = std::mem::take(&mut *self.cuts.lock());
        cuts.push(Cut { image, history: self.history.lock().clone() });
        self.snapshots.clear();
        let counters = self.db.metrics().counters;
        driven.redirects += counters.redirects;
        driven.rolled_back += counters.clues_rolled_back;
        driven.collected += counters.redirected_dropped;
        while cuts.len() > 6 {
            let at = self.rng.below(cuts.len() as u64) as usize;
            cuts.swap_remove(at);
        }
        let at = self.rng.below(cuts.len() as u64) as usize;
        let next = cuts.swap_remove(at);
        for cut in &cuts {
            self.cut_again(cut, driven);
            self.judge(cut, driven);
        }
        // What one opening has written without log the next one finds, whether it has a log or not.
        self.options.log = self.rng.chance(1, 4);
        let copy = Cut { image: next.image.crash_image(CrashPolicy::KeepAll), history: next.history.clone() };
        let base = self.judge(&copy, driven);
        self.env = self.env.on_fs(next.image.clone(), next.image.clone() as Arc<dyn Fs>);
        self.db = open(&self.env, &self.options);
        assert!(contents(&self.db).expect("read") == base, "the same image gives the same state");
        *self.history.lock() = History { base, ..History::default() };
        self.cut_at_calls(seed);
    }
}

fn open(env: &Arc<SimEnv>, options: &Options) -> Db {
    let env: Arc<dyn Env> = env.clone();
    Db::open(env, Path::new(DIR), options.clone()).expect("open")
}

fn policy(rng: &mut SplitMix64) -> CrashPolicy {
    match rng.below(4) {
        0 | 1 => CrashPolicy::DropUnsynced,
        2 => CrashPolicy::KeepAll,
        _ => CrashPolicy::Random(rng.next_u64()),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(8)]).trim_end_matches(['x', 'y']).to_owned()
}

fn name(op: &Op) -> String {
    match op {
        Op::Put(value) => format!("put {}", text(value)),
        Op::Merge(operand) => format!("merge {}", text(operand)),
        Op::Delete => "delete".to_owned(),
        Op::DeleteRange(end) => format!("delete up to {}", text(end)),
    }
}

fn show(model: &Model) -> String {
    model.iter().map(|(key, value)| format!("{}={} ", text(key), text(value))).collect()
}

fn histories(seeds: std::ops::Range<u64>) -> Driven {
    let mut driven = Driven::default();
    for seed in seeds {
        println!("seed {seed}");
        let env = SimEnv::new(seed);
        env.run(|| {
            let mut run = Run::new(&env, seed);
            if run.rng.chance(1, 2) {
                env.switch_at_io();
            }
            for generation in 0..3 {
                (0..24).for_each(|_| run.step(&mut driven));
                run.cut_power(seed + 1000 * generation, &mut driven);
            }
        });
        assert_eq!(env.take_panics(), Vec::<String>::new());
    }
    println!("{driven:?}");
    driven
}

#[test]
fn cuts_with_the_log_off_leave_what_floors_explain() {
    let (seeds, count) = match std::env::var("DIALSM_SHARDS_SEEDS") {
        Err(_) => (0..40, 40),
        Ok(text) => {
            let (first, end) = text.split_once("..").expect("first..end");
            let [first, end]: [u64; 2] = [first, end].map(|n| n.parse().expect("a number"));
            (first..end, end - first)
        }
    };
    let d = histories(seeds);
    assert!(d.redirects >= 8 * count && d.rolled_back >= count && d.collected >= count, "{d:?}");
    assert!(d.cuts >= 20 * count && d.second_cuts >= 4 * count, "{d:?}");
    assert!(d.lossy >= 4 * count && d.partial >= 2 * count && 2 * d.snapshot_reads >= count, "{d:?}");
}
