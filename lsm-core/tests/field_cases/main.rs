//! Faults that users met in other engines, tried on this one. `docs/field-cases.md` lists them all,
//! with the test of each or why there is none.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

#[path = "../hostile/mod.rs"]
mod hostile;

mod checkpoint;
mod io;
mod keyspaces;
mod log;
mod merges;
mod prefixes;
mod ranges;
mod reads;
