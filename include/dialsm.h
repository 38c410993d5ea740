/*
 * dialsm.h: the C interface of DiaLSM, an embeddable, ordered, persistent key-value engine.
 *
 * Made by tools/c-header.sh from capi/src. Do not edit.
 *
 * CONVENTIONS, kept everywhere
 *
 *  1 Codes.      A function that can fail returns a dialsm_code_t: DIALSM_OK (0), or what to do about the failure.
 *                A key without a value, or an iterator at its end, is no failure.
 *  2 Status.     Such a function takes, last, a dialsm_status_t, or NULL. It then holds code, message and, where
 *                known, file and offset of this call, until it is given to another. One that succeeds empties it.
 *  3 Handles     are opaque. What a *_create or dialsm_open function gives out belongs to the caller, who frees it by
 *                the *_free function of that type, once. NULL may be freed. No two handles need be freed in order.
 *                A handle that was freed must not be used: that can't be detected. A database that was closed can
 *                be: every call gives DIALSM_CLOSED, a second dialsm_close() too.
 *  4 Keeping     Keyspaces, snapshots, iterators and scans hold their database open: it may be freed before them.
 *    open.       Values, entries and batches need no database. Options are copied by the calls that take them.
 *  5 Lengths     are explicit: bytes are a pointer and a size, never ended by zero. DIALSM_STR("text") gives both for a
 *                literal. NULL with size 0 is the empty string or, where the function says so, no bound. Texts that
 *                are given out have a zero byte behind them, too. Paths and names are UTF-8.
 *  6 NULL        for options means the defaults, for a keyspace the default one, for a status that nobody asks, for
 *                a destination of a second result that it is not wanted. Elsewhere it is DIALSM_INVALID_ARGUMENT, or
 *                0, NULL or false from functions that return no code.
 *  7 Results     are put where pointers say. On failure a handle or pointer there is NULL, a number 0. Pointers into
 *                an object (dialsm_iter_key) are valid until it changes or is freed.
 *  8 Memory      that is given out by itself (dialsm_get) is freed by dialsm_free().
 *  9 Threads.    A database, keyspace, snapshot, comparator, merge operator, prefix extractor, event listener, cancel
 *                object and list of names may be used by all threads at once. All else by one at a time. A handle is
 *                freed when nobody uses it.
 * 10 Atomicity.  A call that fails has changed nothing, unless it says otherwise.
 * 11 Callbacks   return: no exception and no longjmp() may leave them. Their answers are checked; a wrong one becomes
 *                DIALSM_CALLBACK.
 * 12 Defects.    Nothing unwinds out of the library. A call that meets a defect gives DIALSM_INTERNAL, and the database
 *                gives DIALSM_POISONED from then on; others are not touched. What was written is not lost.
 * 13 Out of      Memory whose size the caller names gives DIALSM_OUT_OF_MEMORY where it can't be had. Any other failed
 *    memory.     allocation ends the process.
 * 14 fork().     In the child every call on what the parent opened gives DIALSM_FORKED; iterators there stand nowhere, and
 *                what is freed stays as it is. If the parent had a database open at the fork, the child can open none,
 *                nor look into one, before an exec: DIALSM_FORKED. Else it may open its own.
 * 15 Stability.  Within one DIALSM_ABI_VERSION nothing that is here changes; enumerations keep their values and may get
 *                more, structures that begin with `size` may get longer.
 */


#ifndef DIALSM_H
#define DIALSM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A literal as pointer and length. */
#define DIALSM_STR(literal) (literal), (sizeof(literal) - 1)


/**
 * The version of this interface, counted up whenever a function, type or value of an older one changes. A
 * program may compare it with the DIALSM_ABI_VERSION that it was compiled with.
 */
#define DIALSM_ABI_VERSION 1

/**
 * The longest key, in bytes.
 */
#define DIALSM_KEY_BYTES_MAX 65535

/**
 * The longest value, in bytes.
 */
#define DIALSM_VALUE_BYTES_MAX 1073741824

/**
 * What a call came to. `DIALSM_OK` is 0; the others say what to do about it. The numbers never change;
 * a later version may add some.
 */
enum dialsm_code_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Done.
     */
    DIALSM_OK = 0,
    /**
     * Fix the call: an argument or option is out of its range, or NULL where that is not allowed. Nothing
     * was done.
     */
    DIALSM_INVALID_ARGUMENT = 1,
    /**
     * Fix the call: a key, value or batch is larger than its bound. Nothing was done.
     */
    DIALSM_TOO_LARGE = 2,
    /**
     * The database, keyspace or file asked for does not exist. (A key without a value is no error.)
     */
    DIALSM_NOT_FOUND = 3,
    /**
     * It exists already, and the call asked that it must not.
     */
    DIALSM_ALREADY_EXISTS = 4,
    /**
     * This build or platform does not offer it: a codec left out.
     */
    DIALSM_UNSUPPORTED = 5,
    /**
     * The database was opened for reading only, or its directory is read-only.
     */
    DIALSM_READ_ONLY = 6,
    /**
     * Try again: the write would have waited, and its options forbid that.
     */
    DIALSM_WOULD_STALL = 20,
    /**
     * Try again: the time given with the call was over first. Nothing was written.
     */
    DIALSM_TIMED_OUT = 21,
    /**
     * Try again: somebody else has the database open.
     */
    DIALSM_BUSY = 22,
    /**
     * Try again: the disk is full. Writing resumes by itself when there is space.
     */
    DIALSM_NO_SPACE = 23,
    /**
     * The call was cancelled, or the database is being closed.
     */
    DIALSM_CANCELLED = 24,
    /**
     * No memory of the size that the caller named, or that a file asked for. Nothing was done.
     */
    DIALSM_OUT_OF_MEMORY = 25,
    /**
     * Open it anew: the database was closed.
     */
    DIALSM_CLOSED = 40,
    /**
     * A child of fork() may not use what its parent opened, nor open anything if that was still open.
     */
    DIALSM_FORKED = 41,
    /**
     * Open it anew: an earlier error in the background stopped writes (reads go on), or a call panicked
     * (nothing goes on).
     */
    DIALSM_POISONED = 42,
    /**
     * Repair the data: bytes on disk are not what was written.
     */
    DIALSM_CORRUPTION = 60,
    /**
     * A file belongs to another database, or to another program.
     */
    DIALSM_FOREIGN = 61,
    /**
     * A file was made by a newer version.
     */
    DIALSM_NEWER_FORMAT = 62,
    /**
     * The operating system failed a call. Where dialsm_status_os_error() is EMFILE or ENFILE: try again; writing resumes
     * by itself when there are file descriptors.
     */
    DIALSM_IO = 80,
    /**
     * A callback failed, or broke its promises.
     */
    DIALSM_CALLBACK = 81,
    /**
     * A defect of the library.
     */
    DIALSM_INTERNAL = 82,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dialsm_code_t dialsm_code_t;
#else
typedef uint32_t dialsm_code_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Whether writes may go on.
 */
enum dialsm_stall_state_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Writes go on.
     */
    DIALSM_STALL_OPEN = 0,
    /**
     * They are slowed down.
     */
    DIALSM_STALL_DELAYED = 1,
    /**
     * At least one shard takes none, and lets its writes wait or go to others.
     */
    DIALSM_STALL_STOPPED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dialsm_stall_state_t dialsm_stall_state_t;
#else
typedef uint32_t dialsm_stall_state_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How much an event matters, by the numbers of dialsm_info_log_level_t.
 */
enum dialsm_severity_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Writes have stopped for good, or a job has failed.
     */
    DIALSM_SEVERITY_ERROR = 1,
    /**
     * Something is out of order, and goes on.
     */
    DIALSM_SEVERITY_WARN = 2,
    /**
     * What happens all the time.
     */
    DIALSM_SEVERITY_INFO = 3,
    /**
     * Single files.
     */
    DIALSM_SEVERITY_DEBUG = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dialsm_severity_t dialsm_severity_t;
#else
typedef uint32_t dialsm_severity_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What an operation of a batch does.
 */
enum dialsm_op_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Sets the key to the value.
     */
    DIALSM_OP_PUT = 1,
    /**
     * Removes the key.
     */
    DIALSM_OP_DELETE = 2,
    /**
     * Removes the key, which was put once.
     */
    DIALSM_OP_SINGLE_DELETE = 3,
    /**
     * Removes the keys from the key up to the value.
     */
    DIALSM_OP_DELETE_RANGE = 4,
    /**
     * Adds the value as an operand.
     */
    DIALSM_OP_MERGE = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dialsm_op_t dialsm_op_t;
#else
typedef uint32_t dialsm_op_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A codec of table blocks.
 */
enum dialsm_compression_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * `none`.
     */
    DIALSM_COMPRESSION_NONE = 0,
    /**
     * `lz4`.
     */
    DIALSM_COMPRESSION_LZ4 = 1,
    /**
     * `zstd`.
     */
    DIALSM_COMPRESSION_ZSTD = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dialsm_compression_t dialsm_compression_t;
#else
typedef uint32_t dialsm_compression_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What recovery does with damage in the commit log.
 */
enum dialsm_recovery_mode_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * `tolerate_corrupted_tail`.
     */
    DIALSM_RECOVERY_TOLERATE_CORRUPTED_TAIL = 0,
    /**
     * `absolute_consistency`.
     */
    DIALSM_RECOVERY_ABSOLUTE_CONSISTENCY = 1,
    /**
     * `point_in_time`.
     */
    DIALSM_RECOVERY_POINT_IN_TIME = 2,
    /**
     * `skip_any_corrupted`.
     */
    DIALSM_RECOVERY_SKIP_ANY_CORRUPTED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dialsm_recovery_mode_t dialsm_recovery_mode_t;
#else
typedef uint32_t dialsm_recovery_mode_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What the LOG tells.
 */
enum dialsm_info_log_level_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * `off`.
     */
    DIALSM_INFO_LOG_OFF = 0,
    /**
     * `error`.
     */
    DIALSM_INFO_LOG_ERROR = 1,
    /**
     * `warn`.
     */
    DIALSM_INFO_LOG_WARN = 2,
    /**
     * `info`.
     */
    DIALSM_INFO_LOG_INFO = 3,
    /**
     * `debug`.
     */
    DIALSM_INFO_LOG_DEBUG = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dialsm_info_log_level_t dialsm_info_log_level_t;
#else
typedef uint32_t dialsm_info_log_level_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Operations that are written together. One thread at a time.
 */
typedef struct dialsm_batch_t dialsm_batch_t;

/**
 * Lets another thread end a compaction. Usable from all threads at once.
 */
typedef struct dialsm_cancel_t dialsm_cancel_t;

/**
 * How a range is compacted.
 */
typedef struct dialsm_compact_options_t dialsm_compact_options_t;

/**
 * An order of keys that options can be given. Usable from all threads at once.
 */
typedef struct dialsm_comparator_t dialsm_comparator_t;

/**
 * An open database. Usable from all threads at once.
 */
typedef struct dialsm_db_t dialsm_db_t;

/**
 * Entries of an iterator or of a scan. Plain memory of its owner; it keeps nothing open. One thread at a time.
 */
typedef struct dialsm_entries_t dialsm_entries_t;

/**
 * A listener that options can be given. Usable from all threads at once.
 */
typedef struct dialsm_event_listener_t dialsm_event_listener_t;

/**
 * How memtables are flushed.
 */
typedef struct dialsm_flush_options_t dialsm_flush_options_t;

/**
 * A cursor. One thread at a time.
 */
typedef struct dialsm_iter_t dialsm_iter_t;

/**
 * A keyspace of an open database. Usable from all threads at once.
 */
typedef struct dialsm_keyspace_t dialsm_keyspace_t;

/**
 * A merge operator that options can be given. Usable from all threads at once.
 */
typedef struct dialsm_merge_operator_t dialsm_merge_operator_t;

/**
 * Takes what a merge makes, in the call that it was given to.
 */
typedef struct dialsm_merge_result_t dialsm_merge_result_t;

/**
 * Names, in an order that whoever gives them says. Usable from all threads at once.
 */
typedef struct dialsm_names_t dialsm_names_t;

/**
 * Options of a database, or of one keyspace. One thread at a time; calls copy what they need.
 */
typedef struct dialsm_options_t dialsm_options_t;

/**
 * A value, held where it lies, or none. To be used again and again. One thread at a time.
 */
typedef struct dialsm_pinned_t dialsm_pinned_t;

/**
 * A prefix extractor that options can be given. Usable from all threads at once.
 */
typedef struct dialsm_prefix_extractor_t dialsm_prefix_extractor_t;

/**
 * How reads are done.
 */
typedef struct dialsm_read_options_t dialsm_read_options_t;

/**
 * A bulk scan. One thread at a time.
 */
typedef struct dialsm_scan_t dialsm_scan_t;

/**
 * What a scan covers.
 */
typedef struct dialsm_scan_options_t dialsm_scan_options_t;

/**
 * What was visible at one moment. Usable from all threads at once.
 */
typedef struct dialsm_snapshot_t dialsm_snapshot_t;

/**
 * How the last call that it was given to ended: code, message and, where known, the file, the offset in it and
 * the error number of the operating system. One thread at a time.
 */
typedef struct dialsm_status_t dialsm_status_t;

/**
 * Values of several keys. To be used again and again. One thread at a time.
 */
typedef struct dialsm_values_t dialsm_values_t;

/**
 * How writes are done.
 */
typedef struct dialsm_write_options_t dialsm_write_options_t;

/**
 * The order of two keys, as memcmp() says it: below 0 where `a` comes before `b`, 0 where they are equal, above 0 where
 * `a` comes after `b`. By how much does not matter. It can't fail.
 */
typedef int (*dialsm_compare_fn)(void *state,
                                 const uint8_t *a,
                                 size_t a_len,
                                 const uint8_t *b,
                                 size_t b_len);

/**
 * Frees the state of a callback object, when nothing uses it any more.
 */
typedef void (*dialsm_destroy_fn)(void *state);

/**
 * Makes the value of `key` of its base and of operands, oldest first: at least one, `operands[i]` with `operand_lens[i]`
 * bytes. `base` is NULL where there is no value below the operands (`base_len` is 0 then, as for an empty value, which
 * is not NULL). The value goes to `result`, which is valid within the call only, by dialsm_merge_result_set() or
 * dialsm_merge_result_append(). Returns any number but 0 where it made one. 0, or 1 without a result, is a failure:
 * the key can't be read then (DIALSM_CALLBACK), and nothing of it is lost.
 */
typedef int (*dialsm_full_merge_fn)(void *state,
                                    const uint8_t *key,
                                    size_t key_len,
                                    const uint8_t *base,
                                    size_t base_len,
                                    size_t operand_count,
                                    const uint8_t *const *operands,
                                    const size_t *operand_lens,
                                    dialsm_merge_result_t *result);

/**
 * Makes one operand that stands for several, at least two, oldest first, and gives it to `result` as a full merge does.
 * What is older is not shown. Returns 0 where there is no such operand, which is never wrong: they stay as they are.
 */
typedef int (*dialsm_partial_merge_fn)(void *state,
                                       const uint8_t *key,
                                       size_t key_len,
                                       size_t operand_count,
                                       const uint8_t *const *operands,
                                       const size_t *operand_lens,
                                       dialsm_merge_result_t *result);

/**
 * Says where in `key` its prefix begins and how long it is: `*prefix_start` (0 where it is not set) and `*prefix_len`
 * are bytes, and together at most `key_len`: else scans that need the prefix fail with DIALSM_CALLBACK, and tables are
 * written without prefixes. A prefix may be empty. Returns any number but 0 where the key has one, and 0 where it has none.
 */
typedef int (*dialsm_extract_fn)(void *state,
                                 const uint8_t *key,
                                 size_t key_len,
                                 size_t *prefix_start,
                                 size_t *prefix_len);

/**
 * Something that has happened. It and its texts are valid within the call that it is given to only; the texts are
 * UTF-8 and have a zero byte behind them. Later versions may add names and fields.
 */
typedef struct {
    /**
     * sizeof of the structure in the library. A program that may run with an older library looks here before it
     * reads a member that was added later.
     */
    size_t size;
    /**
     * How much it matters: a dialsm_severity_t.
     */
    uint32_t severity;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * When it happened: microseconds since 1970, of a clock that may be set.
     */
    uint64_t wall_us;
    /**
     * Its name, as in the LOG: "flush_begin".
     */
    const char *name;
    /**
     * Its length in bytes.
     */
    size_t name_len;
    /**
     * Its fields, as in the LOG: "field=value", a space between two, on one line: "job=7 keyspace=default shard=0".
     * Text with spaces and the like is in quotes, with a backslash before quotes and backslashes. "" where it has none.
     */
    const char *fields;
    /**
     * Their length in bytes.
     */
    size_t fields_len;
} dialsm_event_t;

/**
 * Hears of an event.
 */
typedef void (*dialsm_event_fn)(void *state, const dialsm_event_t *event);

/**
 * Is shown an operation: what it does (dialsm_op_t), the id of its keyspace, its key, its value or the end of its
 * range.
 */
typedef void (*dialsm_show_op_fn)(void *state,
                                  uint32_t op,
                                  uint32_t keyspace_id,
                                  const uint8_t *key,
                                  size_t key_len,
                                  const uint8_t *value,
                                  size_t value_len);

/**
 * Is told of bytes done and bytes in all.
 */
typedef void (*dialsm_progress_fn)(void *state, uint64_t done_bytes, uint64_t total_bytes);

/**
 * What dialsm_verify() read. Set `size` to sizeof before the call.
 */
typedef struct {
    /**
     * Bytes of this structure, set by the caller.
     */
    size_t size;
    /**
     * Tables read.
     */
    uint64_t tables;
    /**
     * Entries in them, range tombstones aside.
     */
    uint64_t entries;
    /**
     * Bytes of their files.
     */
    uint64_t bytes;
} dialsm_verified_t;

/**
 * How often and how long writes waited.
 */
typedef struct {
    /**
     * How often writes began to wait.
     */
    uint64_t count;
    /**
     * How long, in nanoseconds.
     */
    uint64_t total_ns;
    /**
     * The longest time without a break, in nanoseconds.
     */
    uint64_t longest_ns;
} dialsm_stall_count_t;

/**
 * Stalls since the database was opened, as dialsm_stalls() gives them. Set `size` to sizeof before the call.
 */
typedef struct {
    /**
     * Bytes of this structure, set by the caller.
     */
    size_t size;
    /**
     * Whether writes may go on now.
     */
    uint32_t state;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * Any cause; times that overlap count once.
     */
    dialsm_stall_count_t all;
    /**
     * A memtable was full and the next one not free.
     */
    dialsm_stall_count_t memtable;
    /**
     * Too many tables in level 0.
     */
    dialsm_stall_count_t level0;
    /**
     * Compactions owed too many bytes.
     */
    dialsm_stall_count_t pending;
} dialsm_stalls_t;

/**
 * Clue entries and redirected values, as dialsm_clues() gives them; counted since the database was opened, but
 * for `clues`. Set `size` to sizeof before the call.
 */
typedef struct {
    /**
     * Bytes of this structure, set by the caller.
     */
    size_t size;
    /**
     * Clue entries in all tables and memtables now.
     */
    uint64_t clues;
    /**
     * Values and operands that went to another shard than their own.
     */
    uint64_t redirects;
    /**
     * Bytes of their keys and values.
     */
    uint64_t redirected_bytes;
    /**
     * Clue entries that a newer entry made obsolete, and that were dropped.
     */
    uint64_t clues_dropped;
    /**
     * Clue entries that a rollback replaced by what they stood for.
     */
    uint64_t clues_rolled_back;
    /**
     * Redirected entries dropped since no clue needed them any more.
     */
    uint64_t redirected_dropped;
    /**
     * Rollbacks that have ended.
     */
    uint64_t rollbacks;
    /**
     * Rollbacks given up because of a new burst of writes.
     */
    uint64_t rollback_aborts;
} dialsm_clues_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 * VERSION AND MEMORY
 */

/**
 * DIALSM_ABI_VERSION of the library that is linked.
 */
uint32_t dialsm_abi_version(void);

/**
 * The version of the library, such as "0.1.0". The text is not to be freed.
 */
const char *dialsm_version(void);

/**
 * Frees what a call has given out as memory of the caller's. NULL is nothing. free() would do as well.
 */
void dialsm_free(void *memory);

/*
 * STATUS
 */

/**
 * A status object, to be given to any number of calls, one after the other.
 */
dialsm_status_t *dialsm_status_create(void);

/**
 * Frees it. NULL is nothing.
 */
void dialsm_status_free(dialsm_status_t *status);

/**
 * What the last call that it was given to returned. NULL: DIALSM_OK.
 */
dialsm_code_t dialsm_status_code(const dialsm_status_t *status);

/**
 * What went wrong, without file and offset; "" after success. Valid until the status is given to another call.
 * Keys and values are in no message.
 */
const char *dialsm_status_message(const dialsm_status_t *status);

/**
 * The path of the file concerned; NULL where there is none. Valid as the message is.
 */
const char *dialsm_status_file(const dialsm_status_t *status);

/**
 * Whether the offset in that file is known, and where it is.
 */
bool dialsm_status_offset(const dialsm_status_t *status, uint64_t *offset);

/**
 * The operating system's error number (errno); 0 where none stood behind the error.
 */
int32_t dialsm_status_os_error(const dialsm_status_t *status);

/**
 * A word or two for a code, such as "not found". The text is not to be freed.
 */
const char *dialsm_code_name(uint32_t code);

/*
 * OPTIONS OF A DATABASE OR KEYSPACE
 *
 * docs/OPTIONS.md describes each option. They are set by name, as text, or by a function for each.
 */

/**
 * The default options of a database and of its default keyspace: for two processors, and a block cache of 32 MiB.
 */
dialsm_options_t *dialsm_options_create(void);

/**
 * The default options of a keyspace. Options of the whole database can't be set in them.
 */
dialsm_options_t *dialsm_options_create_for_keyspace(void);

/**
 * Options for a machine of so many processors and so much memory, of which the database may use about a third.
 */
dialsm_options_t *dialsm_options_create_for_machine(size_t cores,
                                                    uint64_t memory_bytes);

/**
 * The options that the database in a directory was opened with last, those of its keyspaces included, but for
 * comparators, merge operators and prefix extractors. It may be open.
 */
dialsm_code_t dialsm_options_load(const char *path,
                                  size_t path_len,
                                  dialsm_options_t **options,
                                  dialsm_status_t *status);

/**
 * A copy of them. NULL gives NULL.
 */
dialsm_options_t *dialsm_options_copy(const dialsm_options_t *options);

/**
 * Frees them; what was opened with them stays as it is. NULL is nothing.
 */
void dialsm_options_free(dialsm_options_t *options);

/**
 * Sets the option of that name from text: "true", "64M", "0.75", "lz4".
 */
dialsm_code_t dialsm_options_set(dialsm_options_t *options,
                                 const char *name,
                                 size_t name_len,
                                 const char *value,
                                 size_t value_len,
                                 dialsm_status_t *status);

/**
 * The value of the option of that name as text, which the caller frees by dialsm_free(). `value_len` may be NULL.
 */
dialsm_code_t dialsm_options_get(const dialsm_options_t *options,
                                 const char *name,
                                 size_t name_len,
                                 char **value,
                                 size_t *value_len,
                                 dialsm_status_t *status);

/**
 * Sets several options from text, one `name = value` a line, `#` for comments. All or, where one is wrong, none.
 */
dialsm_code_t dialsm_options_set_text(dialsm_options_t *options,
                                      const char *lines,
                                      size_t lines_len,
                                      dialsm_status_t *status);

/**
 * All options as such text, which the caller frees by dialsm_free(). `lines_len` may be NULL.
 */
dialsm_code_t dialsm_options_text(const dialsm_options_t *options,
                                  char **lines,
                                  size_t *lines_len,
                                  dialsm_status_t *status);

/**
 * Checks all of them, and what they ask of each other; the message names every problem. Opening does that, too.
 */
dialsm_code_t dialsm_options_validate(const dialsm_options_t *options,
                                      dialsm_status_t *status);

/**
 * Gives a keyspace of the database options of its own (NULL: the defaults of a keyspace). An opening with them
 * creates it if it is not there.
 */
dialsm_code_t dialsm_options_add_keyspace(dialsm_options_t *options,
                                          const char *name,
                                          size_t name_len,
                                          const dialsm_options_t *keyspace_options,
                                          dialsm_status_t *status);

/**
 * Sets the order of keys; NULL is the order of their bytes, unsigned. The options keep it: the caller may free
 * its handle. Its name is stored, and a database or keyspace opens with an order of that name only.
 */
dialsm_code_t dialsm_options_set_comparator(dialsm_options_t *options,
                                            const dialsm_comparator_t *comparator,
                                            dialsm_status_t *status);

/**
 * Sets the merge operator; NULL is none. The options keep it, as they do a comparator.
 */
dialsm_code_t dialsm_options_set_merge_operator(dialsm_options_t *options,
                                                const dialsm_merge_operator_t *merge_operator,
                                                dialsm_status_t *status);

/**
 * Sets the prefix extractor; NULL is none. The options keep it, as they do a comparator.
 */
dialsm_code_t dialsm_options_set_prefix_extractor(dialsm_options_t *options,
                                                  const dialsm_prefix_extractor_t *prefix_extractor,
                                                  dialsm_status_t *status);

/**
 * The name of option number `index`, from 0 on; NULL behind the last. The text is not to be freed.
 */
const char *dialsm_option_name(size_t index);

/*
 * A SETTER FOR EACH OPTION
 *
 * Made by tools/c-header.sh from the table of options. The default and the range stand behind each. Numbers
 * out of range give DIALSM_INVALID_ARGUMENT, and change nothing.
 */

/**
 * Create the database when the directory holds none. Off, opening one that is missing fails
 * with `NotFound`.
 * Default: true; of a database.
 */
dialsm_code_t dialsm_options_set_create_if_missing(dialsm_options_t *options,
                                                   bool create_if_missing,
                                                   dialsm_status_t *status);

/**
 * Fail with `AlreadyExists` when the directory holds a database already.
 * Default: false; of a database.
 */
dialsm_code_t dialsm_options_set_error_if_exists(dialsm_options_t *options,
                                                 bool error_if_exists,
                                                 dialsm_status_t *status);

/**
 * Shards that each keyspace of the database is cut into, fixed when the database is created: trees of
 * their own that flush and compact side by side and take values for each other. 0 = those that are
 * there, and for a new database what its router suggests, or 1. More than 1 need a router.
 * Default: 0, 0 to 256; of a database.
 */
dialsm_code_t dialsm_options_set_shards(dialsm_options_t *options,
                                        uint64_t shards,
                                        dialsm_status_t *status);

/**
 * Whether writes go to the commit log. Off, none does: a crash takes back each tree to its last flush, and a
 * batch over several trees may survive in part unless `atomic_flush` is on. Closing flushes all.
 * Default: true; of a database.
 */
dialsm_code_t dialsm_options_set_log(dialsm_options_t *options,
                                     bool log,
                                     dialsm_status_t *status);

/**
 * Whether all trees are always flushed together, as one: what no log holds then survives a crash whole
 * or not at all, over shards and keyspaces.
 * Default: false; of a database.
 */
dialsm_code_t dialsm_options_set_atomic_flush(dialsm_options_t *options,
                                              bool atomic_flush,
                                              dialsm_status_t *status);

/**
 * Whether a value whose shard is stalled goes to another shard, and a clue of a few bytes to its own.
 * Default: true; of a database, live.
 */
dialsm_code_t dialsm_options_set_redirect(dialsm_options_t *options,
                                          bool redirect,
                                          dialsm_status_t *status);

/**
 * From which pressure on a shard's values are redirected: 0 where slowing down begins, 1 where
 * writes stop.
 * Default: 0.75, 0 to 1; of a database, live.
 */
dialsm_code_t dialsm_options_set_redirect_pressure(dialsm_options_t *options,
                                                   double redirect_pressure,
                                                   dialsm_status_t *status);

/**
 * Bytes that a shard's memtable may grow beyond its size by clues and deletes while its door is
 * shut. A reserve that is full is sealed with its memtable and the next one opened, a few times.
 * Default: 2M bytes, 4096 to 1073741824; of a database, live.
 */
dialsm_code_t dialsm_options_set_clue_reserve_bytes(dialsm_options_t *options,
                                                    uint64_t clue_reserve_bytes,
                                                    dialsm_status_t *status);

/**
 * Clue entries of the database from which on nothing is redirected until a rollback has caught up.
 * Default: 1000000, 0 to 1000000000000; of a database, live.
 */
dialsm_code_t dialsm_options_set_clues_max(dialsm_options_t *options,
                                           uint64_t clues_max,
                                           dialsm_status_t *status);

/**
 * Whether clue entries stay in level 0 when what is older leaves it: so they are found, and rolled
 * back, without a look at the whole tree. Off, they sink as all else does.
 * Default: true; of a database, live.
 */
dialsm_code_t dialsm_options_set_clue_capping(dialsm_options_t *options,
                                              bool clue_capping,
                                              dialsm_status_t *status);

/**
 * Whether tables of nothing but clue entries are kept in memory while they are open. Off, their blocks are
 * read as all others are.
 * Default: true; of a database, live.
 */
dialsm_code_t dialsm_options_set_clue_cache(dialsm_options_t *options,
                                            bool clue_cache,
                                            dialsm_status_t *status);

/**
 * Whether clue entries are replaced by their values in the background, when all shards are calm or the
 * clue limit is reached; with `automatic_compaction` off, too.
 * Default: true; of a database, live.
 */
dialsm_code_t dialsm_options_set_rollback(dialsm_options_t *options,
                                          bool rollback,
                                          dialsm_status_t *status);

/**
 * The same, in bytes of the clues' keys.
 * Default: 256M bytes, 0 to 1099511627776; of a database, live.
 */
dialsm_code_t dialsm_options_set_clue_bytes_max(dialsm_options_t *options,
                                                uint64_t clue_bytes_max,
                                                dialsm_status_t *status);

/**
 * What recovery does with damage in the commit log: `tolerate_corrupted_tail` drops a torn
 * tail and refuses other damage, `absolute_consistency` refuses any, `point_in_time` stops
 * at the first damage that nothing later vouches for, `skip_any_corrupted` skips damaged
 * records and goes on (salvage only: atomicity and order are given up).
 * Default: point_in_time; of a database.
 */
dialsm_code_t dialsm_options_set_recovery_mode(dialsm_options_t *options,
                                               uint32_t recovery_mode,
                                               dialsm_status_t *status);

/**
 * Size at which a memtable is switched and flushed. Larger means fewer, larger flushes and
 * less write amplification; smaller means less memory and a shorter recovery. Pulls on
 * `log_total_bytes_max`.
 * Default: 64M bytes, 65536 to 68719476736; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_write_buffer_bytes(dialsm_options_t *options,
                                                    uint64_t write_buffer_bytes,
                                                    dialsm_status_t *status);

/**
 * Memory of all memtables of all keyspaces that are not flushed yet. Passed, the largest one is
 * flushed, whatever its keyspace's `write_buffer_bytes`; passed by a quarter, writes wait. 0 =
 * enough for the default keyspace and for a memtable on each of `background_jobs_max`
 * processors; any other value is not below the default keyspace's `write_buffer_bytes`.
 * Default: 0 bytes, 0 to 1099511627776; of a database, live.
 */
dialsm_code_t dialsm_options_set_write_buffers_total_bytes(dialsm_options_t *options,
                                                           uint64_t write_buffers_total_bytes,
                                                           dialsm_status_t *status);

/**
 * Memtables of a tree, the active one included, before writes wait for a flush. At least 2,
 * or each switch would wait for the flush it starts.
 * Default: 2, 2 to 64; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_write_buffers_max(dialsm_options_t *options,
                                                   uint64_t write_buffers_max,
                                                   dialsm_status_t *status);

/**
 * Operations of one commit group, in bytes of their log record. Larger groups share more
 * syncs; smaller ones keep the first writer of a group from waiting for the last.
 * Default: 1M bytes, 4096 to 1073741824; of a database, live.
 */
dialsm_code_t dialsm_options_set_max_write_group_bytes(dialsm_options_t *options,
                                                       uint64_t max_write_group_bytes,
                                                       dialsm_status_t *status);

/**
 * Background jobs (flushes and compactions) that run at once. `for_machine` sets the number
 * of cores, at least 2: one for flushes while a compaction runs.
 * Default: 2, 2 to 256; of a database, live.
 */
dialsm_code_t dialsm_options_set_background_jobs_max(dialsm_options_t *options,
                                                     uint64_t background_jobs_max,
                                                     dialsm_status_t *status);

/**
 * Key ranges that one compaction may be cut into, each run by a job of its own.
 * `for_machine` sets it to `background_jobs_max`; more would only queue.
 * Default: 2, 1 to 256; of a database, live.
 */
dialsm_code_t dialsm_options_set_subcompactions_max(dialsm_options_t *options,
                                                    uint64_t subcompactions_max,
                                                    dialsm_status_t *status);

/**
 * Whether tables are made durable behind the back of whoever wrote them: they are used at once, and
 * what they were made of is kept until they are durable. Off, flushes and compactions wait for the disk.
 * Default: true; of a database.
 */
dialsm_code_t dialsm_options_set_deferred_sync(dialsm_options_t *options,
                                               bool deferred_sync,
                                               dialsm_status_t *status);

/**
 * Whether io_uring does asynchronous I/O where the kernel has it. Off, or where it is refused, a pool
 * of threads does.
 * Default: true; of a database.
 */
dialsm_code_t dialsm_options_set_use_io_uring(dialsm_options_t *options,
                                              bool use_io_uring,
                                              dialsm_status_t *status);

/**
 * Whether tables go to the page cache by asynchronous writes, too, and not by calls of the thread that
 * merges: that costs another thread's processor time for a copy that seldom waits. What goes past the
 * page cache is always written asynchronously.
 * Default: false; of a database.
 */
dialsm_code_t dialsm_options_set_asynchronous_writes(dialsm_options_t *options,
                                                     bool asynchronous_writes,
                                                     dialsm_status_t *status);

/**
 * Write tables past the page cache, where the file system takes that: the memory stays free for
 * what is read, and compactions read from the disk what they wrote.
 * Default: false; of a database.
 */
dialsm_code_t dialsm_options_set_direct_writes(dialsm_options_t *options,
                                               bool direct_writes,
                                               dialsm_status_t *status);

/**
 * Read tables past the page cache, where the file system takes that: only `block_cache_bytes`
 * keeps what was read.
 * Default: false; of a database.
 */
dialsm_code_t dialsm_options_set_direct_reads(dialsm_options_t *options,
                                              bool direct_reads,
                                              dialsm_status_t *status);

/**
 * Bytes of tables that flushes and compactions may have under way to the disk. The limiter stays below
 * that as far as the disk's answers get slow. One table at least may always be written.
 * Default: 256M bytes, 4194304 to 1099511627776; of a database.
 */
dialsm_code_t dialsm_options_set_background_in_flight_bytes_max(dialsm_options_t *options,
                                                                uint64_t background_in_flight_bytes_max,
                                                                dialsm_status_t *status);

/**
 * Bytes per second that compactions write at most; flushes count and do not wait. 0 = no cap.
 * Default: 0 bytes/s, 0 to 1099511627776; of a database, live.
 */
dialsm_code_t dialsm_options_set_background_bytes_per_second(dialsm_options_t *options,
                                                             uint64_t background_bytes_per_second,
                                                             dialsm_status_t *status);

/**
 * Bytes of tables that running compactions read, or that are kept because what replaced them is not
 * durable yet. A compaction that would pass it waits for the disk; only one that is larger by itself
 * runs all the same, alone. The default is more than one compaction of tables of the usual size takes.
 * Default: 4G bytes, 1048576 to 1125899906842624; of a database, live.
 */
dialsm_code_t dialsm_options_set_retained_bytes_max(dialsm_options_t *options,
                                                    uint64_t retained_bytes_max,
                                                    dialsm_status_t *status);

/**
 * Whether compactions start by themselves. Off, the stops that only a compaction could end
 * (level 0 and pending bytes) are off as well.
 * Default: true; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_automatic_compaction(dialsm_options_t *options,
                                                      bool automatic_compaction,
                                                      dialsm_status_t *status);

/**
 * Tables in level 0 at which its compaction starts. Each one costs every miss a look.
 * Default: 4, 1 to 1000; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_level0_compaction_trigger(dialsm_options_t *options,
                                                           uint64_t level0_compaction_trigger,
                                                           dialsm_status_t *status);

/**
 * Lets level 0 gather more tables than `level0_compaction_trigger`, up to half of `level0_slowdown_trigger`,
 * while writes come fast and reads are few: one compaction then takes more of them, and less is
 * written. When writes pause, `level0_compaction_trigger` counts again.
 * Default: true; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_level0_patience(dialsm_options_t *options,
                                                 bool level0_patience,
                                                 dialsm_status_t *status);

/**
 * Lets tables be merged, while writes pause, though no level asks for it, once look-ups and scans have spent
 * as much on having so many sorted runs as it costs to make one of them.
 * Default: true; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_read_compaction(dialsm_options_t *options,
                                                 bool read_compaction,
                                                 dialsm_status_t *status);

/**
 * Tables in level 0 from which writes are slowed down. Not below
 * `level0_compaction_trigger`.
 * Default: 20, 1 to 100000; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_level0_slowdown_trigger(dialsm_options_t *options,
                                                         uint64_t level0_slowdown_trigger,
                                                         dialsm_status_t *status);

/**
 * Tables in level 0 at which writes stop. Not below `level0_slowdown_trigger`.
 * Default: 36, 1 to 100000; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_level0_stop_trigger(dialsm_options_t *options,
                                                     uint64_t level0_stop_trigger,
                                                     dialsm_status_t *status);

/**
 * Estimated bytes that compactions still have to rewrite, from which writes are slowed
 * down. Not above `pending_compaction_hard_bytes`.
 * Default: 64G bytes, 1048576 to 1125899906842624; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_pending_compaction_soft_bytes(dialsm_options_t *options,
                                                               uint64_t pending_compaction_soft_bytes,
                                                               dialsm_status_t *status);

/**
 * Estimated bytes that compactions still have to rewrite, at which writes stop.
 * Default: 256G bytes, 1048576 to 1125899906842624; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_pending_compaction_hard_bytes(dialsm_options_t *options,
                                                               uint64_t pending_compaction_hard_bytes,
                                                               dialsm_status_t *status);

/**
 * Rate that a slow-down starts from; it then follows the state of the tree.
 * Default: 16M bytes/s, 65536 to 68719476736; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_delayed_write_bytes_per_s(dialsm_options_t *options,
                                                           uint64_t delayed_write_bytes_per_s,
                                                           dialsm_status_t *status);

/**
 * Size of the first level below level 0, when the database is large enough to fill it.
 * Default: 256M bytes, 65536 to 70368744177664; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_level_base_bytes(dialsm_options_t *options,
                                                  uint64_t level_base_bytes,
                                                  dialsm_status_t *status);

/**
 * How much larger each level is than the one above. Larger means fewer levels and more
 * write amplification per level.
 * Default: 10.0, 2 to 100; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_level_multiplier(dialsm_options_t *options,
                                                  double level_multiplier,
                                                  dialsm_status_t *status);

/**
 * Size at which a compaction ends one output table and starts the next.
 * Default: 64M bytes, 65536 to 8589934592; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_table_bytes(dialsm_options_t *options,
                                             uint64_t table_bytes,
                                             dialsm_status_t *status);

/**
 * Size at which a data block ends, before compression. Smaller blocks make point reads
 * cheaper and the index larger. A single larger entry has a block of its own.
 * Not above `table_bytes`.
 * Default: 4K bytes, 64 to 16777216; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_block_bytes(dialsm_options_t *options,
                                             uint64_t block_bytes,
                                             dialsm_status_t *status);

/**
 * Entries from one restart point of a block to the next. More compress keys better; fewer
 * make a search inside the block cheaper.
 * Default: 16, 1 to 1024; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_block_restart_interval(dialsm_options_t *options,
                                                        uint64_t block_restart_interval,
                                                        dialsm_status_t *status);

/**
 * Bits of filter for each key; 10 let about one miss in a hundred through. 0 = no filter.
 * Default: 10.0 bits/key, 0 to 64; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_filter_bits_per_key(dialsm_options_t *options,
                                                     double filter_bits_per_key,
                                                     dialsm_status_t *status);

/**
 * Whether filters hold whole keys, which point reads ask for. Off, with a prefix extractor,
 * they hold prefixes only: smaller where many keys share one, and point reads ask for the
 * key's prefix. Off without an extractor there are no filters.
 * Default: true; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_filter_whole_keys(dialsm_options_t *options,
                                                   bool filter_whole_keys,
                                                   dialsm_status_t *status);

/**
 * Codec of the tables above the last level: `none`, `lz4` or `zstd` (the latter in builds
 * that have it). A block that does not get smaller is stored as it is.
 * Default: lz4; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_compression(dialsm_options_t *options,
                                             uint32_t compression,
                                             dialsm_status_t *status);

/**
 * Codec of the tables in the last level, where most of the data lies and is rewritten least.
 * Default: lz4; of a keyspace, live.
 */
dialsm_code_t dialsm_options_set_compression_bottom(dialsm_options_t *options,
                                                    uint32_t compression_bottom,
                                                    dialsm_status_t *status);

/**
 * Memory for decoded data blocks; 0 = none. `for_machine` sets an eighth of the memory, at
 * least 32M.
 * Default: 32M bytes, 0 to 17592186044416; of a database, live.
 */
dialsm_code_t dialsm_options_set_block_cache_bytes(dialsm_options_t *options,
                                                   uint64_t block_cache_bytes,
                                                   dialsm_status_t *status);

/**
 * Whether blocks that are in no cache are read together where one call needs several: look-ups of
 * several keys, and the seeks of an iterator over many tables. Off, one after the other.
 * Default: true; of a database, live.
 */
dialsm_code_t dialsm_options_set_batch_reads(dialsm_options_t *options,
                                             bool batch_reads,
                                             dialsm_status_t *status);

/**
 * Threads that read the shards of long scans ahead of their callers, for all scans of the database
 * together; 0 = none. The default: with two processors, and files in the page cache, they cost more than
 * they bring. See `ScanOptions long_bytes`.
 * Default: 0, 0 to 256; of a database, live.
 */
dialsm_code_t dialsm_options_set_scan_threads(dialsm_options_t *options,
                                              uint64_t scan_threads,
                                              dialsm_status_t *status);

/**
 * Tables kept open, one file descriptor each. The default leaves room under the common
 * limit of 1024 descriptors for each process.
 * Default: 512, 16 to 10000000; of a database, live.
 */
dialsm_code_t dialsm_options_set_open_tables_max(dialsm_options_t *options,
                                                 uint64_t open_tables_max,
                                                 dialsm_status_t *status);

/**
 * Memory for indexes and filters of open tables. `for_machine` sets a sixteenth of the
 * memory, at least 64M.
 * Default: 64M bytes, 1048576 to 17592186044416; of a database, live.
 */
dialsm_code_t dialsm_options_set_table_cache_bytes(dialsm_options_t *options,
                                                   uint64_t table_cache_bytes,
                                                   dialsm_status_t *status);

/**
 * Size at which the commit log starts its next segment, allocated in advance.
 * Default: 64M bytes, 65536 to 4294967296; of a database, live.
 */
dialsm_code_t dialsm_options_set_log_segment_bytes(dialsm_options_t *options,
                                                   uint64_t log_segment_bytes,
                                                   dialsm_status_t *status);

/**
 * Old segments kept to be overwritten: appending to allocated space is cheaper than growing
 * a file. 0 = none.
 * Default: 2, 0 to 1024; of a database, live.
 */
dialsm_code_t dialsm_options_set_log_recycle_max(dialsm_options_t *options,
                                                 uint64_t log_recycle_max,
                                                 dialsm_status_t *status);

/**
 * Bytes of log at which the tree with the oldest memtable is flushed, so that a tree that
 * is seldom written does not hold the whole log. Not below `log_segment_bytes`.
 * Default: 512M bytes, 1048576 to 17592186044416; of a database, live.
 */
dialsm_code_t dialsm_options_set_log_total_bytes_max(dialsm_options_t *options,
                                                     uint64_t log_total_bytes_max,
                                                     dialsm_status_t *status);

/**
 * What is told in the file `LOG` of the database's directory, a line an event, for people: `error`, `warn`,
 * `info` or `debug`, each with those before it, or `off`, and there is no such file. Nothing waits
 * for it or fails because of it. Opened for reading only, a database writes none.
 * Default: info; of a database.
 */
dialsm_code_t dialsm_options_set_info_log_level(dialsm_options_t *options,
                                                uint32_t info_log_level,
                                                dialsm_status_t *status);

/**
 * Size from which `LOG` becomes `LOG.old.` with the time, and a new one is begun; so it is at each
 * opening. 0 = only then.
 * Default: 16M bytes, 0 to 1099511627776; of a database.
 */
dialsm_code_t dialsm_options_set_max_log_file_size(dialsm_options_t *options,
                                                   uint64_t max_log_file_size,
                                                   dialsm_status_t *status);

/**
 * Files of that kind that are kept, the present one included.
 * Default: 20, 1 to 100000; of a database.
 */
dialsm_code_t dialsm_options_set_keep_log_file_num(dialsm_options_t *options,
                                                   uint64_t keep_log_file_num,
                                                   dialsm_status_t *status);

/**
 * How often `LOG` gets the statistics (the property `dialsm.stats`). 0 = never.
 * Default: 600 s, 0 to 1000000000; of a database.
 */
dialsm_code_t dialsm_options_set_stats_dump_period_sec(dialsm_options_t *options,
                                                       uint64_t stats_dump_period_sec,
                                                       dialsm_status_t *status);

/*
 * COMPARATORS, MERGE OPERATORS AND PREFIX EXTRACTORS IN C
 *
 * Their functions are called on any thread, of the caller's or of the database's own, several at once, also with the
 * same `state`: what it points at must be fit for that. They must always give the same answer for the same
 * arguments, as long as the database exists, not keep or write to the pointers they get, not call into the database,
 * and return: neither longjmp() nor an exception may leave them. Keys and values may be empty; a pointer to nothing
 * is not NULL, but for a base that is absent, and nothing may be read there.
 *
 * `state` belongs to the object from the call of *_create on, whether that succeeds or not; NULL is as good as any.
 * `destroy` (NULL: nothing) is called once with it, on any thread, when nothing uses the object any more: when its
 * handle, all options with it and all databases opened with them are gone, iterators and scans included; where the
 * creation fails, within that call.
 *
 * `name` has 1 to 255 bytes, does not begin with "dialsm.", and is stored: whatever would give other answers needs
 * another name. It is copied.
 */

/**
 * An order of keys: `compare` must be a total order. Where it contradicts itself, writes or reads give
 * DIALSM_CALLBACK, or DIALSM_CORRUPTION with the comparator's name for tables that it does not fit; nothing that the
 * log holds is lost. `equal_is_identical` says that keys which compare equal are always the same bytes: filters, and
 * more than one shard, need that.
 */
dialsm_code_t dialsm_comparator_create(const char *name,
                                       size_t name_len,
                                       void *state,
                                       dialsm_compare_fn compare,
                                       bool equal_is_identical,
                                       dialsm_destroy_fn destroy,
                                       dialsm_comparator_t **comparator,
                                       dialsm_status_t *status);

/**
 * The order of bytes, unsigned, from the last to the first.
 */
dialsm_comparator_t *dialsm_comparator_create_reverse_bytewise(void);

/**
 * Frees the handle. NULL is nothing.
 */
void dialsm_comparator_free(dialsm_comparator_t *comparator);

/**
 * A merge operator. Whenever the calls succeed, what they make must not depend on how operands are grouped: merging
 * some of them first, partially or fully, gives the same value. `partial_merge` may be NULL.
 */
dialsm_code_t dialsm_merge_operator_create(const char *name,
                                           size_t name_len,
                                           void *state,
                                           dialsm_full_merge_fn full_merge,
                                           dialsm_partial_merge_fn partial_merge,
                                           dialsm_destroy_fn destroy,
                                           dialsm_merge_operator_t **merge_operator,
                                           dialsm_status_t *status);

/**
 * Adds numbers of 64 bits, 8 bytes little-endian; an absent value is 0, and sums wrap round. Other lengths fail.
 */
dialsm_merge_operator_t *dialsm_merge_operator_create_counter(void);

/**
 * Puts operands behind the value, with `delimiter` between any two.
 */
dialsm_code_t dialsm_merge_operator_create_append(const void *delimiter,
                                                  size_t delimiter_len,
                                                  dialsm_merge_operator_t **merge_operator,
                                                  dialsm_status_t *status);

/**
 * Frees the handle. NULL is nothing.
 */
void dialsm_merge_operator_free(dialsm_merge_operator_t *merge_operator);

/**
 * Within a merge: takes a copy of what it made, in place of what was given before; an empty value is one, too. Any
 * code but DIALSM_OK: it has nothing then.
 */
dialsm_code_t dialsm_merge_result_set(dialsm_merge_result_t *result,
                                      const void *value,
                                      size_t value_len);

/**
 * As dialsm_merge_result_set(), behind what was given before.
 */
dialsm_code_t dialsm_merge_result_append(dialsm_merge_result_t *result,
                                         const void *value,
                                         size_t value_len);

/**
 * A prefix extractor. All keys with one prefix must lie together in the order of keys.
 */
dialsm_code_t dialsm_prefix_extractor_create(const char *name,
                                             size_t name_len,
                                             void *state,
                                             dialsm_extract_fn extract,
                                             dialsm_destroy_fn destroy,
                                             dialsm_prefix_extractor_t **prefix_extractor,
                                             dialsm_status_t *status);

/**
 * The first `count` bytes of a key. Shorter keys have no prefix or, with `shorter_too`, are their own.
 */
dialsm_code_t dialsm_prefix_extractor_create_first_bytes(size_t count,
                                                         bool shorter_too,
                                                         dialsm_prefix_extractor_t **prefix_extractor,
                                                         dialsm_status_t *status);

/**
 * All up to the first such byte, which is part of the prefix; keys without it have none.
 */
dialsm_prefix_extractor_t *dialsm_prefix_extractor_create_delimiter(uint8_t delimiter);

/**
 * Frees the handle. NULL is nothing.
 */
void dialsm_prefix_extractor_free(dialsm_prefix_extractor_t *prefix_extractor);

/*
 * EVENT LISTENERS IN C
 *
 * A database tells its listeners what it does in the background: flushes, compactions, stalls, errors and the like, the
 * same as in its LOG. Each beginning is followed by its end, at closing and after errors, too.
 *
 * The function is called on a thread of the database that does nothing else, one listener after the other in the order
 * in which they were added, one event after the other in the order in which they came about. A listener of several
 * open databases may be called by all of their threads at once. No lock is held meanwhile and nobody waits, so it may
 * use the database like any other thread: read, write, even while the event is that of a stall, and close it. But:
 * - Events wait in a queue while a listener is busy. Of 4096 that wait, later ones are left out, and a beginning
 * together with its end; an event "events_dropped" then says how many.
 * - dialsm_close(), and freeing the last handle of a database, deliver what waits and so wait for the listeners: one
 * must not wait for a thread that does this. When it returns, no listener runs, nor will; only if a listener closes the
 * database itself, what still waits is given up when its call returns.
 * - It must return: neither longjmp() nor an exception may leave it.
 * - In a child of fork() nothing is delivered: there is no such thread.
 *
 * `state` belongs to the listener from the call of dialsm_event_listener_create() on, whether that succeeds or not; NULL
 * is as good as any. `destroy` (NULL: nothing) is called once with it, on any thread, when nothing uses the listener any
 * more: when its handle and all options with it are freed, and all databases opened with them are closed; where the
 * creation fails, within that call. A database that is open at a fork keeps it in the child.
 */

/**
 * A listener, for dialsm_options_add_event_listener().
 */
dialsm_code_t dialsm_event_listener_create(void *state,
                                           dialsm_event_fn on_event,
                                           dialsm_destroy_fn destroy,
                                           dialsm_event_listener_t **event_listener,
                                           dialsm_status_t *status);

/**
 * Frees the handle. NULL is nothing.
 */
void dialsm_event_listener_free(dialsm_event_listener_t *event_listener);

/**
 * Adds a listener behind those that the options of a database have; one that is added twice is called twice. The
 * options keep it: the caller may free its handle. DIALSM_INVALID_ARGUMENT for options of a keyspace.
 */
dialsm_code_t dialsm_options_add_event_listener(dialsm_options_t *options,
                                                const dialsm_event_listener_t *event_listener,
                                                dialsm_status_t *status);

/*
 * OPTIONS OF SINGLE CALLS
 *
 * Wherever a call takes one of these, NULL means the defaults. Setters return DIALSM_INVALID_ARGUMENT for a NULL
 * object and change nothing.
 */

/**
 * Default write options: not synced, logged, waiting while writes are stalled.
 */
dialsm_write_options_t *dialsm_write_options_create(void);

/**
 * Frees them. NULL is nothing.
 */
void dialsm_write_options_free(dialsm_write_options_t *options);

/**
 * Return only when the write is on stable storage. Off by default: it then survives the end of the process, and a
 * power cut keeps a prefix of such writes.
 */
dialsm_code_t dialsm_write_options_set_sync(dialsm_write_options_t *options,
                                            bool sync);

/**
 * Leave the commit log out: the write is lost with the process unless it was flushed. Off by default.
 */
dialsm_code_t dialsm_write_options_set_disable_log(dialsm_write_options_t *options,
                                                   bool disable_log);

/**
 * Fail with DIALSM_WOULD_STALL rather than wait for flushes or compactions. Off by default.
 */
dialsm_code_t dialsm_write_options_set_no_slowdown(dialsm_write_options_t *options,
                                                   bool no_slowdown);

/**
 * Fail with DIALSM_TIMED_OUT rather than wait longer than so many nanoseconds from the call on. UINT64_MAX, the
 * default, is no limit.
 */
dialsm_code_t dialsm_write_options_set_timeout_ns(dialsm_write_options_t *options,
                                                  uint64_t timeout_ns);

/**
 * Default read options: what is visible now, blocks checked and kept in the cache.
 */
dialsm_read_options_t *dialsm_read_options_create(void);

/**
 * Frees them. NULL is nothing.
 */
void dialsm_read_options_free(dialsm_read_options_t *options);

/**
 * Read at a snapshot; NULL: what is visible at the call. The options keep the snapshot until another one is set or
 * they are freed; the database they do not hold open.
 */
dialsm_code_t dialsm_read_options_set_snapshot(dialsm_read_options_t *options,
                                               const dialsm_snapshot_t *snapshot);

/**
 * Iterators and scans show no key before this one; NULL: from the first on. The bytes are copied.
 */
dialsm_code_t dialsm_read_options_set_lower_bound(dialsm_read_options_t *options,
                                                  const void *key,
                                                  size_t key_len);

/**
 * Iterators and scans show neither this key nor any after it; NULL: up to the last. The bytes are copied.
 */
dialsm_code_t dialsm_read_options_set_upper_bound(dialsm_read_options_t *options,
                                                  const void *key,
                                                  size_t key_len);

/**
 * Sets both bounds so that iterators and scans show the keys which begin with `prefix`. For keyspaces in the order
 * of bytes.
 */
dialsm_code_t dialsm_read_options_set_prefix(dialsm_read_options_t *options,
                                             const void *prefix,
                                             size_t prefix_len);

/**
 * Iterators end where the prefix of the key that they were sent to ends. Needs a prefix extractor. Off by default.
 */
dialsm_code_t dialsm_read_options_set_prefix_same_as_start(dialsm_read_options_t *options,
                                                           bool prefix_same_as_start);

/**
 * Fail with DIALSM_TIMED_OUT so many nanoseconds after the call, or after an iterator's creation. UINT64_MAX, the
 * default, is no limit.
 */
dialsm_code_t dialsm_read_options_set_timeout_ns(dialsm_read_options_t *options,
                                                 uint64_t timeout_ns);

/**
 * Keep the blocks that come from the disk in the block cache. On by default; off for long scans.
 */
dialsm_code_t dialsm_read_options_set_fill_cache(dialsm_read_options_t *options, bool fill_cache);

/**
 * Check the checksums of blocks that come from the disk. On by default.
 */
dialsm_code_t dialsm_read_options_set_verify_checksums(dialsm_read_options_t *options,
                                                       bool verify_checksums);

/**
 * Bytes that an iterator reads ahead at most. 0, the default, lets it find out by itself.
 */
dialsm_code_t dialsm_read_options_set_readahead_bytes(dialsm_read_options_t *options,
                                                      uint64_t readahead_bytes);

/**
 * Default flush options: wait for the end, even where writes have to wait meanwhile.
 */
dialsm_flush_options_t *dialsm_flush_options_create(void);

/**
 * Frees them. NULL is nothing.
 */
void dialsm_flush_options_free(dialsm_flush_options_t *options);

/**
 * Return only when what was written before the call is durable in tables. On by default.
 */
dialsm_code_t dialsm_flush_options_set_wait(dialsm_flush_options_t *options, bool wait);

/**
 * Flush even where writes would have to wait for it. On by default.
 */
dialsm_code_t dialsm_flush_options_set_allow_stall(dialsm_flush_options_t *options,
                                                   bool allow_stall);

/**
 * With several keyspaces: a crash leaves all of their tables or none. Off by default.
 */
dialsm_code_t dialsm_flush_options_set_atomic(dialsm_flush_options_t *options, bool atomic);

/**
 * Default options of a compaction by hand.
 */
dialsm_compact_options_t *dialsm_compact_options_create(void);

/**
 * Frees them. NULL is nothing.
 */
void dialsm_compact_options_free(dialsm_compact_options_t *options);

/**
 * The level that the data ends in. -1, the default, is the deepest that holds any of it.
 */
dialsm_code_t dialsm_compact_options_set_target_level(dialsm_compact_options_t *options,
                                                      int32_t target_level);

/**
 * Rewrite the last level, too. Off by default.
 */
dialsm_code_t dialsm_compact_options_set_rewrite_bottom(dialsm_compact_options_t *options,
                                                        bool rewrite_bottom);

/**
 * Let dialsm_cancel() end the compaction; NULL: nothing does.
 */
dialsm_code_t dialsm_compact_options_set_cancel(dialsm_compact_options_t *options,
                                                const dialsm_cancel_t *cancel);

/**
 * An object by which another thread ends a compaction.
 */
dialsm_cancel_t *dialsm_cancel_create(void);

/**
 * Frees it; what it was given to goes on. NULL is nothing.
 */
void dialsm_cancel_free(dialsm_cancel_t *cancel);

/**
 * Ends what it was given to, soon, with DIALSM_CANCELLED; also what is begun later. NULL is nothing.
 */
void dialsm_cancel(const dialsm_cancel_t *cancel);

/**
 * Default options of a bulk scan: everything, forward, in batches of 128 KiB.
 */
dialsm_scan_options_t *dialsm_scan_options_create(void);

/**
 * Frees them. NULL is nothing.
 */
void dialsm_scan_options_free(dialsm_scan_options_t *options);

/**
 * The first key wanted, and the first not wanted any more; NULL: no bound there. The bytes are copied.
 */
dialsm_code_t dialsm_scan_options_set_range(dialsm_scan_options_t *options,
                                            const void *from,
                                            size_t from_len,
                                            const void *to,
                                            size_t to_len);

/**
 * Entries after which the scan ends. 0, the default, is no limit.
 */
dialsm_code_t dialsm_scan_options_set_entries_max(dialsm_scan_options_t *options,
                                                  uint64_t entries_max);

/**
 * From the end of the range to its start. Off by default.
 */
dialsm_code_t dialsm_scan_options_set_backward(dialsm_scan_options_t *options, bool backward);

/**
 * Bytes of keys and values at which a batch is given: at least so many, and at most an entry more. 128 KiB by
 * default.
 */
dialsm_code_t dialsm_scan_options_set_batch_bytes(dialsm_scan_options_t *options,
                                                  size_t batch_bytes);

/**
 * Entries at which a batch is given. 0, the default: its bytes alone say when.
 */
dialsm_code_t dialsm_scan_options_set_batch_entries_max(dialsm_scan_options_t *options,
                                                        size_t batch_entries_max);

/**
 * Bytes from which on a scan counts as long, so that other threads may read ahead for it, if the option
 * `scan_threads` allows some. 256 KiB by default; UINT64_MAX is never.
 */
dialsm_code_t dialsm_scan_options_set_long_bytes(dialsm_scan_options_t *options,
                                                 uint64_t long_bytes);

/**
 * Bytes that those threads may read ahead. 8 MiB by default.
 */
dialsm_code_t dialsm_scan_options_set_ahead_bytes_max(dialsm_scan_options_t *options,
                                                      size_t ahead_bytes_max);

/*
 * DATABASES
 */

/**
 * Opens the database in the directory `path`, or creates it and the directories above it, all with mode 0700 (less
 * the umask). The path is UTF-8, not empty and without a zero byte; a relative one is good as long as the working
 * directory stays the same. Where a file stands in the way: DIALSM_INVALID_ARGUMENT. One process at a time, and one
 * handle: others get DIALSM_BUSY.
 */
dialsm_code_t dialsm_open(const char *path,
                          size_t path_len,
                          const dialsm_options_t *options,
                          dialsm_db_t **db,
                          dialsm_status_t *status);

/**
 * Opens it for reading only: nothing in the directory changes. Any number of such openings may be there at once,
 * while none is there for writing.
 */
dialsm_code_t dialsm_open_read_only(const char *path,
                                    size_t path_len,
                                    const dialsm_options_t *options,
                                    dialsm_db_t **db,
                                    dialsm_status_t *status);

/**
 * Closes the database for all handles: running jobs stop soon, the log is synced, and every later call gives
 * DIALSM_CLOSED, a second close too. Iterators and scans that are open go on, and keep the directory locked until
 * they are freed. The handle is still to be freed.
 */
dialsm_code_t dialsm_close(const dialsm_db_t *db,
                           dialsm_status_t *status);

/**
 * Frees the handle; no other thread may be using it. What was not closed before stays open as long as a keyspace,
 * snapshot, iterator or scan of it is there, and closes with the last of them, as at the end of the process:
 * nothing that was written is lost. NULL is nothing.
 */
void dialsm_db_free(dialsm_db_t *db);

/**
 * Removes the database in `path`, which must not be open, and the directory if nothing else is in it. No database
 * there is no error.
 */
dialsm_code_t dialsm_destroy(const char *path,
                             size_t path_len,
                             dialsm_status_t *status);

/**
 * Moves the database in `path`, which must not be open, to the newest format of this version; there is no way back.
 * `from` and `to` get the numbers of the formats, equal where there was nothing to do; either may be NULL.
 */
dialsm_code_t dialsm_upgrade(const char *path,
                             size_t path_len,
                             uint32_t *from,
                             uint32_t *to,
                             dialsm_status_t *status);

/**
 * The names of the keyspaces of the database in `path`, which may be open: the default one first, the others by age.
 */
dialsm_code_t dialsm_list_keyspaces(const char *path,
                                    size_t path_len,
                                    dialsm_names_t **names,
                                    dialsm_status_t *status);

/*
 * KEYSPACES
 *
 * Wherever a call takes a keyspace, NULL means the default one, which every database has.
 */

/**
 * Creates a keyspace, durable when this returns. A name has 1 to 255 bytes without control characters.
 */
dialsm_code_t dialsm_keyspace_create(const dialsm_db_t *db,
                                     const char *name,
                                     size_t name_len,
                                     const dialsm_options_t *options,
                                     dialsm_keyspace_t **keyspace,
                                     dialsm_status_t *status);

/**
 * The keyspace of that name; DIALSM_NOT_FOUND if there is none.
 */
dialsm_code_t dialsm_keyspace_find(const dialsm_db_t *db,
                                   const char *name,
                                   size_t name_len,
                                   dialsm_keyspace_t **keyspace,
                                   dialsm_status_t *status);

/**
 * Drops a keyspace with all that is in it, for good when this returns. The handle is still to be freed; calls with
 * it give DIALSM_NOT_FOUND, iterators over it go on.
 */
dialsm_code_t dialsm_keyspace_drop(const dialsm_db_t *db,
                                   const dialsm_keyspace_t *keyspace,
                                   dialsm_status_t *status);

/**
 * Frees the handle. It holds the database open. NULL is nothing.
 */
void dialsm_keyspace_free(dialsm_keyspace_t *keyspace);

/**
 * The id by which batches name it; 0 is the default one, which NULL means, too.
 */
uint32_t dialsm_keyspace_id(const dialsm_keyspace_t *keyspace);

/**
 * Its name, and the length of it; not zero-terminated, valid as long as the handle. NULL gives NULL.
 */
const char *dialsm_keyspace_name(const dialsm_keyspace_t *keyspace,
                                 size_t *name_len);

/**
 * How many shards it has; 0 for NULL.
 */
uint32_t dialsm_keyspace_shards(const dialsm_keyspace_t *keyspace);

/**
 * The names of all keyspaces, the default one first, the others by age.
 */
dialsm_code_t dialsm_keyspaces(const dialsm_db_t *db,
                               dialsm_names_t **names,
                               dialsm_status_t *status);

/**
 * How many names there are; 0 for NULL.
 */
size_t dialsm_names_count(const dialsm_names_t *names);

/**
 * Name number `index`, zero-terminated; NULL behind the last. Valid as long as the list.
 */
const char *dialsm_names_get(const dialsm_names_t *names, size_t index);

/**
 * Frees the list. NULL is nothing.
 */
void dialsm_names_free(dialsm_names_t *names);

/*
 * WRITES
 *
 * Each is atomic, and visible to every read that begins after it returned.
 */

/**
 * Sets a key to a value.
 */
dialsm_code_t dialsm_put(const dialsm_db_t *db,
                         const dialsm_keyspace_t *keyspace,
                         const dialsm_write_options_t *options,
                         const void *key,
                         size_t key_len,
                         const void *value,
                         size_t value_len,
                         dialsm_status_t *status);

/**
 * Removes a key. It is no error if there is none.
 */
dialsm_code_t dialsm_delete(const dialsm_db_t *db,
                            const dialsm_keyspace_t *keyspace,
                            const dialsm_write_options_t *options,
                            const void *key,
                            size_t key_len,
                            dialsm_status_t *status);

/**
 * Removes a key that was put only while it was absent: the caller promises that. Where it does not hold, an older
 * value may come back.
 */
dialsm_code_t dialsm_single_delete(const dialsm_db_t *db,
                                   const dialsm_keyspace_t *keyspace,
                                   const dialsm_write_options_t *options,
                                   const void *key,
                                   size_t key_len,
                                   dialsm_status_t *status);

/**
 * Removes all keys from `from` up to `to`, which stays; as cheap as one delete. `from` must not come after `to`.
 */
dialsm_code_t dialsm_delete_range(const dialsm_db_t *db,
                                  const dialsm_keyspace_t *keyspace,
                                  const dialsm_write_options_t *options,
                                  const void *from,
                                  size_t from_len,
                                  const void *to,
                                  size_t to_len,
                                  dialsm_status_t *status);

/**
 * Adds an operand to what the keyspace's merge operator makes the key's value of.
 */
dialsm_code_t dialsm_merge(const dialsm_db_t *db,
                           const dialsm_keyspace_t *keyspace,
                           const dialsm_write_options_t *options,
                           const void *key,
                           size_t key_len,
                           const void *operand,
                           size_t operand_len,
                           dialsm_status_t *status);

/**
 * Applies all operations of a batch, at once to every reader, whole or not at all after a crash. The batch stays as
 * it is and can be written again.
 */
dialsm_code_t dialsm_write(const dialsm_db_t *db,
                           const dialsm_write_options_t *options,
                           const dialsm_batch_t *batch,
                           dialsm_status_t *status);

/*
 * WRITE BATCHES
 *
 * A call that fails adds nothing. All keyspaces of a batch are those of one opening of one database, and it can be
 * written to that one only: else DIALSM_INVALID_ARGUMENT, where it is added or written. What a keyspace will not take
 * (a merge without an operator) is found when the batch is written.
 */

/**
 * An empty batch.
 */
dialsm_batch_t *dialsm_batch_create(void);

/**
 * A batch from the bytes of another (dialsm_batch_data()), of this process or any. The bytes are copied. They name
 * keyspaces by their ids, and so mean those with the same ids in the database that the batch is written to.
 */
dialsm_code_t dialsm_batch_create_from_data(const void *data,
                                            size_t data_len,
                                            dialsm_batch_t **batch,
                                            dialsm_status_t *status);

/**
 * Frees it. NULL is nothing.
 */
void dialsm_batch_free(dialsm_batch_t *batch);

/**
 * Takes all operations out and keeps the memory. NULL is nothing.
 */
void dialsm_batch_clear(dialsm_batch_t *batch);

/**
 * Adds a put.
 */
dialsm_code_t dialsm_batch_put(dialsm_batch_t *batch,
                               const dialsm_keyspace_t *keyspace,
                               const void *key,
                               size_t key_len,
                               const void *value,
                               size_t value_len,
                               dialsm_status_t *status);

/**
 * Adds a delete.
 */
dialsm_code_t dialsm_batch_delete(dialsm_batch_t *batch,
                                  const dialsm_keyspace_t *keyspace,
                                  const void *key,
                                  size_t key_len,
                                  dialsm_status_t *status);

/**
 * Adds a single delete; see dialsm_single_delete().
 */
dialsm_code_t dialsm_batch_single_delete(dialsm_batch_t *batch,
                                         const dialsm_keyspace_t *keyspace,
                                         const void *key,
                                         size_t key_len,
                                         dialsm_status_t *status);

/**
 * Adds a range delete; see dialsm_delete_range().
 */
dialsm_code_t dialsm_batch_delete_range(dialsm_batch_t *batch,
                                        const dialsm_keyspace_t *keyspace,
                                        const void *from,
                                        size_t from_len,
                                        const void *to,
                                        size_t to_len,
                                        dialsm_status_t *status);

/**
 * Adds a merge operand; see dialsm_merge().
 */
dialsm_code_t dialsm_batch_merge(dialsm_batch_t *batch,
                                 const dialsm_keyspace_t *keyspace,
                                 const void *key,
                                 size_t key_len,
                                 const void *operand,
                                 size_t operand_len,
                                 dialsm_status_t *status);

/**
 * How many operations it has; 0 for NULL.
 */
uint32_t dialsm_batch_count(const dialsm_batch_t *batch);

/**
 * Its bytes, as the log stores them, and their number. Valid until the batch changes. NULL gives NULL.
 */
const void *dialsm_batch_data(const dialsm_batch_t *batch,
                              size_t *data_len);

/**
 * Shows every operation to `show`, in the order in which they were added. `show` must not change the batch.
 */
dialsm_code_t dialsm_batch_each(const dialsm_batch_t *batch,
                                void *state,
                                dialsm_show_op_fn show,
                                dialsm_status_t *status);

/*
 * READS
 */

/**
 * A copy of the key's value, which the caller frees by dialsm_free(). `*value` is NULL where the key has none, which
 * is no error; an empty value is not NULL. A zero byte stands behind the value.
 */
dialsm_code_t dialsm_get(const dialsm_db_t *db,
                         const dialsm_keyspace_t *keyspace,
                         const dialsm_read_options_t *options,
                         const void *key,
                         size_t key_len,
                         char **value,
                         size_t *value_len,
                         dialsm_status_t *status);

/**
 * Copies the key's value into memory of the caller, as much of it as there is room for. `*value_len` is its whole
 * length, `*is_found` whether there is one; either may be NULL.
 */
dialsm_code_t dialsm_get_into(const dialsm_db_t *db,
                              const dialsm_keyspace_t *keyspace,
                              const dialsm_read_options_t *options,
                              const void *key,
                              size_t key_len,
                              void *buffer,
                              size_t buffer_len,
                              size_t *value_len,
                              bool *is_found,
                              dialsm_status_t *status);

/**
 * Makes `pinned` hold the key's value where it lies, without a copy, or nothing where there is none.
 */
dialsm_code_t dialsm_get_pinned(const dialsm_db_t *db,
                                const dialsm_keyspace_t *keyspace,
                                const dialsm_read_options_t *options,
                                const void *key,
                                size_t key_len,
                                dialsm_pinned_t *pinned,
                                dialsm_status_t *status);

/**
 * An object that holds one value at a time, for any number of calls. What it holds needs no database.
 */
dialsm_pinned_t *dialsm_pinned_create(void);

/**
 * Frees it, and the value with it. NULL is nothing.
 */
void dialsm_pinned_free(dialsm_pinned_t *pinned);

/**
 * Lets go of the value, and of the block of some KiB that it may lie in. NULL is nothing.
 */
void dialsm_pinned_clear(dialsm_pinned_t *pinned);

/**
 * The value, or NULL where it holds none. Valid until it is cleared, freed or given to another call.
 */
const void *dialsm_pinned_value(const dialsm_pinned_t *pinned,
                                size_t *value_len);

/**
 * Makes `values` hold the values of several keys, in their order and all of one moment. Blocks that have to come
 * from the disk are read together. At most 16,777,216 keys.
 */
dialsm_code_t dialsm_multi_get(const dialsm_db_t *db,
                               const dialsm_keyspace_t *keyspace,
                               const dialsm_read_options_t *options,
                               size_t key_count,
                               const void *const *keys,
                               const size_t *key_lens,
                               dialsm_values_t *values,
                               dialsm_status_t *status);

/**
 * An object that holds values of several keys, for any number of calls. What it holds needs no database.
 */
dialsm_values_t *dialsm_values_create(void);

/**
 * Frees it, and the values with it. NULL is nothing.
 */
void dialsm_values_free(dialsm_values_t *values);

/**
 * How many keys were asked for.
 */
size_t dialsm_values_count(const dialsm_values_t *values);

/**
 * The value of key number `index`, or NULL where it has none. Valid until `values` is freed or given to another call.
 */
const void *dialsm_values_get(const dialsm_values_t *values,
                              size_t index,
                              size_t *value_len);

/**
 * A snapshot: what is visible now, in all keyspaces. It holds the database open, and old versions on the disk.
 */
dialsm_code_t dialsm_snapshot_create(const dialsm_db_t *db,
                                     dialsm_snapshot_t **snapshot,
                                     dialsm_status_t *status);

/**
 * Frees it. NULL is nothing.
 */
void dialsm_snapshot_free(dialsm_snapshot_t *snapshot);

/**
 * The sequence number up to which it sees; 0 for NULL.
 */
uint64_t dialsm_snapshot_sequence(const dialsm_snapshot_t *snapshot);

/*
 * ITERATORS
 *
 * A cursor over the keys of a keyspace as they were when it was created, whatever is written meanwhile. It stands
 * nowhere until it is positioned. Past an end it stands nowhere, without an error. An iterator holds the database
 * open; after dialsm_close() it goes on and keeps the directory locked until it is freed.
 */

/**
 * Creates an iterator, at the options' snapshot and within their bounds.
 */
dialsm_code_t dialsm_iter_create(const dialsm_db_t *db,
                                 const dialsm_keyspace_t *keyspace,
                                 const dialsm_read_options_t *options,
                                 dialsm_iter_t **iter,
                                 dialsm_status_t *status);

/**
 * Creates iterators over several keyspaces, all of one moment, and puts them into the array `iters`: all or, where
 * one fails, none, and NULL in each place.
 */
dialsm_code_t dialsm_iters_create(const dialsm_db_t *db,
                                  const dialsm_read_options_t *options,
                                  size_t count,
                                  const dialsm_keyspace_t *const *keyspaces,
                                  dialsm_iter_t **iters,
                                  dialsm_status_t *status);

/**
 * Frees it. NULL is nothing.
 */
void dialsm_iter_free(dialsm_iter_t *iter);

/**
 * Whether it stands on an entry; false for NULL.
 */
bool dialsm_iter_valid(const dialsm_iter_t *iter);

/**
 * To the first key within the bounds.
 */
dialsm_code_t dialsm_iter_seek_to_first(dialsm_iter_t *iter, dialsm_status_t *status);

/**
 * To the last key within the bounds.
 */
dialsm_code_t dialsm_iter_seek_to_last(dialsm_iter_t *iter, dialsm_status_t *status);

/**
 * To the first key at or after `key`.
 */
dialsm_code_t dialsm_iter_seek(dialsm_iter_t *iter,
                               const void *key,
                               size_t key_len,
                               dialsm_status_t *status);

/**
 * To the last key at or before `key`.
 */
dialsm_code_t dialsm_iter_seek_for_prev(dialsm_iter_t *iter,
                                        const void *key,
                                        size_t key_len,
                                        dialsm_status_t *status);

/**
 * To the next key. Where it stands nowhere it stays there.
 */
dialsm_code_t dialsm_iter_next(dialsm_iter_t *iter, dialsm_status_t *status);

/**
 * To the key before. Where it stands nowhere it stays there.
 */
dialsm_code_t dialsm_iter_prev(dialsm_iter_t *iter, dialsm_status_t *status);

/**
 * The key, or NULL where it stands nowhere. Valid until the iterator moves.
 */
const void *dialsm_iter_key(const dialsm_iter_t *iter, size_t *key_len);

/**
 * The value, or NULL where it stands nowhere. Valid until the iterator moves.
 */
const void *dialsm_iter_value(const dialsm_iter_t *iter, size_t *value_len);

/**
 * Makes `pinned` hold the value where it lies, so that it outlives the next move.
 */
dialsm_code_t dialsm_iter_pin_value(dialsm_iter_t *iter,
                                    dialsm_pinned_t *pinned,
                                    dialsm_status_t *status);

/**
 * How the last move ended: for loops that look at the end only.
 */
dialsm_code_t dialsm_iter_status(dialsm_iter_t *iter, dialsm_status_t *status);

/**
 * Puts the entry that it stands on and those that follow into `entries`, in place of what is there, and moves behind
 * them: iteration without a call for each entry. Ends at `entries_max` entries, or once there are `bytes_max` bytes
 * of keys and values (0: no such bound; not both), or where the keys end. No entries and DIALSM_OK: the end. Where it
 * fails, `entries` has those before the failure.
 */
dialsm_code_t dialsm_iter_next_batch(dialsm_iter_t *iter,
                                     dialsm_entries_t *entries,
                                     size_t entries_max,
                                     size_t bytes_max,
                                     dialsm_status_t *status);

/*
 * BULK SCANS, AND ENTRIES IN NUMBERS
 *
 * A scan reads a range of keys in batches, of one moment, and reads ahead. It holds the database open as an iterator
 * does.
 */

/**
 * Begins a scan.
 */
dialsm_code_t dialsm_scan_create(const dialsm_db_t *db,
                                 const dialsm_keyspace_t *keyspace,
                                 const dialsm_read_options_t *read_options,
                                 const dialsm_scan_options_t *options,
                                 dialsm_scan_t **scan,
                                 dialsm_status_t *status);

/**
 * Puts the next entries into `entries`, in place of what is there; none at the end.
 */
dialsm_code_t dialsm_scan_next(dialsm_scan_t *scan,
                               dialsm_entries_t *entries,
                               dialsm_status_t *status);

/**
 * Frees it. NULL is nothing.
 */
void dialsm_scan_free(dialsm_scan_t *scan);

/**
 * An object that holds entries of iterators and scans, for any number of calls. What it holds needs no database.
 */
dialsm_entries_t *dialsm_entries_create(void);

/**
 * Frees it. NULL is nothing.
 */
void dialsm_entries_free(dialsm_entries_t *entries);

/**
 * How many entries it holds; 0 for NULL.
 */
size_t dialsm_entries_count(const dialsm_entries_t *entries);

/**
 * The key of entry number `index`; NULL behind the last. Valid until `entries` is freed or given to another call.
 */
const void *dialsm_entries_key(const dialsm_entries_t *entries,
                               size_t index,
                               size_t *key_len);

/**
 * The value of entry number `index`; NULL behind the last. Valid as a key is.
 */
const void *dialsm_entries_value(const dialsm_entries_t *entries, size_t index, size_t *value_len);

/**
 * All entries at once: returns how many there are. `*data` has their keys and values, end to end; entry i has its key
 * up to `ends[2 * i]` and its value from there up to `ends[2 * i + 1]`, where the next key begins. Valid as a key is.
 */
size_t dialsm_entries_view(const dialsm_entries_t *entries,
                           const char **data,
                           const size_t **ends);

/*
 * FLUSHES, COMPACTIONS, COPIES
 */

/**
 * Writes the memtables of a keyspace into tables and returns when they are durable, or as the options say.
 */
dialsm_code_t dialsm_flush(const dialsm_db_t *db,
                           const dialsm_keyspace_t *keyspace,
                           const dialsm_flush_options_t *options,
                           dialsm_status_t *status);

/**
 * The same for all keyspaces, of one moment.
 */
dialsm_code_t dialsm_flush_all(const dialsm_db_t *db,
                               const dialsm_flush_options_t *options,
                               dialsm_status_t *status);

/**
 * Makes durable all that was written before the call, by syncing the log.
 */
dialsm_code_t dialsm_sync(const dialsm_db_t *db, dialsm_status_t *status);

/**
 * Flushes, and compacts all tables of a keyspace with keys from `from` up to `to` (NULL: no bound there).
 */
dialsm_code_t dialsm_compact_range(const dialsm_db_t *db,
                                   const dialsm_keyspace_t *keyspace,
                                   const dialsm_compact_options_t *options,
                                   const void *from,
                                   size_t from_len,
                                   const void *to,
                                   size_t to_len,
                                   dialsm_status_t *status);

/**
 * Replaces the clue entries that are there now by the values that they stand for, in their own shards. Whether that
 * happens by itself, and when, the options `rollback`, `clues_max` and `clue_bytes_max` say, which can be changed
 * while the database is open.
 */
dialsm_code_t dialsm_rollback(const dialsm_db_t *db,
                              dialsm_status_t *status);

/**
 * Whether no flush and no compaction is running or due.
 */
dialsm_code_t dialsm_is_idle(const dialsm_db_t *db, bool *is_idle, dialsm_status_t *status);

/**
 * Waits until it is so.
 */
dialsm_code_t dialsm_wait_until_idle(const dialsm_db_t *db, dialsm_status_t *status);

/**
 * Makes a second database in `target_dir`, which must not exist or be empty: what this one holds at a moment during
 * the call. Durable when this returns; by hard links where the file system allows it.
 */
dialsm_code_t dialsm_checkpoint(const dialsm_db_t *db,
                                const char *target_dir,
                                size_t target_dir_len,
                                dialsm_status_t *status);

/**
 * Reads every table whole and checks it. `progress` (NULL: nobody) is told how far it is. `verified` may be NULL.
 */
dialsm_code_t dialsm_verify(const dialsm_db_t *db,
                            void *state,
                            dialsm_progress_fn progress,
                            dialsm_verified_t *verified,
                            dialsm_status_t *status);

/**
 * Changes options of the open database (keyspace NULL) or of a keyspace: `count` names and values, as text. All take
 * effect at once or, where one is wrong, none. Only those that docs/OPTIONS.md calls live can be changed; the next
 * opening goes by the options that it is given.
 */
dialsm_code_t dialsm_set_options(const dialsm_db_t *db,
                                 const dialsm_keyspace_t *keyspace,
                                 size_t count,
                                 const char *const *names,
                                 const size_t *name_lens,
                                 const char *const *values,
                                 const size_t *value_lens,
                                 dialsm_status_t *status);

/*
 * WHAT A DATABASE SAYS ABOUT ITSELF
 */

/**
 * A property as text, which the caller frees by dialsm_free(): of a keyspace or (NULL) of all together.
 * DIALSM_NOT_FOUND if there is none of that name. `value_len` may be NULL.
 */
dialsm_code_t dialsm_property(const dialsm_db_t *db,
                              const dialsm_keyspace_t *keyspace,
                              const char *name,
                              size_t name_len,
                              char **value,
                              size_t *value_len,
                              dialsm_status_t *status);

/**
 * The name of property number `index`, from 0 on; NULL behind the last. `<N>` in it stands for a level.
 */
const char *dialsm_property_name(size_t index);

/**
 * Counters, levels, stalls and caches as a table to read, which the caller frees by dialsm_free().
 */
dialsm_code_t dialsm_statistics(const dialsm_db_t *db,
                                char **text,
                                size_t *text_len,
                                dialsm_status_t *status);

/**
 * The same as one JSON object.
 */
dialsm_code_t dialsm_statistics_json(const dialsm_db_t *db,
                                     char **json,
                                     size_t *json_len,
                                     dialsm_status_t *status);

/**
 * A counter of the statistics, by its name there, such as "writes". DIALSM_NOT_FOUND if there is none.
 */
dialsm_code_t dialsm_counter(const dialsm_db_t *db,
                             const char *name,
                             size_t name_len,
                             uint64_t *value,
                             dialsm_status_t *status);

/**
 * Stalls since the opening, and whether writes may go on now: of a keyspace or (NULL) of all together.
 */
dialsm_code_t dialsm_stalls(const dialsm_db_t *db,
                            const dialsm_keyspace_t *keyspace,
                            dialsm_stalls_t *stalls,
                            dialsm_status_t *status);

/**
 * Clue entries and redirected values, of all keyspaces.
 */
dialsm_code_t dialsm_clues(const dialsm_db_t *db, dialsm_clues_t *clues, dialsm_status_t *status);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DIALSM_H */
