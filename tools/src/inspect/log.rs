//! The dump of a log segment: its records, and the operations in them.
//!
//! Damage is shown where it is and the dump goes on with the next intact record; at the end it is
//! an error all the same. Whether it matters, only the whole log can say: a torn tail is normal
//! after a crash.

use std::path::Path;

use dialsm_core::Error;
use dialsm_core::batch::OpIter;
use dialsm_core::wal::format::{KIND_OPS, KIND_START, RecordHeader, SegmentStart};
use dialsm_core::wal::{DumpItem, SegmentReader};
use dialsm_io::Fs;

use super::{Printer, open};
use crate::exit::{Failure, Outcome};

/// Prints the segment in `path`; with `summary`, its records without their operations.
///
/// # Errors
/// Those of the segment's reader, and of the output; `Corruption` with the offset of the first
/// damage, after all the rest was printed.
pub fn dump(fs: &dyn Fs, path: &Path, summary: bool, printer: &mut Printer<'_>) -> Outcome {
    let (mut reader, header) = SegmentReader::open(open(fs, path)?)?;
    printer.header(&header)?;
    let mut damage = None;
    while let Some(item) = reader.next_item()? {
        match item {
            DumpItem::Record { offset, header, payload } => {
                record(offset, &header, payload, summary, printer).map_err(|failure| match failure {
                    Failure::Error(error) => Failure::Error(error.at_path(path).at_offset(offset)),
                    other => other,
                })?;
            }
            DumpItem::Damage { offset, reason, resumes } => {
                damage.get_or_insert((offset, reason));
                let item = printer.item("damage").number("offset", offset);
                item.word("reason", reason).maybe("resumes", resumes).end()?;
            }
            DumpItem::End { offset, kind } => {
                printer.item("end").number("offset", offset).word("by", &format!("{kind:?}")).end()?;
            }
        }
    }
    match damage {
        Some((offset, reason)) => Err(Error::corruption(reason).at_path(path).at_offset(offset).into()),
        None => Ok(()),
    }
}

fn record(
    offset: u64,
    header: &RecordHeader,
    payload: &[u8],
    summary: bool,
    printer: &mut Printer<'_>,
) -> Outcome {
    match header.kind {
        KIND_START => {
            let start = SegmentStart::decode(header, payload)?;
            let previous = start.previous.map(|previous| previous.position);
            printer
                .item("start")
                .number("offset", offset)
                .number("first_seqno", start.first_seqno)
                .maybe("previous_segment", previous.map(|position| position.segment.0))
                .maybe("previous_end", previous.map(|position| position.offset))
                .maybe("previous_synced", start.previous.map(|previous| u64::from(previous.synced)))
                .end()?;
        }
        kind => {
            printer
                .item("record")
                .number("offset", offset)
                .number("record_kind", u64::from(kind))
                .number("first_seqno", header.first_seqno)
                .number("count", u64::from(header.count))
                .number("payload_bytes", header.payload_bytes)
                .number("synced_segment", header.synced.segment.0)
                .number("synced_offset", header.synced.offset)
                .end()?;
            if kind == KIND_OPS && !summary {
                operations(header, payload, printer)?;
            }
        }
    }
    Ok(())
}

fn operations(header: &RecordHeader, payload: &[u8], printer: &mut Printer<'_>) -> Outcome {
    for (seqno, op) in (header.first_seqno..).zip(OpIter::new(payload)) {
        let op = op?;
        printer
            .item("op")
            .number("seqno", seqno)
            .word("kind", &format!("{:?}", op.kind))
            .number("keyspace", u64::from(op.keyspace))
            .maybe("fallback", op.fallback.map(u64::from))
            .bytes("key", op.key)
            .bytes("value", op.value)
            .end()?;
    }
    Ok(())
}
