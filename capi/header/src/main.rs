//! Makes what is made of other sources, and checks that it is up to date.
//!
//! ```text
//! table of options ─► capi/src/options_typed.rs          a C setter for each option
//!                  └► capi/tests/c/options_typed.inc     a call of each, for the C test
//! capi/src, capi/logic/src ─► include/dialsm.h           by cbindgen, with a heading for each file
//! include/dialsm.h ─► capi/abi.txt                       what programs may depend on, one line each
//! ```
//! `dialsm-capi-header` writes all of them; with `--check` it writes nothing, and fails if one would change.
//! A line of the list may only go or change together with `DIALSM_ABI_VERSION`: otherwise nothing is written.

mod abi;
mod header;
mod setters;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let is_check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => bail!("unknown argument {other} (there is --check)"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Files { is_check, stale: Vec::new() };
    // In this order: the header has what the setters' source says.
    files.write(root.join("capi/src/options_typed.rs"), &setters::rust_source()?)?;
    files.write(root.join("capi/tests/c/options_typed.inc"), &setters::c_calls()?)?;
    let header = header::make(&root)?;
    files.write(root.join("include/dialsm.h"), &header)?;
    let list = root.join("capi/abi.txt");
    let before = fs::read_to_string(&list).unwrap_or_default();
    let now = abi::list(&header)?;
    abi::check_change(&before, &now)?;
    files.write(list, &now)?;
    if !files.stale.is_empty() {
        bail!("not up to date, run tools/c-header.sh: {}", files.stale.join(", "));
    }
    Ok(())
}

struct Files {
    is_check: bool,
    stale: Vec<String>,
}

impl Files {
    fn write(&mut self, path: PathBuf, text: &str) -> Result<()> {
        if fs::read_to_string(&path).is_ok_and(|found| found == text) {
            return Ok(());
        }
        if self.is_check {
            self.stale.push(path.display().to_string());
            return Ok(());
        }
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))
    }
}
