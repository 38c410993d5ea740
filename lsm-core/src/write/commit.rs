//! Group commit: one log record, one system call and one sequence range for all who wait.
//!
//! ```text
//! write ─ enqueue ─┬─ nobody leads: lead ─ take all waiting ─ log ─ hand over ─┐
//!                  └─ spin, then sleep until inserted, published, or free to lead │
//!   insert: each member that is awake inserts its own batch, the leader the others ◄┘
//!   publish: groups become visible in order; the last to finish publishes for all before it
//! ```
//! Leadership is not handed to a chosen follower: it becomes free, and whoever is awake takes it
//! together with all that waits. A sleeping writer is woken for it only when nobody is awake, so
//! that no group waits for a thread to be scheduled while another one could go on.
//!
//! Invariants:
//! - Only the leader touches the log writer and the sequence counter.
//! - A memtable is switched only by the leader, between groups; a group's entries go into the
//!   memtables that were active in their trees when it was logged, which count it as a writer until it
//!   is published (rule 11).
//! - A group has entries only for keyspaces that were there when it was logged: a member that names
//!   another fails by itself, before anything of it is logged.
//! - `visible` moves group by group in sequence order, after all entries of the group are in.
//! - Writers were admitted before they came here; nothing below waits for a flush (rule 20).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use dialsm_io::Event;
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use crate::batch::{Op, WriteBatch};
use crate::callback::Watch;
use crate::engine::Engine;
use crate::key::Kind;
use crate::keyspace;
use crate::routing::{encode_clue, redirected};
use crate::tree::{Buffer, Tree};
use crate::types::{SEQNO_MAX, SeqNo, TreeId};
use crate::wal::log::LogWriter;
use crate::write::route::{GroupRouter, Places, STAYS};
use crate::{Error, ErrorKind, Result};

/// How often a writer looks before it sleeps. About the time that another group's log write and
/// inserts take; longer spinning takes the processor from whoever is being waited for.
const SPINS: u32 = 200;

// States of a pending write. INSERT → CLAIMED is the one contended step.
const QUEUED: u8 = 0;
const INSERT: u8 = 1;
const CLAIMED: u8 = 2;
const DONE: u8 = 3;

/// A batch on its way: the ticket that its writer waits on.
pub(crate) struct Pending {
    batch: WriteBatch,
    places: Places,
    /// Set before the batch is offered for insertion, if some of it goes elsewhere.
    fallbacks: OnceLock<Box<[u16]>>,
    sync: bool,
    logged: bool,
    state: AtomicU8,
    first_seqno: AtomicU64,
    group: OnceLock<Arc<Group>>,
    failure: OnceLock<Error>,
    sleeper: OnceLock<Arc<dyn Event>>,
}

/// The writes of a group; few, where few threads write.
type Members = SmallVec<[Arc<Pending>; 4]>;

/// The trees that a group writes to, by ascending id; one, where there are neither shards nor keyspaces.
pub(crate) type Trees = SmallVec<[Arc<Tree>; 1]>;

/// The memtables that its entries go into, with their trees' ids, ascending.
type Buffers = SmallVec<[(TreeId, Arc<Buffer>); 1]>;

/// Writes that share a log record.
struct Group {
    members: Mutex<Members>,
    last_seqno: SeqNo,
    buffers: Buffers,
    /// Members whose entries are not all in the memtable yet.
    remaining: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Pending>>,
    led: bool,
    /// Writers awake and waiting: they will notice that leadership is free.
    awake: usize,
}

/// What only the leader may touch.
pub(crate) struct Leader {
    pub(crate) log: LogWriter,
    next_seqno: SeqNo,
}

/// The commit pipeline of a database.
pub(crate) struct Commit {
    queue: Mutex<Queue>,
    leader: Mutex<Leader>,
    publishing: Mutex<VecDeque<(Arc<Group>, bool)>>,
    visible: AtomicU64,
    sleepers: Mutex<Vec<Arc<dyn Event>>>,
}

impl Commit {
    pub(crate) fn new(log: LogWriter, last_seqno: SeqNo) -> Commit {
        Commit {
            queue: Mutex::new(Queue::default()),
            leader: Mutex::new(Leader { log, next_seqno: last_seqno + 1 }),
            publishing: Mutex::new(VecDeque::new()),
            visible: AtomicU64::new(last_seqno),
            sleepers: Mutex::new(Vec::new()),
        }
    }

    /// Goes on after `last_seqno`: what recovery found. Before the first write.
    pub(crate) fn restart_at(&self, last_seqno: SeqNo) {
        self.leader.lock().next_seqno = last_seqno + 1;
        self.visible.store(last_seqno, Ordering::Release);
    }

    /// The sequence number up to which everything may be read.
    pub(crate) fn visible(&self) -> &AtomicU64 {
        &self.visible
    }

    /// Writes in the queue.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.queue.lock().waiting.len()
    }

    /// Commits `batch`; returns when it is visible (and synced, where asked).
    pub(crate) fn write(
        &self,
        engine: &Engine,
        (batch, places): (WriteBatch, Places),
        sync: bool,
        logged: bool,
    ) -> Result<()> {
        let mine = Arc::new(Pending {
            batch,
            places,
            fallbacks: OnceLock::new(),
            sync,
            logged,
            state: AtomicU8::new(QUEUED),
            first_seqno: AtomicU64::new(0),
            group: OnceLock::new(),
            failure: OnceLock::new(),
            sleeper: OnceLock::new(),
        });
        let lead = {
            let mut queue = self.queue.lock();
            queue.waiting.push_back(mine.clone());
            let lead = queue.take_lead();
            queue.awake += usize::from(!lead);
            lead
        };
        if lead {
            self.lead(engine);
            if mine.state.load(Ordering::Acquire) != DONE {
                self.queue.lock().awake += 1;
                self.wait(engine, &mine);
            }
        } else {
            self.wait(engine, &mine);
        }
        match mine.failure.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Runs `act` as the leader, between two groups: nobody else assigns sequence numbers,
    /// appends to the log or switches a memtable meanwhile.
    pub(crate) fn between_groups<T>(&self, engine: &Engine, act: impl FnOnce(&mut Leader, SeqNo) -> T) -> T {
        let mut event = None;
        loop {
            if self.queue.lock().take_lead() {
                break;
            }
            // Rare (a flush by hand, closing): a plain wait is good enough.
            let event = event.get_or_insert_with(|| engine.env.event());
            event.wait(event.epoch(), Some(engine.env.now() + 50_000));
        }
        let result = self.act_as_leader(act);
        if let Some(event) = event {
            self.sleepers.lock().push(event);
        }
        result
    }

    /// The same, if nobody leads just now: for those whom a leader may wait for.
    pub(crate) fn try_between_groups<T>(&self, act: impl FnOnce(&mut Leader, SeqNo) -> T) -> Option<T> {
        let is_mine = self.queue.lock().take_lead();
        is_mine.then(|| self.act_as_leader(act))
    }

    /// Has the lead, and gives it back.
    fn act_as_leader<T>(&self, act: impl FnOnce(&mut Leader, SeqNo) -> T) -> T {
        let result = {
            let mut leader = self.leader.lock();
            let last = leader.next_seqno - 1;
            act(&mut leader, last)
        };
        self.free_lead();
        result
    }

    /// Waits until `mine` is done. The caller has counted itself as awake.
    fn wait(&self, engine: &Engine, mine: &Arc<Pending>) {
        for spin in 0..SPINS {
            match mine.state.load(Ordering::Acquire) {
                DONE => {
                    self.stop_watching();
                    return;
                }
                INSERT => insert_if_unclaimed(self, engine, mine),
                QUEUED if spin % 16 == 15 && self.try_lead() => self.lead(engine),
                _ => std::hint::spin_loop(),
            }
        }
        let event = self.sleepers.lock().pop().unwrap_or_else(|| engine.env.event());
        let _ = mine.sleeper.set(event.clone());
        self.stop_watching();
        loop {
            let seen = event.epoch();
            // Pairs with the fence in `wake`: either the waker sees the sleeper, or this load
            // sees the new state.
            fence(Ordering::SeqCst);
            match mine.state.load(Ordering::Acquire) {
                DONE => break,
                INSERT => insert_if_unclaimed(self, engine, mine),
                QUEUED if self.try_lead() => self.lead(engine),
                _ => {
                    event.wait(seen, None);
                }
            }
        }
        self.sleepers.lock().push(event);
    }

    /// Ends the caller's watch over free leadership; if it was the last to watch, a sleeper is
    /// woken for what may have become free meanwhile.
    fn stop_watching(&self) {
        let mut queue = self.queue.lock();
        queue.awake -= 1;
        let unwatched = queue.unwatched();
        drop(queue);
        unwatched.iter().for_each(|front| wake(front));
    }

    fn try_lead(&self) -> bool {
        self.queue.lock().take_lead()
    }

    /// Leads one group. The caller holds leadership.
    fn lead(&self, engine: &Engine) {
        let mut leader = self.leader.lock();
        let members = self.queue.lock().take_group(engine.options.max_write_group_bytes());
        if members.is_empty() {
            drop(leader);
            self.free_lead();
            return;
        }
        let (members, trees) = route(engine, members, leader.next_seqno - 1);
        if members.is_empty() {
            drop(leader);
            self.free_lead();
            return;
        }
        let logged = log_group(engine, &mut leader, members, &trees);
        if let Ok(group) = &logged {
            self.publishing.lock().push_back((group.clone(), false));
            for member in group.members.lock().iter() {
                let _ = member.group.set(group.clone());
                member.state.store(INSERT, Ordering::Release);
            }
        }
        drop(leader);
        self.free_lead();
        match logged {
            Ok(group) => self.insert_all(engine, &group),
            Err((members, error)) => {
                for member in members {
                    let _ = member.failure.set(error.clone());
                    finish(&member);
                }
            }
        }
    }

    /// Gives leadership up, and wakes a sleeper for it where nobody else would take it.
    fn free_lead(&self) {
        let mut queue = self.queue.lock();
        queue.led = false;
        let unwatched = queue.unwatched();
        drop(queue);
        unwatched.iter().for_each(|front| wake(front));
    }

    fn insert_all(&self, engine: &Engine, group: &Arc<Group>) {
        let members = group.members.lock().clone();
        for member in &members {
            insert_if_unclaimed(self, engine, member);
        }
    }

    /// Marks the group as inserted and publishes it with all finished ones before it.
    fn finish_group(&self, engine: &Engine, group: &Arc<Group>) {
        let mut done: SmallVec<[Arc<Group>; 4]> = SmallVec::new();
        {
            let mut publishing = self.publishing.lock();
            for (other, inserted) in publishing.iter_mut() {
                if Arc::ptr_eq(other, group) {
                    *inserted = true;
                }
            }
            while publishing.front().is_some_and(|(_, inserted)| *inserted) {
                let (group, _) = publishing.pop_front().expect("the front was just seen");
                self.visible.store(group.last_seqno, Ordering::Release);
                done.push(group);
            }
        }
        for group in done {
            for (_, buffer) in &group.buffers {
                engine.write_budget.charge(&buffer.charge, buffer.table.bytes_used() as u64);
                if buffer.writer_left() {
                    engine.schedule();
                }
            }
            // Taken out, because members and group own each other.
            let members = std::mem::take(&mut *group.members.lock());
            members.iter().for_each(finish);
        }
    }
}

impl Queue {
    fn take_lead(&mut self) -> bool {
        !std::mem::replace(&mut self.led, true)
    }

    /// The front, if leadership is free and nobody awake would notice.
    fn unwatched(&self) -> Option<Arc<Pending>> {
        if self.led || self.awake > 0 { None } else { self.waiting.front().cloned() }
    }

    /// Takes the front and all behind it that may share its record: the same logging, at most
    /// `bytes_max` in sum (the front alone may be larger).
    fn take_group(&mut self, bytes_max: u64) -> Members {
        let mut members = Members::new();
        let mut bytes = 0;
        while let Some(next) = self.waiting.front() {
            bytes += next.batch.byte_size() as u64;
            if let Some(first) = members.first() {
                let first: &Arc<Pending> = first;
                if first.logged != next.logged || bytes > bytes_max {
                    break;
                }
            }
            members.extend(self.waiting.pop_front());
        }
        members
    }
}

/// The trees that the group writes to, their memtables switched where they were full. Members that name
/// a keyspace which is not there fail here.
#[inline]
fn route(engine: &Engine, members: Members, last_seqno: SeqNo) -> (Members, Trees) {
    if engine.space.shards() == 1 && members.iter().all(|member| member.batch.others().is_empty()) {
        let tree = &engine.space.trees[0];
        tree.switch_if_full(engine, last_seqno);
        return (members, smallvec![tree.clone()]);
    }
    route_to_many(engine, members, last_seqno)
}

fn route_to_many(engine: &Engine, members: Members, last_seqno: SeqNo) -> (Members, Trees) {
    let alive = engine.keyspaces.alive();
    let mut kept = Members::new();
    let mut router = GroupRouter::new(engine, &alive, last_seqno, members[0].logged);
    for member in members {
        let batch = &member.batch;
        if let Some(id) = batch.others().iter().find(|id| alive.by_id(**id).is_none()) {
            let _ = member.failure.set(keyspace::unknown(*id));
            finish(&member);
            continue;
        }
        if let Some(fallbacks) = router.route(batch, &member.places) {
            let _ = member.fallbacks.set(fallbacks);
        }
        kept.push(member);
    }
    (kept, router.finish())
}

/// Assigns sequence numbers, writes the record, syncs where asked, and picks the memtables.
fn log_group(
    engine: &Engine,
    leader: &mut Leader,
    members: Members,
    trees: &[Arc<Tree>],
) -> std::result::Result<Arc<Group>, (Members, Error)> {
    match try_log_group(engine, leader, &members, trees) {
        Ok((last_seqno, buffers)) => {
            let remaining = AtomicUsize::new(members.len());
            Ok(Arc::new(Group { members: Mutex::new(members), last_seqno, buffers, remaining }))
        }
        Err(error) => Err((members, error)),
    }
}

fn try_log_group(
    engine: &Engine,
    leader: &mut Leader,
    members: &[Arc<Pending>],
    trees: &[Arc<Tree>],
) -> Result<(SeqNo, Buffers)> {
    engine.error.check()?;
    engine.check_writable()?;
    if engine.writes_ended.load(Ordering::Acquire) {
        return Err(Error::new(ErrorKind::Closed, "the database is being closed"));
    }
    switch_for_bounds(engine, leader.next_seqno - 1);
    let first_seqno = leader.next_seqno;
    let mut next = first_seqno;
    for member in members {
        member.first_seqno.store(next, Ordering::Relaxed);
        next += u64::from(member.batch.len());
    }
    if next > SEQNO_MAX {
        return Err(Error::new(ErrorKind::Unsupported, "the database has used up its sequence numbers"));
    }
    // Burnt even if the log fails: a record that did reach the disk must not share its numbers.
    leader.next_seqno = next;
    let (mut sync, mut bytes) = (false, 0);
    for member in members {
        sync |= member.sync;
        bytes += member.batch.byte_size() as u64;
    }
    if members[0].logged {
        let is_redirected = |member: &Arc<Pending>| member.fallbacks.get().is_some();
        let rewritten: Vec<Vec<u8>> = match members.iter().any(is_redirected) {
            true => members.iter().map(|member| rewrite(member)).collect(),
            false => Vec::new(),
        };
        let parts: SmallVec<[&[u8]; 4]> = members
            .iter()
            .enumerate()
            .map(|(at, member)| match rewritten.get(at) {
                Some(bytes) if is_redirected(member) => bytes,
                _ => member.batch.as_bytes(),
            })
            .collect();
        let count = (next - first_seqno) as u32;
        leader.log.append(engine, first_seqno, count, &parts, trees)?;
        if sync {
            leader.log.sync(engine)?;
        }
    }
    engine.metrics.add_group(next - first_seqno, bytes);
    let logged = members[0].logged;
    Ok((next - 1, trees.iter().map(|tree| (tree.id, tree.join_writer(logged))).collect()))
}

/// The batch's bytes as the log has them: with a fallback where an operation was redirected. Nothing if
/// none was.
fn rewrite(member: &Pending) -> Vec<u8> {
    let Some(fallbacks) = member.fallbacks.get() else { return Vec::new() };
    let mut bytes = Vec::with_capacity(member.batch.byte_size() + 2 * fallbacks.len());
    for (op, fallback) in member.batch.iter().zip(fallbacks) {
        let op = op.expect("a batch holds only whole operations");
        Op { fallback: (*fallback != STAYS).then_some(*fallback), ..op }.encode(&mut bytes);
    }
    bytes
}

/// Switches memtables, though they are not full, that hold the oldest log where that is too long, and the
/// largest where all together are too many.
#[inline]
fn switch_for_bounds(engine: &Engine, last_seqno: SeqNo) {
    if engine.log.is_over_bound() {
        switch_oldest(engine, last_seqno);
    }
    if engine.write_budget.wants_switch() {
        switch_largest(engine, last_seqno);
    }
}

/// Switches the memtables with entries in the oldest log segment, so that it can go. Those that are
/// sealed already are on their way.
#[cold]
fn switch_oldest(engine: &Engine, last_seqno: SeqNo) {
    let alive = engine.keyspaces.alive_guard();
    for (id, last_there) in engine.log.oldest_parts() {
        match alive.tree(id) {
            Some(tree) if tree.has_active(last_there) => tree.switch_early(engine, last_seqno),
            _ => {}
        }
    }
}

/// Switches the largest active memtable of all trees. Leader only.
#[cold]
fn switch_largest(engine: &Engine, last_seqno: SeqNo) {
    let alive = engine.keyspaces.alive_guard();
    let largest = alive.trees.iter().filter(|tree| tree.may_switch()).max_by_key(|tree| tree.active_bytes());
    if let Some(tree) = largest {
        tree.switch_early(engine, last_seqno);
    }
}

/// For a writer that waits because all memtables together are too large: sees to it that a flush is
/// due. The leader does so for each group, but there is none while writers wait.
pub(crate) fn relieve_budget(engine: &Engine) {
    if engine.write_budget.wants_switch() {
        engine.commit.between_groups(engine, |_, last_seqno| {
            if engine.write_budget.wants_switch() {
                switch_largest(engine, last_seqno);
            }
        });
    }
}

/// Inserts a member's batch unless another thread does, and publishes the group after the last.
fn insert_if_unclaimed(commit: &Commit, engine: &Engine, member: &Arc<Pending>) {
    if member.state.compare_exchange(INSERT, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let group = member.group.get().expect("a member is offered for insertion after it got its group").clone();
    let watch = Watch::begin_any(group.buffers.iter().map(|(_, buffer)| buffer.table.comparator()));
    match engine.space.shards() {
        1 => insert_in_order(member, &group.buffers),
        _ => insert_in_shards(member, &group.buffers),
    }
    if let Err(error) = watch.check() {
        // The entries may stand in the wrong places; the log has them.
        engine.error.latch_lasting("an insert", &error);
        let _ = member.failure.set(error);
        engine.wake_writers();
    }
    if group.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
        commit.finish_group(engine, &group);
    }
}

/// Inserts a batch where each keyspace is one tree.
#[inline]
fn insert_in_order(member: &Pending, buffers: &Buffers) {
    let first_seqno = member.first_seqno.load(Ordering::Relaxed);
    let mut at = 0;
    for (seqno, op) in (first_seqno..).zip(member.batch.iter()) {
        let op = op.expect("a batch holds only whole operations");
        if buffers[at].0.keyspace != op.keyspace {
            at = place_of(buffers, TreeId { keyspace: op.keyspace, shard: 0 });
        }
        buffers[at].1.table.insert(op.key, seqno, op.kind, op.value);
    }
}

/// Inserts a batch into the shards that its operations were routed to.
fn insert_in_shards(member: &Pending, buffers: &Buffers) {
    let first_seqno = member.first_seqno.load(Ordering::Relaxed);
    let mut clue = Vec::new();
    for (n, op) in member.batch.iter().enumerate() {
        let op = op.expect("a batch holds only whole operations");
        let seqno = first_seqno + n as SeqNo;
        let buffer =
            |shard: u16| &buffers[place_of(buffers, TreeId { keyspace: op.keyspace, shard })].1.table;
        if op.kind == Kind::RangeDelete {
            // One tombstone under one sequence in each shard (rule 8).
            for (_, buffer) in buffers.iter().filter(|(id, _)| id.keyspace == op.keyspace) {
                buffer.table.insert(op.key, seqno, op.kind, op.value);
            }
            continue;
        }
        let primary = buffer(member.places[n]);
        match member.fallbacks.get().map_or(STAYS, |fallbacks| fallbacks[n]) {
            STAYS => primary.insert(op.key, seqno, op.kind, op.value),
            fallback => {
                let (clue_kind, value_kind) = redirected(op.kind);
                buffer(fallback).insert(op.key, seqno, value_kind, op.value);
                encode_clue(fallback, &mut clue);
                primary.insert(op.key, seqno, clue_kind, &clue);
            }
        }
    }
}

fn place_of(buffers: &Buffers, tree: TreeId) -> usize {
    if let [(only, _)] = &buffers[..]
        && *only == tree
    {
        return 0;
    }
    let found = buffers.binary_search_by_key(&tree, |(id, _)| *id);
    found.expect("a group has a memtable of each tree that its members were routed to")
}

fn finish(member: &Arc<Pending>) {
    member.state.store(DONE, Ordering::Release);
    wake(member);
}

fn wake(member: &Pending) {
    // Pairs with the fence in `wait`.
    fence(Ordering::SeqCst);
    if let Some(event) = member.sleeper.get() {
        event.notify();
    }
}
