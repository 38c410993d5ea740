//! The dump of a table: its properties, then its entries in order, then its range tombstones.

use std::path::Path;
use std::sync::Arc;

use dialsm_core::cache::BlockCache;
use dialsm_core::format::{FileHeader, FileKind, HEADER_BYTES_MAX};
use dialsm_core::key::{Comparator, Kind, internal_key};
use dialsm_core::read::internal::InternalIter;
use dialsm_core::table::{IterSpec, Properties, TableReader};
use dialsm_core::{ErrorKind, Result};
use dialsm_io::Fs;

use super::{Printer, open};
use crate::exit::Outcome;

/// Prints the table in `path`; with `summary`, without its entries.
///
/// # Errors
/// Those of the table's reader, and of the output.
pub fn dump(fs: &dyn Fs, path: &Path, summary: bool, printer: &mut Printer<'_>) -> Outcome {
    let (header, table) = open_table(fs, path)?;
    printer.header(&header)?;
    properties(table.properties(), printer)?;
    if summary {
        return Ok(());
    }
    let mut iter = table.iter(IterSpec::whole_table());
    iter.seek_to_first()?;
    while iter.valid() {
        printer.item("entry").internal_key("", iter.key()).bytes("value", iter.value()).end()?;
        iter.next()?;
    }
    for tombstone in table.range_dels().into_iter().flat_map(|set| set.iter()) {
        let key = internal_key(&tombstone.start, tombstone.seqno, Kind::RangeDelete as u8);
        printer.item("range_tombstone").internal_key("", &key).bytes("end", &tombstone.end).end()?;
    }
    Ok(())
}

/// Opens a table by what it says about itself: there is no manifest to compare with.
fn open_table(fs: &dyn Fs, path: &Path) -> Result<(FileHeader, Arc<TableReader>)> {
    let file = open(fs, path)?;
    let file_bytes = file.len()?;
    let mut front = vec![0; HEADER_BYTES_MAX];
    let got = file.read_at(&mut front, 0)?;
    let (header, _) =
        FileHeader::decode(&front[..got], FileKind::Table).map_err(|error| error.at_path(path))?;
    let attempt = |comparator| {
        let cache = Arc::new(BlockCache::new(0));
        TableReader::open(file.clone(), &header.db_id, header.number, file_bytes, comparator, cache)
    };
    // A table in an order of the user's own cannot be read without it.
    match attempt(Comparator::Bytewise) {
        Err(error) if error.kind() == ErrorKind::InvalidArgument => {
            Ok((header, attempt(Comparator::ReverseBytewise).map_err(|_| error)?))
        }
        table => Ok((header, table?)),
    }
}

fn properties(properties: &Properties, printer: &mut Printer<'_>) -> std::io::Result<()> {
    printer
        .item("properties")
        .word("comparator", &properties.comparator)
        .number("entries", properties.entries)
        .number("deletes", properties.deletes)
        .number("range_deletes", properties.range_deletes)
        .number("data_blocks", properties.data_blocks)
        .number("raw_key_bytes", properties.raw_key_bytes)
        .number("raw_value_bytes", properties.raw_value_bytes)
        .number("seqno_min", properties.seqno_min)
        .number("seqno_max", properties.seqno_max)
        .internal_key("smallest_", &properties.smallest)
        .internal_key("largest_", &properties.largest)
        .end()?;
    for (name, value) in &properties.others {
        printer.item("property").word("name", name).bytes("value", value).end()?;
    }
    Ok(())
}
