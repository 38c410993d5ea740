//! The database handle that Rust users take.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use dialsm_io::{Env, OsEnv};

use crate::router::HashRouter;
use crate::{KeyspaceOptions, Options, Result, UpgradeReport};

/// An open database. Cheap to clone; usable from all threads. Dropping the last clone closes it without a
/// flush; [`close`](dialsm_core::Db::close) says what went wrong on the way.
///
/// Reads, writes and all the rest are the calls of [`dialsm_core::Db`], to which this dereferences: with one
/// shard or with many they mean the same.
#[derive(Clone)]
pub struct Db(dialsm_core::Db);

impl Db {
    /// Opens the database in `path`, or creates it. A new one gets [`Options::shards`] shards or, where that is
    /// 0, a number that fits the machine's processors.
    ///
    /// # Errors
    /// Those of [`dialsm_core::Db::open_with`]; `InvalidArgument` if the database has another number of shards
    /// than the options say.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_in(OsEnv::new(), path.as_ref(), options, &[])
    }

    /// As [`Db::open`], in the world that `env` stands for, with options of their own for the keyspaces named;
    /// those of them that are not there are created.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_in(
        env: Arc<dyn Env>,
        path: &Path,
        options: Options,
        keyspaces: &[(&str, KeyspaceOptions)],
    ) -> Result<Db> {
        dialsm_core::Db::open_with(env, path, routed(options), keyspaces).map(Db)
    }

    /// Opens the database in `path` for reading only, with options of their own for the keyspaces named; see
    /// [`dialsm_core::Db::open_read_only_with`].
    ///
    /// # Errors
    /// As there.
    pub fn open_read_only(
        path: impl AsRef<Path>,
        options: Options,
        keyspaces: &[(&str, KeyspaceOptions)],
    ) -> Result<Db> {
        Db::open_read_only_in(OsEnv::new(), path.as_ref(), options, keyspaces)
    }

    /// As [`Db::open_read_only`], in the world that `env` stands for.
    ///
    /// # Errors
    /// As there.
    pub fn open_read_only_in(
        env: Arc<dyn Env>,
        path: &Path,
        options: Options,
        keyspaces: &[(&str, KeyspaceOptions)],
    ) -> Result<Db> {
        dialsm_core::Db::open_read_only_with(env, path, routed(options), keyspaces).map(Db)
    }

    /// The keyspaces of the database in `path`, by name; see [`dialsm_core::Db::list_keyspaces`].
    ///
    /// # Errors
    /// As there.
    pub fn list_keyspaces(path: impl AsRef<Path>) -> Result<Vec<String>> {
        dialsm_core::Db::list_keyspaces(OsEnv::new().as_ref(), path.as_ref())
    }

    /// Moves the database in `path`, which nobody may have open, to the newest format; see
    /// [`dialsm_core::Db::upgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn upgrade(path: impl AsRef<Path>) -> Result<UpgradeReport> {
        dialsm_core::Db::upgrade(OsEnv::new().as_ref(), path.as_ref())
    }

    /// The options that the database in `path` had last, and those of its keyspaces; see [`Options::load`].
    ///
    /// # Errors
    /// As there.
    pub fn load_options(path: impl AsRef<Path>) -> Result<Options> {
        Options::load(OsEnv::new().as_ref(), path.as_ref())
    }

    /// Removes the database in `path`, which nobody may have open, and its directory if nothing else is in it. What is no
    /// database, or is not there, is left alone.
    ///
    /// # Errors
    /// Those of [`dialsm_core::Db::destroy`].
    pub fn destroy(path: impl AsRef<Path>) -> Result<()> {
        let env: Arc<dyn Env> = OsEnv::new();
        dialsm_core::Db::destroy(env.as_ref(), path.as_ref())
    }
}

/// The options with this crate's router, unless they have one.
fn routed(mut options: Options) -> Options {
    options.router.get_or_insert_with(HashRouter::object);
    options
}

impl Deref for Db {
    type Target = dialsm_core::Db;

    fn deref(&self) -> &dialsm_core::Db {
        &self.0
    }
}
