//! Versions: which tables make up each tree, in memory and in the manifest.
//!
//! `table_file` and `version` are what readers hold; `edit` and `manifest` what the disk holds;
//! `set` moves changes from the one to the other.

pub mod edit;
pub mod manifest;
pub(crate) mod set;
pub mod table_file;
#[allow(clippy::module_inception, reason = "a version is the main thing of this module")]
pub mod version;

pub use table_file::{Claim, KeyEnd, TableFile, TableMeta};
pub use version::{LEVELS, Level, Removed, Version};
