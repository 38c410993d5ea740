//! Faults of the engine itself, switched on by tests only: each leaves out one step that keeps data
//! safe. A checker that looks for lost data must find each of them, or it looks at nothing.
//!
//! The switch is [`Options::break_on_purpose`](crate::Options::break_on_purpose), which stands in no
//! table of options and no file. It is asked for in rare places only: once for each installed change, each
//! job among shards, each recovery.

/// A step left out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The names of new tables are not synced before the manifest names them (breaks I5).
    DirSync,
    /// The inputs of a compaction are unlinked before the manifest that does without them is durable
    /// (breaks I6).
    EarlyUnlink,
    /// A sync of a table that failed is made once more, and counts if that one succeeds (breaks rule
    /// 16: the kernel has marked the lost pages clean).
    FsyncRetry,
    /// Without log, redirected values whose clues a crash took get no new ones (breaks rule 19).
    LostClues,
    /// A redirected entry is dropped where no table has its clue, whether its primary is settled above it
    /// or not (breaks rule 2).
    EarlyCollect,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 5] =
        [Fault::DirSync, Fault::EarlyUnlink, Fault::FsyncRetry, Fault::LostClues, Fault::EarlyCollect];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Fault::DirSync => "dir-sync",
            Fault::EarlyUnlink => "early-unlink",
            Fault::FsyncRetry => "fsync-retry",
            Fault::LostClues => "lost-clues",
            Fault::EarlyCollect => "early-collect",
        }
    }

    /// The one of that name.
    pub fn by_name(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| fault.name() == name)
    }
}
