//! A simulated machine with a database on it, and doors at which its threads stand still.

use std::cmp::Ordering as Order;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dialsm_core::key::{Comparator, UserComparator};
use dialsm_core::options::{Compression, InfoLogLevel};
use dialsm_core::{
    Db, Keyspace, KeyspaceOptions, MergeOperator, Options, ReadOptions, WriteBatch, WriteOptions,
    merge_operator,
};
use dialsm_io::{Call, CrashPolicy, Env, Event, FaultFs, Fs, JobHandle, OpKind, SimEnv, SimFs};
use parking_lot::Mutex;

pub(crate) const DIR: &str = "/db";
pub(crate) const EIO: i32 = 5;
pub(crate) const EXDEV: i32 = 18;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// What a power cut may leave: the least, the most, and something in between.
pub(crate) const CUTS: [CrashPolicy; 5] = [
    CrashPolicy::DropUnsynced,
    CrashPolicy::KeepAll,
    CrashPolicy::Random(1),
    CrashPolicy::Random(2),
    CrashPolicy::Random(3),
];

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Small buffers and segments; flushes and compactions by hand.
pub(crate) fn by_hand() -> Options {
    Options {
        write_buffer_bytes: 1 << 20,
        table_bytes: 64 << 10,
        log_segment_bytes: 64 << 10,
        log_recycle_max: 2,
        block_cache_bytes: 1 << 20,
        automatic_compaction: false,
        // Several threads do the I/O: one that stands at a door keeps nobody else.
        use_io_uring: false,
        compression: Compression::None,
        compression_bottom: Compression::None,
        merge_operator: Some(merge_operator::append(b"+")),
        info_log_level: InfoLogLevel::Off,
        ..Options::default()
    }
}

pub(crate) fn synced() -> WriteOptions {
    WriteOptions { sync: true, ..WriteOptions::default() }
}

/// Not synced: a power cut may take it.
pub(crate) fn put(db: &Db, key: &[u8], value: &[u8]) {
    db.put(&WriteOptions::default(), key, value).expect("put");
}

pub(crate) fn put_in(db: &Db, keyspace: &Keyspace, key: &[u8], value: &[u8]) {
    db.put_in(&WriteOptions::default(), keyspace, key, value).expect("put");
}

pub(crate) fn get(db: &Db, key: &[u8]) -> Option<Vec<u8>> {
    db.get(&ReadOptions::default(), key).expect("get").map(|value| value.to_vec())
}

pub(crate) fn get_in(db: &Db, keyspace: &Keyspace, key: &[u8]) -> Option<Vec<u8>> {
    db.get_in(&ReadOptions::default(), keyspace, key).expect("get").map(|value| value.to_vec())
}

pub(crate) fn batch_in(ids: &[u32], key: &[u8], value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    ids.iter().for_each(|id| batch.put_in(*id, key, value).expect("put"));
    batch
}

/// All of the default keyspace, forward; a pass backward must agree.
pub(crate) fn contents(db: &Db) -> Model {
    contents_at(db, &ReadOptions::default())
}

pub(crate) fn contents_at(db: &Db, options: &ReadOptions) -> Model {
    let mut iter = db.iter(options).expect("iterator");
    let mut found = Model::new();
    iter.seek_to_first().expect("seek");
    while iter.valid() {
        assert!(found.insert(iter.key().to_vec(), iter.value().to_vec()).is_none(), "a key came twice");
        iter.next().expect("next");
    }
    let mut backward = Model::new();
    iter.seek_to_last().expect("seek");
    while iter.valid() {
        assert!(backward.insert(iter.key().to_vec(), iter.value().to_vec()).is_none(), "a key came twice");
        iter.prev().expect("prev");
    }
    assert!(found == backward, "the passes in the two directions differ");
    found
}

pub(crate) fn number(db: &Db, property: &str) -> u64 {
    db.property(property).expect("a known property").parse().expect("a number")
}

/// Tables of the default keyspace that readers use.
pub(crate) fn live_files(db: &Db) -> u64 {
    (0..7).map(|level| files_at(db, level)).sum()
}

pub(crate) fn files_at(db: &Db, level: usize) -> u64 {
    number(db, &format!("dialsm.num-files-at-level{level}"))
}

/// Where threads stand still until it is opened, for good. Opens when the test lets go of it, so that a
/// failed assertion leaves nobody behind: a test takes its doors after the database.
pub(crate) struct Door {
    gate: Arc<Gate>,
}

/// The side of those who come to a door.
pub(crate) struct Gate {
    env: Arc<SimEnv>,
    event: Arc<dyn Event>,
    open: AtomicBool,
    came: AtomicU64,
}

impl Gate {
    /// Stands still until the door is open.
    pub(crate) fn pass(&self) {
        if self.open.load(Ordering::SeqCst) {
            return;
        }
        self.came.fetch_add(1, Ordering::SeqCst);
        self.event.notify();
        loop {
            let seen = self.event.epoch();
            if self.open.load(Ordering::SeqCst) {
                return;
            }
            self.event.wait(seen, None);
        }
    }
}

impl Door {
    fn new(env: &Arc<SimEnv>) -> Door {
        let gate = Gate {
            env: env.clone(),
            event: env.event(),
            open: AtomicBool::new(false),
            came: AtomicU64::new(0),
        };
        Door { gate: Arc::new(gate) }
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub(crate) fn came(&self) -> u64 {
        self.gate.came.load(Ordering::SeqCst)
    }

    /// Waits until somebody stands at it.
    pub(crate) fn wait_for_one(&self) {
        let deadline = self.gate.env.now() + 100 * SECOND;
        loop {
            let seen = self.gate.event.epoch();
            if self.came() > 0 {
                return;
            }
            assert!(self.gate.env.now() < deadline, "nobody comes to the door");
            self.gate.event.wait(seen, Some(deadline));
        }
    }

    pub(crate) fn open(&self) {
        self.gate.open.store(true, Ordering::SeqCst);
        self.gate.event.notify();
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.open();
    }
}

/// A simulated machine.
pub(crate) struct Bench {
    pub(crate) env: Arc<SimEnv>,
    pub(crate) faults: Arc<FaultFs>,
}

impl Bench {
    /// A machine with an empty disk, and `body` run inside its simulation.
    pub(crate) fn run(body: impl FnOnce(&Bench)) {
        Bench::run_seed(1, body);
    }

    pub(crate) fn run_seed(seed: u64, body: impl FnOnce(&Bench)) {
        let root = SimEnv::new(seed);
        let bench = Bench::on(&root, root.sim_fs().clone());
        root.run(|| body(&bench));
    }

    fn on(env: &SimEnv, disk: Arc<SimFs>) -> Bench {
        let faults = FaultFs::new(disk.clone());
        let seen: Arc<dyn Fs> = faults.clone();
        Bench { env: env.on_fs(disk, seen), faults }
    }

    pub(crate) fn disk(&self) -> &Arc<SimFs> {
        self.env.sim_fs()
    }

    pub(crate) fn try_open(&self, options: &Options) -> dialsm_core::Result<Db> {
        Db::open(self.env.clone(), Path::new(DIR), options.clone())
    }

    pub(crate) fn open(&self, options: &Options) -> Db {
        self.try_open(options).expect("open")
    }

    pub(crate) fn open_with(&self, options: &Options, named: &[(&str, KeyspaceOptions)]) -> Db {
        Db::open_with(self.env.clone(), Path::new(DIR), options.clone(), named).expect("open")
    }

    /// Lets time of the simulated clock pass: all that can be done without it is done then.
    pub(crate) fn sleep(&self, nanos: u64) {
        self.env.sleep(nanos);
    }

    pub(crate) fn now(&self) -> u64 {
        self.env.now()
    }

    /// Waits until `is_so`, which other threads bring about.
    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = self.now() + 100 * SECOND;
        while !is_so() {
            assert!(self.now() < deadline, "it never comes: {what}");
            self.sleep(100_000);
        }
    }

    /// Waits until nothing is left to do, unlinking included.
    pub(crate) fn tidy(&self, db: &Db) {
        db.wait_until_idle().expect("idle");
        // What the last reader has let go of is unlinked when somebody next looks for work.
        db.flush().expect("flush");
        self.sleep(1_000_000);
    }

    /// The machine after a power cut at this instant.
    pub(crate) fn cut(&self, policy: CrashPolicy) -> Bench {
        Bench::on(&self.env, self.disk().crash_image(policy))
    }

    /// A machine in the same simulation with the disk `image`.
    pub(crate) fn with_disk(&self, image: Arc<SimFs>) -> Bench {
        Bench::on(&self.env, image)
    }

    /// Names in the database's directory that contain `part`.
    pub(crate) fn names(&self, part: &str) -> Vec<String> {
        let names = self.disk().list(Path::new(DIR)).expect("list");
        names.into_iter().filter(|name| name.contains(part)).collect()
    }

    /// A door that stands nowhere yet.
    pub(crate) fn door(&self) -> Door {
        Door::new(&self.env)
    }

    /// Holds the syncs of tables from now on.
    pub(crate) fn hold_syncs(&self) -> Holding {
        let held = Mutex::default();
        let holds = Arc::new(Holds { env: self.env.clone(), is_on: AtomicBool::new(true), held });
        let come = holds.clone();
        self.disk().add_call_hook(Arc::new(move |call| {
            if is(call, OpKind::Sync, ".sst") {
                come.come(call.path.file_name().expect("a name").to_string_lossy().into_owned());
            }
        }));
        Holding(holds)
    }

    /// A door before the `nth` call from now on (the first is 1), and all later ones, of those that
    /// `is_meant` picks.
    pub(crate) fn door_at(&self, nth: u64, is_meant: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Door {
        let door = self.door();
        let (gate, met) = (door.gate.clone(), AtomicU64::new(0));
        self.disk().add_call_hook(Arc::new(move |call| {
            if is_meant(call) && met.fetch_add(1, Ordering::SeqCst) + 1 >= nth {
                gate.pass();
            }
        }));
        door
    }

    /// A door before calls of `op` on paths that contain `part`.
    pub(crate) fn door_on(&self, op: OpKind, part: &'static str) -> Door {
        self.door_at(1, move |call| is(call, op, part))
    }

    /// Runs `job` on a thread of the simulation.
    pub(crate) fn spawn(&self, job: impl FnOnce() + Send + 'static) -> Box<dyn JobHandle> {
        self.env.spawn("user", Box::new(job)).expect("spawn")
    }

    /// Takes an image at each call that `is_meant` picks, before it takes effect.
    pub(crate) fn images_at(
        &self,
        policy: CrashPolicy,
        is_meant: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) -> Arc<Mutex<Vec<Arc<SimFs>>>> {
        let images: Arc<Mutex<Vec<Arc<SimFs>>>> = Arc::default();
        let (into, disk) = (images.clone(), self.disk().clone());
        self.disk().add_call_hook(Arc::new(move |call| {
            if is_meant(call) {
                into.lock().push(disk.crash_image(policy));
            }
        }));
        images
    }
}

/// Syncs of tables that stand still, each until it is let go.
pub(crate) struct Holds {
    env: Arc<SimEnv>,
    is_on: AtomicBool,
    held: Mutex<BTreeMap<String, Door>>,
}

impl Holds {
    /// The tables whose sync came while holding was on, by name; those let go included.
    pub(crate) fn names(&self) -> Vec<String> {
        self.held.lock().keys().cloned().collect()
    }

    /// Whether the syncs that come from now on are held.
    pub(crate) fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::SeqCst);
    }

    pub(crate) fn let_go(&self, name: &str) {
        let door = self.held.lock().remove(name).expect("it is held");
        door.open();
        self.held.lock().insert(name.to_owned(), door);
    }

    fn come(&self, name: String) {
        if !self.is_on.load(Ordering::SeqCst) {
            return;
        }
        let gate = self.held.lock().entry(name).or_insert_with(|| Door::new(&self.env)).gate.clone();
        gate.pass();
    }
}

/// The side of the test, which lets all go when it ends.
pub(crate) struct Holding(Arc<Holds>);

impl std::ops::Deref for Holding {
    type Target = Holds;
    fn deref(&self) -> &Holds {
        &self.0
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.set(false);
        let doors = std::mem::take(&mut *self.0.held.lock());
        drop(doors);
    }
}

/// Whether it is a call of `op` on a path that contains `part`.
pub(crate) fn is(call: &Call, op: OpKind, part: &str) -> bool {
    call.op == Some(op) && call.path.to_string_lossy().contains(part)
}

/// The order of the bytes, with a door that stands open until it is armed: then a user's
/// thread that compares the key `slow` with another one stands still there.
pub(crate) struct SlowOrder(Mutex<Option<Arc<Gate>>>);

impl SlowOrder {
    pub(crate) fn new() -> Arc<SlowOrder> {
        Arc::new(SlowOrder(Mutex::new(None)))
    }

    pub(crate) fn arm(&self, door: &Door) {
        *self.0.lock() = Some(door.gate.clone());
    }

    /// Options of a keyspace in this order.
    pub(crate) fn keyspace(self: &Arc<SlowOrder>, options: &Options) -> KeyspaceOptions {
        KeyspaceOptions { comparator: Comparator::Custom(self.clone()), ..options.keyspace() }
    }
}

impl UserComparator for SlowOrder {
    fn name(&self) -> &str {
        "holes.slow"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Order {
        let is_users = std::thread::current().name() == Some("user");
        if is_users && a != b && (a == b"slow" || b == b"slow") {
            let gate = self.0.lock().clone();
            if let Some(gate) = gate {
                gate.pass();
            }
        }
        a.cmp(b)
    }

    fn equal_is_identical(&self) -> bool {
        true
    }
}

/// Appends operands, with `+` between; those that begin with `slow` are folded behind a door, once it
/// is armed.
pub(crate) struct SlowMerge(Mutex<Option<(Vec<u8>, Arc<Gate>)>>);

impl SlowMerge {
    pub(crate) fn new() -> Arc<SlowMerge> {
        Arc::new(SlowMerge(Mutex::new(None)))
    }

    /// From now on folds with an operand that begins with `word` stand still.
    pub(crate) fn arm(&self, word: &[u8], door: &Door) {
        *self.0.lock() = Some((word.to_vec(), door.gate.clone()));
    }

    fn fold(&self, base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let armed = self.0.lock().clone();
        if let Some((word, gate)) = armed
            && operands.iter().any(|operand| operand.starts_with(&word))
        {
            gate.pass();
        }
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Some(parts.join(b"+".as_slice()))
    }
}

impl MergeOperator for SlowMerge {
    fn name(&self) -> &str {
        "holes.slow"
    }

    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.fold(base, operands)
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.fold(None, operands)
    }
}
