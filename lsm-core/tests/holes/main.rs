//! Interleavings that once broke a draft of the engine's protocols, one test for each. The number in a
//! test's name is that of the hole; `docs/protocol-holes.md` lists them all, with the rule that each
//! test was seen to fail without.
//!
//! All run in a simulation. What has to happen in between happens at a *door* (`bench.rs`): a call on a
//! named file, or a call of the user's comparator or merge operator, that stands still until the test
//! lets it go on. Nothing is driven by time.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod bench;
mod detour;

mod checkpoint;
mod clues;
mod ends;
mod failures;
mod handoff;
mod keyspaces;
mod log;
mod manifest;
mod order;
mod read_only;
mod rollback;
mod shards_log;
mod shards_waiting;
mod steps;
mod unlogged;
mod views;
mod waiting;
