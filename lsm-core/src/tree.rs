//! A tree: one keyspace in one shard. Memtables and levels, and the views readers take of them.
//!
//! A tree whose keyspace is dropped is emptied: its last view has nothing in it, jobs that end
//! find it dropped and throw their results away, and only readers with an older view go on. The
//! mark is set before the view is emptied, so who finds no mark after loading a view has a full one.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::Guard;
use dialsm_io::Event;
use dialsm_io::env::Nanos;
use parking_lot::{Mutex, MutexGuard};

use crate::compaction::debt::pending_compaction_bytes;
use crate::compaction::patience::Patience;
use crate::engine::Engine;
use crate::events::{Events, RedirectOff, RedirectOn, StallBegin, StallChanged, StallEnd, Taken};
use crate::key::{Comparator, Kind};
use crate::manual::seal_all_as_leader;
use crate::memtable::Memtable;
use crate::merge_operator::Merging;
use crate::metrics::StallCause;
use crate::options::KeyspaceOptions;
use crate::options::live::LiveKeyspaceOptions;
use crate::prefix::PrefixExtractor;
use crate::routing::ShardState;
use crate::space::{SpaceView, Views};
use crate::types::{SeqNo, TreeId};
use crate::version::Version;
use crate::version::set::{FlushGroup, Install};
use crate::write::budget::{Charge, WriteBudget};
use crate::write::stall::{Admission, StallGate, StallInputs, StallReport, admission};

/// What the last memtable that may be opened takes before the flush of the oldest has begun, as a
/// share of its size.
const RATION_START: f64 = 0.25;

/// Memtables with nothing but clues and deletes that a tree may have sealed beyond its number.
const SEALED_RESERVES_MAX: usize = 4;

/// A memtable with what the commit and flush paths need to know about it.
pub(crate) struct Buffer {
    pub(crate) table: Arc<Memtable>,
    /// Groups logged into it and not yet published.
    writers: AtomicUsize,
    /// Set by the switch: the last sequence before it. Zero while active.
    sealed_at: AtomicU64,
    /// Holds writes that are not in the log: a flush is their only durability.
    unlogged: AtomicBool,
    /// All entries of its tree above this sequence, and none below, went into it or a later one.
    opened_after: SeqNo,
    pub(crate) charge: Charge,
    /// Set at the seal, where it has to settle together with memtables of other trees.
    pub(crate) together: OnceLock<Arc<FlushGroup>>,
}

impl Buffer {
    pub(crate) fn new(comparator: &Comparator, opened_after: SeqNo) -> Arc<Buffer> {
        Arc::new(Buffer {
            table: Arc::new(Memtable::new(comparator.clone())),
            writers: AtomicUsize::new(0),
            sealed_at: AtomicU64::new(0),
            unlogged: AtomicBool::new(false),
            opened_after,
            charge: Charge::default(),
            together: OnceLock::new(),
        })
    }

    /// Notes that a group was published; true if a flush may now begin.
    pub(crate) fn writer_left(&self) -> bool {
        self.writers.fetch_sub(1, Ordering::AcqRel) == 1 && self.sealed_at.load(Ordering::Acquire) != 0
    }

    /// Whether its last writer has left, so that a flush sees all of it (rule 11).
    pub(crate) fn is_quiet(&self) -> bool {
        self.writers.load(Ordering::Acquire) == 0
    }

    /// The tree's floor once this memtable is in tables: the first sequence not in it.
    pub(crate) fn floor_after(&self) -> SeqNo {
        self.sealed_at.load(Ordering::Acquire) + 1
    }

    pub(crate) fn has_unlogged(&self) -> bool {
        self.unlogged.load(Ordering::Acquire)
    }
}

/// What a tree had when its keyspace was dropped.
pub(crate) struct Dropped {
    pub(crate) tree: Arc<Tree>,
    pub(crate) version: Arc<Version>,
    /// Flushes as one that it was to have a part in. They wait for it until the drop can settle with them: a power cut
    /// in between brings the keyspace back.
    pub(crate) groups: Vec<Arc<FlushGroup>>,
}

/// What a reader sees of a tree. Immutable; replaced as a whole.
pub(crate) struct TreeView {
    pub(crate) active: Arc<Buffer>,
    /// Sealed memtables, newest first.
    pub(crate) sealed: Vec<Arc<Buffer>>,
    pub(crate) version: Arc<Version>,
}

/// The part of a tree behind its lock.
pub(crate) struct TreeState {
    /// The version that the manifest on disk says; the live one is in the view.
    pub(crate) durable: Arc<Version>,
    /// First sequence not in the tables of the durable version.
    pub(crate) durable_floor: SeqNo,
    /// Epoch of the next flush: the order of L0 (rule 5).
    pub(crate) next_epoch: u64,
    /// A flush is running; flushes of a tree go one by one, in order (rule 12).
    pub(crate) flushing: bool,
    pub(crate) compactions_running: usize,
    /// The active memtable is full and no other may be opened.
    pub(crate) memtable_blocked: bool,
    /// Compactions are held back: a caller wants the tree for itself.
    pub(crate) compactions_paused: usize,
    /// Its keyspace is gone, and its view empty.
    pub(crate) dropped: bool,
    /// The floor that settles the last flush of writes which are not in the log; 0 before any.
    pub(crate) unlogged_floor: SeqNo,
    told: Told,
}

/// What was told of a tree and is not over yet.
#[derive(Default)]
struct Told {
    /// With what was told last: the cause, and whether writes are stopped.
    stall: Option<(Taken, Nanos, (StallCause, bool))>,
    redirect: Option<(Taken, Nanos)>,
}

/// What a tree begins with: what is settled of it, its version and the floor of that.
pub(crate) struct TreeStart {
    pub(crate) id: TreeId,
    pub(crate) shards: u16,
    pub(crate) name: Arc<str>,
    pub(crate) options: KeyspaceOptions,
    pub(crate) merging: Merging,
    pub(crate) version: Arc<Version>,
    pub(crate) durable_floor: SeqNo,
    /// Rung when a door of the keyspace changes: who waits at one may go by another.
    pub(crate) door_changed: Arc<dyn Event>,
    /// Of the keyspace, too.
    pub(crate) stalls: Arc<Mutex<StallReport>>,
}

/// The published view of a tree, for a short look.
pub(crate) struct TreeGuard {
    space: Guard<Arc<SpaceView>>,
    shard: u16,
}

impl std::ops::Deref for TreeGuard {
    type Target = TreeView;
    #[inline]
    fn deref(&self) -> &TreeView {
        self.space.shard(self.shard)
    }
}

/// One keyspace in one shard.
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    /// How many shards its keyspace has.
    pub(crate) shards: u16,
    /// The name of its keyspace.
    pub(crate) name: Arc<str>,
    pub(crate) comparator: Comparator,
    pub(crate) merging: Merging,
    pub(crate) prefix_extractor: Option<PrefixExtractor>,
    /// Its share of its keyspace's. The objects among them do not change, and stand above.
    pub(crate) options: LiveKeyspaceOptions,
    views: Arc<Views>,
    state: Mutex<TreeState>,
    pub(crate) stall: StallGate,
    /// That of the database; tells the trees of two databases apart.
    budget: Arc<WriteBudget>,
    dropped: AtomicBool,
    /// Bits of the pressure from which on it redirects, while that was told; of infinity else.
    redirects_from: AtomicU64,
    /// Bytes that the active memtable may have now; see [`Tree::ration`].
    ration: AtomicU64,
    numbers: Numbers,
    pub(crate) patience: Patience,
    /// What readers of its keyspace had spent on a run when it last began a merge for them, or had one run.
    pub(crate) spent_before: AtomicU64,
}

/// What a router may ask of a tree, kept where it changes.
#[derive(Default)]
struct Numbers {
    l0_runs: AtomicUsize,
    pending_bytes: AtomicU64,
    table_bytes: AtomicU64,
    /// Bits of an `f64`: see [`Tree::pressure`].
    pressure: AtomicU64,
}

impl Tree {
    /// A tree whose first view is among `views`.
    pub(crate) fn new(start: TreeStart, views: Arc<Views>, budget: Arc<WriteBudget>) -> Tree {
        let TreeStart { id, shards, name, options, merging, version, durable_floor, door_changed, stalls } =
            start;
        let next_epoch = version.l0().first().map_or(1, |newest| newest.meta().epoch + 1);
        let state = TreeState {
            durable: version,
            durable_floor,
            next_epoch,
            flushing: false,
            compactions_running: 0,
            memtable_blocked: false,
            compactions_paused: 0,
            dropped: false,
            unlogged_floor: 0,
            told: Told::default(),
        };
        Tree {
            id,
            shards,
            name,
            comparator: options.comparator.clone(),
            prefix_extractor: options.prefix_extractor.clone(),
            options: LiveKeyspaceOptions::new(options),
            merging,
            ration: AtomicU64::new(u64::MAX),
            numbers: Numbers::default(),
            patience: Patience::default(),
            spent_before: AtomicU64::new(0),
            views,
            state: Mutex::new(state),
            stall: StallGate::new(id.shard, door_changed, stalls),
            budget,
            dropped: AtomicBool::new(false),
            redirects_from: AtomicU64::new(f64::INFINITY.to_bits()),
        }
    }

    /// What readers see of a tree that was just opened.
    pub(crate) fn first_view(comparator: &Comparator, version: &Arc<Version>, floor: SeqNo) -> Arc<TreeView> {
        let active = Buffer::new(comparator, floor - 1);
        Arc::new(TreeView { active, sealed: Vec::new(), version: version.clone() })
    }

    /// Whether this is a tree of the database with that budget.
    pub(crate) fn belongs_to(&self, budget: &Arc<WriteBudget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }

    /// Whether its keyspace is gone. What a view loaded before holds is whole where this is false.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Empties the tree for good and returns the version it had. Leader only: between two groups.
    pub(crate) fn set_dropped(self: &Arc<Tree>) -> Dropped {
        let mut state = self.lock();
        state.dropped = true;
        state.memtable_blocked = false;
        self.dropped.store(true, Ordering::Release);
        let last = self.view();
        let empty = Arc::new(Version::empty(self.comparator.clone()));
        self.publish(&mut state, |_| TreeView {
            active: Buffer::new(&self.comparator, 0),
            sealed: Vec::new(),
            version: empty,
        });
        let mut groups = Vec::new();
        for buffer in std::iter::once(&last.active).chain(&last.sealed) {
            self.budget.release(&buffer.charge);
            groups.extend(buffer.together.get().cloned());
        }
        // Those who wait at its door see that it is gone.
        self.refresh_stall(state);
        self.stall.wake_all();
        Dropped { tree: self.clone(), version: last.version.clone(), groups }
    }

    /// The published view, to keep.
    pub(crate) fn view(&self) -> Arc<TreeView> {
        self.views.load().shard(self.id.shard).clone()
    }

    /// The published view, for a short look.
    #[inline]
    pub(crate) fn view_guard(&self) -> TreeGuard {
        TreeGuard { space: self.views.load(), shard: self.id.shard }
    }

    /// Inserts an entry that is not in the log, while the database is being opened.
    pub(crate) fn insert_unlogged(&self, key: &[u8], seqno: SeqNo, kind: Kind, value: &[u8]) {
        let view = self.view_guard();
        view.active.unlogged.store(true, Ordering::Release);
        view.active.table.insert(key, seqno, kind, value);
    }

    /// Raises the tree's floor to `floor`: nothing below it is in a memtable. While the database is being
    /// opened.
    pub(crate) fn raise_floor(self: &Arc<Self>, engine: &Engine, floor: SeqNo) {
        let mut state = self.lock();
        let is_there = engine.versions.last_floor(self.id).unwrap_or(state.durable_floor) >= floor;
        if !is_there {
            let (removed, added, leaving) = (Vec::new(), Vec::new(), Vec::new());
            let version = self.view().version.clone();
            let floor = Some(floor);
            let install = Install { removed, added, version, floor, leaving, reserved: None, together: None };
            engine.versions.push(self, &mut state, install);
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, TreeState> {
        self.state.lock()
    }

    /// Publishes a view built from the present one. The lock makes sure that it is the latest.
    pub(crate) fn publish(&self, _proof: &mut TreeState, change: impl FnOnce(&TreeView) -> TreeView) {
        self.views.replace(self.id.shard, change);
    }

    /// Counts a group as writer of the active memtable. Leader only.
    pub(crate) fn join_writer(&self, logged: bool) -> Arc<Buffer> {
        let buffer = self.view_guard().active.clone();
        buffer.writers.fetch_add(1, Ordering::AcqRel);
        if !logged {
            buffer.unlogged.store(true, Ordering::Release);
        }
        buffer
    }

    /// Whether it holds writes that are neither in the log nor in settled tables. As the leader:
    /// another group could bring some.
    pub(crate) fn has_unlogged(&self, state: &TreeState) -> bool {
        let view = self.view_guard();
        let mut buffers = view.sealed.iter().chain([&view.active]);
        state.unlogged_floor > state.durable_floor || buffers.any(|buffer| buffer.has_unlogged())
    }

    /// How far along the way from free to stopped writers are: 0 free, 1 stopped.
    #[inline]
    pub(crate) fn pressure(&self) -> f64 {
        f64::from_bits(self.numbers.pressure.load(Ordering::Acquire))
    }

    /// A memtable has become a run of L0.
    pub(crate) fn note_flush(&self, engine: &Engine) {
        let options = self.options.load();
        let (version, now) = (&self.view_guard().version, engine.env.now());
        self.patience.note_flush(now, &engine.metrics, version, &options.strategy, &options);
    }

    /// Whether it has a compaction wait until a burst of writes is over.
    pub(crate) fn is_patient(&self, now: Nanos) -> bool {
        let options = self.options.load();
        let is_due = self.numbers.l0_runs.load(Ordering::Relaxed) >= options.level0_compaction_trigger;
        is_due && options.level0_patience && self.patience.until(now).is_some()
    }

    /// Whether it should not take what another shard could.
    #[inline]
    pub(crate) fn is_pressed(&self, threshold: f64) -> bool {
        let pressure = self.pressure();
        pressure > 0.0 && pressure >= threshold
    }

    /// What a router is told of it; it is open below a pressure of `threshold`.
    pub(crate) fn shard_state(&self, threshold: f64) -> ShardState {
        let view = self.view_guard();
        let memtables = std::iter::once(&view.active).chain(&view.sealed);
        ShardState {
            is_open: !self.is_pressed(threshold),
            l0_runs: self.numbers.l0_runs.load(Ordering::Relaxed),
            memtable_bytes: memtables.map(|buffer| buffer.table.bytes_used() as u64).sum(),
            pending_bytes: self.numbers.pending_bytes.load(Ordering::Relaxed),
            table_bytes: self.numbers.table_bytes.load(Ordering::Relaxed),
        }
    }

    /// Bytes that the active memtable may reach with what has no other place: clues and deletes.
    fn allowance(&self, view: &TreeView, reserve: u64) -> u64 {
        let surplus = view.sealed.len() + 1 > self.options.load().write_buffers_max;
        if surplus { reserve } else { self.options.write_buffer_bytes() + reserve }
    }

    /// Whether clues and deletes have room though the door is shut (rule 22). A reserve that is full is
    /// sealed with its memtable, a few times, and the next one opened.
    pub(crate) fn has_reserve(&self, reserve: u64) -> bool {
        let view = self.view_guard();
        (view.active.table.bytes_used() as u64) < self.allowance(&view, reserve)
            || self.may_seal_reserve(&view)
    }

    fn may_seal_reserve(&self, view: &TreeView) -> bool {
        view.sealed.len() + 1 < self.options.load().write_buffers_max + SEALED_RESERVES_MAX
    }

    /// Switches a full memtable, or shuts the door if no further one may be opened. Leader only.
    #[inline]
    pub(crate) fn switch_if_full(&self, engine: &Engine, last_seqno: SeqNo) {
        let view = self.view_guard();
        let bytes = view.active.table.bytes_used() as u64;
        if bytes >= self.options.write_buffer_bytes() {
            drop(view);
            self.switch_full(engine, last_seqno);
        } else if self.shards > 1
            && view.sealed.len() >= self.options.load().write_buffers_max
            && bytes >= engine.options.load().clue_reserve_bytes
        {
            drop(view);
            if !self.seal_reserve(engine, last_seqno) {
                self.block(self.lock());
            }
        } else if bytes >= self.ration.load(Ordering::Acquire) {
            drop(view);
            self.block(self.lock());
        }
    }

    /// Switches the memtable, though it is not full, if another may be opened. Leader only.
    pub(crate) fn switch_early(&self, engine: &Engine, last_seqno: SeqNo) {
        if self.may_switch() {
            self.seal(engine, last_seqno);
            engine.schedule();
        }
    }

    /// Switches the memtable; those of all other trees, too, where all settle as one. Leader only.
    fn seal(&self, engine: &Engine, last_seqno: SeqNo) {
        if engine.options.load().atomic_flush {
            seal_all_as_leader(engine, last_seqno);
        } else {
            self.switch(&mut self.lock(), last_seqno);
        }
    }

    /// Whether there is something to switch and another memtable may be opened.
    pub(crate) fn may_switch(&self) -> bool {
        let view = self.view_guard();
        !view.active.table.is_empty() && view.sealed.len() + 1 < self.options.load().write_buffers_max
    }

    /// Whether the entry of this tree with that sequence is in the active memtable.
    pub(crate) fn has_active(&self, seqno: SeqNo) -> bool {
        self.view_guard().active.opened_after < seqno
    }

    /// Bytes of the active memtable.
    pub(crate) fn active_bytes(&self) -> usize {
        self.view_guard().active.table.bytes_used()
    }

    #[cold]
    fn switch_full(&self, engine: &Engine, last_seqno: SeqNo) {
        // Flushes may end meanwhile, which makes more room; only the leader takes some.
        if self.may_switch() {
            self.seal(engine, last_seqno);
            self.ration(0.0);
            engine.schedule();
        } else {
            self.block(self.lock());
            self.seal_reserve(engine, last_seqno);
        }
    }

    /// Seals a memtable whose reserve is full: the door stays shut, and clues and deletes go on into the
    /// next one, which has the reserve alone. False if there is nothing to seal, or no more may be. Leader only.
    #[cold]
    fn seal_reserve(&self, engine: &Engine, last_seqno: SeqNo) -> bool {
        let view = self.view_guard();
        let is_full = view.active.table.bytes_used() as u64
            >= self.allowance(&view, engine.options.load().clue_reserve_bytes);
        let may_seal = self.shards > 1 && is_full && self.may_seal_reserve(&view);
        if may_seal {
            drop(view);
            self.seal(engine, last_seqno);
            let mut state = self.lock();
            state.memtable_blocked = true;
            self.refresh_stall(state);
            engine.schedule();
        }
        may_seal
    }

    /// Shuts the door. The group at hand goes into the full memtable: it was admitted. The next
    /// writers wait.
    #[cold]
    fn block(&self, mut state: MutexGuard<'_, TreeState>) {
        if !state.memtable_blocked {
            state.memtable_blocked = true;
            self.refresh_stall(state);
        }
    }

    /// While the active memtable is the last that may be opened, lets it grow only as the flush of the
    /// oldest gets on (`done`, from 0 to 1). So a writer that is faster than the flush waits many
    /// times for a little instead of once for all of it, and loses nothing: the memtable that follows can't
    /// be opened before the flush has ended, whatever the pace.
    pub(crate) fn ration(&self, done: f64) {
        let view = self.view_guard();
        let options = self.options.load();
        let last = !view.sealed.is_empty() && view.sealed.len() + 1 >= options.write_buffers_max;
        let share = RATION_START + (1.0 - RATION_START) * done;
        let bytes = if last { (options.write_buffer_bytes as f64 * share) as u64 } else { u64::MAX };
        drop(view);
        self.ration.store(bytes, Ordering::Release);
        let state = self.lock();
        if state.memtable_blocked {
            self.refresh_stall(state);
        }
    }

    /// Whether the active memtable may take more, once the door is shut. One beyond those that may be open has a
    /// reserve alone.
    fn has_room(&self, view: &TreeView) -> bool {
        let bytes = view.active.table.bytes_used() as u64;
        let (sealed, most) = (view.sealed.len(), self.options.load().write_buffers_max);
        let in_ration = bytes < self.options.write_buffer_bytes().min(self.ration.load(Ordering::Acquire));
        sealed + 1 < most || (sealed < most && in_ration)
    }

    /// Seals the active memtable and opens a new one. Leader only: between two groups.
    pub(crate) fn switch(&self, state: &mut TreeState, last_seqno: SeqNo) {
        self.publish(state, |view| {
            view.active.sealed_at.store(last_seqno, Ordering::Release);
            self.budget.seal(&view.active.charge);
            let mut sealed = Vec::with_capacity(view.sealed.len() + 1);
            sealed.push(view.active.clone());
            sealed.extend(view.sealed.iter().cloned());
            TreeView {
                active: Buffer::new(&self.comparator, last_seqno),
                sealed,
                version: view.version.clone(),
            }
        });
    }

    /// Recomputes the state of the door from what is true now. Takes the lock's guard, because
    /// writers are woken only after it is released.
    pub(crate) fn refresh_stall(&self, mut state: MutexGuard<'_, TreeState>) {
        let view = self.view_guard();
        if state.memtable_blocked && self.has_room(&view) {
            state.memtable_blocked = false;
        }
        let options = self.options.load();
        let inputs = StallInputs {
            memtable_blocked: state.memtable_blocked,
            l0_runs: view.version.l0_depth(),
            pending_bytes: pending_compaction_bytes(&view.version, &options.strategy),
        };
        let admission = admission(&inputs, &options);
        self.numbers.l0_runs.store(inputs.l0_runs, Ordering::Relaxed);
        self.numbers.pending_bytes.store(inputs.pending_bytes, Ordering::Relaxed);
        let table_bytes = view.version.levels().iter().map(|level| level.bytes()).sum();
        self.numbers.table_bytes.store(table_bytes, Ordering::Relaxed);
        self.numbers.pressure.store(admission.pressure().to_bits(), Ordering::Release);
        let changed = self.stall.set(admission);
        if changed && self.events().is_on() {
            self.tell_stall(&mut state.told, admission);
            let threshold = f64::from_bits(self.redirects_from.load(Ordering::Relaxed));
            if !self.is_pressed(threshold) {
                self.tell_no_redirect(&mut state.told);
            }
        }
        drop(view);
        drop(state);
        if changed {
            self.stall.wake_all();
            self.events().ring();
        }
    }

    /// Where its events go.
    pub(crate) fn events(&self) -> &Arc<Events> {
        &self.budget.events
    }

    fn tell_stall(&self, told: &mut Told, admission: Admission) {
        let (keyspace, shard) = (Some(self.name.clone()), Some(self.id.shard));
        let now = match admission {
            Admission::Open => None,
            Admission::Delayed(cause, _) => Some((cause, false)),
            Admission::Stopped(cause) => Some((cause, true)),
        };
        let events = self.events();
        match (told.stall.take(), now) {
            (None, None) => {}
            (None, Some((cause, is_stopped))) => {
                let taken = events.push_begin(StallBegin { keyspace, shard, cause, is_stopped }.into());
                told.stall = Some((taken, events.now(), (cause, is_stopped)));
            }
            (Some((taken, since, was)), Some((cause, is_stopped))) => {
                if was != (cause, is_stopped) {
                    events.push_between(&taken, StallChanged { keyspace, shard, cause, is_stopped }.into());
                }
                told.stall = Some((taken, since, (cause, is_stopped)));
            }
            (Some((taken, since, (cause, _))), None) => {
                let duration_us = (events.now() - since) / 1000;
                events.push_end(taken, StallEnd { keyspace, shard, cause, duration_us }.into());
            }
        }
    }

    /// Tells that values go to others from a pressure of `threshold` on, the first one to `fallback`. Leader only.
    #[inline]
    pub(crate) fn note_redirect(&self, threshold: f64, fallback: u16) {
        if self.events().is_on() && self.redirects_from.load(Ordering::Relaxed) == f64::INFINITY.to_bits() {
            self.tell_redirect(threshold, fallback);
        }
    }

    #[cold]
    fn tell_redirect(&self, threshold: f64, fallback: u16) {
        let mut state = self.lock();
        // A router may redirect without pressure; and where that has just gone, nobody would tell of the end.
        if !self.is_pressed(threshold) || state.told.redirect.is_some() {
            return;
        }
        self.redirects_from.store(threshold.to_bits(), Ordering::Relaxed);
        let event = RedirectOn { keyspace: self.name.clone(), shard: self.id.shard, fallback };
        state.told.redirect = Some((self.events().push_begin(event.into()), self.events().now()));
        drop(state);
        self.events().ring();
    }

    fn tell_no_redirect(&self, told: &mut Told) {
        self.redirects_from.store(f64::INFINITY.to_bits(), Ordering::Relaxed);
        if let Some((taken, since)) = told.redirect.take() {
            let duration_us = (self.events().now() - since) / 1000;
            let event = RedirectOff { keyspace: self.name.clone(), shard: self.id.shard, duration_us };
            self.events().push_end(taken, event.into());
        }
    }

    /// Tells of the end of all that was told to have begun: the database is closed.
    pub(crate) fn end_events(&self, state: &mut TreeState) {
        self.tell_stall(&mut state.told, Admission::Open);
        self.tell_no_redirect(&mut state.told);
    }
}

#[cfg(test)]
mod tests;
