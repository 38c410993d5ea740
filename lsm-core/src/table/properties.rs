//! What a table says about itself: a sorted list of names and values.
//!
//! ```text
//! properties payload = count varint | (name length varint, name, value length varint, value)*
//! ```
//! Names are in ascending order. Those of the engine have no dot, but for what says how to read the
//! filter (`filter.prefix_extractor`, see `filter`); who creates a table adds its own under another
//! prefix (`creation.cause`; flush and compaction add `merge.operator`, the name of the
//! keyspace's operator, if it has one). Numbers are varints. A reader needs the engine's names and
//! passes over those it does not know, so the list can grow without a new format.

use crate::coding::{self, Reader};
use crate::types::SeqNo;
use crate::{Error, Result};

/// The decoded list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Name of the order of keys.
    pub comparator: String,
    /// Entries in all sections.
    pub entries: u64,
    /// Deletes and single deletes among them.
    pub deletes: u64,
    /// Range tombstones among them. Written only where there are some.
    pub range_deletes: u64,
    /// Clues among them, and bytes of their user keys. Written only where there are some; so are the
    /// next two.
    pub clues: u64,
    /// See [`Properties::clues`].
    pub clue_bytes: u64,
    /// Redirected entries among them.
    pub redirected: u64,
    /// Bytes of their user keys and values.
    pub redirected_bytes: u64,
    /// Data blocks in all sections.
    pub data_blocks: u64,
    /// Bytes of all internal keys before prefix compression.
    pub raw_key_bytes: u64,
    /// Bytes of all values before compression.
    pub raw_value_bytes: u64,
    /// The smallest sequence number; 0 in a table without entries.
    pub seqno_min: SeqNo,
    /// The largest sequence number.
    pub seqno_max: SeqNo,
    /// The first internal key; it may be that of a range tombstone.
    pub smallest: Vec<u8>,
    /// The last internal key, or the end of a range tombstone ([`crate::key::range_end`]).
    pub largest: Vec<u8>,
    /// What the creator of the table added, in order of names.
    pub others: Vec<(String, Vec<u8>)>,
}

/// Numbers that are absent where they are zero.
const SPARSE: [&str; 5] = ["clue_bytes", "clues", "range_deletes", "redirected", "redirected_bytes"];

const NUMBERS: [&str; 7] =
    ["data_blocks", "deletes", "entries", "raw_key_bytes", "raw_value_bytes", "seqno_max", "seqno_min"];

impl Properties {
    fn number(&mut self, name: &str) -> &mut u64 {
        match name {
            "clue_bytes" => &mut self.clue_bytes,
            "clues" => &mut self.clues,
            "data_blocks" => &mut self.data_blocks,
            "deletes" => &mut self.deletes,
            "entries" => &mut self.entries,
            "range_deletes" => &mut self.range_deletes,
            "raw_key_bytes" => &mut self.raw_key_bytes,
            "redirected" => &mut self.redirected,
            "redirected_bytes" => &mut self.redirected_bytes,
            "raw_value_bytes" => &mut self.raw_value_bytes,
            "seqno_max" => &mut self.seqno_max,
            _ => &mut self.seqno_min,
        }
    }

    /// The value that the creator gave to `name`.
    pub fn other(&self, name: &str) -> Option<&[u8]> {
        self.others.iter().find(|(n, _)| n == name).map(|(_, value)| &value[..])
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut list: Vec<(&str, Vec<u8>)> = vec![
            ("comparator", self.comparator.clone().into_bytes()),
            ("largest", self.largest.clone()),
            ("smallest", self.smallest.clone()),
        ];
        let mut numbers = self.clone();
        for name in NUMBERS.into_iter().chain(SPARSE) {
            let number = *numbers.number(name);
            if number > 0 || NUMBERS.contains(&name) {
                let mut value = Vec::new();
                coding::put_varint(&mut value, number);
                list.push((name, value));
            }
        }
        list.extend(self.others.iter().map(|(name, value)| (&name[..], value.clone())));
        list.sort();
        let mut out = Vec::new();
        coding::put_varint(&mut out, list.len() as u64);
        for (name, value) in list {
            coding::put_bytes(&mut out, name.as_bytes());
            coding::put_bytes(&mut out, &value);
        }
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Properties> {
        let mut r = Reader::new(payload, "the properties block");
        let mut out = Properties::default();
        let (mut seen, mut last) = (0, None);
        for _ in 0..r.varint()? {
            let (name, value) = (r.bytes()?, r.bytes()?);
            if last.replace(name).is_some_and(|last| last >= name) {
                return Err(Error::corruption("the properties block is out of order"));
            }
            let text = |bytes: &[u8]| {
                String::from_utf8(bytes.to_vec())
                    .map_err(|_| Error::corruption("the properties block has a name that is not UTF-8"))
            };
            let name = text(name)?;
            seen += 1;
            match &name[..] {
                "comparator" => out.comparator = text(value)?,
                "largest" => out.largest = value.to_vec(),
                "smallest" => out.smallest = value.to_vec(),
                _ if SPARSE.contains(&&name[..]) => {
                    *out.number(&name) = Reader::new(value, "a property").varint()?;
                    seen -= 1;
                }
                _ if NUMBERS.contains(&&name[..]) => {
                    *out.number(&name) = Reader::new(value, "a property").varint()?;
                }
                _ => {
                    seen -= 1;
                    out.others.push((name, value.to_vec()));
                }
            }
        }
        if seen != NUMBERS.len() + 3 || !r.is_empty() {
            return Err(Error::corruption("the properties block lacks a property or has bytes left over"));
        }
        let keyless = out.entries == 0;
        for bound in [&out.smallest, &out.largest] {
            if keyless != bound.is_empty() || (!keyless && bound.len() < crate::key::TRAILER_BYTES) {
                return Err(Error::corruption("the properties block has bounds that fit no entry"));
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_cuts() {
        let properties = Properties {
            comparator: "dialsm.bytewise".into(),
            entries: 3,
            deletes: 1,
            range_deletes: 1,
            clues: 4,
            clue_bytes: 40,
            redirected: 6,
            redirected_bytes: 600,
            data_blocks: 2,
            raw_key_bytes: 1 << 40,
            raw_value_bytes: 77,
            seqno_min: 5,
            seqno_max: 1 << 50,
            smallest: b"aaaaaaaa\0".to_vec(),
            largest: b"zzzzzzzzz".to_vec(),
            others: vec![("creation.cause".into(), b"flush".to_vec()), ("zz.later".into(), vec![0; 300])],
        };
        let payload = properties.encode();
        assert_eq!(Properties::decode(&payload).expect("just encoded"), properties);
        assert_eq!(properties.other("creation.cause"), Some(&b"flush"[..]));
        for cut in 0..payload.len() {
            assert!(Properties::decode(&payload[..cut]).is_err(), "cut at {cut}");
        }
        let mut longer = payload;
        longer.push(0);
        assert!(Properties::decode(&longer).is_err());
    }
}
