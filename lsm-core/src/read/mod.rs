//! The read path: point look-ups and the stack of iterators.
//!
//! A scan is `db_iter` over `merging_iter` over memtables, L0 tables and one `level_iter` a level; with shards,
//! over a merge of those of all shards, in which clues and their values meet. A look-up follows a clue (`clue`).

pub(crate) mod clue;
pub mod db_iter;
pub mod get;
pub mod internal;
pub(crate) mod landings;
pub mod level_iter;
pub mod merging_iter;
pub(crate) mod multi_get;
pub(crate) mod operands;
pub(crate) mod scan_source;
#[cfg(test)]
pub(crate) mod testing;
