//! Versions: which tables make up each tree, and the manifest that remembers it.

pub mod edit;
pub mod manifest;
