//! The outside world of DiaLSM: the only crate that makes system calls, reads a clock, rolls dice,
//! starts threads or lets one wait. Everything above reaches it through [`Env`], so that a
//! simulation can stand in for all of it.
//!
//! Modules in reading order: [`error`], [`fs`] (the traits; `fs/os.rs` on plain calls, `fs/sim.rs`
//! in memory with crash images), [`env`](mod@env) (clock, seeds, threads, events).

#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("DiaLSM is tested on 64-bit Linux only");

pub mod env;
pub mod error;
pub mod fs;

pub use env::{Env, Event, JobHandle};
pub use error::{Error, ErrorKind, Result};
pub use fs::{File, Fs};
