//! One ordered stream out of many: the merge under every scan and every compaction (C3).
//!
//! A loser tree over the children. Each inner node keeps the child that lost there, the root the
//! winner, so replacing the winner replays one path: log2(children) comparisons, half of what a
//! binary heap needs.
//!
//! ```text
//!            winner                     leaf of child i = node i + n, parent = node / 2
//!              |                        works for any n >= 1, no padding
//!          [1] loser
//!         /         \
//!    [2] loser   [3] loser
//!     /    \      /    \
//!    c0    c1    c2    c3
//! ```
//! Runs: when the winner wins twice in a row, the best of the losers on its path (the runner-up)
//! is remembered, and each further step is one comparison with it until the run ends. Computing it
//! at once would double the cost of data that alternates between children.
//!
//! Each child's position is cached as the first 16 bytes of its user key, complemented when going
//! backward, so that most comparisons are one of two numbers and touch no child. (8 bytes are too
//! few here: neighbours in a merge often share them, as `user0001` and the like do.)
//!
//! A positioning of a user's scan may find blocks of several children missing in memory: each child is
//! positioned in the ordinary way until one meets such a block, and from there on theirs are collected, read
//! together and handed to them (`position_together`). Once positioned, each child reads by itself. A merge
//! that is itself a child, being tried, only names the blocks that its own children miss, so that those of all
//! shards are read together.
//!
//! INVARIANTS
//! - Order is (internal key, child index); going backward it is the exact mirror, so that entries
//!   equal in key come once per child in both directions. Children are given newest first.
//! - A turn positions every other child by *seeking* to the current key, never by "invalid means
//!   at the end": a child may be invalid because a bound of its own stopped it (field case B001),
//!   and a memtable may have grown between its position and the current key.
//! - An error of any child is returned, and leaves the merge invalid until it is positioned again;
//!   it is never taken for that child's end (B003).
//! - With range tombstones (`MergingIter::with_cover`) the merge shows no entry that they hide. A
//!   jump moves children past entries that a turn would meet again, which is right: it seeks them.
//!
//! Attacked by `random_walk_beside_a_model` and `b003_child_error_is_not_an_end`.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::key::{Comparator, user_key};
use crate::prefix::PrefixHint;
use crate::range_del::scan::{Hidden, RangeStats, ScanCover};
use crate::read::internal::{Handed, InternalIter, Target};
use crate::table::{Fetcher, Missing, ReadStats};
use crate::{Error, ErrorKind, Result, Slice};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Backward,
}

/// What the tree knows of a child's position.
#[derive(Clone, Copy)]
struct Head {
    /// Prefix of the user key, complemented backward; the maximum for a child without entry.
    rank: u128,
    /// Whether the child stands on an entry.
    live: bool,
}

/// As [`Comparator::prefix`], over 16 bytes.
#[inline]
fn wide_prefix(comparator: &Comparator, key: &[u8]) -> u128 {
    let tail = key.get(8..).unwrap_or(&[]);
    (u128::from(comparator.prefix(key)) << 64) | u128::from(comparator.prefix(tail))
}

const NO_RUNNER_UP: u32 = u32::MAX;

/// A k-way merge. Entries of equal key come in child order; none is left out.
pub struct MergingIter<I> {
    comparator: Comparator,
    children: Vec<I>,
    heads: Vec<Head>,
    /// `tree[0]` is the winner, `tree[1..n]` are the losers.
    tree: Vec<u32>,
    runner_up: u32,
    direction: Direction,
    /// The winner stands on an entry and all children are positioned.
    valid: bool,
    /// The key around which a turn is made; kept to spare allocations.
    turn_key: Vec<u8>,
    /// Scratch of [`MergingIter::build`].
    winners: Vec<u32>,
    /// Range tombstones of the children, if they have some.
    cover: Option<Box<ScanCover>>,
    /// How blocks of several children are read together, if they are.
    together: Option<Together>,
    /// What the last positioning that was tried wanted: of each child so many blocks.
    late: Vec<(usize, usize)>,
    wanted: Vec<Missing>,
}

/// Reads blocks of several children together.
struct Together {
    fetcher: Fetcher,
    /// Made for the first of them.
    stats: Option<Box<ReadStats>>,
}

impl<I: InternalIter> MergingIter<I> {
    /// A merge of `children`, newest source first; not positioned yet.
    pub fn new(comparator: Comparator, children: Vec<I>) -> MergingIter<I> {
        let n = children.len();
        MergingIter {
            comparator,
            heads: vec![Head { rank: u128::MAX, live: false }; n],
            tree: vec![0; n],
            winners: vec![0; 2 * n],
            children,
            runner_up: NO_RUNNER_UP,
            direction: Direction::Forward,
            valid: false,
            turn_key: Vec::new(),
            cover: None,
            together: None,
            late: Vec::new(),
            wanted: Vec::new(),
        }
    }

    /// A merge of children that stand, going forward, where they are to go on from.
    pub(crate) fn resume(comparator: Comparator, children: Vec<I>) -> MergingIter<I> {
        let mut merged = MergingIter::new(comparator, children);
        merged.build();
        merged
    }

    /// Adds what reading together has cost, which none of the children knows of.
    pub(crate) fn add_own_stats(&self, to: &mut ReadStats) {
        if let Some(together) = &self.together {
            together.stats.iter().for_each(|stats| to.add(stats));
        }
    }

    /// Its children, where they stand.
    pub(crate) fn into_children(self) -> Vec<I> {
        self.children
    }

    /// The same merge; where a positioning needs blocks of several children that are not in memory, it
    /// reads them together.
    pub(crate) fn reading_together(mut self, fetcher: Fetcher) -> MergingIter<I> {
        self.together = Some(Together { fetcher, stats: None });
        self
    }

    /// The same merge without the entries that the tombstones in `cover` hide; children there are
    /// numbered as here.
    pub(crate) fn with_cover(mut self, cover: ScanCover) -> MergingIter<I> {
        self.cover = (!cover.is_empty()).then(|| Box::new(cover));
        self
    }

    /// What range tombstones have cost and spared so far.
    pub fn range_stats(&self) -> RangeStats {
        self.cover.as_ref().map_or_else(RangeStats::default, |cover| cover.stats())
    }

    /// The children, in the order in which they were given.
    pub fn children(&self) -> &[I] {
        &self.children
    }

    #[inline]
    fn refresh(&mut self, child: usize) {
        let iter = &self.children[child];
        self.heads[child] = if iter.valid() {
            let prefix = wide_prefix(&self.comparator, user_key(iter.key()));
            let rank = if self.direction == Direction::Forward { prefix } else { !prefix };
            Head { rank, live: true }
        } else {
            Head { rank: u128::MAX, live: false }
        };
    }

    /// Whether child `a` comes before child `b` in the present direction.
    #[inline]
    fn before(&self, a: u32, b: u32) -> bool {
        let (x, y) = (self.heads[a as usize], self.heads[b as usize]);
        if x.rank != y.rank { x.rank < y.rank } else { self.before_by_key(a, b) }
    }

    fn before_by_key(&self, a: u32, b: u32) -> bool {
        match (self.heads[a as usize].live, self.heads[b as usize].live) {
            (true, true) => {}
            (a_live, b_live) => return a_live && !b_live,
        }
        let (x, y) = (self.children[a as usize].key(), self.children[b as usize].key());
        let order = self.comparator.compare_internal(x, y).then(a.cmp(&b));
        order == if self.direction == Direction::Forward { Ordering::Less } else { Ordering::Greater }
    }

    /// Builds the tree from the children's positions.
    fn build(&mut self) {
        let n = self.children.len();
        self.runner_up = NO_RUNNER_UP;
        if n == 0 {
            self.valid = false;
            return;
        }
        for child in 0..n {
            self.refresh(child);
            self.winners[n + child] = child as u32;
        }
        for node in (1..n).rev() {
            let (a, b) = (self.winners[2 * node], self.winners[2 * node + 1]);
            let a_wins = self.before(a, b);
            self.winners[node] = if a_wins { a } else { b };
            self.tree[node] = if a_wins { b } else { a };
        }
        self.tree[0] = self.winners[1];
        self.valid = self.heads[self.tree[0] as usize].live;
    }

    /// Finds the winner again after the present one moved.
    #[inline]
    fn replay(&mut self) {
        let moved = self.tree[0];
        if self.runner_up != NO_RUNNER_UP {
            if self.before(moved, self.runner_up) {
                self.valid = true;
                return;
            }
            self.runner_up = NO_RUNNER_UP;
        }
        let mut winner = moved;
        let mut node = (moved as usize + self.children.len()) / 2;
        while node > 0 {
            if self.before(self.tree[node], winner) {
                std::mem::swap(&mut self.tree[node], &mut winner);
            }
            node /= 2;
        }
        self.tree[0] = winner;
        self.valid = self.heads[winner as usize].live;
        if winner == moved && self.valid {
            self.find_runner_up();
        }
    }

    fn find_runner_up(&mut self) {
        let mut node = (self.tree[0] as usize + self.children.len()) / 2;
        let mut best = self.tree[node];
        node /= 2;
        while node > 0 {
            if self.before(self.tree[node], best) {
                best = self.tree[node];
            }
            node /= 2;
        }
        self.runner_up = best;
    }

    /// Positions every child, then the tree.
    #[inline(always)]
    fn go(&mut self, direction: Direction, to: Target<'_>) -> Result<()> {
        self.valid = false;
        self.direction = direction;
        if self.together.is_none() {
            self.children.iter_mut().try_for_each(|child| child.position(&to))?;
        } else {
            for at in 0..self.children.len() {
                if let Err(stop) = self.children[at].try_position(&to) {
                    self.position_together(at, stop, &to)?;
                    break;
                }
            }
        }
        self.build();
        self.pass_hidden()
    }

    /// The same, but blocks that children miss are only named.
    fn try_go(&mut self, direction: Direction, to: &Target<'_>) -> Result<()> {
        self.valid = false;
        self.direction = direction;
        for at in 0..self.children.len() {
            if let Err(stop) = self.children[at].try_position(to) {
                return Err(self.collect_missing(at, stop, to).err().unwrap_or_else(names_blocks));
            }
        }
        self.build();
        self.pass_hidden()
    }

    /// Tries the children behind `first`, whose trial ended with `stop`, and notes the blocks that all of
    /// these have to read.
    #[cold]
    fn collect_missing(&mut self, first: usize, stop: Error, to: &Target<'_>) -> Result<()> {
        self.late.clear();
        self.wanted.clear();
        let mut tried = Err(stop);
        for at in first..self.children.len() {
            let child = &mut self.children[at];
            if at > first {
                tried = child.try_position(to);
            }
            if let Err(error) = std::mem::replace(&mut tried, Ok(())) {
                let before = self.wanted.len();
                child.missing(&mut self.wanted);
                if self.wanted.len() == before {
                    self.late.clear();
                    self.wanted.clear();
                    return Err(error);
                }
                self.late.push((at, self.wanted.len() - before));
            }
        }
        Ok(())
    }

    /// Positions the children from `first` on, whose trial ended with `stop`. The blocks that they have to
    /// read for it are read all at once; one alone its child reads by itself.
    #[cold]
    fn position_together(&mut self, first: usize, stop: Error, to: &Target<'_>) -> Result<()> {
        self.collect_missing(first, stop, to)?;
        let wanted = std::mem::take(&mut self.wanted);
        if let Some(together) = self.together.as_mut().filter(|_| wanted.len() > 1) {
            let read = together.fetcher.fetch(&wanted, together.stats.get_or_insert_default());
            // One that could not be read its child will read itself, and say why not.
            let mut blocks = wanted.iter().zip(read).map(|(missing, block)| Some((missing.at, block.ok()?)));
            self.hand(&mut blocks);
        }
        let late = std::mem::take(&mut self.late);
        late.iter().try_for_each(|(child, _)| self.children[*child].position(to))
    }

    /// Passes over what range tombstones hide, in the present direction.
    #[inline]
    fn pass_hidden(&mut self) -> Result<()> {
        if self.cover.is_none() { Ok(()) } else { self.pass_hidden_by_cover() }
    }

    #[inline(never)]
    fn pass_hidden_by_cover(&mut self) -> Result<()> {
        // Half-moved children are no position.
        self.pass_covered().inspect_err(|_| self.valid = false)
    }

    fn pass_covered(&mut self) -> Result<()> {
        let forward = self.direction == Direction::Forward;
        if let Some(cover) = &mut self.cover {
            cover.note_landing(None)?;
        }
        while self.valid {
            let winner = self.tree[0] as usize;
            let Some(cover) = &mut self.cover else { return Ok(()) };
            match cover.check(self.children[winner].key(), winner, forward)? {
                None => return Ok(()),
                Some(Hidden::Step) => self.step()?,
                Some(Hidden::Jump(first)) => self.jump(first)?,
            }
        }
        Ok(())
    }

    /// Moves the children from `first` on to where the cover says (backward: before it), if they are not
    /// past it.
    fn jump(&mut self, first: usize) -> Result<()> {
        self.valid = false;
        let Some(cover) = &self.cover else { return Ok(()) };
        let target = cover.target();
        for child in &mut self.children[first..] {
            if !child.valid() {
                continue;
            }
            let order = self.comparator.compare_internal(child.key(), target);
            match self.direction {
                Direction::Forward if order.is_lt() => child.seek(target)?,
                Direction::Backward if order.is_gt() => child.seek_for_prev(target)?,
                _ => {}
            }
        }
        self.build();
        if self.valid
            && let Some(cover) = &mut self.cover
        {
            cover.note_landing(Some(self.children[self.tree[0] as usize].key()))?;
        }
        Ok(())
    }

    fn advance(&mut self, direction: Direction) -> Result<()> {
        if !self.valid {
            return Err(Error::new(ErrorKind::Internal, "a merge was moved while it had no position"));
        }
        if self.direction != direction {
            self.turn(direction)?;
        } else {
            self.step()?;
        }
        self.pass_hidden()
    }

    /// One entry on, in the present direction.
    #[inline]
    fn step(&mut self) -> Result<()> {
        self.valid = false;
        let winner = self.tree[0] as usize;
        match self.direction {
            Direction::Forward => self.children[winner].next()?,
            Direction::Backward => self.children[winner].prev()?,
        }
        if let [only] = &self.children[..] {
            self.valid = only.valid();
            return Ok(());
        }
        self.refresh(winner);
        self.replay();
        Ok(())
    }

    /// Turns round at the current entry and steps to its neighbour. Of the entries equal to it in
    /// key, those of lower children lie before it and those of higher children behind.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        self.valid = false;
        let current = self.tree[0] as usize;
        let mut key = std::mem::take(&mut self.turn_key);
        key.clear();
        key.extend_from_slice(self.children[current].key());
        let turned = self.turn_children(direction, current, &key);
        self.turn_key = key;
        turned?;
        self.direction = direction;
        self.build();
        Ok(())
    }

    fn turn_children(&mut self, direction: Direction, current: usize, key: &[u8]) -> Result<()> {
        let comparator = &self.comparator;
        let stands_on_key =
            |child: &I| child.valid() && comparator.compare_internal(child.key(), key).is_eq();
        for (at, child) in self.children.iter_mut().enumerate() {
            match direction {
                Direction::Backward if at == current => child.prev()?,
                Direction::Forward if at == current => child.next()?,
                Direction::Backward => {
                    child.seek_for_prev(key)?;
                    while at > current && stands_on_key(child) {
                        child.prev()?;
                    }
                }
                Direction::Forward => {
                    child.seek(key)?;
                    while at < current && stands_on_key(child) {
                        child.next()?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The error of a trial that left off at blocks, for who tries; nobody else sees it.
#[cold]
fn names_blocks() -> Error {
    Error::new(ErrorKind::Internal, "a merge that was only tried needs blocks")
}

impl<I: InternalIter> InternalIter for MergingIter<I> {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.go(Direction::Forward, Target::First)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.go(Direction::Backward, Target::Last)
    }

    #[inline]
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.go(Direction::Forward, Target::AtOrAfter(target))
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.go(Direction::Backward, Target::AtOrBefore(target))
    }

    fn try_position(&mut self, to: &Target<'_>) -> Result<()> {
        match to {
            Target::First | Target::AtOrAfter(_) => self.try_go(Direction::Forward, to),
            Target::Last | Target::AtOrBefore(_) => self.try_go(Direction::Backward, to),
        }
    }

    fn missing(&mut self, wanted: &mut Vec<Missing>) {
        wanted.append(&mut self.wanted);
    }

    fn hand(&mut self, blocks: &mut dyn Iterator<Item = Handed>) {
        for (child, count) in &self.late {
            let mut own = (&mut *blocks).take(*count);
            self.children[*child].hand(&mut own);
            own.for_each(drop);
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.advance(Direction::Forward)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.advance(Direction::Backward)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.children[self.tree[0] as usize].key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.children[self.tree[0] as usize].value()
    }

    fn value_slice(&self) -> Slice {
        self.children[self.tree[0] as usize].value_slice()
    }

    fn set_prefix(&mut self, hint: Option<&Arc<PrefixHint>>) {
        self.children.iter_mut().for_each(|child| child.set_prefix(hint));
    }

    fn add_stats(&self, to: &mut ReadStats) {
        self.children.iter().for_each(|child| child.add_stats(to));
        self.add_own_stats(to);
    }
}

#[cfg(test)]
mod tests;
