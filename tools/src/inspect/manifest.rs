//! The dump of a manifest: every record, and what each changed in which tree.

use std::io;
use std::path::{Path, PathBuf};

use dialsm_core::filename::FileName;
use dialsm_core::types::TreeId;
use dialsm_core::version::edit::{ManifestRecord, TableDesc, TreeEdit};
use dialsm_core::version::manifest::{read_current, read_manifest};
use dialsm_core::{Error, ErrorKind, Result};
use dialsm_io::Fs;

use super::{Printer, open};
use crate::exit::{Failure, Outcome};

/// Prints the manifest in `path`, or the one in force of the database in that directory. An
/// unfinished last record, as a crash leaves it, is shown and is no error.
///
/// # Errors
/// Those of the manifest's reader, and of the output.
pub fn dump(fs: &dyn Fs, path: &Path, printer: &mut Printer<'_>) -> Outcome {
    let path = manifest_path(fs, path)?;
    let mut failed = None;
    let read = read_manifest(open(fs, &path)?, &mut |offset, manifest_record| {
        record(offset, &manifest_record, printer).map_err(|error| {
            let ended = Error::new(ErrorKind::Io, "the output ended");
            failed = Some(error);
            ended
        })
    });
    if let Some(error) = failed {
        return Err(Failure::Output(error));
    }
    let end = read?;
    printer.header(&end.header)?;
    printer
        .item("end")
        .number("offset", end.end)
        .number("records", end.records)
        .number("torn", u64::from(end.torn))
        .end()?;
    Ok(())
}

fn manifest_path(fs: &dyn Fs, path: &Path) -> Result<PathBuf> {
    if fs.exists(&FileName::Current.path(path))? {
        return Ok(read_current(fs, path)?.1);
    }
    Ok(path.to_path_buf())
}

fn record(offset: u64, record: &ManifestRecord, printer: &mut Printer<'_>) -> io::Result<()> {
    printer
        .item("record")
        .number("offset", offset)
        .maybe("format_version", record.format_version.map(u64::from))
        .maybe("next_file_number", record.next_file_number.map(|number| number.0))
        .maybe("last_seqno", record.last_seqno)
        .maybe("replay_start", record.replay_start.map(|number| number.0))
        .maybe("log_named", record.log_named.map(|number| number.0))
        .maybe("replay_end_segment", record.replay_end.map(|end| end.segment.0))
        .maybe("replay_end_offset", record.replay_end.map(|end| end.offset))
        .maybe("keyspace_id_next", record.keyspace_id_next.map(u64::from))
        .end()?;
    for keyspace in &record.keyspaces_created {
        printer
            .item("keyspace_created")
            .number("id", u64::from(keyspace.id))
            .word("name", &keyspace.name)
            .number("shards", u64::from(keyspace.shards))
            .word("comparator", &keyspace.comparator)
            .end()?;
    }
    for id in &record.keyspaces_dropped {
        printer.item("keyspace_dropped").number("id", u64::from(*id)).end()?;
    }
    if let Some(span) = record.unlogged {
        let item = printer.item("unlogged").number("from", span.from);
        item.number("to", span.to.unwrap_or(0)).end()?;
    }
    for void in &record.void_intervals {
        let item = printer.item("void_interval").word("tree", &void.tree.to_string());
        item.number("from", void.from).number("to", void.to).end()?;
    }
    record.edits.iter().try_for_each(|edit| tree_edit(edit, printer))
}

fn tree_edit(edit: &TreeEdit, printer: &mut Printer<'_>) -> io::Result<()> {
    let item = printer.item("edit").word("tree", &edit.tree.to_string()).maybe("floor", edit.floor);
    match &edit.comparator {
        Some(comparator) => item.word("comparator", comparator).end()?,
        None => item.end()?,
    }
    for (level, table) in &edit.added {
        added(edit.tree, *level, table, printer)?;
    }
    for (level, number) in &edit.removed {
        let item = printer.item("table_removed").word("tree", &edit.tree.to_string());
        item.number("level", u64::from(*level)).number("number", number.0).end()?;
    }
    for (level, key) in &edit.cursors {
        let item = printer.item("cursor").word("tree", &edit.tree.to_string());
        item.number("level", u64::from(*level)).internal_key("", key).end()?;
    }
    Ok(())
}

fn added(tree: TreeId, level: u8, table: &TableDesc, printer: &mut Printer<'_>) -> io::Result<()> {
    printer
        .item("table_added")
        .word("tree", &tree.to_string())
        .number("level", u64::from(level))
        .number("number", table.number.0)
        .number("epoch", table.epoch)
        .number("file_bytes", table.file_bytes)
        .word("checksum", &format!("{:08x}", table.checksum))
        .number("entries", table.entries)
        .number("deletes", table.deletes)
        .number("range_deletes", table.range_deletes)
        .number("raw_key_bytes", table.raw_key_bytes)
        .number("raw_value_bytes", table.raw_value_bytes)
        .number("clues", table.clues)
        .number("redirected", table.redirected)
        .number("redirected_bytes", table.redirected_bytes)
        .number("seqno_min", table.seqno_min)
        .number("seqno_max", table.seqno_max)
        .number("logged_seqno_max", table.logged_seqno_max)
        .internal_key("smallest_", &table.smallest)
        .internal_key("largest_", &table.largest)
        .end()
}
