//! The one table of engine options, and the struct made from it.
//!
//! A row is `name: type [unit] = default, in least..=greatest, Open | Live, Database | Keyspace;`
//! under its documentation. From it come the field of [`Options`], its default, its range check, its
//! text form and its entry in [`super::describe`] (from which the documents and the C setters are
//! made). `Live` options may be changed on an open database; the others count when it is opened.
//! `Keyspace` options are fields of [`KeyspaceOptions`] too: each keyspace has its own.
//! The objects, which have no text form, stand in `objects!`: all of them belong to a keyspace.
//!
//! INVARIANT: every default lies in its range, and its text form reads back as the same value;
//! upheld here, checked by `defaults_are_valid_and_round_trip`.

use std::sync::Arc;

use super::value::{Range, Value};
use super::{Compression, InfoLogLevel, OptionInfo, OptionScope, OptionUnit, RecoveryMode, Row};
use crate::key::Comparator;
use crate::merge_operator::MergeOperator;
use crate::prefix::PrefixExtractor;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// The range of options whose type allows only legal values.
const ANY: Range = 0..=u64::MAX;

/// Options without a text form, each with its default: what a keyspace's user plugs in. One list,
/// from which `$then` makes the end of a struct.
macro_rules! objects {
    ($then:ident! { $($rest:tt)* }) => {
        $then! {
            $($rest)*
            objects {
                /// The order of user keys. Its name is stored in the database and checked at open.
                comparator: Comparator = Comparator::default();
                /// Folds the operands that [`Db::merge`](crate::Db::merge) writes. Its name is stored in
                /// the database and checked at open. Without one, operands can be neither written nor
                /// read; those that are there stay.
                merge_operator: Option<Arc<dyn MergeOperator>> = None;
                /// How the prefix of a key is found: filters then hold prefixes, too, and scans within
                /// one prefix ask them. Its name is stored in each table; tables made with another one
                /// are read without their prefixes. With an order that calls different bytes equal
                /// there are no filters, and prefixes are compared as bytes.
                prefix_extractor: Option<PrefixExtractor> = None;
            }
        }
    };
}

macro_rules! options {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty [$unit:ident] = $default:expr, in $range:expr, $when:ident, $scope:ident;
    )+) => {
        objects! { database_options! {
            $( $(#[doc = $doc])+ $name: $type [$unit] = $default, in $range, $when, $scope; )+
        } }
        keyspace_rows! { [] $( [$scope $(#[doc = $doc])+ $name: $type;] )+ }
    };
}

/// Keeps the rows of keyspaces and makes their struct.
macro_rules! keyspace_rows {
    ([$($kept:tt)*]) => {
        objects! { keyspace_options! { $($kept)* } }
    };
    ([$($kept:tt)*] [Keyspace $($row:tt)*] $($rest:tt)*) => {
        keyspace_rows! { [$($kept)* $($row)*] $($rest)* }
    };
    ([$($kept:tt)*] [Database $($row:tt)*] $($rest:tt)*) => {
        keyspace_rows! { [$($kept)*] $($rest)* }
    };
}

macro_rules! keyspace_options {
    (
        $( $(#[doc = $doc:literal])+ $name:ident: $type:ty; )+
        objects { $( $(#[doc = $object_doc:literal])+ $object:ident: $object_type:ty = $object_default:expr; )* }
    ) => {
        /// The options of one keyspace: those of [`Options`] that each keyspace has for itself, under
        /// the same names and with the same defaults. [`Options`] describes the database and its
        /// default keyspace.
        #[derive(Clone, Debug)]
        pub struct KeyspaceOptions {
            $( $(#[doc = $doc])+ pub $name: $type, )+
            $( $(#[doc = $object_doc])+ pub $object: $object_type, )*
        }

        impl Options {
            /// The options of the default keyspace.
            pub fn keyspace(&self) -> KeyspaceOptions {
                KeyspaceOptions {
                    $( $name: self.$name, )+
                    $( $object: self.$object.clone(), )*
                }
            }

            /// Replaces the options of the default keyspace.
            pub fn set_keyspace(&mut self, options: &KeyspaceOptions) {
                $( self.$name = options.$name; )+
                $( self.$object = options.$object.clone(); )*
            }
        }
    };
}

macro_rules! database_options {
    (
        $(
            $(#[doc = $doc:literal])+
            $name:ident: $type:ty [$unit:ident] = $default:expr, in $range:expr, $when:ident, $scope:ident;
        )+
        objects { $( $(#[doc = $object_doc:literal])+ $object:ident: $object_type:ty = $object_default:expr; )* }
    ) => {
        /// The options of a database. Plain fields: start from [`Options::default`] or
        /// [`Options::for_machine`] and change what should differ; [`Options::validate`] finds
        /// what does not fit. The objects at the end have no text form.
        #[derive(Clone, Debug)]
        pub struct Options {
            $( $(#[doc = $doc])+ pub $name: $type, )+
            $( $(#[doc = $object_doc])+ pub $object: $object_type, )*
            /// Says which shard a key belongs to, and where a value goes that its shard can't take now.
            /// A database with more than one shard is not opened without.
            pub router: Option<crate::routing::RouterObject>,
            /// Directories for the tables of shards, to spread them over devices: new tables of shard i go to
            /// the i-th, from the front again behind the last (a directory that is named twice gets twice
            /// the shards). Empty, the default: all lie in the database's own directory, which may also be
            /// named here. Log, manifest and all else stay in that one always.
            ///
            /// To be given at each opening, like the objects: the directories that tables lie in must be
            /// among them, wherever they are by now and in any order; else the opening fails with `NotFound`
            /// and says which are missing. A directory that is not there is made; one that is new must hold
            /// no files of a database, and belongs to this one from then on: another database, and a copy of
            /// this one, is refused with `Foreign`; of two copies made by hand, the first to be opened with it has it.
            /// Another order or another list is for new tables: those that are there stay
            /// where they are until a compaction rewrites them, and a directory may be left out once none
            /// is there any more. At most 255. [`Options::load`] knows those of the last opening.
            pub shard_dirs: Vec<std::path::PathBuf>,
            /// Who hears of flushes, compactions, stalls, errors and the like, in this order; see
            /// [`EventListener`](crate::events::EventListener). The database takes them at its opening and
            /// lets go of them when it is closed. A subscriber of the crate `tracing` that is in force at the opening hears the
            /// same without being among them, after them: targets `dialsm::flush` and so on.
            pub listeners: Vec<Arc<dyn crate::events::EventListener>>,
            /// For tests of checkers only; see [`crate::fault`].
            #[doc(hidden)]
            pub break_on_purpose: Option<crate::fault::Fault>,
        }

        impl Default for Options {
            /// Settings for a small machine: two cores, a block cache of 32 MiB.
            fn default() -> Options {
                Options { $( $name: $default, )+ $( $object: $object_default, )* router: None, shard_dirs: Vec::new(), listeners: Vec::new(), break_on_purpose: None }
            }
        }

        /// The rows, in the order of the table.
        pub(super) fn rows() -> Vec<Row> {
            let default = Options::default();
            vec![$( Row {
                info: OptionInfo {
                    name: stringify!($name),
                    value_type: <$type as Value>::TYPE,
                    unit: OptionUnit::$unit,
                    default: default.$name.to_text(OptionUnit::$unit),
                    min: *Range::start(&$range),
                    max: *Range::end(&$range),
                    live: matches!(When::$when, When::Live),
                    scope: OptionScope::$scope,
                    doc: concat!($($doc, "\n"),+),
                },
                get: |options| options.$name.to_text(OptionUnit::$unit),
                set: |options, text| {
                    let value = <$type as Value>::parse(text, OptionUnit::$unit)?;
                    value.check(&$range, OptionUnit::$unit)?;
                    options.$name = value;
                    Ok(())
                },
                check: |options| options.$name.check(&$range, OptionUnit::$unit),
            } ),+]
        }
    };
}

enum When {
    Open,
    Live,
}

options! {
    /// Create the database when the directory holds none. Off, opening one that is missing fails
    /// with `NotFound`.
    create_if_missing: bool [None] = true, in ANY, Open, Database;

    /// Fail with `AlreadyExists` when the directory holds a database already.
    error_if_exists: bool [None] = false, in ANY, Open, Database;

    /// Shards that each keyspace of the database is cut into, fixed when the database is created: trees of
    /// their own that flush and compact side by side and take values for each other. 0 = those that are
    /// there, and for a new database what its router suggests, or 1. More than 1 need a router.
    shards: usize [Count] = 0, in 0..=256, Open, Database;

    /// Whether writes go to the commit log. Off, none does: a crash takes back each tree to its last flush, and a
    /// batch over several trees may survive in part unless `atomic_flush` is on. Closing flushes all.
    log: bool [None] = true, in ANY, Open, Database;

    /// Whether all trees are always flushed together, as one: what no log holds then survives a crash whole
    /// or not at all, over shards and keyspaces.
    atomic_flush: bool [None] = false, in ANY, Open, Database;

    /// Whether a value whose shard is stalled goes to another shard, and a clue of a few bytes to its own.
    redirect: bool [None] = true, in ANY, Live, Database;

    /// From which pressure on a shard's values are redirected: 0 where slowing down begins, 1 where
    /// writes stop.
    redirect_pressure: f64 [Number] = 0.75, in 0..=1, Live, Database;

    /// Bytes that a shard's memtable may grow beyond its size by clues and deletes while its door is
    /// shut. A reserve that is full is sealed with its memtable and the next one opened, a few times.
    clue_reserve_bytes: u64 [Bytes] = 2 * MIB, in 4 * KIB..=GIB, Live, Database;

    /// Clue entries of the database from which on nothing is redirected until a rollback has caught up.
    clues_max: u64 [Count] = 1_000_000, in 0..=1_000_000_000_000, Live, Database;

    /// Whether clue entries stay in level 0 when what is older leaves it: so they are found, and rolled
    /// back, without a look at the whole tree. Off, they sink as all else does.
    clue_capping: bool [None] = true, in ANY, Live, Database;

    /// Whether tables of nothing but clue entries are kept in memory while they are open. Off, their blocks are
    /// read as all others are.
    clue_cache: bool [None] = true, in ANY, Live, Database;

    /// Whether clue entries are replaced by their values in the background, when all shards are calm or the
    /// clue limit is reached; with `automatic_compaction` off, too.
    rollback: bool [None] = true, in ANY, Live, Database;

    /// The same, in bytes of the clues' keys.
    clue_bytes_max: u64 [Bytes] = 256 * MIB, in 0..=TIB, Live, Database;

    /// What recovery does with damage in the commit log: `tolerate_corrupted_tail` drops a torn
    /// tail and refuses other damage, `absolute_consistency` refuses any, `point_in_time` stops
    /// at the first damage that nothing later vouches for, `skip_any_corrupted` skips damaged
    /// records and goes on (salvage only: atomicity and order are given up).
    recovery_mode: RecoveryMode [None] = RecoveryMode::PointInTime, in ANY, Open, Database;

    /// Size at which a memtable is switched and flushed. Larger means fewer, larger flushes and
    /// less write amplification; smaller means less memory and a shorter recovery. Pulls on
    /// `log_total_bytes_max`.
    write_buffer_bytes: u64 [Bytes] = 64 * MIB, in 64 * KIB..=64 * GIB, Live, Keyspace;

    /// Memory of all memtables of all keyspaces that are not flushed yet. Passed, the largest one is
    /// flushed, whatever its keyspace's `write_buffer_bytes`; passed by a quarter, writes wait. 0 =
    /// enough for the default keyspace and for a memtable on each of `background_jobs_max`
    /// processors; any other value is not below the default keyspace's `write_buffer_bytes`.
    write_buffers_total_bytes: u64 [Bytes] = 0, in 0..=TIB, Live, Database;

    /// Memtables of a tree, the active one included, before writes wait for a flush. At least 2,
    /// or each switch would wait for the flush it starts.
    write_buffers_max: usize [Count] = 2, in 2..=64, Live, Keyspace;

    /// Operations of one commit group, in bytes of their log record. Larger groups share more
    /// syncs; smaller ones keep the first writer of a group from waiting for the last.
    max_write_group_bytes: u64 [Bytes] = MIB, in 4 * KIB..=GIB, Live, Database;

    /// Background jobs (flushes and compactions) that run at once. `for_machine` sets the number
    /// of cores, at least 2: one for flushes while a compaction runs.
    background_jobs_max: usize [Count] = 2, in 2..=256, Live, Database;

    /// Key ranges that one compaction may be cut into, each run by a job of its own.
    /// `for_machine` sets it to `background_jobs_max`; more would only queue.
    subcompactions_max: usize [Count] = 2, in 1..=256, Live, Database;

    /// Whether tables are made durable behind the back of whoever wrote them: they are used at once, and
    /// what they were made of is kept until they are durable. Off, flushes and compactions wait for the disk.
    deferred_sync: bool [None] = true, in ANY, Open, Database;

    /// Whether io_uring does asynchronous I/O where the kernel has it. Off, or where it is refused, a pool
    /// of threads does.
    use_io_uring: bool [None] = true, in ANY, Open, Database;

    /// Whether tables go to the page cache by asynchronous writes, too, and not by calls of the thread that
    /// merges: that costs another thread's processor time for a copy that seldom waits. What goes past the
    /// page cache is always written asynchronously.
    asynchronous_writes: bool [None] = false, in ANY, Open, Database;

    /// Write tables past the page cache, where the file system takes that: the memory stays free for
    /// what is read, and compactions read from the disk what they wrote.
    direct_writes: bool [None] = false, in ANY, Open, Database;

    /// Read tables past the page cache, where the file system takes that: only `block_cache_bytes`
    /// keeps what was read.
    direct_reads: bool [None] = false, in ANY, Open, Database;

    /// Bytes of tables that flushes and compactions may have under way to the disk. The limiter stays below
    /// that as far as the disk's answers get slow. One table at least may always be written.
    background_in_flight_bytes_max: u64 [Bytes] = 256 * MIB, in 4 * MIB..=TIB, Open, Database;

    /// Bytes per second that compactions write at most; flushes count and do not wait. 0 = no cap.
    background_bytes_per_second: u64 [BytesPerSecond] = 0, in 0..=TIB, Live, Database;

    /// Bytes of tables that running compactions read, or that are kept because what replaced them is not
    /// durable yet. A compaction that would pass it waits for the disk; only one that is larger by itself
    /// runs all the same, alone. The default is more than one compaction of tables of the usual size takes.
    retained_bytes_max: u64 [Bytes] = 4 * GIB, in MIB..=1024 * TIB, Live, Database;

    /// Whether compactions start by themselves. Off, the stops that only a compaction could end
    /// (level 0 and pending bytes) are off as well.
    automatic_compaction: bool [None] = true, in ANY, Live, Keyspace;

    /// Tables in level 0 at which its compaction starts. Each one costs every miss a look.
    level0_compaction_trigger: usize [Count] = 4, in 1..=1_000, Live, Keyspace;

    /// Lets level 0 gather more tables than `level0_compaction_trigger`, up to half of `level0_slowdown_trigger`,
    /// while writes come fast and reads are few: one compaction then takes more of them, and less is
    /// written. When writes pause, `level0_compaction_trigger` counts again.
    level0_patience: bool [None] = true, in ANY, Live, Keyspace;

    /// Lets tables be merged, while writes pause, though no level asks for it, once look-ups and scans have spent
    /// as much on having so many sorted runs as it costs to make one of them.
    read_compaction: bool [None] = true, in ANY, Live, Keyspace;

    /// Tables in level 0 from which writes are slowed down. Not below
    /// `level0_compaction_trigger`.
    level0_slowdown_trigger: usize [Count] = 20, in 1..=100_000, Live, Keyspace;

    /// Tables in level 0 at which writes stop. Not below `level0_slowdown_trigger`.
    level0_stop_trigger: usize [Count] = 36, in 1..=100_000, Live, Keyspace;

    /// Estimated bytes that compactions still have to rewrite, from which writes are slowed
    /// down. Not above `pending_compaction_hard_bytes`.
    pending_compaction_soft_bytes: u64 [Bytes] = 64 * GIB, in MIB..=1024 * TIB, Live, Keyspace;

    /// Estimated bytes that compactions still have to rewrite, at which writes stop.
    pending_compaction_hard_bytes: u64 [Bytes] = 256 * GIB, in MIB..=1024 * TIB, Live, Keyspace;

    /// Rate that a slow-down starts from; it then follows the state of the tree.
    delayed_write_bytes_per_s: u64 [BytesPerSecond] = 16 * MIB, in 64 * KIB..=64 * GIB, Live, Keyspace;

    /// Size of the first level below level 0, when the database is large enough to fill it.
    level_base_bytes: u64 [Bytes] = 256 * MIB, in 64 * KIB..=64 * TIB, Live, Keyspace;

    /// How much larger each level is than the one above. Larger means fewer levels and more
    /// write amplification per level.
    level_multiplier: f64 [Number] = 10.0, in 2..=100, Live, Keyspace;

    /// Size at which a compaction ends one output table and starts the next.
    table_bytes: u64 [Bytes] = 64 * MIB, in 64 * KIB..=8 * GIB, Live, Keyspace;

    /// Size at which a data block ends, before compression. Smaller blocks make point reads
    /// cheaper and the index larger. A single larger entry has a block of its own.
    /// Not above `table_bytes`.
    block_bytes: u64 [Bytes] = 4 * KIB, in 64..=16 * MIB, Live, Keyspace;

    /// Entries from one restart point of a block to the next. More compress keys better; fewer
    /// make a search inside the block cheaper.
    block_restart_interval: usize [Count] = 16, in 1..=1_024, Live, Keyspace;

    /// Bits of filter for each key; 10 let about one miss in a hundred through. 0 = no filter.
    filter_bits_per_key: f64 [BitsPerKey] = 10.0, in 0..=64, Live, Keyspace;

    /// Whether filters hold whole keys, which point reads ask for. Off, with a prefix extractor,
    /// they hold prefixes only: smaller where many keys share one, and point reads ask for the
    /// key's prefix. Off without an extractor there are no filters.
    filter_whole_keys: bool [None] = true, in ANY, Live, Keyspace;

    /// Codec of the tables above the last level: `none`, `lz4` or `zstd` (the latter in builds
    /// that have it). A block that does not get smaller is stored as it is.
    compression: Compression [None] = Compression::Lz4, in ANY, Live, Keyspace;

    /// Codec of the tables in the last level, where most of the data lies and is rewritten least.
    compression_bottom: Compression [None] = Compression::Lz4, in ANY, Live, Keyspace;

    /// Memory for decoded data blocks; 0 = none. `for_machine` sets an eighth of the memory, at
    /// least 32M.
    block_cache_bytes: u64 [Bytes] = 32 * MIB, in 0..=16 * TIB, Live, Database;

    /// Whether blocks that are in no cache are read together where one call needs several: look-ups of
    /// several keys, and the seeks of an iterator over many tables. Off, one after the other.
    batch_reads: bool [None] = true, in ANY, Live, Database;

    /// Threads that read the shards of long scans ahead of their callers, for all scans of the database
    /// together; 0 = none. The default: with two processors, and files in the page cache, they cost more than
    /// they bring. See [`ScanOptions::long_bytes`](crate::ScanOptions::long_bytes).
    scan_threads: usize [Count] = 0, in 0..=256, Live, Database;

    /// Tables kept open, one file descriptor each. The default leaves room under the common
    /// limit of 1024 descriptors for each process.
    open_tables_max: usize [Count] = 512, in 16..=10_000_000, Live, Database;

    /// Memory for indexes and filters of open tables. `for_machine` sets a sixteenth of the
    /// memory, at least 64M.
    table_cache_bytes: u64 [Bytes] = 64 * MIB, in MIB..=16 * TIB, Live, Database;

    /// Size at which the commit log starts its next segment, allocated in advance.
    log_segment_bytes: u64 [Bytes] = 64 * MIB, in 64 * KIB..=4 * GIB, Live, Database;

    /// Old segments kept to be overwritten: appending to allocated space is cheaper than growing
    /// a file. 0 = none.
    log_recycle_max: usize [Count] = 2, in 0..=1_024, Live, Database;

    /// Bytes of log at which the tree with the oldest memtable is flushed, so that a tree that
    /// is seldom written does not hold the whole log. Not below `log_segment_bytes`.
    log_total_bytes_max: u64 [Bytes] = 512 * MIB, in MIB..=16 * TIB, Live, Database;

    /// What is told in the file `LOG` of the database's directory, a line an event, for people: `error`, `warn`,
    /// `info` or `debug`, each with those before it, or `off`, and there is no such file. Nothing waits
    /// for it or fails because of it. Opened for reading only, a database writes none.
    info_log_level: InfoLogLevel [None] = InfoLogLevel::Info, in ANY, Open, Database;

    /// Size from which `LOG` becomes `LOG.old.` with the time, and a new one is begun; so it is at each
    /// opening. 0 = only then.
    max_log_file_size: u64 [Bytes] = 16 * MIB, in 0..=TIB, Open, Database;

    /// Files of that kind that are kept, the present one included.
    keep_log_file_num: usize [Count] = 20, in 1..=100_000, Open, Database;

    /// How often `LOG` gets the statistics (the property `dialsm.stats`). 0 = never.
    stats_dump_period_sec: u64 [Seconds] = 600, in 0..=1_000_000_000, Open, Database;
}
