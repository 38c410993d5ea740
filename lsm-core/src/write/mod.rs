//! The write path: admission (`admission`, at the doors of `stall`), then group commit (`commit`), which sends each operation to its
//! shard (`route`).

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod commit;
pub(crate) mod route;
pub mod stall;
