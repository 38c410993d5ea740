//! Faults that users met in other engines, tried on this one. `docs/field-cases.md` lists them all,
//! with the test of each or why there is none.

#[path = "../hostile/mod.rs"]
mod hostile;

mod io;
mod log;
mod reads;
