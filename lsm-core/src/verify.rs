//! Reading everything to see that it is what was written.

use std::sync::Arc;

use crate::engine::Engine;
use crate::{Error, Result, checksum, filename};

/// What a verification has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

const CHUNK_BYTES: usize = 1 << 20;

/// Checks all tables of the live version; `progress` gets bytes done and bytes in all.
pub(crate) fn verify(engine: &Arc<Engine>, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
    engine.check_open()?;
    let tree = &engine.tree;
    let view = tree.view();
    view.version.check_invariants()?;
    let total = view.version.all_tables().map(|(_, table)| table.file_bytes()).sum();
    let mut report = VerifyReport::default();
    for (_, table) in view.version.all_tables() {
        let meta = table.meta();
        let path = engine.dir.join(filename::table(meta.number));
        let found = file_checksum(engine, &path, meta.file_bytes)?;
        if found != meta.checksum {
            let text = format!("the file's checksum is {found:08x}, the manifest says {:08x}", meta.checksum);
            return Err(Error::corruption(text).at_path(&path));
        }
        let checked = engine.tables.open(engine, tree, table)?.verify_all().map_err(|e| e.at_path(&path))?;
        let said = (meta.entries, meta.smallest.as_slice(), meta.largest.as_slice());
        if (checked.entries, checked.smallest.as_slice(), checked.largest.as_slice()) != said {
            return Err(Error::corruption("counts or bounds differ from the manifest's").at_path(&path));
        }
        report.tables += 1;
        report.entries += meta.entries;
        report.bytes += meta.file_bytes;
        progress(report.bytes, total);
    }
    Ok(report)
}

fn file_checksum(engine: &Engine, path: &std::path::Path, bytes: u64) -> Result<u32> {
    let file = engine.env.fs().open(path, dialsm_io::fs::Access::Read)?;
    let mut buf = vec![0; CHUNK_BYTES];
    let (mut crc, mut at) = (0, 0);
    loop {
        let n = file.read_at(&mut buf, at)?;
        if n == 0 {
            break;
        }
        crc = checksum::extend(crc, &buf[..n]);
        at += n as u64;
    }
    if at != bytes {
        let text = format!("the file has {at} bytes, the manifest says {bytes}");
        return Err(Error::corruption(text).at_path(path).at_offset(at));
    }
    Ok(crc)
}
