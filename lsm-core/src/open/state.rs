//! What a manifest adds up to: the keyspaces that are there and the tables of each.
//!
//! Within a record, keyspaces go before others come, and tree edits follow; records count in their
//! order. A keyspace's name and comparator stand in the record of its creation and in snapshots. The
//! default keyspace is there from the start.

use std::collections::BTreeMap;
use std::path::Path;

use dialsm_io::Fs;
use dialsm_io::fs::Access;

use crate::keyspace::{DEFAULT_KEYSPACE, check_name};
use crate::types::{DbId, FileNumber, SeqNo, TreeId};
use crate::version::edit::{KeyspaceDesc, ManifestRecord, TableDesc, TreeEdit};
use crate::version::manifest;
use crate::{Error, ErrorKind, Result};

/// What the manifest says.
pub(crate) struct Found {
    pub(super) db_id: DbId,
    pub(super) manifest: FileNumber,
    pub(super) trees: BTreeMap<u32, FoundTree>,
    pub(super) next_keyspace: u32,
    pub(super) last_seqno: SeqNo,
    pub(super) next_file: FileNumber,
    pub(super) replay_start: FileNumber,
    pub(super) log_named: Option<FileNumber>,
    /// It holds its snapshot and then what looks like an unfinished record.
    pub(super) first_record_torn: bool,
    /// The version of the database's format.
    pub(super) format_version: u32,
}

/// A keyspace and its one tree.
#[derive(Default)]
pub(super) struct FoundTree {
    pub(super) name: String,
    pub(super) comparator: Option<String>,
    pub(super) merge_operator: Option<String>,
    pub(super) tables: BTreeMap<(u8, FileNumber), TableDesc>,
    pub(super) floor: SeqNo,
}

impl FoundTree {
    pub(super) fn new(name: &str) -> FoundTree {
        FoundTree { name: name.to_owned(), floor: 1, ..FoundTree::default() }
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
        trees: BTreeMap::from([(0, FoundTree::new(DEFAULT_KEYSPACE))]),
        next_keyspace: 1,
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
    fn apply(&mut self, record: ManifestRecord) -> Result<()> {
        self.next_file = self.next_file.max(record.next_file_number.unwrap_or_default());
        self.last_seqno = self.last_seqno.max(record.last_seqno.unwrap_or_default());
        self.replay_start = record.replay_start.unwrap_or(self.replay_start);
        self.log_named = record.log_named.or(self.log_named);
        self.format_version = record.format_version.unwrap_or(self.format_version);
        for id in record.keyspaces_dropped {
            if id == 0 || self.trees.remove(&id).is_none() {
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
        if shards != 1 {
            let text = format!("keyspace {id} has {shards} shards; this build opens single trees");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let is_taken = || self.trees.values().any(|tree| tree.name == name);
        if id < self.next_keyspace || id == u32::MAX || check_name(&name).is_err() || is_taken() {
            return Err(Error::corruption(format!("keyspace {id} is created twice or under a wrong name")));
        }
        self.next_keyspace = id + 1;
        self.trees.insert(id, FoundTree { comparator: Some(comparator), ..FoundTree::new(&name) });
        Ok(())
    }

    fn edit(&mut self, edit: TreeEdit) -> Result<()> {
        let TreeId { keyspace, shard } = edit.tree;
        if shard != 0 {
            let text = format!("the manifest names tree {}; this build opens single trees", edit.tree);
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let tree = self.trees.get_mut(&keyspace).ok_or_else(|| {
            Error::corruption(format!("an edit of keyspace {keyspace}, which is not there"))
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
        tree.comparator = edit.comparator.or(tree.comparator.take());
        tree.merge_operator = edit.merge_operator.or(tree.merge_operator.take());
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
            found => return found.map(|found| found.trees.into_values().map(|tree| tree.name).collect()),
        }
    }
}
