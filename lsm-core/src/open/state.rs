//! What a manifest adds up to: the keyspaces that are there and the tables of each.
//!
//! Within a record, keyspaces go before others come, and tree edits follow; records count in their
//! order. A keyspace's name, comparator and number of shards stand in the record of its creation and in
//! snapshots. The default keyspace is there from the start, with one shard unless a snapshot says otherwise.

use std::collections::BTreeMap;
use std::path::Path;

use dialsm_io::Fs;
use dialsm_io::fs::Access;

use crate::keyspace::{DEFAULT_KEYSPACE, check_name};
use crate::routing::SHARDS_MAX;
use crate::types::{DbId, FileNumber, SeqNo, TreeId};
use crate::version::edit::{
    HashKey, KeyspaceDesc, ManifestRecord, TableDesc, TreeEdit, UnloggedSpan, VoidInterval,
};
use crate::version::manifest;
use crate::{Error, ErrorKind, Result};

/// What the manifest says.
pub(crate) struct Found {
    pub(super) db_id: DbId,
    pub(super) manifest: FileNumber,
    pub(super) spaces: BTreeMap<u32, FoundSpace>,
    pub(super) next_keyspace: u32,
    pub(super) hash_key: HashKey,
    pub(super) voids: Vec<VoidInterval>,
    pub(super) unlogged: Option<UnloggedSpan>,
    pub(super) last_seqno: SeqNo,
    pub(super) next_file: FileNumber,
    pub(super) replay_start: FileNumber,
    pub(super) log_named: Option<FileNumber>,
    /// It holds its snapshot and then what looks like an unfinished record.
    pub(super) first_record_torn: bool,
    /// The version of the database's format.
    pub(super) format_version: u32,
}

/// A keyspace.
#[derive(Default)]
pub(super) struct FoundSpace {
    pub(super) name: String,
    pub(super) comparator: Option<String>,
    pub(super) merge_operator: Option<String>,
    /// By shard.
    pub(super) trees: Vec<FoundTree>,
}

/// One of its trees.
pub(super) struct FoundTree {
    pub(super) tables: BTreeMap<(u8, FileNumber), TableDesc>,
    pub(super) floor: SeqNo,
}

impl FoundTree {
    fn new() -> FoundTree {
        FoundTree { tables: BTreeMap::new(), floor: 1 }
    }

    fn is_fresh(&self) -> bool {
        self.tables.is_empty() && self.floor == 1
    }
}

impl FoundSpace {
    pub(super) fn new(name: &str, shards: u16) -> FoundSpace {
        let trees = (0..shards).map(|_| FoundTree::new()).collect();
        FoundSpace { name: name.to_owned(), trees, ..FoundSpace::default() }
    }
}

/// Reads the manifest in force of the database in `dir`.
///
/// # Errors
/// `Corruption` with file and offset, `Foreign`, `NewerFormat`, `Unsupported`; those of the files.
pub(super) fn read_manifest(fs: &dyn Fs, dir: &Path) -> Result<Found> {
    let (number, path) = manifest::read_current(fs, dir)?;
    let file = fs.open(&path, Access::Read).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::corruption("CURRENT names a manifest that is not there").at_path(&path),
        _ => error,
    })?;
    let mut records = Vec::new();
    let end = manifest::read_manifest(file, &mut |_, record| {
        records.push(record);
        Ok(())
    })?;
    let db_id = end.header.db_id;
    end.header.expect(&db_id, number).map_err(|e| e.at_path(&path))?;
    let mut found = Found {
        db_id,
        manifest: number,
        spaces: BTreeMap::from([(0, FoundSpace::new(DEFAULT_KEYSPACE, 1))]),
        next_keyspace: 1,
        hash_key: HashKey::default(),
        voids: Vec::new(),
        unlogged: None,
        last_seqno: 0,
        next_file: FileNumber(number.0 + 1),
        replay_start: FileNumber(0),
        log_named: None,
        first_record_torn: end.torn && end.records == 1,
        format_version: 1,
    };
    for record in records {
        found.apply(record).map_err(|e| e.at_path(&path))?;
    }
    Ok(found)
}

impl Found {
    /// All tables of all keyspaces.
    pub(super) fn tables(&self) -> impl Iterator<Item = &TableDesc> {
        let trees = self.spaces.values().flat_map(|space| &space.trees);
        trees.flat_map(|tree| tree.tables.values())
    }

    /// The void intervals, for [`crate::unlogged::recover`].
    pub(crate) fn take_voids(&mut self) -> Vec<VoidInterval> {
        std::mem::take(&mut self.voids)
    }

    fn apply(&mut self, record: ManifestRecord) -> Result<()> {
        self.next_file = self.next_file.max(record.next_file_number.unwrap_or_default());
        self.last_seqno = self.last_seqno.max(record.last_seqno.unwrap_or_default());
        self.replay_start = record.replay_start.unwrap_or(self.replay_start);
        self.log_named = record.log_named.or(self.log_named);
        self.hash_key = record.hash_key.unwrap_or(self.hash_key);
        self.format_version = record.format_version.unwrap_or(self.format_version);
        self.voids.extend(record.void_intervals);
        self.unlogged = record.unlogged.or(self.unlogged);
        for id in record.keyspaces_dropped {
            if id == 0 || self.spaces.remove(&id).is_none() {
                return Err(Error::corruption(format!("keyspace {id} is dropped, which is not there")));
            }
        }
        for desc in record.keyspaces_created {
            self.create(desc)?;
        }
        self.next_keyspace = self.next_keyspace.max(record.keyspace_id_next.unwrap_or_default());
        record.edits.into_iter().try_for_each(|edit| self.edit(edit))
    }

    fn create(&mut self, desc: KeyspaceDesc) -> Result<()> {
        let KeyspaceDesc { id, name, shards, comparator } = desc;
        if shards == 0 || shards > SHARDS_MAX {
            return Err(Error::corruption(format!("keyspace {id} has {shards} shards")));
        }
        let is_taken = || self.spaces.iter().any(|(other, space)| *other != id && space.name == name);
        let is_new = match self.spaces.get(&0).filter(|_| id == 0) {
            // A snapshot tells how many shards the default keyspace has.
            Some(default) => name == default.name && default.trees.iter().all(FoundTree::is_fresh),
            None => id >= self.next_keyspace && id != u32::MAX && check_name(&name).is_ok(),
        };
        if !is_new || is_taken() {
            return Err(Error::corruption(format!("keyspace {id} is created twice or under a wrong name")));
        }
        self.next_keyspace = self.next_keyspace.max(id + 1);
        let space = FoundSpace { comparator: Some(comparator), ..FoundSpace::new(&name, shards) };
        self.spaces.insert(id, space);
        Ok(())
    }

    fn edit(&mut self, edit: TreeEdit) -> Result<()> {
        let TreeId { keyspace, shard } = edit.tree;
        let space = self.spaces.get_mut(&keyspace).ok_or_else(|| {
            Error::corruption(format!("an edit of keyspace {keyspace}, which is not there"))
        })?;
        space.comparator = edit.comparator.or(space.comparator.take());
        space.merge_operator = edit.merge_operator.or(space.merge_operator.take());
        let tree = space.trees.get_mut(usize::from(shard)).ok_or_else(|| {
            Error::corruption(format!("an edit of tree {}, which its keyspace does not have", edit.tree))
        })?;
        for (level, number) in edit.removed {
            if tree.tables.remove(&(level, number)).is_none() {
                let text = format!("an edit removes table {number}, which L{level} does not hold");
                return Err(Error::corruption(text));
            }
        }
        for (level, desc) in edit.added {
            self.last_seqno = self.last_seqno.max(desc.seqno_max);
            if tree.tables.insert((level, desc.number), desc).is_some() {
                return Err(Error::corruption(format!("an edit adds a table to L{level} twice")));
            }
        }
        tree.floor = edit.floor.unwrap_or(tree.floor);
        if tree.floor == 0 {
            return Err(Error::corruption("a tree's floor is 0"));
        }
        Ok(())
    }
}

/// Names of the keyspaces of the database in `dir`, the default one first, without opening it.
pub(crate) fn list_keyspaces(fs: &dyn Fs, dir: &Path) -> Result<Vec<String>> {
    let mut tries_left = 3;
    loop {
        match read_manifest(fs, dir) {
            // Whoever has it open may have replaced or overwritten what was being read.
            Err(error) if error.kind() == ErrorKind::Corruption && tries_left > 0 => tries_left -= 1,
            found => return found.map(|found| found.spaces.into_values().map(|space| space.name).collect()),
        }
    }
}
