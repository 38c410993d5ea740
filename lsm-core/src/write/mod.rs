//! The write path: admission (`stall`), then group commit (`commit`).

pub(crate) mod budget;
pub(crate) mod commit;
pub mod stall;
