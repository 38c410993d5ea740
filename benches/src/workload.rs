//! The workloads by the names db_bench and YCSB give them, and what each needs and does.
//!
//! A workload is data: the runner reads these answers and nothing else decides by name.

use crate::ycsb::Mix;

/// One workload of `--benchmarks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    FillSeq,
    FillRandom,
    FillUniqueRandom,
    FillSync,
    FillBatch,
    Overwrite,
    ReadRandom,
    ReadMissing,
    MultiReadRandom,
    ReadSeq,
    ReadReverse,
    SeekRandom,
    ReadWhileWriting,
    ReadRandomWriteRandom,
    DeleteRandom,
    ScanDeleted,
    ScanRangeDeleted,
    OpenKeyspaces,
    Flush,
    YcsbLoad,
    Ycsb(Mix),
}

/// What the database must hold before a workload starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: it starts on a fresh database.
    Fresh,
    /// Every key of db_bench's key space, or what an earlier workload of the list left.
    Filled,
    /// Every key of db_bench's key space, and then the first half deleted, nothing flushed after.
    FrontDeleted,
    /// So many keyspaces with one entry each.
    Keyspaces,
    /// YCSB's records, which have keys of their own.
    YcsbLoaded,
}

/// The key spaces; a database filled in one has no key of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySpace {
    DbBench,
    /// Its first half deleted, key by key.
    FrontDeleted,
    /// Its first half deleted by one range delete.
    FrontRangeDeleted,
    /// Many keyspaces with an entry each.
    Keyspaces,
    Ycsb,
}

const ALL: &[(&str, Workload, &str)] = &[
    ("fillseq", Workload::FillSeq, "write every key in order, on a fresh database"),
    ("fillrandom", Workload::FillRandom, "write random keys, on a fresh database"),
    (
        "filluniquerandom",
        Workload::FillUniqueRandom,
        "write every key once in random order, threads share the keys",
    ),
    ("fillsync", Workload::FillSync, "num/1000 random writes, each synced"),
    ("fillbatch", Workload::FillBatch, "write every key in order, in batches of 1000"),
    ("overwrite", Workload::Overwrite, "write random keys of an existing database"),
    ("readrandom", Workload::ReadRandom, "read random keys"),
    ("readmissing", Workload::ReadMissing, "read random keys that do not exist"),
    ("multireadrandom", Workload::MultiReadRandom, "read random keys, batch_size at a time"),
    ("readseq", Workload::ReadSeq, "iterate forward from the first key"),
    ("readreverse", Workload::ReadReverse, "iterate backward from the last key"),
    ("seekrandom", Workload::SeekRandom, "new iterator, seek to a random key, seek_nexts steps"),
    ("readwhilewriting", Workload::ReadWhileWriting, "readrandom, with one more thread that writes"),
    (
        "readrandomwriterandom",
        Workload::ReadRandomWriteRandom,
        "reads and writes of random keys, readwritepercent of them reads",
    ),
    ("deleterandom", Workload::DeleteRandom, "delete random keys"),
    ("scandeleted", Workload::ScanDeleted, "new iterator to the first key, where the first half was deleted"),
    (
        "scanrangedeleted",
        Workload::ScanRangeDeleted,
        "new iterator to the first key, where one range delete took the first half",
    ),
    ("openkeyspaces", Workload::OpenKeyspaces, "open and close a database of many keyspaces, reads times"),
    ("flush", Workload::Flush, "write the memtables out, once, between two workloads"),
    ("ycsbload", Workload::YcsbLoad, "load num records of YCSB, on a fresh database"),
    ("ycsba", Workload::Ycsb(Mix::A), "50 % reads, 50 % updates"),
    ("ycsbb", Workload::Ycsb(Mix::B), "95 % reads, 5 % updates"),
    ("ycsbc", Workload::Ycsb(Mix::C), "reads only"),
    ("ycsbd", Workload::Ycsb(Mix::D), "95 % reads of the latest, 5 % inserts"),
    ("ycsbe", Workload::Ycsb(Mix::E), "95 % short scans, 5 % inserts"),
    ("ycsbf", Workload::Ycsb(Mix::F), "50 % reads, 50 % read-modify-writes"),
];

impl Workload {
    /// Finds a workload by name; `-` and `_` are left out, so `ycsb-a` is `ycsba`.
    pub(crate) fn parse(name: &str) -> Option<Workload> {
        let plain: String = name.chars().filter(|c| !matches!(c, '-' | '_')).collect();
        let plain = plain.to_ascii_lowercase();
        ALL.iter().find(|(known, _, _)| *known == plain).map(|(_, workload, _)| *workload)
    }

    /// The name it is printed by.
    pub(crate) fn name(self) -> &'static str {
        let (name, _, _) = ALL.iter().find(|(_, w, _)| *w == self).expect("ALL lists every workload");
        name
    }

    pub(crate) fn needs(self) -> Needs {
        match self {
            Workload::FillSeq
            | Workload::FillRandom
            | Workload::FillUniqueRandom
            | Workload::FillSync
            | Workload::FillBatch
            | Workload::YcsbLoad => Needs::Fresh,
            Workload::Ycsb(_) => Needs::YcsbLoaded,
            Workload::ScanDeleted | Workload::ScanRangeDeleted => Needs::FrontDeleted,
            Workload::OpenKeyspaces => Needs::Keyspaces,
            _ => Needs::Filled,
        }
    }

    pub(crate) fn key_space(self) -> KeySpace {
        match self {
            Workload::Ycsb(_) | Workload::YcsbLoad => KeySpace::Ycsb,
            Workload::ScanDeleted => KeySpace::FrontDeleted,
            Workload::OpenKeyspaces => KeySpace::Keyspaces,
            Workload::ScanRangeDeleted => KeySpace::FrontRangeDeleted,
            _ => KeySpace::DbBench,
        }
    }

    /// Whether it takes a database as it is, with whatever keys.
    pub(crate) fn takes_any_keys(self) -> bool {
        self == Workload::Flush
    }
}

/// Names and one-line descriptions, for `--help`.
pub(crate) fn catalogue() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|(name, _, what)| (*name, *what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_workload_and_back() {
        for (name, workload, _) in ALL {
            assert_eq!(Workload::parse(name), Some(*workload));
            assert_eq!(workload.name(), *name);
        }
        assert_eq!(Workload::parse("ycsb-A"), Some(Workload::Ycsb(Mix::A)));
        assert_eq!(Workload::parse("fill_random"), Some(Workload::FillRandom));
        assert_eq!(Workload::parse("fillrandomly"), None);
    }
}
