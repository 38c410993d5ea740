//! A write batch as C holds it.

use dialsm::{Error, Result, WriteBatch};
use dialsm_core::key::Kind;

use crate::KeyspaceHandle;

/// Operations that are written together. One thread at a time.
#[derive(Default)]
pub struct Batch {
    operations: WriteBatch,
    /// The opening that its keyspaces belong to, if any were named: their ids mean others elsewhere.
    opening: Option<u64>,
}

#[cold]
fn foreign() -> Error {
    Error::invalid("the batch has keyspaces of another database, or of an earlier opening")
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
        Ok(Batch { operations: WriteBatch::from_bytes(bytes)?, opening: None })
    }

    /// The operations.
    pub fn operations(&self) -> &WriteBatch {
        &self.operations
    }

    /// Takes all operations out.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.opening = None;
    }

    /// Fails where keyspaces of another opening were named.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn check_opening(&self, opening: u64) -> Result<()> {
        if self.opening.is_none_or(|of| of == opening) { Ok(()) } else { Err(foreign()) }
    }

    #[inline]
    fn add(
        &mut self,
        space: Option<&KeyspaceHandle>,
        operation: impl FnOnce(&mut WriteBatch, u32) -> Result<()>,
    ) -> Result<()> {
        let Some(space) = space else { return operation(&mut self.operations, 0) };
        self.check_opening(space.opening())?;
        operation(&mut self.operations, space.keyspace.id())?;
        self.opening = Some(space.opening());
        Ok(())
    }

    /// Adds a put.
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; `InvalidArgument` for a keyspace of another database or opening than those that it
    /// has. So for all that add.
    #[inline]
    pub fn put(&mut self, space: Option<&KeyspaceHandle>, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(space, |operations, id| operations.put_in(id, key, value))
    }

    /// Adds a delete.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn delete(&mut self, space: Option<&KeyspaceHandle>, key: &[u8]) -> Result<()> {
        self.add(space, |operations, id| operations.delete_in(id, key))
    }

    /// Adds a single delete.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn single_delete(&mut self, space: Option<&KeyspaceHandle>, key: &[u8]) -> Result<()> {
        self.add(space, |operations, id| operations.single_delete_in(id, key))
    }

    /// Adds a range delete.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn delete_range(&mut self, space: Option<&KeyspaceHandle>, from: &[u8], to: &[u8]) -> Result<()> {
        self.add(space, |operations, id| operations.delete_range_in(id, from, to))
    }

    /// Adds a merge operand.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn merge(&mut self, space: Option<&KeyspaceHandle>, key: &[u8], operand: &[u8]) -> Result<()> {
        self.add(space, |operations, id| operations.merge_in(id, key, operand))
    }

    /// Shows every operation, in order: kind as `DIALSM_OP_*`, keyspace id, key, value.
    ///
    /// # Errors
    /// None for a batch that was made here.
    pub fn each(&self, mut show: impl FnMut(u32, u32, &[u8], &[u8])) -> Result<()> {
        for op in &self.operations {
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
