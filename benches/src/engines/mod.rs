//! The engines this build has, by name.

#[cfg(feature = "fjall")]
mod fjall;
mod lsm_core;
mod null;
mod rocksdb;
#[allow(unsafe_code)] // Calls through the C interface.
mod rocksdb_ffi;
mod rocksdb_stats;

use crate::config::EngineOptions;
use crate::engine::KvEngine;
use anyhow::{Result, bail};
use std::path::Path;

const BUILT: &[&str] = &[
    "lsm-core",
    "null",
    "rocksdb",
    #[cfg(feature = "fjall")]
    "fjall",
];

/// The names of the engines of this build.
pub(crate) fn built() -> &'static [&'static str] {
    BUILT
}

/// Whether this build has an engine of that name.
pub(crate) fn is_built(name: &str) -> bool {
    BUILT.contains(&name)
}

/// Says what is missing on this machine for an engine, before a run is begun.
///
/// # Errors
/// The engine cannot be opened here.
pub(crate) fn probe(name: &str, options: &EngineOptions) -> Result<()> {
    if name == "rocksdb" { rocksdb::probe(options) } else { Ok(()) }
}

/// Opens an engine on `dir`, which it makes if it is missing.
///
/// # Errors
/// The engine's own, or options that it does not have.
pub(crate) fn open(name: &str, dir: &Path, options: &EngineOptions) -> Result<Box<dyn KvEngine>> {
    match name {
        "lsm-core" => lsm_core::open(dir, options),
        "null" => Ok(Box::new(null::NullEngine)),
        "rocksdb" => rocksdb::open(dir, options),
        #[cfg(feature = "fjall")]
        "fjall" => fjall::open(dir, options),
        other => bail!("engine '{other}' is not in this build"),
    }
}
