//! The outside world of DiaLSM: the only crate that makes system calls, reads a clock, rolls dice,
//! starts threads or lets one wait. Everything above reaches it through [`Env`], so that a
//! simulation can stand in for all of it.
//!
//! Modules in reading order: [`error`], [`fs`] (the traits; `fs/os.rs` on plain calls, `fs/sim.rs`
//! in memory with crash images, `fs/fault.rs` fails on demand), [`env`](mod@env) (clock, seeds,
//! threads, events; `env/os.rs` the system's, `env/sim.rs` a simulation), [`ring`] (asynchronous
//! I/O: io_uring, a thread pool, a simulation), [`durable`] (files and their names made durable in
//! the background), [`stream`] (a file written front to back by a thread that never waits), [`limiter`]
//! (how much may be under way), [`histogram`] (of latencies), [`rng`].

#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("DiaLSM is tested on 64-bit Linux only");

pub mod durable;
pub mod env;
pub mod error;
pub mod fs;
pub mod histogram;
pub mod limiter;
pub mod ring;
pub mod rng;
pub mod stream;

pub use durable::{
    Durability, DurabilityOptions, DurabilityStats, DurableFile, DurableRequest, DurableTicket,
};
pub use env::os::OsEnv;
pub use env::sim::SimEnv;
pub use env::{Env, Event, Job, JobHandle, Nanos};
pub use error::{Error, ErrorKind, Result};
pub use fs::call::{Call, OpKind};
pub use fs::fault::{Fault, FaultFs, Rule};
pub use fs::os::OsFs;
pub use fs::sim::{CrashPolicy, SimFs};
pub use fs::{Access, Advice, CreateOptions, File, FileLock, Fs, LockMode, OpenOptions};
pub use histogram::{Histogram, HistogramSnapshot};
pub use limiter::{Limiter, LimiterOptions, LimiterStats, Permit, Priority};
pub use ring::sim::SimIoOptions;
pub use ring::{AsyncIo, Buf, Done, IoKind, IoOp, IoOptions, IoStats, IoTicket, ReadAt};
pub use rng::SplitMix64;
pub use stream::{Landing, StreamOptions, StreamWriter};
