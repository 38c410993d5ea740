//! The tables of a tree: which files, on which level, in which order.

pub mod table_file;
#[allow(clippy::module_inception, reason = "a version is the main thing of this module")]
pub mod version;

pub use table_file::{Claim, TableFile, TableMeta};
pub use version::{LEVELS, Level, Removed, Version};
