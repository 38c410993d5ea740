//! What a user iterates: one entry a key, as of one sequence number, within bounds (C3).
//!
//! The source below holds every version of every key, newest first. This layer hides versions
//! above the snapshot, all but the newest of the rest, and keys whose newest one is a tombstone.
//!
//! ```text
//! forward    the source stands ON the entry shown; key and value are borrowed from it
//! merged     going forward over operands: the source stands on the entry that ended their chain, or
//!            behind it; the key was copied, the value made by the merge operator
//! backward   the source stands on the last entry BEFORE all versions of the key shown; key and
//!            value were copied (values of tables are shared, not copied) while passing them
//! ```
//! So `next` after `next` and `prev` after `prev` move the source by the entries passed and seek
//! nothing; only a turn, or more than [`RESEEK_AFTER`] versions of one key, costs a seek.
//! Stepping back and then resolving each key forward was rejected: it turns the merge below twice
//! a step.
//!
//! INVARIANTS
//! - No key outside the bounds is ever shown, at the first position as at any other (B005). Every
//!   seek clamps its target to one bound, every resolved key is checked against the other.
//! - With a `Scope`, the source is told before every seek which prefix the rest of the way has, if
//!   it is known to have one; and with `prefix_same_as_start` no key of another prefix is shown.
//! - A turn seeks to the key shown; it never concludes anything from the source being invalid
//!   (B001).
//! - After an error the iterator is not valid and every move returns the error again until a
//!   positioning call succeeds: a short scan never looks like a complete one (B003). A user's
//!   comparator that panicked is such an error, and so is one that leads a seek in a circle.
//!
//! - A redirected value counts only with the clue of its key and sequence, which follows it in the
//!   source's order (backward: comes before it); one that meets no clue is passed over (I1), and a clue
//!   that meets no value is an error. They are paired by key and sequence, never by being neighbours.

use std::sync::Arc;

use crate::callback::Watch;
use crate::key::{Comparator, Kind, SEEK_KIND, append_internal, kind_byte_of, seqno_of, user_key};
use crate::merge_operator::{MergeOperator, no_operator};
use crate::prefix::{Scope, Toward};
use crate::read::internal::InternalIter;
use crate::read::landings::Landings;
use crate::read::operands::Operands;
use crate::table::ReadStats;
use crate::types::{SEQNO_MAX, SeqNo};
use crate::{Error, ErrorKind, Result, Slice};

/// How many further versions of one key are stepped over before seeking past them instead.
pub const RESEEK_AFTER: u32 = 8;

/// What passing over hidden entries has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterStats {
    /// Entries above the snapshot.
    pub skipped_newer: u64,
    /// Versions that a newer visible one hides.
    pub skipped_older: u64,
    /// Keys whose newest visible version is a tombstone.
    pub skipped_tombstones: u64,
    /// Seeks that replaced stepping over many versions.
    pub reseeks: u64,
    /// Entries under a range tombstone that were passed one by one. Those of the source know this
    /// and the next, so [`DbIter::stats`] leaves them at 0.
    pub skipped_covered: u64,
    /// Moves of all older sources past a range tombstone.
    pub range_jumps: u64,
}

/// What the newest visible version of a key says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Value,
    /// It depends on what is older.
    Operand,
    Gone,
    /// A value or operand, if its clue is there.
    Redirected,
    /// Says that a redirected entry counts.
    Clue,
}

/// The meaning of a kind for a reader.
#[inline]
fn resolve(kind: u8) -> Result<Verdict> {
    match Kind::from_u8(kind) {
        Some(Kind::Put) => Ok(Verdict::Value),
        Some(Kind::Delete | Kind::SingleDelete) => Ok(Verdict::Gone),
        Some(Kind::Merge) => Ok(Verdict::Operand),
        Some(Kind::RedirectedValue | Kind::RedirectedOperand) => Ok(Verdict::Redirected),
        Some(Kind::ClueValue | Kind::ClueOperand) => Ok(Verdict::Clue),
        Some(other) => {
            Err(Error::new(ErrorKind::Unsupported, format!("iterating over an entry of kind {other:?}")))
        }
        None => Err(Error::corruption(format!("an entry of unknown kind {kind}"))),
    }
}

enum State {
    /// Not positioned, or past an end.
    Invalid,
    Forward,
    Merged,
    Backward,
    Failed(Error),
}

/// The versions of one key met while stepping backward, folded.
struct Passed {
    /// What the newest visible version so far says.
    verdict: Option<Verdict>,
    /// Whether the operands gathered lie on a value.
    has_base: bool,
    /// How many visible versions were met.
    visible: u32,
    /// The sequence of the last of them.
    seqno: SeqNo,
    /// A clue whose redirected entry comes next, if it is there: its sequence, its kind, and whether it may
    /// do without.
    clue: Option<(SeqNo, u8, bool)>,
}

impl Passed {
    /// The clue at hand has met nothing.
    fn end_clue(&mut self) -> Result<()> {
        match self.clue.take() {
            Some((_, _, false)) => Err(unpaired()),
            _ => Ok(()),
        }
    }
}

/// The kind of the clue that a redirected entry needs.
fn clue_of(redirected: u8) -> u8 {
    let is_operand = redirected == Kind::RedirectedOperand as u8;
    if is_operand { Kind::ClueOperand as u8 } else { Kind::ClueValue as u8 }
}

/// Whether a clue with that value and sequence stands for nothing.
pub(crate) type VoidTest = Box<dyn Fn(&[u8], SeqNo) -> bool + Send>;

/// The error of a clue that meets no redirected entry.
fn unpaired() -> Error {
    Error::corruption("a scan met a clue entry whose value is in no shard")
}

/// A user's iterator over one source of internal entries.
pub struct DbIter<I> {
    iter: I,
    comparator: Comparator,
    snapshot: SeqNo,
    lower: Option<Box<[u8]>>,
    upper: Option<Box<[u8]>>,
    state: State,
    /// Forward: the user key whose older versions are being skipped. Merged, backward: the key shown.
    key: Vec<u8>,
    /// Merged, backward: the value shown.
    value: Slice,
    operator: Option<Arc<dyn MergeOperator>>,
    /// The operands of the key at hand; empty between two moves.
    operands: Operands,
    /// Scratch for seek targets.
    target: Vec<u8>,
    /// What confines the scan to a prefix, if anything can.
    scope: Option<Box<Scope>>,
    /// Which clues stand for nothing, in a database that has some.
    voids: Option<VoidTest>,
    /// The order is the user's: it may call different bytes equal, panic, or be no order.
    custom: bool,
    landings: Landings,
    stats: IterStats,
}

impl<I: InternalIter> DbIter<I> {
    /// An iterator over the user keys in `lower` (inclusive) .. `upper` (exclusive), as of
    /// `snapshot`; not positioned yet. Bounds that leave nothing give an empty iterator.
    pub fn new(
        iter: I,
        comparator: Comparator,
        snapshot: SeqNo,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> DbIter<I> {
        DbIter {
            iter,
            custom: matches!(comparator, Comparator::Custom(_)),
            scope: None,
            voids: None,
            landings: Landings::default(),
            comparator,
            snapshot,
            lower: lower.map(Box::from),
            upper: upper.map(Box::from),
            state: State::Invalid,
            key: Vec::new(),
            value: Slice::copy_of(&[]),
            operator: None,
            operands: Operands::new(),
            target: Vec::new(),
            stats: IterStats::default(),
        }
    }

    /// The same, folding operands with `operator`. Without one a key with operands is an error.
    #[must_use]
    pub fn merging(mut self, operator: Option<Arc<dyn MergeOperator>>) -> DbIter<I> {
        self.operator = operator;
        self
    }

    /// The same, confined by `scope`, which was made with the same bounds.
    pub(crate) fn with_scope(mut self, scope: Option<Box<Scope>>) -> DbIter<I> {
        self.scope = scope;
        self
    }

    /// The same; a clue with that value and sequence may meet no redirected entry where `voids` says so.
    pub(crate) fn with_voids(mut self, voids: Option<VoidTest>) -> DbIter<I> {
        self.voids = voids;
        self
    }

    /// Whether the clue that the source stands on stands for nothing.
    fn is_void(&self, seqno: SeqNo) -> bool {
        self.voids.as_ref().is_some_and(|voids| voids(self.iter.value(), seqno))
    }

    /// What reading has cost the sources so far.
    pub fn read_stats(&self) -> ReadStats {
        let mut stats = ReadStats::default();
        self.iter.add_stats(&mut stats);
        stats
    }

    /// Whether the iterator stands on a key. `false` after a call that returned `Ok` means that
    /// there is none further in that direction.
    #[inline]
    pub fn valid(&self) -> bool {
        matches!(self.state, State::Forward | State::Merged | State::Backward)
    }

    /// The user key. Lives until the iterator is moved.
    ///
    /// # Panics
    /// If not [`valid`](DbIter::valid); so for `value` and `value_slice`.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.state {
            State::Forward => user_key(self.iter.key()),
            State::Merged | State::Backward => &self.key,
            State::Invalid | State::Failed(_) => panic!("the key of an iterator that has no position"),
        }
    }

    /// The value. Lives until the iterator is moved.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self.state {
            State::Forward => self.iter.value(),
            State::Merged | State::Backward => &self.value,
            State::Invalid | State::Failed(_) => panic!("the value of an iterator that has no position"),
        }
    }

    /// The value as a slice that outlives the iterator.
    pub fn value_slice(&self) -> Slice {
        match self.state {
            State::Forward => self.iter.value_slice(),
            State::Merged | State::Backward => self.value.clone(),
            State::Invalid | State::Failed(_) => panic!("the value of an iterator that has no position"),
        }
    }

    /// The source.
    pub(crate) fn source(&self) -> &I {
        &self.iter
    }

    /// Lets `exchange` put another source in the place of the present one, given the order, the snapshot and
    /// the upper bound. It must stand where that one stands, and go on as it would. If it fails, so does every
    /// further step.
    ///
    /// # Errors
    /// Those of `exchange`.
    pub(crate) fn exchange_source(
        &mut self,
        exchange: impl FnOnce(&mut I, &Comparator, SeqNo, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        exchange(&mut self.iter, &self.comparator, self.snapshot, self.upper.as_deref())
            .inspect_err(|error| self.state = State::Failed(error.clone()))
    }

    /// Fails: it stands nowhere until it is positioned again, and says why at each further step.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.state = State::Failed(error.clone());
    }

    /// What was passed over since creation.
    pub fn stats(&self) -> IterStats {
        self.stats
    }

    /// To the first key.
    ///
    /// # Errors
    /// Those of the files below; `Callback` at a key whose operands can't be folded, `InvalidArgument`
    /// at any operand without an operator; `Unsupported` for kinds of entries not offered yet. So for
    /// all calls that move. The iterator is not valid then.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.guarded(|this| {
            this.begin(None)?;
            let state = this.go_to_first()?;
            this.arrive(state)
        })
    }

    fn go_to_first(&mut self) -> Result<State> {
        match self.lower.take() {
            None => {
                self.tell(Toward::Upper, false)?;
                self.iter.seek_to_first()?;
            }
            Some(lower) => {
                let sought = self.seek_source(&lower);
                self.lower = Some(lower);
                sought?;
            }
        }
        self.find_forward(false)
    }

    /// To the last key.
    ///
    /// # Errors
    /// As [`DbIter::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.guarded(|this| {
            this.begin(None)?;
            let state = this.go_to_last()?;
            this.arrive(state)
        })
    }

    fn go_to_last(&mut self) -> Result<State> {
        match self.upper.take() {
            None => {
                self.tell(Toward::Lower, false)?;
                self.iter.seek_to_last()?;
            }
            Some(upper) => {
                let sought = self.seek_source_before(&upper);
                self.upper = Some(upper);
                sought?;
            }
        }
        self.find_backward()
    }

    /// To the first key at or after `target`.
    ///
    /// # Errors
    /// As [`DbIter::seek_to_first`].
    pub fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.guarded(|this| {
            this.begin(Some(target))?;
            if this.below_lower(target) {
                return this.go_to_first();
            }
            if this.at_or_above_upper(target) {
                return Ok(State::Invalid);
            }
            this.seek_source(target)?;
            this.find_forward(false)
        })
    }

    /// To the last key at or before `target`.
    ///
    /// # Errors
    /// As [`DbIter::seek_to_first`].
    pub fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.guarded(|this| {
            this.begin(Some(target))?;
            if this.at_or_above_upper(target) {
                return this.go_to_last();
            }
            if this.below_lower(target) {
                return Ok(State::Invalid);
            }
            // The oldest version that could be: every version of `target` lies at or before it.
            this.set_target(target, 0, 0);
            this.source_back_to_target()?;
            this.find_backward()
        })
    }

    /// A positioning begins that the caller sent to `target`, or to an end.
    fn begin(&mut self, target: Option<&[u8]>) -> Result<()> {
        match &mut self.scope {
            Some(scope) => scope.begin(target),
            None => Ok(()),
        }
    }

    /// A positioning at an end is over.
    fn arrive(&mut self, state: State) -> Result<State> {
        if let Some(scope) = &mut self.scope {
            match state {
                State::Forward => scope.arrive(user_key(self.iter.key()))?,
                State::Merged | State::Backward => scope.arrive(&self.key)?,
                State::Invalid | State::Failed(_) => {}
            }
        }
        Ok(state)
    }

    /// Tells the source what the scope knows of the way from the target (or an end) on.
    #[inline]
    fn tell(&mut self, toward: Toward, to_target: bool) -> Result<()> {
        if let Some(scope) = &mut self.scope {
            let target = to_target.then(|| user_key(&self.target));
            if let Some(hint) = scope.tell(toward, target)? {
                self.iter.set_prefix(hint);
            }
        }
        Ok(())
    }

    /// Source to the first entry at or after the target.
    #[inline(always)]
    fn source_to_target(&mut self) -> Result<()> {
        self.tell(Toward::Upper, true)?;
        self.iter.seek(&self.target)
    }

    /// Source to the last entry at or before the target.
    #[inline]
    fn source_back_to_target(&mut self) -> Result<()> {
        self.tell(Toward::Lower, true)?;
        self.iter.seek_for_prev(&self.target)
    }

    /// Whether a key lies outside the prefix that the scan is to stay in.
    #[inline]
    fn leaves_prefix(&self, key: &[u8]) -> Result<bool> {
        match &self.scope {
            Some(scope) => scope.is_left_by(key),
            None => Ok(false),
        }
    }

    /// To the next key. Past an end it stays there; after an error it returns that error again.
    ///
    /// # Errors
    /// As [`DbIter::seek_to_first`].
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "a cursor that is read in place and can fail is no Iterator"
    )]
    pub fn next(&mut self) -> Result<()> {
        match &self.state {
            State::Forward => self.guarded(|this| {
                this.key.clear();
                this.key.extend_from_slice(user_key(this.iter.key()));
                this.iter.next()?;
                this.find_forward(true)
            }),
            State::Merged => self.guarded(|this| this.find_forward(true)),
            State::Backward => self.guarded(|this| {
                this.set_target_to_key(0, 0);
                this.source_to_target()?;
                this.find_forward(false)
            }),
            State::Invalid => Ok(()),
            State::Failed(error) => Err(error.clone()),
        }
    }

    /// To the key before. Past an end it stays there; after an error it returns that error again.
    ///
    /// # Errors
    /// As [`DbIter::seek_to_first`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        match &self.state {
            State::Backward => self.guarded(Self::find_backward),
            State::Forward => self.guarded(|this| {
                this.key.clear();
                this.key.extend_from_slice(user_key(this.iter.key()));
                this.find_before_key()
            }),
            State::Merged => self.guarded(Self::find_before_key),
            State::Invalid => Ok(()),
            State::Failed(error) => Err(error.clone()),
        }
    }

    #[inline]
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<State>) -> Result<()> {
        match self.watched(step) {
            Ok(state) => {
                self.state = state;
                Ok(())
            }
            Err(error) => {
                self.state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Runs a step; with a comparator of the user's it counts only if that did not panic.
    #[inline]
    fn watched(&mut self, step: impl FnOnce(&mut Self) -> Result<State>) -> Result<State> {
        if !self.custom {
            return step(self);
        }
        self.landings.start();
        let watch = Watch::begin(&self.comparator);
        let state = step(self);
        watch.check()?;
        state
    }

    fn below_lower(&self, key: &[u8]) -> bool {
        self.lower.as_deref().is_some_and(|lower| self.comparator.compare(key, lower).is_lt())
    }

    fn at_or_above_upper(&self, key: &[u8]) -> bool {
        self.upper.as_deref().is_some_and(|upper| self.comparator.compare(key, upper).is_ge())
    }

    fn set_target(&mut self, key: &[u8], seqno: SeqNo, kind: u8) {
        self.target.clear();
        append_internal(&mut self.target, key, seqno, kind);
    }

    fn set_target_to_key(&mut self, seqno: SeqNo, kind: u8) {
        self.target.clear();
        append_internal(&mut self.target, &self.key, seqno, kind);
    }

    /// Source to the first entry of `key`, or behind, that the snapshot may see.
    #[inline(always)]
    fn seek_source(&mut self, key: &[u8]) -> Result<()> {
        self.set_target(key, self.snapshot, SEEK_KIND);
        self.source_to_target()
    }

    /// Source to the last entry before all versions of `key`.
    fn seek_source_before(&mut self, key: &[u8]) -> Result<()> {
        self.set_target(key, SEQNO_MAX, SEEK_KIND);
        self.source_back_to_target()
    }

    /// From the source's position on, the first key to show. With `skipping`, versions of
    /// `self.key` are passed over: they are older than one already decided.
    #[inline]
    fn find_forward(&mut self, mut skipping: bool) -> Result<State> {
        let mut run = 0;
        while self.iter.valid() {
            let internal = self.iter.key();
            let key = user_key(internal);
            if skipping && self.comparator.compare(key, &self.key).is_eq() {
                self.stats.skipped_older += 1;
                self.pass_version(&mut run, 0, 0)?;
                continue;
            }
            if self.at_or_above_upper(key) || self.leaves_prefix(key)? {
                return Ok(State::Invalid);
            }
            if seqno_of(internal) > self.snapshot {
                self.stats.skipped_newer += 1;
                self.pass_newer(&mut run)?;
                skipping = false;
                continue;
            }
            match resolve(kind_byte_of(internal))? {
                Verdict::Value => return Ok(State::Forward),
                Verdict::Operand | Verdict::Redirected | Verdict::Clue => {
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    match self.fold_forward()? {
                        Some(Verdict::Gone) => self.stats.skipped_tombstones += 1,
                        Some(_) => return Ok(State::Merged),
                        None => {}
                    }
                    skipping = true;
                    run = 0;
                }
                Verdict::Gone => {
                    self.stats.skipped_tombstones += 1;
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    skipping = true;
                    run = 0;
                    self.iter.next()?;
                }
            }
        }
        Ok(State::Invalid)
    }

    /// The source stands on the newest visible version of `self.key`: what it and those below it come to, a
    /// value in `self.value` or nothing. Leaves the source on the entry that ended the chain of operands
    /// or, if none did, behind the key. `None`: nothing there counts.
    #[cold]
    fn fold_forward(&mut self) -> Result<Option<Verdict>> {
        self.operands.clear();
        let (mut base, mut is_gone) = (None, false);
        let mut last = SEQNO_MAX + 1;
        while self.is_on_key() {
            let (seqno, kind) = (seqno_of(self.iter.key()), kind_byte_of(self.iter.key()));
            match resolve(kind)? {
                // One that lies in two sources counts once (rule 7).
                _ if seqno == last => {}
                Verdict::Operand => self.push_older(self.iter.value_slice())?,
                Verdict::Value => {
                    base = Some(self.iter.value_slice());
                    break;
                }
                Verdict::Gone => {
                    is_gone = true;
                    break;
                }
                Verdict::Clue if self.is_void(seqno) => {
                    self.iter.next()?;
                    continue;
                }
                Verdict::Clue => return Err(unpaired()),
                Verdict::Redirected => match self.pair(seqno, kind)? {
                    None => continue,
                    Some(operand) if kind == Kind::RedirectedOperand as u8 => self.push_older(operand)?,
                    Some(value) => {
                        base = Some(value);
                        break;
                    }
                },
            }
            last = seqno;
            self.iter.next()?;
        }
        if self.operands.is_empty() {
            let found = if base.is_some() { Some(Verdict::Value) } else { is_gone.then_some(Verdict::Gone) };
            self.value = base.unwrap_or_else(|| Slice::copy_of(&[]));
            return Ok(found);
        }
        let operator = self.operator.as_deref().ok_or_else(no_operator)?;
        self.value = self.operands.finish(operator, &self.key, base.as_deref())?;
        Ok(Some(Verdict::Value))
    }

    /// Whether the source stands on a version of `self.key`.
    fn is_on_key(&self) -> bool {
        self.iter.valid() && self.comparator.compare(user_key(self.iter.key()), &self.key).is_eq()
    }

    fn push_older(&mut self, operand: Slice) -> Result<()> {
        let operator = self.operator.as_deref().ok_or_else(no_operator)?;
        self.operands.push_older(operator, &self.key, operand);
        Ok(())
    }

    /// The source stands on a redirected entry: what it holds, if its clue follows, on which the source
    /// stands then; else the source stands on what follows instead.
    fn pair(&mut self, seqno: SeqNo, kind: u8) -> Result<Option<Slice>> {
        let value = self.iter.value_slice();
        loop {
            self.iter.next()?;
            if !self.is_on_key() || seqno_of(self.iter.key()) != seqno {
                return Ok(None);
            }
            match kind_byte_of(self.iter.key()) {
                next if next == clue_of(kind) => return Ok(Some(value)),
                next if next == kind => {}
                _ => return Ok(None),
            }
        }
    }

    /// Steps over a version of `self.key`; after many, seeks to (key, `seqno`, `kind`) instead.
    fn pass_version(&mut self, run: &mut u32, seqno: SeqNo, kind: u8) -> Result<()> {
        *run += 1;
        if *run <= RESEEK_AFTER {
            return self.iter.next();
        }
        *run = 0;
        self.stats.reseeks += 1;
        self.set_target_to_key(seqno, kind);
        self.source_to_target()?;
        self.note_landing()
    }

    /// After a reseek; see [`Landings`].
    fn note_landing(&mut self) -> Result<()> {
        if self.custom && self.iter.valid() {
            return self.landings.note(self.iter.key());
        }
        Ok(())
    }

    /// Steps over a version above the snapshot; after many, seeks to the newest visible one.
    fn pass_newer(&mut self, run: &mut u32) -> Result<()> {
        // The run may be over several keys; then the seek costs little more than the step.
        if *run == RESEEK_AFTER {
            self.key.clear();
            self.key.extend_from_slice(user_key(self.iter.key()));
        }
        self.pass_version(run, self.snapshot, SEEK_KIND)
    }

    /// From anywhere, the last key to show before `self.key`.
    fn find_before_key(&mut self) -> Result<State> {
        self.set_target_to_key(SEQNO_MAX, SEEK_KIND);
        self.source_back_to_target()?;
        self.find_backward()
    }

    /// The source stands on the last entry of some key, or nowhere. Going backward from there, the
    /// first key to show; leaves the source before all its versions.
    fn find_backward(&mut self) -> Result<State> {
        while self.iter.valid() {
            let key = user_key(self.iter.key());
            if self.below_lower(key) || self.leaves_prefix(key)? {
                return Ok(State::Invalid);
            }
            self.key.clear();
            self.key.extend_from_slice(key);
            match self.fold_versions_backward()? {
                Some(Verdict::Value | Verdict::Operand) => return Ok(State::Backward),
                Some(Verdict::Gone | Verdict::Redirected | Verdict::Clue) => {
                    self.stats.skipped_tombstones += 1
                }
                None => {}
            }
        }
        Ok(State::Invalid)
    }

    /// Passes all versions of `self.key`, oldest first; what the newest visible one says, its
    /// value in `self.value`.
    fn fold_versions_backward(&mut self) -> Result<Option<Verdict>> {
        let mut passed = Passed { verdict: None, has_base: false, visible: 0, seqno: SEQNO_MAX, clue: None };
        self.operands.clear();
        let mut run = 0;
        loop {
            let seqno = seqno_of(self.iter.key());
            if run == RESEEK_AFTER {
                return self.fold_by_seeking(passed);
            }
            run += 1;
            if seqno > self.snapshot {
                self.stats.skipped_newer += 1;
            } else {
                self.take_version(&mut passed)?;
            }
            self.iter.prev()?;
            if !self.iter.valid() || self.comparator.compare(user_key(self.iter.key()), &self.key).is_ne() {
                break;
            }
        }
        passed.end_clue()?;
        self.stats.skipped_older += u64::from(passed.visible.saturating_sub(1));
        if passed.verdict == Some(Verdict::Operand) {
            self.fold_backward(&passed)?;
        }
        Ok(passed.verdict)
    }

    /// Folds the operands passed, all that were visible since the last value or tombstone.
    #[cold]
    fn fold_backward(&mut self, passed: &Passed) -> Result<()> {
        let operator = self.operator.as_deref().ok_or_else(no_operator)?;
        let base = passed.has_base.then_some(&self.value[..]);
        self.value = self.operands.finish(operator, &self.key, base)?;
        Ok(())
    }

    fn take_version(&mut self, passed: &mut Passed) -> Result<()> {
        let (seqno, kind) = (seqno_of(self.iter.key()), kind_byte_of(self.iter.key()));
        let verdict = match resolve(kind)? {
            verdict if !matches!(verdict, Verdict::Redirected | Verdict::Clue) && passed.clue.is_none() => {
                verdict
            }
            verdict => match self.take_pair(passed, verdict, seqno, kind)? {
                Some(verdict) => verdict,
                None => return Ok(()),
            },
        };
        let before = std::mem::replace(&mut passed.seqno, seqno);
        match verdict {
            Verdict::Operand if before == passed.seqno => {}
            Verdict::Operand => self.operands.push_newer(self.iter.value_slice()),
            Verdict::Value => {
                self.value = self.iter.value_slice();
                passed.has_base = true;
            }
            Verdict::Gone | Verdict::Redirected | Verdict::Clue => passed.has_base = false,
        }
        if verdict != Verdict::Operand && !self.operands.is_empty() {
            self.operands.clear();
        }
        if self.custom {
            // Equal keys may be other bytes; those of the newest entry are shown.
            self.key.clear();
            self.key.extend_from_slice(user_key(self.iter.key()));
        }
        passed.verdict = Some(verdict);
        passed.visible += 1;
        Ok(())
    }

    /// What an entry says going backward, where clues come before what they stand for; `None`: nothing yet,
    /// or nothing at all.
    fn take_pair(
        &self,
        passed: &mut Passed,
        verdict: Verdict,
        seqno: SeqNo,
        kind: u8,
    ) -> Result<Option<Verdict>> {
        if passed.clue.is_some_and(|(clue, ..)| clue != seqno) {
            passed.end_clue()?;
        }
        match verdict {
            Verdict::Clue => {
                // Of two that are equal, or of one whose value has been seen already, the second says nothing.
                if passed.seqno != seqno {
                    passed.clue = Some((seqno, kind, self.is_void(seqno)));
                }
                Ok(None)
            }
            Verdict::Redirected => {
                let is_paired = passed.clue.take_if(|(_, clue, _)| *clue == clue_of(kind)).is_some();
                let is_operand = kind == Kind::RedirectedOperand as u8;
                Ok(is_paired.then_some(if is_operand { Verdict::Operand } else { Verdict::Value }))
            }
            // Rolled back: the entry itself counts, and not its clue.
            verdict => {
                passed.clue = None;
                Ok(Some(verdict))
            }
        }
    }

    /// Many versions: seeks to the newest visible one, then before them all.
    fn fold_by_seeking(&mut self, mut passed: Passed) -> Result<Option<Verdict>> {
        self.stats.reseeks += 1;
        self.stats.skipped_older += u64::from(passed.visible.saturating_sub(1));
        self.set_target_to_key(self.snapshot, SEEK_KIND);
        self.source_to_target()?;
        if self.is_on_key() {
            if self.custom {
                // Equal keys may be other bytes; those of the newest entry are shown.
                self.key.clear();
                self.key.extend_from_slice(user_key(self.iter.key()));
            }
            passed.verdict = self.fold_forward()?;
        }
        self.set_target_to_key(SEQNO_MAX, SEEK_KIND);
        self.source_back_to_target()?;
        self.note_landing()?;
        Ok(passed.verdict)
    }
}

#[cfg(test)]
mod tests;
