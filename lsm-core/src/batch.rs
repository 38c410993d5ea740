//! Write batches: operations in the very bytes that the commit log stores.
//!
//! A batch is filled by its user, joins a commit group, and its bytes go into the group's log
//! record as they are; replay reads them back with the same iterator.
//!
//! ```text
//! operation = tag u8, [keyspace varint], [fallback varint], key, [value]
//! tag         bits 0..4  kind (`key::Kind`): put, delete, single delete, merge, range delete
//!             0x10       a keyspace id follows (absent: keyspace 0)
//!             0x20       redirected: the fallback shard follows; only on put and merge
//!             0x40 0x80  reserved, zero
//! key, value  varint length, bytes; a delete and a single delete have no value, the value of a
//!             range delete is its exclusive end
//! ```
//!
//! Invariants
//! - The bytes of a `WriteBatch` always decode, to exactly `len()` operations, none redirected:
//!   upheld by `push` and `from_bytes`, the only writers; attacked by `garbage_never_panics`.
//! - A call that returns an error has added nothing.
//!
//! Absent on purpose: the order of a range delete's ends is not checked, because a batch does not
//! know the keyspace's comparator; the commit path does.

use crate::coding::{Reader, put_bytes, put_varint, varint_len};
use crate::key::{KEY_BYTES_MAX, Kind, VALUE_BYTES_MAX};
use crate::{Error, ErrorKind, Result};

/// The most bytes a batch may have.
pub const BATCH_BYTES_MAX: usize = u32::MAX as usize;

const KIND_MASK: u8 = 0x0f;
const HAS_KEYSPACE: u8 = 0x10;
const HAS_FALLBACK: u8 = 0x20;
const RESERVED: u8 = 0xc0;

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Op<'a> {
    /// `Put`, `Delete`, `SingleDelete`, `Merge` or `RangeDelete`.
    pub kind: Kind,
    /// The keyspace's id; 0 is the default one.
    pub keyspace: u32,
    /// The shard that holds the value where the primary holds only a clue.
    pub fallback: Option<u16>,
    /// The user key; the inclusive begin of a range delete.
    pub key: &'a [u8],
    /// The value or operand; the exclusive end of a range delete; empty for other deletes.
    pub value: &'a [u8],
}

impl std::fmt::Debug for Op<'_> {
    /// Shows lengths only: keys and values stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Op({:?} keyspace {} fallback {:?}", self.kind, self.keyspace, self.fallback)?;
        write!(f, " key {} bytes value {} bytes)", self.key.len(), self.value.len())
    }
}

impl Op<'_> {
    /// Bytes that [`Op::encode`] appends.
    pub fn encoded_bytes(&self) -> usize {
        let mut n = 1 + varint_len(self.key.len() as u64) + self.key.len();
        if self.keyspace != 0 {
            n += varint_len(u64::from(self.keyspace));
        }
        if let Some(shard) = self.fallback {
            n += varint_len(u64::from(shard));
        }
        if has_value(self.kind) {
            n += varint_len(self.value.len() as u64) + self.value.len();
        }
        n
    }

    /// Appends the operation's bytes. The commit group re-encodes with this what it redirects.
    pub fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(is_loggable(self.kind));
        let mut tag = self.kind as u8;
        if self.keyspace != 0 {
            tag |= HAS_KEYSPACE;
        }
        if self.fallback.is_some() {
            tag |= HAS_FALLBACK;
        }
        out.push(tag);
        if self.keyspace != 0 {
            put_varint(out, u64::from(self.keyspace));
        }
        if let Some(shard) = self.fallback {
            put_varint(out, u64::from(shard));
        }
        put_bytes(out, self.key);
        if has_value(self.kind) {
            put_bytes(out, self.value);
        }
    }
}

fn has_value(kind: Kind) -> bool {
    !matches!(kind, Kind::Delete | Kind::SingleDelete)
}

fn is_loggable(kind: Kind) -> bool {
    matches!(kind, Kind::Put | Kind::Delete | Kind::SingleDelete | Kind::Merge | Kind::RangeDelete)
}

/// Operations that become visible, and survive a crash, together.
#[derive(Clone, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    count: u32,
    /// How many of the operations are for the default keyspace.
    in_default: u32,
    /// The other keyspaces with operations here, ascending.
    others: Vec<u32>,
    /// Operations that a keyspace may refuse: merges and range deletes.
    special: u32,
}

impl std::fmt::Debug for WriteBatch {
    /// Shows sizes only: keys and values stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBatch({} operations, {} bytes)", self.count, self.bytes.len())
    }
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// An empty batch with room for `bytes` bytes of operations.
    pub fn with_capacity(bytes: usize) -> WriteBatch {
        WriteBatch { bytes: Vec::with_capacity(bytes.min(BATCH_BYTES_MAX)), ..WriteBatch::default() }
    }

    /// The same operations once more, with no room for others.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn try_clone(&self) -> Result<WriteBatch> {
        let out_of_memory = |_| Error::out_of_memory("a write batch");
        let (mut bytes, mut others) = (Vec::new(), Vec::new());
        bytes.try_reserve_exact(self.bytes.len()).map_err(out_of_memory)?;
        others.try_reserve_exact(self.others.len()).map_err(out_of_memory)?;
        bytes.extend_from_slice(&self.bytes);
        others.extend_from_slice(&self.others);
        Ok(WriteBatch { bytes, others, ..*self })
    }

    /// A batch from what [`WriteBatch::as_bytes`] gave, here or elsewhere.
    ///
    /// # Errors
    /// `TooLarge` above [`BATCH_BYTES_MAX`]; `InvalidArgument` for a redirected operation, which
    /// only a commit group may write; else as [`OpIter`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<WriteBatch> {
        check_batch_bytes(bytes.len(), 0)?;
        let mut batch = WriteBatch::default();
        for op in OpIter::new(&bytes) {
            let op = op?;
            if op.fallback.is_some() {
                let text = format!("operation {} of a batch is marked redirected", batch.count);
                return Err(Error::invalid(text));
            }
            // An operation has 2 bytes or more, so 4 GiB hold no more than 2^31 of them.
            batch.note(op.keyspace, op.kind);
        }
        batch.bytes = bytes;
        Ok(batch)
    }

    /// Sets a key of the default keyspace.
    ///
    /// # Errors
    /// `TooLarge` if key, value or the whole batch would pass its bound, `OutOfMemory`; nothing is added
    /// then. So for all calls that add.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_in(0, key, value)
    }

    /// Sets a key.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn put_in(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(Kind::Put, keyspace, key, value)
    }

    /// Removes a key of the default keyspace.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.delete_in(0, key)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete_in(&mut self, keyspace: u32, key: &[u8]) -> Result<()> {
        self.push(Kind::Delete, keyspace, key, &[])
    }

    /// Removes a key of the default keyspace that was put only while it was absent; the promise is that of
    /// [`Db::single_delete`](crate::Db::single_delete).
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn single_delete(&mut self, key: &[u8]) -> Result<()> {
        self.single_delete_in(0, key)
    }

    /// Removes a key that was put only while it was absent.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn single_delete_in(&mut self, keyspace: u32, key: &[u8]) -> Result<()> {
        self.push(Kind::SingleDelete, keyspace, key, &[])
    }

    /// Adds an operand for the default keyspace's merge operator.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn merge(&mut self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.merge_in(0, key, operand)
    }

    /// Adds an operand for the keyspace's merge operator.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn merge_in(&mut self, keyspace: u32, key: &[u8], operand: &[u8]) -> Result<()> {
        self.push(Kind::Merge, keyspace, key, operand)
    }

    /// Removes the keys of the default keyspace from `begin` up to `end`, which stays.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete_range(&mut self, begin: &[u8], end: &[u8]) -> Result<()> {
        self.delete_range_in(0, begin, end)
    }

    /// Removes the keys from `begin` up to `end`, which stays.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete_range_in(&mut self, keyspace: u32, begin: &[u8], end: &[u8]) -> Result<()> {
        self.push(Kind::RangeDelete, keyspace, begin, end)
    }

    fn push(&mut self, kind: Kind, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(text) = oversize(kind, key.len() as u64, value.len() as u64) {
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        let op = Op { kind, keyspace, fallback: None, key, value };
        let more = op.encoded_bytes();
        check_batch_bytes(self.bytes.len(), more)?;
        // Exactly as much where it is the only operation: single writes are batches of one.
        let reserved = match self.bytes.capacity() {
            0 => self.bytes.try_reserve_exact(more),
            _ => self.bytes.try_reserve(more),
        };
        reserved.map_err(|_| Error::out_of_memory("a write batch"))?;
        op.encode(&mut self.bytes);
        self.note(keyspace, kind);
        Ok(())
    }

    /// Counts an operation.
    #[inline]
    fn note(&mut self, keyspace: u32, kind: Kind) {
        self.count += 1;
        self.special += u32::from(matches!(kind, Kind::Merge | Kind::RangeDelete));
        if keyspace == 0 {
            self.in_default += 1;
        } else if self.others.last() != Some(&keyspace)
            && let Err(at) = self.others.binary_search(&keyspace)
        {
            self.others.insert(at, keyspace);
        }
    }

    /// Whether there are operations for the default keyspace.
    pub(crate) fn is_in_default(&self) -> bool {
        self.in_default > 0
    }

    /// The other keyspaces that there are operations for, ascending.
    pub(crate) fn others(&self) -> &[u32] {
        &self.others
    }

    /// Whether every keyspace takes what is in here.
    pub(crate) fn is_plain(&self) -> bool {
        self.special == 0
    }

    /// Removes all operations; the memory stays for the next ones.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.in_default = 0;
        self.special = 0;
        self.others.clear();
    }

    /// How many operations there are; each takes one sequence number.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of all operations as the log stores them.
    pub fn byte_size(&self) -> usize {
        self.bytes.len()
    }

    /// The operations' bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The operations, in the order they were added.
    pub fn iter(&self) -> OpIter<'_> {
        OpIter::new(&self.bytes)
    }
}

impl<'a> IntoIterator for &'a WriteBatch {
    type Item = Result<Op<'a>>;
    type IntoIter = OpIter<'a>;
    fn into_iter(self) -> OpIter<'a> {
        self.iter()
    }
}

fn check_batch_bytes(have: usize, more: usize) -> Result<()> {
    if have.saturating_add(more) > BATCH_BYTES_MAX {
        let text = format!("a batch of {have} bytes and {more} more passes its bound, {BATCH_BYTES_MAX}");
        return Err(Error::new(ErrorKind::TooLarge, text));
    }
    Ok(())
}

/// What is too large about an operation, if anything is.
fn oversize(kind: Kind, key_bytes: u64, value_bytes: u64) -> Option<String> {
    if key_bytes > KEY_BYTES_MAX as u64 {
        return Some(format!("a key of {key_bytes} bytes; the bound is {KEY_BYTES_MAX}"));
    }
    if kind == Kind::RangeDelete && value_bytes > KEY_BYTES_MAX as u64 {
        return Some(format!("a range end of {value_bytes} bytes; the bound is {KEY_BYTES_MAX}"));
    }
    if value_bytes > VALUE_BYTES_MAX as u64 {
        return Some(format!("a value of {value_bytes} bytes; the bound is {VALUE_BYTES_MAX}"));
    }
    None
}

/// Reads operations one after the other, from a batch or from a log record's payload.
///
/// An item is an error of kind `Corruption` where the bytes break the format, or `NewerFormat`
/// for a reserved kind or bit; nothing follows an error.
pub struct OpIter<'a> {
    reader: Reader<'a>,
}

impl<'a> OpIter<'a> {
    /// Over any bytes; nothing is checked yet.
    pub fn new(bytes: &'a [u8]) -> OpIter<'a> {
        OpIter { reader: Reader::new(bytes, "a batch") }
    }

    /// The offset of the next operation. Between two calls of `next` it delimits one operation's
    /// bytes, which a commit group copies whole where it changes nothing in them.
    pub fn position(&self) -> usize {
        self.reader.position()
    }

    fn decode(&mut self) -> Result<Op<'a>> {
        let r = &mut self.reader;
        let tag = r.u8()?;
        if tag & RESERVED != 0 {
            return Err(Error::new(ErrorKind::NewerFormat, format!("an operation with tag {tag:#04x}")));
        }
        let kind = match Kind::from_u8(tag & KIND_MASK) {
            Some(kind) if is_loggable(kind) => kind,
            Some(kind @ (Kind::ExpiringPut | Kind::BlobPointer)) => {
                return Err(Error::new(ErrorKind::NewerFormat, format!("an operation of kind {kind:?}")));
            }
            _ => return Err(Error::corruption(format!("an operation of kind {}", tag & KIND_MASK))),
        };
        let keyspace = match tag & HAS_KEYSPACE {
            0 => 0,
            _ => u32::try_from(r.varint()?).map_err(|_| Error::corruption("a keyspace id above 32 bits"))?,
        };
        let fallback = match tag & HAS_FALLBACK {
            0 => None,
            _ if !matches!(kind, Kind::Put | Kind::Merge) => {
                return Err(Error::corruption(format!("a redirected {kind:?}")));
            }
            _ => Some(u16::try_from(r.varint()?).map_err(|_| Error::corruption("a shard above 16 bits"))?),
        };
        let key = r.bytes()?;
        let value = if has_value(kind) { r.bytes()? } else { &[] };
        match oversize(kind, key.len() as u64, value.len() as u64) {
            Some(text) => Err(Error::corruption(text)),
            None => Ok(Op { kind, keyspace, fallback, key, value }),
        }
    }
}

impl<'a> Iterator for OpIter<'a> {
    type Item = Result<Op<'a>>;

    fn next(&mut self) -> Option<Result<Op<'a>>> {
        if self.reader.is_empty() {
            return None;
        }
        let at = self.reader.position();
        let op = self.decode().map_err(|e| {
            let text = format!("{} (operation at byte {at} of its batch)", e.message());
            Error::new(e.kind(), text)
        });
        if op.is_err() {
            // An error is the last item.
            self.reader = Reader::new(&[], "a batch");
        }
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::testfs::Rng;

    fn random_op<'a>(rng: &mut Rng, pool: &'a [u8]) -> Op<'a> {
        let kinds = [Kind::Put, Kind::Delete, Kind::SingleDelete, Kind::Merge, Kind::RangeDelete];
        let kind = kinds[rng.below(5) as usize];
        let mut piece = |max: u64| &pool[..rng.below(max) as usize];
        let (key, value) = (piece(200), piece(300));
        let value = if has_value(kind) { value } else { &[] };
        let keyspace = if rng.below(2) == 0 { 0 } else { rng.next() as u32 };
        let redirect = matches!(kind, Kind::Put | Kind::Merge) && rng.below(3) == 0;
        Op { kind, keyspace, fallback: redirect.then_some(rng.next() as u16), key, value }
    }

    fn add(batch: &mut WriteBatch, op: &Op<'_>) -> Result<()> {
        match op.kind {
            Kind::Put => batch.put_in(op.keyspace, op.key, op.value),
            Kind::Delete => batch.delete_in(op.keyspace, op.key),
            Kind::SingleDelete => batch.single_delete_in(op.keyspace, op.key),
            Kind::Merge => batch.merge_in(op.keyspace, op.key, op.value),
            _ => batch.delete_range_in(op.keyspace, op.key, op.value),
        }
    }

    #[test]
    fn random_batches_read_back_as_they_were_written() {
        let mut rng = Rng::new(11);
        let pool: Vec<u8> = (0..512).map(|_| rng.next() as u8).collect();
        let (mut redirected, mut total) = (0, 0);
        for _ in 0..200 {
            let ops: Vec<Op<'_>> = (0..rng.below(20)).map(|_| random_op(&mut rng, &pool)).collect();
            let (mut batch, mut group) = (WriteBatch::new(), Vec::new());
            for op in &ops {
                add(&mut batch, &Op { fallback: None, ..*op }).expect("within all bounds");
                let before = group.len();
                op.encode(&mut group);
                assert_eq!(group.len() - before, op.encoded_bytes());
                redirected += usize::from(op.fallback.is_some());
            }
            assert_eq!(OpIter::new(&group).collect::<Result<Vec<_>>>().expect("well-formed"), ops);
            let plain: Vec<Op<'_>> = ops.iter().map(|op| Op { fallback: None, ..*op }).collect();
            assert_eq!(batch.iter().collect::<Result<Vec<_>>>().expect("well-formed"), plain);
            let copy = WriteBatch::from_bytes(batch.as_bytes().to_vec()).expect("well-formed");
            assert_eq!((copy.len() as usize, copy.byte_size()), (ops.len(), batch.byte_size()));
            if ops.iter().any(|op| op.fallback.is_some()) {
                let err = WriteBatch::from_bytes(group).expect_err("redirected");
                assert_eq!(err.kind(), ErrorKind::InvalidArgument);
            }
            total += ops.len();
        }
        assert!(total > 1500 && redirected > 150, "{total} {redirected}");
    }

    #[test]
    fn the_wire_form_is_fixed() {
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"vv").expect("small");
        batch.delete_in(300, b"k").expect("small");
        assert_eq!(batch.as_bytes(), b"\x07\x01k\x02vv\x11\xac\x02\x01k");
        let mut out = Vec::new();
        Op { kind: Kind::Merge, keyspace: 0, fallback: Some(5), key: b"", value: b"m" }.encode(&mut out);
        assert_eq!(out, b"\x26\x05\x00\x01m");
    }

    #[test]
    fn bounds_are_checked_and_nothing_is_added() {
        let mut batch = WriteBatch::new();
        let long = vec![0; KEY_BYTES_MAX + 1];
        batch.put(&long[1..], b"").expect("just at the bound");
        let before = batch.as_bytes().to_vec();
        for refused in [
            batch.put(&long, b""),
            batch.delete(&long),
            batch.single_delete(&long),
            batch.merge(&long, b""),
            batch.delete_range(&long, b""),
            batch.delete_range(b"", &long),
        ] {
            assert_eq!(refused.expect_err("too long").kind(), ErrorKind::TooLarge);
        }
        assert_eq!((batch.as_bytes(), batch.len()), (&before[..], 1));
        assert!(oversize(Kind::Put, 0, VALUE_BYTES_MAX as u64 + 1).is_some());
        assert!(oversize(Kind::Put, 0, VALUE_BYTES_MAX as u64).is_none());
        assert!(check_batch_bytes(BATCH_BYTES_MAX - 3, 3).is_ok());
        assert_eq!(check_batch_bytes(BATCH_BYTES_MAX - 3, 4).expect_err("4 GiB").kind(), ErrorKind::TooLarge);
        batch.clear();
        assert!(batch.is_empty() && batch.byte_size() == 0 && batch.iter().next().is_none());
    }

    #[test]
    fn garbage_never_panics() {
        let mut rng = Rng::new(3);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..rng.below(4) {
                let pool = [0xff; 300];
                random_op(&mut rng, &pool).encode(&mut bytes);
            }
            for _ in 0..rng.below(4) {
                match rng.below(3) {
                    0 => bytes.push(rng.next() as u8),
                    1 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
                    _ => {
                        let at = rng.below(bytes.len() as u64 + 1) as usize;
                        if let Some(byte) = bytes.get_mut(at) {
                            *byte = rng.next() as u8;
                        }
                    }
                }
            }
            let items: Vec<_> = OpIter::new(&bytes).collect();
            match items.split_last() {
                Some((Err(e), before)) => {
                    assert!(matches!(e.kind(), ErrorKind::Corruption | ErrorKind::NewerFormat));
                    assert!(before.iter().all(Result::is_ok));
                    bad += 1;
                }
                _ => good += 1,
            }
        }
        assert!(good > 1000 && bad > 1000, "{good} {bad}");
    }

    #[test]
    fn reserved_and_impossible_tags_are_told_apart() {
        let kind_of = |bytes: &[u8]| OpIter::new(bytes).next().expect("an item").expect_err("bad").kind();
        for tag in [0x47, 0x87, 0x08, 0x09] {
            assert_eq!(kind_of(&[tag, 0, 0]), ErrorKind::NewerFormat, "{tag:#x}");
        }
        for tag in [0x00, 0x04, 0x05, 0x0a, 0x0b, 0x0c, 0x0f, 0x21, 0x23] {
            assert_eq!(kind_of(&[tag, 0, 0, 0]), ErrorKind::Corruption, "{tag:#x}");
        }
        assert_eq!(kind_of(&[0x07, 0xff, 0xff, 0xff, 0xff, 0x0f]), ErrorKind::Corruption);
    }
}
