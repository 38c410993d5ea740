//! The manifest: a log of version edits, and `CURRENT`, which names the one in force.
//!
//! Flush and compaction journeys, F5. The first record of a manifest is a snapshot of the settled
//! state, every later one an edit; the state is what they add up to, in order.
//!
//! ```text
//! manifest = file header (`crate::format`, kind manifest), record, record*, [mark]
//! mark     = a record that changes nothing, put behind the last one once that was synced; the next
//!            record is written over it
//! record   = payload length u32 (not 0), masked CRC32C u32, payload (`edit`)
//!            the checksum begins with that of database id and file number (8 bytes), then covers
//!            the length and the payload
//! CURRENT  = "MANIFEST-NNNNNN\n"; a later form would begin with "format N\n", so as to be told
//! ```
//!
//! Invariants
//! - After a failed append or sync nothing is written to that file again: what it holds is
//!   unknown, and a record behind a torn one would be lost. The caller writes a fresh one.
//! - A record is believed only whole. A last one that is cut off or fails its checksum, with
//!   nothing valid behind it, is a torn tail (a power cut may leave the length without the bytes)
//!   and reported. Had it been settled, what it let go of is missing from the older state, which
//!   `version/set` notices. Anything valid behind damage makes it corruption.
//! - `CURRENT` is replaced in one step, and only after the manifest that it will name is durable
//!   with its name (the caller syncs it; the directory is synced here, before and after).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialsm_io::fs::Access;
use dialsm_io::{File, Fs};

use super::edit::ManifestRecord;
use crate::filename::{CURRENT, FileName};
use crate::format::{FileHeader, FileKind, HEADER_BYTES_MAX};
use crate::types::{DbId, FileNumber};
use crate::wal::window::{CHUNK_BYTES, Window};
use crate::{Error, ErrorKind, Result, checksum};

const FRAME_BYTES: usize = 8;

/// The open end of a manifest.
pub struct ManifestWriter {
    file: Arc<dyn File>,
    number: FileNumber,
    seed: u32,
    size: u64,
    written_bytes: u64,
    /// Bytes of the mark that stands at the end, to be overwritten.
    mark_bytes: u64,
    buffer: Vec<u8>,
    failed: bool,
}

impl ManifestWriter {
    /// Starts a manifest in the empty `file` with a snapshot of the whole settled state.
    /// Durable after [`ManifestWriter::sync`]; in force after [`write_current`].
    ///
    /// # Errors
    /// Those of the file; `TooLarge` for a record of 4 GiB; `Internal` if the file is not empty.
    /// The file is of no use after one.
    pub fn create(
        file: Arc<dyn File>,
        db_id: &DbId,
        number: FileNumber,
        snapshot: &ManifestRecord,
    ) -> Result<ManifestWriter> {
        if !file.is_empty()? {
            let text = "a manifest would be written over another file";
            return Err(Error::new(ErrorKind::Internal, text).at_path(file.path()));
        }
        let header = FileHeader { kind: FileKind::Manifest, db_id: *db_id, number }.encode();
        let seed = seed(db_id, number);
        let buffer = header.to_vec();
        let mut writer = ManifestWriter {
            file,
            number,
            seed,
            size: 0,
            written_bytes: 0,
            mark_bytes: 0,
            buffer,
            failed: false,
        };
        writer.write(snapshot)?;
        Ok(writer)
    }

    /// Appends a record. It is with the kernel when this returns, not durable.
    ///
    /// # Errors
    /// Those of the file, after which this writer refuses everything with `Poisoned`; `TooLarge`
    /// for a record of 4 GiB, with nothing written.
    pub fn append(&mut self, record: &ManifestRecord) -> Result<()> {
        self.check()?;
        self.buffer.clear();
        self.write(record)
    }

    /// Puts a record that changes nothing behind the synced ones: while it stands there, damage to
    /// the one before it is known for damage, not taken for a torn append. The next record takes its
    /// place (or a power cut between the two could tear it and keep the next one); it must be at
    /// least as long.
    ///
    /// # Errors
    /// As [`ManifestWriter::append`].
    pub fn mark(&mut self, record: &ManifestRecord) -> Result<()> {
        let end = self.size;
        self.append(record)?;
        self.mark_bytes = self.size - end;
        self.size = end;
        Ok(())
    }

    fn write(&mut self, record: &ManifestRecord) -> Result<()> {
        let frame_at = self.buffer.len();
        self.buffer.extend_from_slice(&[0; FRAME_BYTES]);
        record.encode(&mut self.buffer);
        if self.buffer.len() == frame_at + FRAME_BYTES {
            return Err(Error::invalid("a manifest record that says nothing"));
        }
        let payload_bytes = u32::try_from(self.buffer.len() - frame_at - FRAME_BYTES)
            .map_err(|_| Error::new(ErrorKind::TooLarge, "a manifest record of 4 GiB"))?;
        let (frame, payload) = self.buffer[frame_at..].split_at_mut(FRAME_BYTES);
        frame[..4].copy_from_slice(&payload_bytes.to_le_bytes());
        let crc = checksum::extend(checksum::extend(self.seed, &frame[..4]), payload);
        frame[4..].copy_from_slice(&checksum::mask(crc).to_le_bytes());
        if (self.buffer.len() as u64) < self.mark_bytes {
            return Err(Error::new(ErrorKind::Internal, "a manifest record shorter than a mark"));
        }
        if let Err(e) = self.file.write_at(&self.buffer, self.size) {
            self.failed = true;
            return Err(e);
        }
        self.mark_bytes = 0;
        self.size += self.buffer.len() as u64;
        self.written_bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Makes all appended records durable.
    ///
    /// # Errors
    /// Those of the file, after which this writer refuses everything with `Poisoned`.
    pub fn sync(&mut self) -> Result<()> {
        self.check()?;
        self.file.sync_data().inspect_err(|_| self.failed = true)
    }

    fn check(&self) -> Result<()> {
        if self.failed {
            let text = "an earlier write or sync of this manifest failed";
            return Err(Error::new(ErrorKind::Poisoned, text).at_path(self.file.path()));
        }
        Ok(())
    }

    /// The file's length, by which the caller decides to start a fresh one.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes written so far, marks that were overwritten included.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The file's number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// Whether everything is refused.
    pub fn is_failed(&self) -> bool {
        self.failed
    }
}

fn seed(db_id: &DbId, number: FileNumber) -> u32 {
    checksum::extend(checksum::extend(0, db_id), &number.0.to_le_bytes())
}

/// How far a manifest could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEnd {
    /// What the file says it is.
    pub header: FileHeader,
    /// Records read; at least 1.
    pub records: u64,
    /// Behind the last one.
    pub end: u64,
    /// Whether an unfinished record follows, which was left out.
    pub torn: bool,
}

/// Reads a manifest, giving each record and its offset to `apply`, in order. The caller checks
/// the returned header against what it expects ([`FileHeader::expect`]), before it believes.
///
/// # Errors
/// `Corruption` with file and offset: for damage before a valid record, an intact record that
/// does not decode, a manifest without a first record. `Foreign`, `NewerFormat`; those of the
/// file and of `apply`. Some records may have been applied.
pub fn read_manifest(
    file: Arc<dyn File>,
    apply: &mut dyn FnMut(u64, ManifestRecord) -> Result<()>,
) -> Result<ManifestEnd> {
    let path = file.path().to_path_buf();
    read_records(file, apply).map_err(|e| e.at_path(&path))
}

fn read_records(
    file: Arc<dyn File>,
    apply: &mut dyn FnMut(u64, ManifestRecord) -> Result<()>,
) -> Result<ManifestEnd> {
    let mut window = Window::new(file)?;
    let (header, content) = FileHeader::decode(window.view(0, HEADER_BYTES_MAX)?, FileKind::Manifest)?;
    let mut frames = Frames { seed: seed(&header.db_id, header.number), window };
    let mut end = ManifestEnd { header, records: 0, end: content as u64, torn: false };
    while let Some(payload_bytes) = frames.valid(end.end)? {
        let payload = frames.payload(end.end, payload_bytes)?;
        let record = ManifestRecord::decode(&payload).map_err(|e| e.at_offset(end.end))?;
        apply(end.end, record).map_err(|e| e.at_offset(end.end))?;
        end.records += 1;
        end.end += FRAME_BYTES as u64 + payload_bytes;
    }
    if end.end < frames.window.file_bytes() {
        if let Some(later) = frames.search(end.end)? {
            let text = format!("a damaged manifest record; an intact one follows at offset {later}");
            return Err(Error::corruption(text).at_offset(end.end));
        }
        end.torn = true;
    }
    if end.records == 0 {
        return Err(Error::corruption("the manifest holds no record").at_offset(end.end));
    }
    Ok(end)
}

struct Frames {
    seed: u32,
    window: Window,
}

impl Frames {
    /// The payload's length of the intact record at `at`, if there is one.
    fn valid(&mut self, at: u64) -> Result<Option<u64>> {
        let Some((payload_bytes, frame)) = self.plausible(at)? else { return Ok(None) };
        let crc = checksum::extend(self.seed, &frame[..4]);
        let crc = self.window.extend_crc(crc, at + FRAME_BYTES as u64, payload_bytes)?;
        Ok(crc.filter(|crc| checksum::mask(*crc).to_le_bytes() == frame[4..]).map(|_| payload_bytes))
    }

    /// The payload's length at `at` if it is one that fits.
    fn plausible(&mut self, at: u64) -> Result<Option<(u64, [u8; FRAME_BYTES])>> {
        let file_bytes = self.window.file_bytes();
        let Some(frame) = self.window.view(at, FRAME_BYTES)?.first_chunk::<FRAME_BYTES>() else {
            return Ok(None);
        };
        let payload_bytes = u64::from(u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]));
        let fits = payload_bytes > 0 && payload_bytes <= file_bytes - at - FRAME_BYTES as u64;
        Ok(fits.then_some((payload_bytes, *frame)))
    }

    fn payload(&mut self, at: u64, payload_bytes: u64) -> Result<Vec<u8>> {
        let from = at + FRAME_BYTES as u64;
        if payload_bytes <= CHUNK_BYTES as u64 {
            return Ok(self.window.exact(from, payload_bytes as usize)?.to_vec());
        }
        let mut bytes = vec![0; payload_bytes as usize];
        self.window.read_past(&mut bytes, from)?;
        Ok(bytes)
    }

    /// An intact record behind the damage at `damaged`. First where the damaged one says that it
    /// ends, then everywhere; records have no magic, so the search is bounded in the bytes it
    /// runs through the checksum, and not being able to tell is corruption too.
    fn search(&mut self, damaged: u64) -> Result<Option<u64>> {
        if let Some((payload_bytes, _)) = self.plausible(damaged)? {
            let next = damaged + FRAME_BYTES as u64 + payload_bytes;
            if self.valid(next)?.is_some() {
                return Ok(Some(next));
            }
        }
        let mut budget = 64 * self.window.file_bytes() + (16 << 20);
        for at in damaged + 1..self.window.file_bytes() {
            let Some((payload_bytes, _)) = self.plausible(at)? else { continue };
            budget = budget.checked_sub(payload_bytes).ok_or_else(|| {
                Error::corruption("a damaged manifest record, and too much behind it looks like records")
                    .at_offset(damaged)
            })?;
            if self.valid(at)?.is_some() {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

/// Makes `CURRENT` in `dir` name manifest `number`, which the caller has synced. When this
/// returns, manifest and `CURRENT` are durable with their names.
///
/// # Errors
/// Those of the file system. Which manifest a later opening finds is open then, so both must stay.
pub fn write_current(fs: &dyn Fs, dir: &Path, number: FileNumber) -> Result<()> {
    // The manifest's name must not reach the disk after the pointer to it.
    fs.sync_dir(dir)?;
    let temp = dir.join(format!("{CURRENT}.tmp"));
    match fs.unlink(&temp) {
        Ok(()) => {}
        // Left over only if an earlier attempt was cut short.
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let file = fs.create(&temp)?;
    file.write_at(format!("{}\n", FileName::Manifest(number)).as_bytes(), 0)?;
    file.sync_data()?;
    fs.rename(&temp, &FileName::Current.path(dir))?;
    fs.sync_dir(dir)
}

/// The manifest that `CURRENT` in `dir` names: number and path. That it is there is not checked.
///
/// # Errors
/// `NotFound` if there is no `CURRENT`; `Corruption` if it names no manifest; `NewerFormat` if it has
/// another form; those of the file.
pub fn read_current(fs: &dyn Fs, dir: &Path) -> Result<(FileNumber, PathBuf)> {
    let path = FileName::Current.path(dir);
    let file = fs.open(&path, Access::Read)?;
    // The longest name has 20 digits; one byte more than fits shows what is too long.
    let mut buffer = [0; 64];
    let got = file.read_at(&mut buffer, 0)?;
    let text = std::str::from_utf8(&buffer[..got]).unwrap_or_default();
    let format = text.strip_prefix("format ").and_then(|rest| rest.split_once('\n'));
    if let Some(format) = format.and_then(|(number, _)| number.parse::<u32>().ok()) {
        let text = format!("CURRENT format {format} (this build knows up to 1)");
        return Err(Error::new(ErrorKind::NewerFormat, text).at_path(&path));
    }
    let name = text.strip_suffix('\n');
    match name.and_then(FileName::parse) {
        Some(FileName::Manifest(number)) => Ok((number, FileName::Manifest(number).path(dir))),
        _ => Err(Error::corruption("CURRENT does not name a manifest").at_path(&path)),
    }
}

#[cfg(test)]
mod tests;
