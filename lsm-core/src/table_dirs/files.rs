//! The two files about shard directories, `SHARD_DIRS` in the database's own and `SHARD_DIR` in each of
//! them.
//!
//! ```text
//! SHARD_DIRS                                     SHARD_DIR
//!  0  64  header, kind 4, file number 0            0  64  header, kind 5, file number = the directory's
//! 64      varint number of entries                64  16  mark
//!         each: u8 id, 16 bytes mark,             80   4  masked CRC32C over bytes 0..80
//!               16 bytes next mark,
//!               varint length, last path
//!         varint number of directories in use
//!         each: u8 id, as the options order them; 0 = the database's own
//!      4  masked CRC32C over all before
//! ```
//! The mark tells the directory of a database from that of its copy, which has the same identity. Each
//! opening that writes draws a new one, *next* in the list, and takes it to the directory then: a crash
//! in between leaves a marker that has either of the two. A path is what the last opening was given:
//! for error texts, for [`Options::load`](crate::Options::load) and for removal, which trusts the mark only.
//! Entries are by ascending id. Both files are written under a temporary name, synced, renamed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dialsm_io::Fs;
use dialsm_io::fs::Access;

use crate::coding::{Reader, put_bytes, put_varint};
use crate::filename::FileName;
use crate::format::{FileHeader, FileKind, HEADER_BYTES};
use crate::types::{DbId, FileNumber};
use crate::{Error, ErrorKind, Result, checksum};

/// Room for 255 paths of the longest kind.
const FILE_BYTES_MAX: u64 = 2 << 20;

pub(super) type Mark = [u8; 16];

/// What `SHARD_DIRS` says of one directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// What the directory's marker had when it was opened last.
    pub(super) mark: Mark,
    /// What that opening gave it.
    pub(super) next: Mark,
    pub(super) path: PathBuf,
}

impl Entry {
    /// Whether a directory with that mark is the one.
    pub(super) fn is_of(&self, mark: &Mark) -> bool {
        self.mark == *mark || self.next == *mark
    }
}

/// `SHARD_DIRS`.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct List {
    pub(super) entries: BTreeMap<u8, Entry>,
    pub(super) in_use: Vec<u8>,
}

/// `SHARD_DIR`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Marker {
    pub(super) db_id: DbId,
    pub(super) id: u8,
    pub(super) mark: Mark,
}

fn encode_list(db_id: &DbId, list: &List) -> Vec<u8> {
    let header = FileHeader { kind: FileKind::ShardDirs, db_id: *db_id, number: FileNumber(0) };
    let mut out = header.encode().to_vec();
    put_varint(&mut out, list.entries.len() as u64);
    for (id, entry) in &list.entries {
        out.push(*id);
        out.extend_from_slice(&entry.mark);
        out.extend_from_slice(&entry.next);
        put_bytes(&mut out, entry.path.as_os_str().as_bytes());
    }
    put_bytes(&mut out, &list.in_use);
    seal(out)
}

fn decode_list(bytes: &[u8]) -> Result<(DbId, List)> {
    let (header, content) = unseal(bytes, FileKind::ShardDirs, FileName::ShardDirs)?;
    let mut reader = Reader::new(content, "SHARD_DIRS");
    let mut list = List::default();
    for _ in 0..reader.varint()? {
        let id = reader.u8()?;
        let mut mark = || -> Result<Mark> { Ok(reader.take(16)?.try_into().expect("16 bytes were taken")) };
        let (mark, next) = (mark()?, mark()?);
        let path = PathBuf::from(OsStr::from_bytes(reader.bytes()?));
        let is_last = list.entries.last_key_value().is_none_or(|(last, _)| *last < id);
        if id == 0 || !is_last {
            return Err(Error::corruption(format!("shard directory {id} is out of order")));
        }
        list.entries.insert(id, Entry { mark, next, path });
    }
    list.in_use = reader.bytes()?.to_vec();
    if !list.in_use.iter().all(|id| *id == 0 || list.entries.contains_key(id)) || !reader.is_empty() {
        return Err(Error::corruption(
            "SHARD_DIRS names a directory that it does not know, or goes on too long",
        ));
    }
    Ok((header.db_id, list))
}

fn encode_marker(marker: &Marker) -> Vec<u8> {
    let number = FileNumber(u64::from(marker.id));
    let header = FileHeader { kind: FileKind::ShardDir, db_id: marker.db_id, number };
    let mut out = header.encode().to_vec();
    out.extend_from_slice(&marker.mark);
    seal(out)
}

fn decode_marker(bytes: &[u8]) -> Result<Marker> {
    let (header, content) = unseal(bytes, FileKind::ShardDir, FileName::ShardDir)?;
    let mark = Mark::try_from(content).map_err(|_| Error::corruption("a marker of the wrong length"))?;
    match u8::try_from(header.number.0) {
        Ok(id) if id > 0 => Ok(Marker { db_id: header.db_id, id, mark }),
        _ => Err(Error::corruption(format!("a marker of shard directory {}", header.number.0))),
    }
}

fn seal(mut out: Vec<u8>) -> Vec<u8> {
    let crc = checksum::masked(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// The header, and what lies between it and the checksum.
fn unseal(bytes: &[u8], kind: FileKind, name: FileName) -> Result<(FileHeader, &[u8])> {
    let (header, start) = FileHeader::decode(bytes, kind)?;
    let Some((content, crc)) = bytes.split_last_chunk::<4>().filter(|(content, _)| content.len() >= start)
    else {
        return Err(Error::corruption(format!("{name} is cut off")).at_offset(HEADER_BYTES as u64));
    };
    if checksum::masked(content).to_le_bytes() != *crc {
        return Err(Error::corruption(format!("{name} fails its checksum")).at_offset(content.len() as u64));
    }
    Ok((header, &content[start..]))
}

/// Reads the list in the database's own directory.
///
/// # Errors
/// `NotFound`, `Corruption`, `NewerFormat`; those of the file system.
pub(super) fn read_any_list(fs: &dyn Fs, own: &Path) -> Result<(DbId, List)> {
    let path = FileName::ShardDirs.path(own);
    decode_list(&read(fs, &path)?).map_err(|error| error.at_path(&path))
}

/// As [`read_any_list`], of that database.
///
/// # Errors
/// As there; `Foreign`.
pub(super) fn read_list(fs: &dyn Fs, own: &Path, db_id: &DbId) -> Result<List> {
    match read_any_list(fs, own)? {
        (found, list) if found == *db_id => Ok(list),
        _ => Err(Error::new(ErrorKind::Foreign, "SHARD_DIRS belongs to another database")
            .at_path(&FileName::ShardDirs.path(own))),
    }
}

/// The directories that the last opening was given, as `SHARD_DIRS` in `own` says.
///
/// # Errors
/// `Corruption`, `NewerFormat`; those of the file system.
pub(crate) fn last_in_use(fs: &dyn Fs, own: &Path) -> Result<Vec<PathBuf>> {
    let (_, list) = read_any_list(fs, own)?;
    let path = |id: &u8| list.entries.get(id).map_or_else(|| own.to_path_buf(), |entry| entry.path.clone());
    Ok(list.in_use.iter().map(path).collect())
}

/// Durable, with its name, when this returns.
pub(super) fn write_list(fs: &dyn Fs, own: &Path, db_id: &DbId, list: &List) -> Result<()> {
    write(fs, own, FileName::ShardDirs, &encode_list(db_id, list))
}

/// The marker of a directory that has one.
pub(super) fn read_marker(fs: &dyn Fs, dir: &Path) -> Result<Marker> {
    let path = FileName::ShardDir.path(dir);
    decode_marker(&read(fs, &path)?).map_err(|error| error.at_path(&path))
}

/// Durable, with its name, when this returns.
pub(super) fn write_marker(fs: &dyn Fs, dir: &Path, marker: &Marker) -> Result<()> {
    write(fs, dir, FileName::ShardDir, &encode_marker(marker))
}

fn read(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>> {
    let file = fs.open(path, Access::Read)?;
    let len = file.len()?;
    if len > FILE_BYTES_MAX {
        return Err(Error::corruption(format!("a file of {len} bytes")).at_path(path));
    }
    let mut bytes = vec![0; len as usize];
    let got = file.read_at(&mut bytes, 0)?;
    bytes.truncate(got);
    Ok(bytes)
}

fn write(fs: &dyn Fs, dir: &Path, name: FileName, bytes: &[u8]) -> Result<()> {
    let temp = dir.join(format!("{name}.tmp"));
    // A crash may have left one.
    if fs.exists(&temp)? {
        fs.unlink(&temp)?;
    }
    let written = fs.create(&temp).and_then(|file| {
        file.write_at(bytes, 0)?;
        file.sync_data()?;
        fs.rename(&temp, &name.path(dir))
    });
    written.inspect_err(|_| {
        // Left alone it would only take space until the next opening.
        let _ = fs.unlink(&temp);
    })?;
    fs.sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> List {
        let entry = |byte: u8, path: &[u8]| Entry {
            mark: [byte; 16],
            next: [byte + 1; 16],
            path: OsStr::from_bytes(path).into(),
        };
        let entries = [(1, entry(7, b"/a")), (9, entry(8, b"rel/\xff b"))].into();
        List { entries, in_use: vec![9, 0, 1, 9] }
    }

    #[test]
    fn both_files_come_back_and_every_damage_is_seen() {
        let db_id = [5; 16];
        let bytes = encode_list(&db_id, &list());
        assert_eq!(decode_list(&bytes).expect("intact"), (db_id, list()));
        let marker = Marker { db_id, id: 255, mark: [3; 16] };
        let sealed = encode_marker(&marker);
        assert_eq!(sealed.len(), 84);
        assert_eq!(decode_marker(&sealed).expect("intact"), marker);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            assert!(decode_list(&bad).is_err(), "byte {at}");
            assert!(decode_list(&bytes[..at]).is_err(), "cut at {at}");
        }
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 4;
            assert!(decode_marker(&bad).is_err(), "byte {at}");
            assert!(decode_marker(&sealed[..at]).is_err(), "cut at {at}");
        }
        assert!(decode_marker(&bytes).is_err() && decode_list(&sealed).is_err(), "one is not the other");
    }

    /// Sealed bytes that say what can't be: an error, no panic.
    #[test]
    fn a_list_that_makes_no_sense_is_corruption() {
        let unsealed = |list: &List| {
            let mut bytes = encode_list(&[5; 16], list);
            bytes.truncate(bytes.len() - 4);
            bytes
        };
        let unknown = List { in_use: vec![2], ..list() };
        assert!(decode_list(&seal(unsealed(&unknown))).is_err());
        let mut longer = unsealed(&list());
        longer.push(0);
        assert!(decode_list(&seal(longer)).is_err());
        let mut twice = unsealed(&list());
        twice[HEADER_BYTES + 1] = 9;
        assert!(decode_list(&seal(twice)).is_err());
        let mut zero = unsealed(&list());
        zero[HEADER_BYTES + 1] = 0;
        assert!(decode_list(&seal(zero)).is_err());
    }
}
