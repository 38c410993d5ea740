//! The functions of `include/dialsm.h`. Each turns pointers into references and calls `dialsm_capi_logic`, behind a
//! guard that lets no panic out; what they do is documented for C, in the words of the header that is made of
//! them.
//!
//! A handle comes as `Option<&T>`, which C sees as a pointer that may be NULL. A result that C wants stored comes
//! as `Option<&mut MaybeUninit<T>>`, since C need not have set it.
//!
//! The conventions at the head of the header (`cbindgen.toml`) are the contract of every `unsafe` function here:
//! pointers are NULL or valid, as long as their lengths say, and nobody else changes what they point at.

#![allow(clippy::missing_safety_doc, reason = "one contract for all of them, in the module header")]

pub mod batch;
pub mod callback;
pub mod calls;
pub mod database;
pub mod event;
pub mod figures;
pub mod iterator;
pub mod keyspace;
pub mod options;
pub mod options_typed;
pub mod read;
pub mod scan;
pub mod status;
pub mod upkeep;
pub mod version;
pub mod write;
