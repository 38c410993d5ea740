//! The `dialsm` command line as a library, so that all of it can be tested without a process.
//!
//! ```text
//! main -> cli (arguments -> Command) -> commands (Command -> output) -> store (a thin trait) -> engine
//!                                       |                           -> inspect (single files)
//!                                       |                           -> model (stalls)
//!                                       text (entries as lines), progress, exit (errors -> codes)
//! ```
//! Modules in reading order: [`cli`], [`commands`], [`text`], [`store`], [`engine`], [`inspect`], [`model`],
//! [`progress`],
//! [`exit`].
//!
//! Keys and values appear in output that was asked for, never in error texts.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod cli;
pub mod commands;
pub mod engine;
pub mod exit;
pub mod inspect;
pub mod model;
pub mod progress;
pub mod store;
pub mod stress;
pub mod text;
