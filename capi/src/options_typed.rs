//! A setter for each option
//!
//! Made by tools/c-header.sh from the table of options. The default and the range stand behind each. Numbers
//! out of range give DIALSM_INVALID_ARGUMENT, and change nothing.

use dialsm_capi_logic::guard::run;
use dialsm_capi_logic::raw::given;
use dialsm_capi_logic::{Code, OptionSet, Status};

/// A codec of table blocks.
#[repr(u32)]
#[allow(non_camel_case_types, dead_code, reason = "the names stand in the C header as they are here")]
pub enum dialsm_compression_t {
    /// `none`.
    DIALSM_COMPRESSION_NONE = 0,
    /// `lz4`.
    DIALSM_COMPRESSION_LZ4 = 1,
    /// `zstd`.
    DIALSM_COMPRESSION_ZSTD = 2,
}

const COMPRESSIONS: [&str; 3] = ["none", "lz4", "zstd"];

/// What recovery does with damage in the commit log.
#[repr(u32)]
#[allow(non_camel_case_types, dead_code, reason = "the names stand in the C header as they are here")]
pub enum dialsm_recovery_mode_t {
    /// `tolerate_corrupted_tail`.
    DIALSM_RECOVERY_TOLERATE_CORRUPTED_TAIL = 0,
    /// `absolute_consistency`.
    DIALSM_RECOVERY_ABSOLUTE_CONSISTENCY = 1,
    /// `point_in_time`.
    DIALSM_RECOVERY_POINT_IN_TIME = 2,
    /// `skip_any_corrupted`.
    DIALSM_RECOVERY_SKIP_ANY_CORRUPTED = 3,
}

const RECOVERY_MODES: [&str; 4] =
    ["tolerate_corrupted_tail", "absolute_consistency", "point_in_time", "skip_any_corrupted"];

/// What the LOG tells.
#[repr(u32)]
#[allow(non_camel_case_types, dead_code, reason = "the names stand in the C header as they are here")]
pub enum dialsm_info_log_level_t {
    /// `off`.
    DIALSM_INFO_LOG_OFF = 0,
    /// `error`.
    DIALSM_INFO_LOG_ERROR = 1,
    /// `warn`.
    DIALSM_INFO_LOG_WARN = 2,
    /// `info`.
    DIALSM_INFO_LOG_INFO = 3,
    /// `debug`.
    DIALSM_INFO_LOG_DEBUG = 4,
}

const INFO_LOG_LEVELS: [&str; 5] = ["off", "error", "warn", "info", "debug"];

/// Create the database when the directory holds none. Off, opening one that is missing fails
/// with `NotFound`.
/// Default: true; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_create_if_missing(
    options: Option<&mut OptionSet>,
    create_if_missing: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("create_if_missing", create_if_missing))
}

/// Fail with `AlreadyExists` when the directory holds a database already.
/// Default: false; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_error_if_exists(
    options: Option<&mut OptionSet>,
    error_if_exists: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("error_if_exists", error_if_exists))
}

/// Shards that each keyspace of the database is cut into, fixed when the database is created: trees of
/// their own that flush and compact side by side and take values for each other. 0 = those that are
/// there, and for a new database what its router suggests, or 1. More than 1 need a router.
/// Default: 0, 0 to 256; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_shards(
    options: Option<&mut OptionSet>,
    shards: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("shards", shards))
}

/// Whether writes go to the commit log. Off, none does: a crash takes back each tree to its last flush, and a
/// batch over several trees may survive in part unless `atomic_flush` is on. Closing flushes all.
/// Default: true; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_log(
    options: Option<&mut OptionSet>,
    log: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("log", log))
}

/// Whether all trees are always flushed together, as one: what no log holds then survives a crash whole
/// or not at all, over shards and keyspaces.
/// Default: false; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_atomic_flush(
    options: Option<&mut OptionSet>,
    atomic_flush: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("atomic_flush", atomic_flush))
}

/// Whether a value whose shard is stalled goes to another shard, and a clue of a few bytes to its own.
/// Default: true; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_redirect(
    options: Option<&mut OptionSet>,
    redirect: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("redirect", redirect))
}

/// From which pressure on a shard's values are redirected: 0 where slowing down begins, 1 where
/// writes stop.
/// Default: 0.75, 0 to 1; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_redirect_pressure(
    options: Option<&mut OptionSet>,
    redirect_pressure: f64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_number("redirect_pressure", redirect_pressure))
}

/// Bytes that a shard's memtable may grow beyond its size by clues and deletes while its door is
/// shut. A reserve that is full is sealed with its memtable and the next one opened, a few times.
/// Default: 2M bytes, 4096 to 1073741824; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_clue_reserve_bytes(
    options: Option<&mut OptionSet>,
    clue_reserve_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("clue_reserve_bytes", clue_reserve_bytes))
}

/// Clue entries of the database from which on nothing is redirected until a rollback has caught up.
/// Default: 1000000, 0 to 1000000000000; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_clues_max(
    options: Option<&mut OptionSet>,
    clues_max: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("clues_max", clues_max))
}

/// Whether clue entries stay in level 0 when what is older leaves it: so they are found, and rolled
/// back, without a look at the whole tree. Off, they sink as all else does.
/// Default: true; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_clue_capping(
    options: Option<&mut OptionSet>,
    clue_capping: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("clue_capping", clue_capping))
}

/// Whether tables of nothing but clue entries are kept in memory while they are open. Off, their blocks are
/// read as all others are.
/// Default: true; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_clue_cache(
    options: Option<&mut OptionSet>,
    clue_cache: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("clue_cache", clue_cache))
}

/// Whether clue entries are replaced by their values in the background, when all shards are calm or the
/// clue limit is reached; with `automatic_compaction` off, too.
/// Default: true; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_rollback(
    options: Option<&mut OptionSet>,
    rollback: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("rollback", rollback))
}

/// The same, in bytes of the clues' keys.
/// Default: 256M bytes, 0 to 1099511627776; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_clue_bytes_max(
    options: Option<&mut OptionSet>,
    clue_bytes_max: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("clue_bytes_max", clue_bytes_max))
}

/// What recovery does with damage in the commit log: `tolerate_corrupted_tail` drops a torn
/// tail and refuses other damage, `absolute_consistency` refuses any, `point_in_time` stops
/// at the first damage that nothing later vouches for, `skip_any_corrupted` skips damaged
/// records and goes on (salvage only: atomicity and order are given up).
/// Default: point_in_time; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_recovery_mode(
    options: Option<&mut OptionSet>,
    recovery_mode: u32,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_choice("recovery_mode", recovery_mode, &RECOVERY_MODES))
}

/// Size at which a memtable is switched and flushed. Larger means fewer, larger flushes and
/// less write amplification; smaller means less memory and a shorter recovery. Pulls on
/// `log_total_bytes_max`.
/// Default: 64M bytes, 65536 to 68719476736; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_write_buffer_bytes(
    options: Option<&mut OptionSet>,
    write_buffer_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("write_buffer_bytes", write_buffer_bytes))
}

/// Memory of all memtables of all keyspaces that are not flushed yet. Passed, the largest one is
/// flushed, whatever its keyspace's `write_buffer_bytes`; passed by a quarter, writes wait. 0 =
/// enough for the default keyspace and for a memtable on each of `background_jobs_max`
/// processors; any other value is not below the default keyspace's `write_buffer_bytes`.
/// Default: 0 bytes, 0 to 1099511627776; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_write_buffers_total_bytes(
    options: Option<&mut OptionSet>,
    write_buffers_total_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?.set_integer("write_buffers_total_bytes", write_buffers_total_bytes)
    })
}

/// Memtables of a tree, the active one included, before writes wait for a flush. At least 2,
/// or each switch would wait for the flush it starts.
/// Default: 2, 2 to 64; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_write_buffers_max(
    options: Option<&mut OptionSet>,
    write_buffers_max: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("write_buffers_max", write_buffers_max))
}

/// Operations of one commit group, in bytes of their log record. Larger groups share more
/// syncs; smaller ones keep the first writer of a group from waiting for the last.
/// Default: 1M bytes, 4096 to 1073741824; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_max_write_group_bytes(
    options: Option<&mut OptionSet>,
    max_write_group_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("max_write_group_bytes", max_write_group_bytes))
}

/// Background jobs (flushes and compactions) that run at once. `for_machine` sets the number
/// of cores, at least 2: one for flushes while a compaction runs.
/// Default: 2, 2 to 256; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_background_jobs_max(
    options: Option<&mut OptionSet>,
    background_jobs_max: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("background_jobs_max", background_jobs_max))
}

/// Key ranges that one compaction may be cut into, each run by a job of its own.
/// `for_machine` sets it to `background_jobs_max`; more would only queue.
/// Default: 2, 1 to 256; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_subcompactions_max(
    options: Option<&mut OptionSet>,
    subcompactions_max: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("subcompactions_max", subcompactions_max))
}

/// Whether tables are made durable behind the back of whoever wrote them: they are used at once, and
/// what they were made of is kept until they are durable. Off, flushes and compactions wait for the disk.
/// Default: true; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_deferred_sync(
    options: Option<&mut OptionSet>,
    deferred_sync: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("deferred_sync", deferred_sync))
}

/// Whether io_uring does asynchronous I/O where the kernel has it. Off, or where it is refused, a pool
/// of threads does.
/// Default: true; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_use_io_uring(
    options: Option<&mut OptionSet>,
    use_io_uring: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("use_io_uring", use_io_uring))
}

/// Whether tables go to the page cache by asynchronous writes, too, and not by calls of the thread that
/// merges: that costs another thread's processor time for a copy that seldom waits. What goes past the
/// page cache is always written asynchronously.
/// Default: false; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_asynchronous_writes(
    options: Option<&mut OptionSet>,
    asynchronous_writes: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("asynchronous_writes", asynchronous_writes))
}

/// Write tables past the page cache, where the file system takes that: the memory stays free for
/// what is read, and compactions read from the disk what they wrote.
/// Default: false; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_direct_writes(
    options: Option<&mut OptionSet>,
    direct_writes: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("direct_writes", direct_writes))
}

/// Read tables past the page cache, where the file system takes that: only `block_cache_bytes`
/// keeps what was read.
/// Default: false; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_direct_reads(
    options: Option<&mut OptionSet>,
    direct_reads: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("direct_reads", direct_reads))
}

/// Bytes of tables that flushes and compactions may have under way to the disk. The limiter stays below
/// that as far as the disk's answers get slow. One table at least may always be written.
/// Default: 256M bytes, 4194304 to 1099511627776; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_background_in_flight_bytes_max(
    options: Option<&mut OptionSet>,
    background_in_flight_bytes_max: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?
            .set_integer("background_in_flight_bytes_max", background_in_flight_bytes_max)
    })
}

/// Bytes per second that compactions write at most; flushes count and do not wait. 0 = no cap.
/// Default: 0 bytes/s, 0 to 1099511627776; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_background_bytes_per_second(
    options: Option<&mut OptionSet>,
    background_bytes_per_second: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?.set_integer("background_bytes_per_second", background_bytes_per_second)
    })
}

/// Bytes of tables that running compactions read, or that are kept because what replaced them is not
/// durable yet. A compaction that would pass it waits for the disk; only one that is larger by itself
/// runs all the same, alone. The default is more than one compaction of tables of the usual size takes.
/// Default: 4G bytes, 1048576 to 1125899906842624; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_retained_bytes_max(
    options: Option<&mut OptionSet>,
    retained_bytes_max: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("retained_bytes_max", retained_bytes_max))
}

/// Whether compactions start by themselves. Off, the stops that only a compaction could end
/// (level 0 and pending bytes) are off as well.
/// Default: true; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_automatic_compaction(
    options: Option<&mut OptionSet>,
    automatic_compaction: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("automatic_compaction", automatic_compaction))
}

/// Tables in level 0 at which its compaction starts. Each one costs every miss a look.
/// Default: 4, 1 to 1000; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_level0_compaction_trigger(
    options: Option<&mut OptionSet>,
    level0_compaction_trigger: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?.set_integer("level0_compaction_trigger", level0_compaction_trigger)
    })
}

/// Lets level 0 gather more tables than `level0_compaction_trigger`, up to half of `level0_slowdown_trigger`,
/// while writes come fast and reads are few: one compaction then takes more of them, and less is
/// written. When writes pause, `level0_compaction_trigger` counts again.
/// Default: true; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_level0_patience(
    options: Option<&mut OptionSet>,
    level0_patience: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("level0_patience", level0_patience))
}

/// Lets tables be merged, while writes pause, though no level asks for it, once look-ups and scans have spent
/// as much on having so many sorted runs as it costs to make one of them.
/// Default: true; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_read_compaction(
    options: Option<&mut OptionSet>,
    read_compaction: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("read_compaction", read_compaction))
}

/// Tables in level 0 from which writes are slowed down. Not below
/// `level0_compaction_trigger`.
/// Default: 20, 1 to 100000; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_level0_slowdown_trigger(
    options: Option<&mut OptionSet>,
    level0_slowdown_trigger: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("level0_slowdown_trigger", level0_slowdown_trigger))
}

/// Tables in level 0 at which writes stop. Not below `level0_slowdown_trigger`.
/// Default: 36, 1 to 100000; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_level0_stop_trigger(
    options: Option<&mut OptionSet>,
    level0_stop_trigger: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("level0_stop_trigger", level0_stop_trigger))
}

/// Estimated bytes that compactions still have to rewrite, from which writes are slowed
/// down. Not above `pending_compaction_hard_bytes`.
/// Default: 64G bytes, 1048576 to 1125899906842624; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_pending_compaction_soft_bytes(
    options: Option<&mut OptionSet>,
    pending_compaction_soft_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?.set_integer("pending_compaction_soft_bytes", pending_compaction_soft_bytes)
    })
}

/// Estimated bytes that compactions still have to rewrite, at which writes stop.
/// Default: 256G bytes, 1048576 to 1125899906842624; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_pending_compaction_hard_bytes(
    options: Option<&mut OptionSet>,
    pending_compaction_hard_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?.set_integer("pending_compaction_hard_bytes", pending_compaction_hard_bytes)
    })
}

/// Rate that a slow-down starts from; it then follows the state of the tree.
/// Default: 16M bytes/s, 65536 to 68719476736; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_delayed_write_bytes_per_s(
    options: Option<&mut OptionSet>,
    delayed_write_bytes_per_s: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?.set_integer("delayed_write_bytes_per_s", delayed_write_bytes_per_s)
    })
}

/// Size of the first level below level 0, when the database is large enough to fill it.
/// Default: 256M bytes, 65536 to 70368744177664; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_level_base_bytes(
    options: Option<&mut OptionSet>,
    level_base_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("level_base_bytes", level_base_bytes))
}

/// How much larger each level is than the one above. Larger means fewer levels and more
/// write amplification per level.
/// Default: 10.0, 2 to 100; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_level_multiplier(
    options: Option<&mut OptionSet>,
    level_multiplier: f64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_number("level_multiplier", level_multiplier))
}

/// Size at which a compaction ends one output table and starts the next.
/// Default: 64M bytes, 65536 to 8589934592; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_table_bytes(
    options: Option<&mut OptionSet>,
    table_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("table_bytes", table_bytes))
}

/// Size at which a data block ends, before compression. Smaller blocks make point reads
/// cheaper and the index larger. A single larger entry has a block of its own.
/// Not above `table_bytes`.
/// Default: 4K bytes, 64 to 16777216; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_block_bytes(
    options: Option<&mut OptionSet>,
    block_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("block_bytes", block_bytes))
}

/// Entries from one restart point of a block to the next. More compress keys better; fewer
/// make a search inside the block cheaper.
/// Default: 16, 1 to 1024; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_block_restart_interval(
    options: Option<&mut OptionSet>,
    block_restart_interval: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("block_restart_interval", block_restart_interval))
}

/// Bits of filter for each key; 10 let about one miss in a hundred through. 0 = no filter.
/// Default: 10.0 bits/key, 0 to 64; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_filter_bits_per_key(
    options: Option<&mut OptionSet>,
    filter_bits_per_key: f64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_number("filter_bits_per_key", filter_bits_per_key))
}

/// Whether filters hold whole keys, which point reads ask for. Off, with a prefix extractor,
/// they hold prefixes only: smaller where many keys share one, and point reads ask for the
/// key's prefix. Off without an extractor there are no filters.
/// Default: true; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_filter_whole_keys(
    options: Option<&mut OptionSet>,
    filter_whole_keys: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("filter_whole_keys", filter_whole_keys))
}

/// Codec of the tables above the last level: `none`, `lz4` or `zstd` (the latter in builds
/// that have it). A block that does not get smaller is stored as it is.
/// Default: lz4; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_compression(
    options: Option<&mut OptionSet>,
    compression: u32,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_choice("compression", compression, &COMPRESSIONS))
}

/// Codec of the tables in the last level, where most of the data lies and is rewritten least.
/// Default: lz4; of a keyspace, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_compression_bottom(
    options: Option<&mut OptionSet>,
    compression_bottom: u32,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?.set_choice("compression_bottom", compression_bottom, &COMPRESSIONS)
    })
}

/// Memory for decoded data blocks; 0 = none. `for_machine` sets an eighth of the memory, at
/// least 32M.
/// Default: 32M bytes, 0 to 17592186044416; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_block_cache_bytes(
    options: Option<&mut OptionSet>,
    block_cache_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("block_cache_bytes", block_cache_bytes))
}

/// Whether blocks that are in no cache are read together where one call needs several: look-ups of
/// several keys, and the seeks of an iterator over many tables. Off, one after the other.
/// Default: true; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_batch_reads(
    options: Option<&mut OptionSet>,
    batch_reads: bool,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_bool("batch_reads", batch_reads))
}

/// Threads that read the shards of long scans ahead of their callers, for all scans of the database
/// together; 0 = none. The default: with two processors, and files in the page cache, they cost more than
/// they bring. See `ScanOptions long_bytes`.
/// Default: 0, 0 to 256; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_scan_threads(
    options: Option<&mut OptionSet>,
    scan_threads: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("scan_threads", scan_threads))
}

/// Tables kept open, one file descriptor each. The default leaves room under the common
/// limit of 1024 descriptors for each process.
/// Default: 512, 16 to 10000000; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_open_tables_max(
    options: Option<&mut OptionSet>,
    open_tables_max: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("open_tables_max", open_tables_max))
}

/// Memory for indexes and filters of open tables. `for_machine` sets a sixteenth of the
/// memory, at least 64M.
/// Default: 64M bytes, 1048576 to 17592186044416; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_table_cache_bytes(
    options: Option<&mut OptionSet>,
    table_cache_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("table_cache_bytes", table_cache_bytes))
}

/// Size at which the commit log starts its next segment, allocated in advance.
/// Default: 64M bytes, 65536 to 4294967296; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_log_segment_bytes(
    options: Option<&mut OptionSet>,
    log_segment_bytes: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("log_segment_bytes", log_segment_bytes))
}

/// Old segments kept to be overwritten: appending to allocated space is cheaper than growing
/// a file. 0 = none.
/// Default: 2, 0 to 1024; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_log_recycle_max(
    options: Option<&mut OptionSet>,
    log_recycle_max: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("log_recycle_max", log_recycle_max))
}

/// Bytes of log at which the tree with the oldest memtable is flushed, so that a tree that
/// is seldom written does not hold the whole log. Not below `log_segment_bytes`.
/// Default: 512M bytes, 1048576 to 17592186044416; of a database, live.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_log_total_bytes_max(
    options: Option<&mut OptionSet>,
    log_total_bytes_max: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("log_total_bytes_max", log_total_bytes_max))
}

/// What is told in the file `LOG` of the database's directory, a line an event, for people: `error`, `warn`,
/// `info` or `debug`, each with those before it, or `off`, and there is no such file. Nothing waits
/// for it or fails because of it. Opened for reading only, a database writes none.
/// Default: info; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_info_log_level(
    options: Option<&mut OptionSet>,
    info_log_level: u32,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_choice("info_log_level", info_log_level, &INFO_LOG_LEVELS))
}

/// Size from which `LOG` becomes `LOG.old.` with the time, and a new one is begun; so it is at each
/// opening. 0 = only then.
/// Default: 16M bytes, 0 to 1099511627776; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_max_log_file_size(
    options: Option<&mut OptionSet>,
    max_log_file_size: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("max_log_file_size", max_log_file_size))
}

/// Files of that kind that are kept, the present one included.
/// Default: 20, 1 to 100000; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_keep_log_file_num(
    options: Option<&mut OptionSet>,
    keep_log_file_num: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("keep_log_file_num", keep_log_file_num))
}

/// How often `LOG` gets the statistics (the property `dialsm.stats`). 0 = never.
/// Default: 600 s, 0 to 1000000000; of a database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_stats_dump_period_sec(
    options: Option<&mut OptionSet>,
    stats_dump_period_sec: u64,
    status: Option<&mut Status>,
) -> Code {
    run(status, || given(options, "options")?.set_integer("stats_dump_period_sec", stats_dump_period_sec))
}
