//! A write batch as C holds it.

use dialsm::{Error, Result, WriteBatch};
use dialsm_core::key::Kind;

use crate::KeyspaceHandle;

/// Operations that are written together. One thread at a time.
#[derive(Default)]
pub struct Batch(WriteBatch);

fn id(space: Option<&KeyspaceHandle>) -> u32 {
    space.map_or(0, |space| space.keyspace.id())
}

impl Batch {
    /// A batch from the bytes of another.
    ///
    /// # Errors
    /// As [`WriteBatch::from_bytes`]; `OutOfMemory`.
    pub fn from_data(data: &[u8]) -> Result<Batch> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(data.len()).map_err(|_| Error::out_of_memory("a write batch"))?;
        bytes.extend_from_slice(data);
        WriteBatch::from_bytes(bytes).map(Batch)
    }

    /// The operations.
    pub fn operations(&self) -> &WriteBatch {
        &self.0
    }

    /// Takes all operations out.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a put.
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; so for all that add.
    #[inline]
    pub fn put(&mut self, space: Option<&KeyspaceHandle>, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put_in(id(space), key, value)
    }

    /// Adds a delete.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn delete(&mut self, space: Option<&KeyspaceHandle>, key: &[u8]) -> Result<()> {
        self.0.delete_in(id(space), key)
    }

    /// Adds a single delete.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn single_delete(&mut self, space: Option<&KeyspaceHandle>, key: &[u8]) -> Result<()> {
        self.0.single_delete_in(id(space), key)
    }

    /// Adds a range delete.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn delete_range(&mut self, space: Option<&KeyspaceHandle>, from: &[u8], to: &[u8]) -> Result<()> {
        self.0.delete_range_in(id(space), from, to)
    }

    /// Adds a merge operand.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn merge(&mut self, space: Option<&KeyspaceHandle>, key: &[u8], operand: &[u8]) -> Result<()> {
        self.0.merge_in(id(space), key, operand)
    }

    /// Shows every operation, in order: kind as `DIALSM_OP_*`, keyspace id, key, value.
    ///
    /// # Errors
    /// None for a batch that was made here.
    pub fn each(&self, mut show: impl FnMut(u32, u32, &[u8], &[u8])) -> Result<()> {
        for op in &self.0 {
            let op = op?;
            let kind = match op.kind {
                Kind::Put => 1,
                Kind::Delete => 2,
                Kind::SingleDelete => 3,
                Kind::RangeDelete => 4,
                Kind::Merge => 5,
                _ => return Err(Error::invalid("an operation that no batch has")),
            };
            show(kind, op.keyspace, op.key, op.value);
        }
        Ok(())
    }
}
