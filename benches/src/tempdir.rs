//! A directory that goes away with its owner.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct TempDir {
    path: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl TempDir {
    /// Makes a directory of its own below the system's place for such.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new() -> Result<TempDir> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dialsm-bench-{}-{number}", std::process::id()));
        // Not `create_dir_all`: a directory that is there belongs to somebody else.
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(TempDir { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
