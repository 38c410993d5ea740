//! The version of the database's format as a whole, and the one call that raises it.
//!
//! Each file says the version of its own kind (`format`); the manifest says the version of the
//! database, for what no single file can tell: what the files mean together.
//!
//! ```text
//! found     newer than this build      NewerFormat, nothing is written
//!           as this build              opened
//!           older                      opened as it is, and stays what it is
//! upgrade   v → v + 1 → … → this build's, one step after the other, each durable before the next
//! ```
//! INVARIANT: no opening changes the version; a fresh manifest repeats the one that was found.

use std::path::Path;

use dialsm_io::fs::{Access, LockMode};
use dialsm_io::{Env, Fs};

use crate::filename::FileName;
use crate::version::manifest::{read_current, read_manifest};
use crate::{Error, ErrorKind, Result};

/// The version that this build creates databases with, and the newest that it opens.
pub const FORMAT_VERSION: u32 = 1;

/// Moves a database, which is locked and open nowhere, one version up: its last act makes a manifest
/// durable that says so.
type Step = fn(&dyn Fs, &Path) -> Result<()>;

/// `STEPS[i]` leads from version `i + 1` to `i + 2`.
const STEPS: [Step; FORMAT_VERSION as usize - 1] = [];

/// What an upgrade has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpgradeReport {
    /// The version before.
    pub from: u32,
    /// The version now. Equal to `from` if there was nothing to do, and then nothing was written.
    pub to: u32,
}

/// Fails unless this build can open databases of version `found`.
///
/// # Errors
/// `NewerFormat` naming both versions; `Corruption` for 0, which is no version.
pub(crate) fn check_version(found: u32) -> Result<u32> {
    match found {
        0 => Err(Error::corruption("database format 0, which is none")),
        1..=FORMAT_VERSION => Ok(found),
        _ => {
            let text = format!("database format {found} (this build knows up to {FORMAT_VERSION})");
            Err(Error::new(ErrorKind::NewerFormat, text))
        }
    }
}

/// See [`crate::Db::upgrade`].
pub(crate) fn upgrade(env: &dyn Env, dir: &Path) -> Result<UpgradeReport> {
    env.check_fork()?;
    let fs = env.fs().as_ref();
    if !fs.exists(&FileName::Current.path(dir))? {
        return Err(Error::new(ErrorKind::NotFound, "no database here").at_path(dir));
    }
    let _lock = fs.lock(&FileName::Lock.path(dir), LockMode::Exclusive)?;
    let from = stored_version(fs, dir)?;
    let steps = run_steps(&STEPS, from, fs, dir)?;
    Ok(UpgradeReport { from, to: from + steps })
}

/// The version that the manifest in force says.
fn stored_version(fs: &dyn Fs, dir: &Path) -> Result<u32> {
    let (number, path) = read_current(fs, dir)?;
    let mut version = 1;
    let end = read_manifest(fs.open(&path, Access::Read)?, &mut |_, record| {
        version = record.format_version.unwrap_or(version);
        Ok(())
    })?;
    end.header.expect(&end.header.db_id, number).map_err(|error| error.at_path(&path))?;
    Ok(version)
}

/// Runs the steps from version `from` on; returns how many.
fn run_steps(steps: &[Step], from: u32, fs: &dyn Fs, dir: &Path) -> Result<u32> {
    let mut done = 0;
    for step in steps.iter().skip(from as usize - 1) {
        step(fs, dir)?;
        done += 1;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dialsm_io::SimFs;

    #[test]
    fn each_missing_step_runs_once_and_a_failed_one_ends_it() {
        fn note(fs: &dyn Fs, dir: &Path) -> Result<()> {
            let name = format!("step-{}", fs.list(dir)?.len());
            fs.create(&dir.join(name)).map(drop)
        }
        fn fail(_: &dyn Fs, _: &Path) -> Result<()> {
            Err(Error::new(ErrorKind::Io, "no"))
        }
        let fs = SimFs::new(0);
        let dir = Path::new("/db");
        fs.create_dir_all(dir).expect("directory");
        let steps: [Step; 4] = [note, note, fail, note];
        assert_eq!(run_steps(&steps[..2], 3, fs.as_ref(), dir).expect("nothing to do"), 0);
        assert_eq!(run_steps(&steps[..2], 2, fs.as_ref(), dir).expect("one"), 1);
        assert_eq!(fs.list(dir).expect("list").len(), 1);
        assert!(run_steps(&steps, 1, fs.as_ref(), dir).is_err());
        assert_eq!(fs.list(dir).expect("list").len(), 3, "the step behind the failed one did not run");
    }

    #[test]
    fn versions_are_told_apart() {
        assert_eq!(check_version(FORMAT_VERSION).expect("own"), FORMAT_VERSION);
        assert_eq!(check_version(0).expect_err("none").kind(), ErrorKind::Corruption);
        let error = check_version(FORMAT_VERSION + 1).expect_err("newer");
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
        for number in [FORMAT_VERSION, FORMAT_VERSION + 1] {
            assert!(error.message().contains(&number.to_string()), "{error}");
        }
    }
}
