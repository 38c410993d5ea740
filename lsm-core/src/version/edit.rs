//! Version edits: what one record of the manifest says.
//!
//! Flush and compaction journeys, F4: an edit is made when a version is installed, and becomes a
//! manifest record (F5) when its files are durable. One record is all or nothing, so whatever
//! spans trees (an atomic flush, a keyspace's birth or end) is one record.
//!
//! ```text
//! record, tree edit, rest of a table = field*
//! field = tag varint, length varint, content     unknown odd tags are skipped (later, ignorable
//!                                                news), unknown even ones refused: NewerFormat
//! ```
//! Of one record, keyspaces go before others come, and tree edits follow. The tags and contents stand beside the encoders below. Numbers are varints unless said
//! otherwise, keys and names a length and bytes. Of a field that may stand only once the last one
//! counts; lists are repeated fields, in order.
//!
//! Invariant: decoding allocates no more than a small multiple of the bytes there are, and
//! `decode(encode(r)) == r`; attacked by `random_records_round_trip_and_damage_is_typed`.
//!
//! Absent on purpose: whether an edit fits the version it is applied to (levels disjoint, removed
//! tables there), which `version/set` checks, having the comparator.

use crate::coding::{Reader, put_bytes, put_varint};
use crate::key::{KEY_BYTES_MAX, TRAILER_BYTES};
use crate::types::{FileNumber, SEQNO_MAX, SeqNo, TreeId};
use crate::upgrade::check_version;
use crate::wal::LogPosition;
use crate::{Error, ErrorKind, Result};

/// The key of the hash that places user keys in shards.
pub type HashKey = [u8; 16];

/// One record of the manifest. A field that is `None` or empty says nothing new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestRecord {
    /// No file number at or above this one was given out.
    pub next_file_number: Option<FileNumber>,
    /// The highest sequence number known to be used when this was written.
    pub last_seqno: Option<SeqNo>,
    /// The lowest log segment that may hold what is not yet in tables; replay starts there.
    pub replay_start: Option<FileNumber>,
    /// A log segment whose name was durable when this was written, the newest one then: it is there
    /// at the next opening, or was lost. So is the one that replay starts with. Absent while there is
    /// no log.
    pub log_named: Option<FileNumber>,
    /// Where the replay of the last opening ended.
    pub replay_end: Option<LogPosition>,
    /// The key of the placement hash; at the database's creation and in snapshots.
    pub hash_key: Option<HashKey>,
    /// Keyspaces born.
    pub keyspaces_created: Vec<KeyspaceDesc>,
    /// Ids of keyspaces gone, with all their trees.
    pub keyspaces_dropped: Vec<u32>,
    /// No keyspace id at or above this one was given out. Absent, the highest one that was created
    /// says so.
    pub keyspace_id_next: Option<u32>,
    /// Sequences whose clues into a tree stand for nothing: their values never reached the disk.
    pub void_intervals: Vec<VoidInterval>,
    /// Sequences that were written without log, the last such span; in snapshots.
    pub unlogged: Option<UnloggedSpan>,
    /// The version of the database's format ([`crate::upgrade`]); in snapshots.
    pub format_version: Option<u32>,
    /// What changed in trees.
    pub edits: Vec<TreeEdit>,
}

/// A keyspace as the manifest knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceDesc {
    /// Its id; never used twice.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// How many shards it has, for ever.
    pub shards: u16,
    /// The name of its comparator.
    pub comparator: String,
}

/// Redirected entries of `tree` with `from <= seqno < to` were lost with the log off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VoidInterval {
    /// The fallback tree that should have held them.
    pub tree: TreeId,
    /// The first sequence number.
    pub from: SeqNo,
    /// The sequence number behind the last.
    pub to: SeqNo,
}

/// Sequences `from <= seqno < to` were written, and redirected, without log; without `to`, all from there
/// on: nobody has judged yet what of them a crash has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnloggedSpan {
    /// The first sequence number.
    pub from: SeqNo,
    /// The sequence number behind the last.
    pub to: Option<SeqNo>,
}

/// What changed in one tree.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TreeEdit {
    /// The tree.
    pub tree: TreeId,
    /// The name of its comparator; at its creation and in snapshots.
    pub comparator: Option<String>,
    /// The name of its merge operator, if it ever had one; at its creation and in snapshots.
    pub merge_operator: Option<String>,
    /// Tables that came, with their levels.
    pub added: Vec<(u8, TableDesc)>,
    /// Tables that went, with the levels they stood in.
    pub removed: Vec<(u8, FileNumber)>,
    /// The first sequence number of the tree that is not in its tables.
    pub floor: Option<SeqNo>,
    /// Where round-robin picking goes on in a level: an internal key.
    pub cursors: Vec<(u8, Vec<u8>)>,
}

impl std::fmt::Debug for TreeEdit {
    /// Leaves the cursors' keys out, which never go into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cursors: Vec<u8> = self.cursors.iter().map(|(level, _)| *level).collect();
        f.debug_struct("TreeEdit")
            .field("tree", &self.tree)
            .field("comparator", &self.comparator)
            .field("merge_operator", &self.merge_operator)
            .field("added", &self.added)
            .field("removed", &self.removed)
            .field("floor", &self.floor)
            .field("cursor_levels", &cursors)
            .finish()
    }
}

/// A table as the manifest knows it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TableDesc {
    /// Its file's number.
    pub number: FileNumber,
    /// Its place among the tables of L0, newest highest; kept in deeper levels, without meaning.
    pub epoch: u64,
    /// The file's length.
    pub file_bytes: u64,
    /// CRC32C of the whole file.
    pub checksum: u32,
    /// The least internal key, range tombstones included.
    pub smallest: Vec<u8>,
    /// The greatest internal key, range tombstones included.
    pub largest: Vec<u8>,
    /// The least sequence number.
    pub seqno_min: SeqNo,
    /// The greatest sequence number.
    pub seqno_max: SeqNo,
    /// The greatest sequence number whose operation was logged; 0 if none was. The log must be
    /// durable up to it before this table is settled.
    pub logged_seqno_max: SeqNo,
    /// Entries of all kinds, range tombstones aside.
    pub entries: u64,
    /// Deletes and single deletes among them.
    pub deletes: u64,
    /// Range tombstones.
    pub range_deletes: u64,
    /// Bytes of user keys before compression and prefix sharing.
    pub raw_key_bytes: u64,
    /// Bytes of values before compression.
    pub raw_value_bytes: u64,
    /// The directory it lies in; 0 is the database's own.
    pub dir_id: u8,
    /// Clue entries.
    pub clues: u64,
    /// Bytes of their user keys.
    pub clue_bytes: u64,
    /// Redirected entries.
    pub redirected: u64,
    /// Bytes of redirected keys and values.
    pub redirected_bytes: u64,
}

impl std::fmt::Debug for TableDesc {
    /// Leaves the keys out, which never go into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableDesc({} epoch {} {} bytes", self.number, self.epoch, self.file_bytes)?;
        write!(f, " seqnos {}..={} entries {})", self.seqno_min, self.seqno_max, self.entries)
    }
}

mod tag {
    pub(super) const NEXT_FILE_NUMBER: u64 = 2;
    pub(super) const LAST_SEQNO: u64 = 4;
    pub(super) const REPLAY_START: u64 = 6;
    /// File number. Ignorable: without it a lost segment may go unnoticed.
    pub(super) const LOG_NAMED: u64 = 7;
    /// Segment, offset.
    pub(super) const REPLAY_END: u64 = 8;
    /// 16 bytes.
    pub(super) const HASH_KEY: u64 = 10;
    /// Id, name, shards, comparator.
    pub(super) const KEYSPACE_CREATED: u64 = 12;
    /// Id.
    pub(super) const KEYSPACE_DROPPED: u64 = 14;
    /// Keyspace, shard, from, to.
    pub(super) const VOID_INTERVAL: u64 = 16;
    /// A tree edit.
    pub(super) const TREE_EDIT: u64 = 18;
    /// Id.
    pub(super) const KEYSPACE_ID_NEXT: u64 = 20;
    /// From, to or 0.
    pub(super) const UNLOGGED: u64 = 22;
    /// Number. First of a record's fields: a newer one says more than what else is not known.
    pub(super) const FORMAT_VERSION: u64 = 32;

    /// Keyspace, shard.
    pub(super) const TREE: u64 = 2;
    /// The name.
    pub(super) const COMPARATOR: u64 = 4;
    /// Level, a table.
    pub(super) const ADDED: u64 = 6;
    /// Level, file number.
    pub(super) const REMOVED: u64 = 8;
    pub(super) const FLOOR: u64 = 10;
    /// Level, internal key. Ignorable: a picker without it only starts over.
    pub(super) const CURSOR: u64 = 11;
    /// The name. Ignorable: who does not know of it refuses the operands themselves.
    pub(super) const MERGE_OPERATOR: u64 = 13;

    pub(super) const DIR_ID: u64 = 2;
    pub(super) const CLUES: u64 = 4;
    pub(super) const REDIRECTED: u64 = 6;
    pub(super) const REDIRECTED_BYTES: u64 = 7;
    pub(super) const CLUE_BYTES: u64 = 9;
}

fn field(out: &mut Vec<u8>, tag: u64, content: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    content(&mut bytes);
    put_varint(out, tag);
    put_bytes(out, &bytes);
}

fn number_field(out: &mut Vec<u8>, tag: u64, value: Option<u64>) {
    if let Some(value) = value {
        field(out, tag, |out| put_varint(out, value));
    }
}

fn put_tree(out: &mut Vec<u8>, tree: TreeId) {
    put_varint(out, u64::from(tree.keyspace));
    put_varint(out, u64::from(tree.shard));
}

/// Reads fields, giving each to `known`, which says whether it knew the tag.
fn read_fields<'a>(
    r: &mut Reader<'a>,
    what: &'static str,
    mut known: impl FnMut(u64, &mut Reader<'a>) -> Result<bool>,
) -> Result<()> {
    while !r.is_empty() {
        let tag = r.varint()?;
        let mut content = Reader::new(r.bytes()?, what);
        let was_known = known(tag, &mut content)?;
        if was_known && !content.is_empty() {
            return Err(Error::corruption(format!("{what}: bytes left over in field {tag}")));
        }
        if !was_known && tag % 2 == 0 {
            let text = format!("{what}: field {tag}, which this build does not know");
            return Err(Error::new(ErrorKind::NewerFormat, text));
        }
    }
    Ok(())
}

fn read_small<T: TryFrom<u64>>(r: &mut Reader<'_>, what: &'static str) -> Result<T> {
    T::try_from(r.varint()?).map_err(|_| Error::corruption(format!("{what} is out of range")))
}

fn read_seqno(r: &mut Reader<'_>) -> Result<SeqNo> {
    match r.varint()? {
        seqno if seqno <= SEQNO_MAX => Ok(seqno),
        _ => Err(Error::corruption("a sequence number is out of range")),
    }
}

/// A bound that may stand one past the last sequence number.
fn read_seqno_bound(r: &mut Reader<'_>) -> Result<SeqNo> {
    match r.varint()? {
        bound if bound <= SEQNO_MAX + 1 => Ok(bound),
        _ => Err(Error::corruption("a sequence bound is out of range")),
    }
}

fn read_text(bytes: &[u8], what: &'static str) -> Result<String> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::corruption(format!("{what} is no UTF-8")))?;
    Ok(text.to_owned())
}

fn read_internal_key(r: &mut Reader<'_>) -> Result<Vec<u8>> {
    let key = r.bytes()?;
    if !(TRAILER_BYTES..=KEY_BYTES_MAX + TRAILER_BYTES).contains(&key.len()) {
        return Err(Error::corruption(format!("an internal key of {} bytes", key.len())));
    }
    Ok(key.to_vec())
}

fn read_tree(r: &mut Reader<'_>) -> Result<TreeId> {
    Ok(TreeId { keyspace: read_small(r, "a keyspace id")?, shard: read_small(r, "a shard")? })
}

impl ManifestRecord {
    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        number_field(out, tag::FORMAT_VERSION, self.format_version.map(u64::from));
        number_field(out, tag::NEXT_FILE_NUMBER, self.next_file_number.map(|n| n.0));
        number_field(out, tag::LAST_SEQNO, self.last_seqno);
        number_field(out, tag::REPLAY_START, self.replay_start.map(|n| n.0));
        number_field(out, tag::LOG_NAMED, self.log_named.map(|n| n.0));
        if let Some(end) = self.replay_end {
            field(out, tag::REPLAY_END, |out| {
                put_varint(out, end.segment.0);
                put_varint(out, end.offset);
            });
        }
        if let Some(key) = &self.hash_key {
            field(out, tag::HASH_KEY, |out| out.extend_from_slice(key));
        }
        for keyspace in &self.keyspaces_created {
            field(out, tag::KEYSPACE_CREATED, |out| keyspace.encode(out));
        }
        for id in &self.keyspaces_dropped {
            number_field(out, tag::KEYSPACE_DROPPED, Some(u64::from(*id)));
        }
        number_field(out, tag::KEYSPACE_ID_NEXT, self.keyspace_id_next.map(u64::from));
        for void in &self.void_intervals {
            field(out, tag::VOID_INTERVAL, |out| {
                put_tree(out, void.tree);
                put_varint(out, void.from);
                put_varint(out, void.to);
            });
        }
        if let Some(span) = self.unlogged {
            field(out, tag::UNLOGGED, |out| {
                put_varint(out, span.from);
                put_varint(out, span.to.unwrap_or(0));
            });
        }
        for edit in &self.edits {
            field(out, tag::TREE_EDIT, |out| edit.encode(out));
        }
    }

    /// Decodes a record; `bytes` must be all of it.
    ///
    /// # Errors
    /// `Corruption` for bytes that break the format, `NewerFormat` for an unknown even tag.
    pub fn decode(bytes: &[u8]) -> Result<ManifestRecord> {
        let mut record = ManifestRecord::default();
        read_fields(&mut Reader::new(bytes, "a manifest record"), "a manifest record", |tag, r| {
            match tag {
                tag::FORMAT_VERSION => {
                    let found = read_small(r, "a database format")?;
                    record.format_version = Some(check_version(found)?);
                }
                tag::NEXT_FILE_NUMBER => record.next_file_number = Some(FileNumber(r.varint()?)),
                tag::LAST_SEQNO => record.last_seqno = Some(read_seqno(r)?),
                tag::REPLAY_START => record.replay_start = Some(FileNumber(r.varint()?)),
                tag::LOG_NAMED => record.log_named = Some(FileNumber(r.varint()?)),
                tag::REPLAY_END => {
                    let segment = FileNumber(r.varint()?);
                    record.replay_end = Some(LogPosition { segment, offset: r.varint()? });
                }
                tag::HASH_KEY => {
                    let key: &HashKey = r.take(16)?.first_chunk().expect("16 bytes were taken");
                    record.hash_key = Some(*key);
                }
                tag::KEYSPACE_CREATED => record.keyspaces_created.push(KeyspaceDesc::decode(r)?),
                tag::KEYSPACE_DROPPED => record.keyspaces_dropped.push(read_small(r, "a keyspace id")?),
                tag::KEYSPACE_ID_NEXT => record.keyspace_id_next = Some(read_small(r, "a keyspace id")?),
                tag::UNLOGGED => {
                    let (from, to) = (read_seqno_bound(r)?, read_seqno_bound(r)?);
                    record.unlogged = Some(UnloggedSpan { from, to: (to > 0).then_some(to) });
                }
                tag::VOID_INTERVAL => {
                    let tree = read_tree(r)?;
                    let (from, to) = (read_seqno_bound(r)?, read_seqno_bound(r)?);
                    record.void_intervals.push(VoidInterval { tree, from, to });
                }
                tag::TREE_EDIT => record.edits.push(TreeEdit::decode(r)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(record)
    }
}

impl KeyspaceDesc {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.id));
        put_bytes(out, self.name.as_bytes());
        put_varint(out, u64::from(self.shards));
        put_bytes(out, self.comparator.as_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<KeyspaceDesc> {
        Ok(KeyspaceDesc {
            id: read_small(r, "a keyspace id")?,
            name: read_text(r.bytes()?, "a keyspace's name")?,
            shards: read_small(r, "a number of shards")?,
            comparator: read_text(r.bytes()?, "a comparator's name")?,
        })
    }
}

impl TreeEdit {
    fn encode(&self, out: &mut Vec<u8>) {
        field(out, tag::TREE, |out| put_tree(out, self.tree));
        if let Some(name) = &self.comparator {
            field(out, tag::COMPARATOR, |out| out.extend_from_slice(name.as_bytes()));
        }
        if let Some(name) = &self.merge_operator {
            field(out, tag::MERGE_OPERATOR, |out| out.extend_from_slice(name.as_bytes()));
        }
        for (level, table) in &self.added {
            field(out, tag::ADDED, |out| {
                out.push(*level);
                table.encode(out);
            });
        }
        for (level, number) in &self.removed {
            field(out, tag::REMOVED, |out| {
                out.push(*level);
                put_varint(out, number.0);
            });
        }
        number_field(out, tag::FLOOR, self.floor);
        for (level, key) in &self.cursors {
            field(out, tag::CURSOR, |out| {
                out.push(*level);
                put_bytes(out, key);
            });
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<TreeEdit> {
        let mut edit = TreeEdit::default();
        let mut has_tree = false;
        read_fields(r, "a tree edit", |tag, r| {
            match tag {
                tag::TREE => {
                    edit.tree = read_tree(r)?;
                    has_tree = true;
                }
                tag::COMPARATOR => {
                    let name = r.take(r.rest().len())?;
                    edit.comparator = Some(read_text(name, "a comparator's name")?);
                }
                tag::MERGE_OPERATOR => {
                    let name = r.take(r.rest().len())?;
                    edit.merge_operator = Some(read_text(name, "a merge operator's name")?);
                }
                tag::ADDED => edit.added.push((r.u8()?, TableDesc::decode(r)?)),
                tag::REMOVED => edit.removed.push((r.u8()?, FileNumber(r.varint()?))),
                tag::FLOOR => edit.floor = Some(read_seqno_bound(r)?),
                tag::CURSOR => edit.cursors.push((r.u8()?, read_internal_key(r)?)),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if !has_tree {
            return Err(Error::corruption("a tree edit names no tree"));
        }
        Ok(edit)
    }
}

impl TableDesc {
    /// Fixed fields in the order of the struct, the checksum as 4 bytes; then, up to the end,
    /// tagged ones, where they are not zero.
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number.0);
        put_varint(out, self.epoch);
        put_varint(out, self.file_bytes);
        out.extend_from_slice(&self.checksum.to_le_bytes());
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        for number in [self.seqno_min, self.seqno_max, self.logged_seqno_max] {
            put_varint(out, number);
        }
        for number in [self.entries, self.deletes, self.range_deletes] {
            put_varint(out, number);
        }
        put_varint(out, self.raw_key_bytes);
        put_varint(out, self.raw_value_bytes);
        let nonzero = |value: u64| (value != 0).then_some(value);
        number_field(out, tag::DIR_ID, nonzero(u64::from(self.dir_id)));
        number_field(out, tag::CLUES, nonzero(self.clues));
        number_field(out, tag::CLUE_BYTES, nonzero(self.clue_bytes));
        number_field(out, tag::REDIRECTED, nonzero(self.redirected));
        number_field(out, tag::REDIRECTED_BYTES, nonzero(self.redirected_bytes));
    }

    fn decode(r: &mut Reader<'_>) -> Result<TableDesc> {
        let mut table = TableDesc {
            number: FileNumber(r.varint()?),
            epoch: r.varint()?,
            file_bytes: r.varint()?,
            checksum: r.u32()?,
            smallest: read_internal_key(r)?,
            largest: read_internal_key(r)?,
            seqno_min: read_seqno(r)?,
            seqno_max: read_seqno(r)?,
            logged_seqno_max: read_seqno(r)?,
            entries: r.varint()?,
            deletes: r.varint()?,
            range_deletes: r.varint()?,
            raw_key_bytes: r.varint()?,
            raw_value_bytes: r.varint()?,
            ..TableDesc::default()
        };
        if table.seqno_min > table.seqno_max || table.logged_seqno_max > table.seqno_max {
            return Err(Error::corruption("a table's sequence numbers contradict each other"));
        }
        read_fields(r, "a table", |tag, r| {
            match tag {
                tag::DIR_ID => table.dir_id = read_small(r, "a directory")?,
                tag::CLUES => table.clues = r.varint()?,
                tag::CLUE_BYTES => table.clue_bytes = r.varint()?,
                tag::REDIRECTED => table.redirected = r.varint()?,
                tag::REDIRECTED_BYTES => table.redirected_bytes = r.varint()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(table)
    }
}

#[cfg(test)]
pub(super) mod tests;
