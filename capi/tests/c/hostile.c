/* Calls that nobody should make. Each gives a status, none a crash. */
#include "check.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_A_LENGTH ((size_t)-1)

/* NULL for everything that may not be. */
static void test_null(dialsm_db_t *db)
{
    dialsm_status_t *s = status;
    dialsm_db_t *none;
    dialsm_options_t *options;
    dialsm_names_t *names;
    size_t len = 1;
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open(NULL, 5, NULL, &none, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open("x", 1, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open_read_only(NULL, 5, NULL, &none, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_destroy(NULL, 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_upgrade(NULL, 1, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_load(NULL, 1, &options, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_list_keyspaces(NULL, 1, &names, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_close(NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_put(NULL, NULL, NULL, "k", 1, "v", 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_put(db, NULL, NULL, NULL, 1, "v", 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_put(db, NULL, NULL, "k", 1, NULL, 1, s));
    BAD(dialsm_put(NULL, NULL, NULL, NULL, 0, NULL, 0, NULL));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_delete(db, NULL, NULL, NULL, 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_single_delete(db, NULL, NULL, NULL, 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_delete_range(db, NULL, NULL, NULL, 1, "z", 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_merge(NULL, NULL, NULL, "k", 1, "v", 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_write(db, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_write(NULL, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_get(db, NULL, NULL, "k", 1, NULL, &len, s));
    CHECK(len == 0);
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_get_into(db, NULL, NULL, "k", 1, NULL, 1, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_get_pinned(db, NULL, NULL, "k", 1, NULL, s));
    dialsm_values_t *values = dialsm_values_create();
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_multi_get(db, NULL, NULL, 1, NULL, NULL, values, s));
    FAILS(DIALSM_TOO_LARGE, dialsm_multi_get(db, NULL, NULL, NOT_A_LENGTH, (const void *const *)db, &len, values, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_multi_get(db, NULL, NULL, 0, NULL, NULL, NULL, s));
    dialsm_values_free(values);
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_snapshot_create(db, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_snapshot_create(NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_create(db, NULL, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iters_create(db, NULL, 2, NULL, NULL, s));
    OK(dialsm_iters_create(db, NULL, 0, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_scan_create(NULL, NULL, NULL, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_scan_next(NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_next(NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_prev(NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_seek(NULL, "k", 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_seek_for_prev(NULL, "k", 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_seek_to_first(NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_seek_to_last(NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_status(NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_pin_value(NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_next_batch(NULL, NULL, 1, 1, s));
    CHECK(!dialsm_iter_valid(NULL) && dialsm_iter_key(NULL, &len) == NULL && dialsm_iter_value(NULL, NULL) == NULL);
    dialsm_iter_t *iter;
    OK(dialsm_iter_create(db, NULL, NULL, &iter, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_next_batch(iter, NULL, 1, 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_pin_value(iter, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_seek(iter, NULL, 1, s));
    dialsm_iter_free(iter);
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_keyspace_create(db, NULL, 3, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_keyspace_find(db, NULL, 3, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_keyspaces(db, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_flush(NULL, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_flush_all(NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_sync(NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_compact_range(db, NULL, NULL, NULL, 1, NULL, 0, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_rollback(NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_is_idle(NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_wait_until_idle(NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_checkpoint(db, NULL, 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_verify(NULL, NULL, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_set_options(db, NULL, 1, NULL, NULL, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_property(db, NULL, NULL, 1, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_property(db, NULL, DIALSM_STR("dialsm.stats"), NULL, &len, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_statistics(db, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_statistics_json(NULL, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_counter(db, NULL, 1, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_stalls(db, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_clues(db, NULL, s));

    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_set(NULL, "x", 1, "y", 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_get(NULL, "x", 1, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_set_text(NULL, "", 0, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_text(NULL, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_validate(NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_add_keyspace(NULL, "x", 1, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_set_comparator(NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_set_merge_operator(NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_set_prefix_extractor(NULL, NULL, s));
    CHECK(dialsm_options_copy(NULL) == NULL);
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_comparator_create("x", 1, NULL, NULL, true, NULL, NULL, s));
    dialsm_merge_operator_t *merge;
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_merge_operator_create("x", 1, NULL, NULL, NULL, NULL, &merge, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_merge_operator_create_append(NULL, 1, &merge, s));
    dialsm_prefix_extractor_t *prefix;
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_prefix_extractor_create("x", 1, NULL, NULL, NULL, &prefix, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_event_listener_create(NULL, NULL, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_add_event_listener(NULL, NULL, s));
    BAD(dialsm_write_options_set_sync(NULL, true));
    BAD(dialsm_write_options_set_disable_log(NULL, true));
    BAD(dialsm_write_options_set_no_slowdown(NULL, true));
    BAD(dialsm_write_options_set_timeout_ns(NULL, 1));
    BAD(dialsm_read_options_set_snapshot(NULL, NULL));
    BAD(dialsm_read_options_set_lower_bound(NULL, NULL, 0));
    BAD(dialsm_read_options_set_upper_bound(NULL, "k", 1));
    BAD(dialsm_read_options_set_prefix(NULL, "k", 1));
    BAD(dialsm_read_options_set_timeout_ns(NULL, 1));
    BAD(dialsm_scan_options_set_range(NULL, NULL, 0, NULL, 0));
    BAD(dialsm_flush_options_set_wait(NULL, true));
    BAD(dialsm_compact_options_set_cancel(NULL, NULL));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_batch_put(NULL, NULL, "k", 1, "v", 1, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_batch_each(NULL, NULL, NULL, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_batch_create_from_data(NULL, 1, NULL, s));
    CHECK(dialsm_batch_count(NULL) == 0 && dialsm_batch_data(NULL, &len) == NULL && len == 0);
    CHECK(dialsm_values_count(NULL) == 0 && dialsm_values_get(NULL, 0, NULL) == NULL);
    CHECK(dialsm_entries_count(NULL) == 0 && dialsm_entries_key(NULL, 0, NULL) == NULL);
    CHECK(dialsm_entries_view(NULL, NULL, NULL) == 0 && dialsm_pinned_value(NULL, NULL) == NULL);
    CHECK(dialsm_names_count(NULL) == 0 && dialsm_names_get(NULL, 0) == NULL);
    CHECK(dialsm_status_code(NULL) == DIALSM_OK && dialsm_status_message(NULL)[0] == '\0');
    CHECK(dialsm_status_file(NULL) == NULL && !dialsm_status_offset(NULL, NULL) && dialsm_status_os_error(NULL) == 0);

    dialsm_free(NULL);
    dialsm_status_free(NULL);
    dialsm_options_free(NULL);
    dialsm_write_options_free(NULL);
    dialsm_read_options_free(NULL);
    dialsm_flush_options_free(NULL);
    dialsm_compact_options_free(NULL);
    dialsm_scan_options_free(NULL);
    dialsm_cancel_free(NULL);
    dialsm_cancel(NULL);
    dialsm_comparator_free(NULL);
    dialsm_merge_operator_free(NULL);
    dialsm_prefix_extractor_free(NULL);
    dialsm_event_listener_free(NULL);
    dialsm_db_free(NULL);
    dialsm_keyspace_free(NULL);
    dialsm_names_free(NULL);
    dialsm_batch_free(NULL);
    dialsm_batch_clear(NULL);
    dialsm_pinned_free(NULL);
    dialsm_pinned_clear(NULL);
    dialsm_values_free(NULL);
    dialsm_snapshot_free(NULL);
    dialsm_iter_free(NULL);
    dialsm_scan_free(NULL);
    dialsm_entries_free(NULL);
}

static void test_lengths(dialsm_db_t *db)
{
    dialsm_status_t *s = status;
    static const size_t wrong[] = {NOT_A_LENGTH, NOT_A_LENGTH / 2, NOT_A_LENGTH / 2 + 1, (size_t)1 << 40};
    dialsm_options_t *options = dialsm_options_create();
    dialsm_batch_t *batch = dialsm_batch_create();
    dialsm_iter_t *iter;
    OK(dialsm_iter_create(db, NULL, NULL, &iter, s));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t n = wrong[i];
        char *value;
        dialsm_db_t *none;
        FAILS(DIALSM_TOO_LARGE, dialsm_put(db, NULL, NULL, "k", n, "v", 1, s));
        FAILS(DIALSM_TOO_LARGE, dialsm_put(db, NULL, NULL, "k", 1, "v", n, s));
        FAILS(DIALSM_TOO_LARGE, dialsm_get(db, NULL, NULL, "k", n, &value, NULL, s));
        FAILS(DIALSM_TOO_LARGE, dialsm_delete_range(db, NULL, NULL, "a", 1, "b", n, s));
        FAILS(DIALSM_TOO_LARGE, dialsm_batch_put(batch, NULL, "k", 1, "v", n, s));
        FAILS(DIALSM_TOO_LARGE, dialsm_iter_seek(iter, "k", n, s));
        FAILS(DIALSM_TOO_LARGE, dialsm_open("x", n, NULL, &none, s));
        FAILS(DIALSM_TOO_LARGE, dialsm_options_set(options, "x", n, "y", 1, s));
        FAILS(DIALSM_TOO_LARGE, dialsm_property(db, NULL, "x", n, NULL, NULL, s));
        FAILS(DIALSM_TOO_LARGE, dialsm_compact_range(db, NULL, NULL, "a", n, NULL, 0, s));
    }
    dialsm_db_t *none;
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open("\xc3\x28", 2, NULL, &none, s)); /* no UTF-8 */
    CHECK(none == NULL);
    dialsm_iter_free(iter);
    dialsm_batch_free(batch);
    dialsm_options_free(options);

    /* The longest key and one byte more. */
    char *key = calloc(1, DIALSM_KEY_BYTES_MAX + 1);
    OK(dialsm_put(db, NULL, NULL, key, DIALSM_KEY_BYTES_MAX, "v", 1, s));
    FAILS(DIALSM_TOO_LARGE, dialsm_put(db, NULL, NULL, key, DIALSM_KEY_BYTES_MAX + 1, "v", 1, s));
    free(key);
}

static void test_closed(void)
{
    dialsm_status_t *s = status;
    dialsm_db_t *db = open_new("closed", NULL), *second;
    const char *path = path_of("closed");
    FAILS(DIALSM_BUSY, dialsm_open(TEXT(path), NULL, &second, s));
    dialsm_keyspace_t *keyspace;
    dialsm_snapshot_t *snapshot;
    OK(dialsm_keyspace_create(db, DIALSM_STR("k"), NULL, &keyspace, s));
    OK(dialsm_snapshot_create(db, &snapshot, s));
    OK(dialsm_close(db, s));
    FAILS(DIALSM_CLOSED, dialsm_close(db, s));
    FAILS(DIALSM_CLOSED, dialsm_put(db, NULL, NULL, "k", 1, "v", 1, s));
    FAILS(DIALSM_CLOSED, dialsm_put(db, keyspace, NULL, "k", 1, "v", 1, s));
    char *value;
    FAILS(DIALSM_CLOSED, dialsm_get(db, NULL, NULL, "k", 1, &value, NULL, s));
    dialsm_iter_t *iter;
    FAILS(DIALSM_CLOSED, dialsm_iter_create(db, NULL, NULL, &iter, s));
    FAILS(DIALSM_CLOSED, dialsm_flush(db, NULL, NULL, s));
    FAILS(DIALSM_CLOSED, dialsm_checkpoint(db, DIALSM_STR("/nowhere"), s));
    FAILS(DIALSM_CLOSED, dialsm_keyspace_drop(db, keyspace, s));
    dialsm_snapshot_t *late = snapshot;
    FAILS(DIALSM_CLOSED, dialsm_snapshot_create(db, &late, s));
    CHECK(late == NULL);
    dialsm_names_t *names;
    FAILS(DIALSM_CLOSED, dialsm_keyspaces(db, &names, s));
    /* Handles of another database, and of an earlier opening. */
    OK(dialsm_open(TEXT(path), NULL, &second, s));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_put(second, keyspace, NULL, "k", 1, "v", 1, s));
    dialsm_read_options_t *reads = dialsm_read_options_create();
    OK(dialsm_read_options_set_snapshot(reads, snapshot));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_get(second, NULL, reads, "k", 1, &value, NULL, s));
    dialsm_read_options_free(reads);
    dialsm_snapshot_free(snapshot);
    dialsm_keyspace_free(keyspace);
    dialsm_db_free(db);
    close_and_free(second);
}

/* A value of the greatest size, where there is no memory for a copy of it. In a child, for the limit's sake; not
 * where somebody else has the memory in hand. */
static void test_memory(void)
{
    if (getenv("DIALSM_TEST_WATCHED") != NULL)
        return;
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dialsm_code_t codes[2] = {DIALSM_INTERNAL, DIALSM_INTERNAL};
        void *value = mmap(NULL, DIALSM_VALUE_BYTES_MAX, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        FILE *file = fopen("/proc/self/statm", "r");
        unsigned long pages = 0;
        if (value != MAP_FAILED && file != NULL && fscanf(file, "%lu", &pages) == 1) {
            dialsm_batch_t *batch = dialsm_batch_create();
            rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)256 << 20);
            struct rlimit limit = {.rlim_cur = most, .rlim_max = most};
            if (setrlimit(RLIMIT_AS, &limit) == 0) {
                codes[0] = dialsm_batch_put(batch, NULL, "k", 1, value, DIALSM_VALUE_BYTES_MAX, NULL);
                codes[1] = dialsm_batch_put(batch, NULL, "k", 1, value, 1, NULL); /* it goes on */
            }
        }
        _exit(write(ends[1], codes, sizeof codes) != sizeof codes);
    }
    dialsm_code_t codes[2] = {0};
    CHECK(close(ends[1]) == 0);
    CHECK(read(ends[0], codes, sizeof codes) == sizeof codes);
    CHECK(codes[0] == DIALSM_OUT_OF_MEMORY && codes[1] == DIALSM_OK);
    CHECK(close(ends[0]) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
}

void test_hostile(void)
{
    test_memory();
    dialsm_db_t *db = open_new("hostile", NULL);
    test_null(db);
    test_lengths(db);
    CHECK(has(db, NULL, NULL, "k", NULL));
    close_and_free(db);
    test_closed();
}
