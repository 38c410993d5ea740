/* Iterators and scans. */
#include "check.h"

static void fill(dialsm_db_t *db, int count)
{
    char key[32], value[32];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "key%04d", i);
        snprintf(value, sizeof value, "value%d", i);
        put(db, key, value);
    }
}

static bool at(dialsm_iter_t *iter, const char *key)
{
    size_t len;
    const void *found = dialsm_iter_key(iter, &len);
    return dialsm_iter_valid(iter) && same(found, len, key);
}

static void test_moves(dialsm_db_t *db)
{
    dialsm_iter_t *iter;
    size_t len;
    OK(dialsm_iter_create(db, NULL, NULL, &iter, status));
    /* It stands nowhere yet. */
    CHECK(!dialsm_iter_valid(iter) && dialsm_iter_key(iter, &len) == NULL && len == 0);
    CHECK(dialsm_iter_value(iter, NULL) == NULL);
    OK(dialsm_iter_next(iter, status));
    OK(dialsm_iter_prev(iter, status));
    CHECK(!dialsm_iter_valid(iter));
    OK(dialsm_iter_seek_to_first(iter, status));
    CHECK(at(iter, "key0000") && IS(dialsm_iter_value(iter, &len), "value0"));
    OK(dialsm_iter_prev(iter, status));
    CHECK(!dialsm_iter_valid(iter));
    OK(dialsm_iter_seek_to_last(iter, status));
    CHECK(at(iter, "key0999"));
    OK(dialsm_iter_prev(iter, status));
    CHECK(at(iter, "key0998"));
    OK(dialsm_iter_next(iter, status));
    OK(dialsm_iter_next(iter, status));
    CHECK(!dialsm_iter_valid(iter));
    OK(dialsm_iter_next(iter, status)); /* it stays there */
    OK(dialsm_iter_seek(iter, DIALSM_STR("key05"), status));
    CHECK(at(iter, "key0500"));
    OK(dialsm_iter_seek_for_prev(iter, DIALSM_STR("key05"), status));
    CHECK(at(iter, "key0499"));
    OK(dialsm_iter_seek_for_prev(iter, DIALSM_STR("key0500"), status));
    CHECK(at(iter, "key0500"));

    /* What is written meanwhile it does not see; nor does it mind. */
    dialsm_batch_t *batch = dialsm_batch_create();
    OK(dialsm_batch_put(batch, NULL, DIALSM_STR("key0500a"), DIALSM_STR("new"), status));
    OK(dialsm_batch_delete_range(batch, NULL, DIALSM_STR("key0501"), DIALSM_STR("key0600"), status));
    OK(dialsm_write(db, NULL, batch, status));
    OK(dialsm_flush(db, NULL, NULL, status));
    OK(dialsm_iter_next(iter, status));
    CHECK(at(iter, "key0501"));
    dialsm_batch_clear(batch);
    OK(dialsm_batch_delete(batch, NULL, DIALSM_STR("key0500a"), status));
    for (int i = 501; i < 600; i++) {
        char key[32], value[32];
        snprintf(key, sizeof key, "key%04d", i);
        snprintf(value, sizeof value, "value%d", i);
        OK(dialsm_batch_put(batch, NULL, TEXT(key), TEXT(value), status));
    }
    OK(dialsm_write(db, NULL, batch, status));
    dialsm_batch_free(batch);

    dialsm_pinned_t *pinned = dialsm_pinned_create();
    OK(dialsm_iter_pin_value(iter, pinned, status));
    OK(dialsm_iter_seek_to_last(iter, status));
    CHECK(IS(dialsm_pinned_value(pinned, &len), "value501"));
    OK(dialsm_iter_next(iter, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_pin_value(iter, pinned, status));
    CHECK(dialsm_pinned_value(pinned, NULL) == NULL);
    dialsm_pinned_free(pinned);
    OK(dialsm_iter_status(iter, status));
    dialsm_iter_free(iter);
}

static void test_bounds(dialsm_db_t *db)
{
    dialsm_iter_t *iter;
    dialsm_read_options_t *options = dialsm_read_options_create();
    OK(dialsm_read_options_set_lower_bound(options, DIALSM_STR("key0100")));
    OK(dialsm_read_options_set_upper_bound(options, DIALSM_STR("key0200")));
    OK(dialsm_read_options_set_readahead_bytes(options, 65536));
    OK(dialsm_iter_create(db, NULL, options, &iter, status));
    OK(dialsm_iter_seek_to_first(iter, status));
    CHECK(at(iter, "key0100"));
    OK(dialsm_iter_seek_to_last(iter, status));
    CHECK(at(iter, "key0199"));
    dialsm_iter_free(iter);
    OK(dialsm_read_options_set_upper_bound(options, NULL, 0));
    OK(dialsm_read_options_set_lower_bound(options, NULL, 0));
    OK(dialsm_read_options_set_prefix(options, DIALSM_STR("key09")));
    OK(dialsm_iter_create(db, NULL, options, &iter, status));
    OK(dialsm_iter_seek_to_first(iter, status));
    CHECK(at(iter, "key0900"));
    dialsm_iter_free(iter);
    OK(dialsm_read_options_set_prefix_same_as_start(options, true));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_create(db, NULL, options, &iter, status));
    CHECK(iter == NULL);
    OK(dialsm_read_options_set_prefix_same_as_start(options, false));

    /* Past its time it says so, at each move and when asked. */
    OK(dialsm_read_options_set_timeout_ns(options, 0));
    OK(dialsm_iter_create(db, NULL, options, &iter, status));
    FAILS(DIALSM_TIMED_OUT, dialsm_iter_seek_to_first(iter, status));
    CHECK(!dialsm_iter_valid(iter));
    FAILS(DIALSM_TIMED_OUT, dialsm_iter_status(iter, status));
    dialsm_iter_free(iter);
    dialsm_read_options_free(options);
}

static void test_entries(dialsm_db_t *db)
{
    dialsm_iter_t *iter;
    dialsm_entries_t *entries = dialsm_entries_create();
    size_t len, seen = 0, calls = 0;
    char key[32];
    OK(dialsm_iter_create(db, NULL, NULL, &iter, status));
    OK(dialsm_iter_seek_to_first(iter, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_iter_next_batch(iter, entries, 0, 0, status));
    for (;;) {
        const char *data;
        const size_t *ends;
        OK(dialsm_iter_next_batch(iter, entries, 64, 0, status));
        size_t count = dialsm_entries_view(entries, &data, &ends);
        CHECK(count == dialsm_entries_count(entries) && count <= 64);
        if (count == 0)
            break;
        size_t start = 0;
        for (size_t i = 0; i < count; i++, seen++) {
            snprintf(key, sizeof key, "key%04d", (int)seen);
            CHECK(same(data + start, ends[2 * i] - start, key));
            CHECK(IS(dialsm_entries_key(entries, i, &len), key));
            CHECK(dialsm_entries_value(entries, i, &len) == data + ends[2 * i]);
            CHECK(len == ends[2 * i + 1] - ends[2 * i]);
            start = ends[2 * i + 1];
        }
        calls++;
    }
    CHECK(seen == 1000 && calls == 16 && !dialsm_iter_valid(iter));
    OK(dialsm_iter_seek(iter, DIALSM_STR("key0998"), status));
    OK(dialsm_iter_next_batch(iter, entries, 0, 1, status)); /* one is enough for a byte */
    CHECK(dialsm_entries_count(entries) == 1 && dialsm_entries_key(entries, 1, &len) == NULL && len == 0);
    CHECK(dialsm_entries_value(entries, (size_t)-1, NULL) == NULL);
    CHECK(at(iter, "key0999")); /* it stands behind them */
    dialsm_iter_free(iter);

    dialsm_scan_options_t *options = dialsm_scan_options_create();
    OK(dialsm_scan_options_set_range(options, DIALSM_STR("key0100"), DIALSM_STR("key0900")));
    OK(dialsm_scan_options_set_batch_bytes(options, 1000));
    OK(dialsm_scan_options_set_batch_entries_max(options, 50));
    OK(dialsm_scan_options_set_entries_max(options, 700));
    OK(dialsm_scan_options_set_backward(options, true));
    OK(dialsm_scan_options_set_long_bytes(options, 4096));
    OK(dialsm_scan_options_set_ahead_bytes_max(options, 65536));
    dialsm_scan_t *scan;
    OK(dialsm_scan_create(db, NULL, NULL, options, &scan, status));
    int expected = 899;
    for (;;) {
        OK(dialsm_scan_next(scan, entries, status));
        size_t count = dialsm_entries_count(entries);
        if (count == 0)
            break;
        CHECK(count <= 50);
        for (size_t i = 0; i < count; i++, expected--) {
            snprintf(key, sizeof key, "key%04d", expected);
            CHECK(IS(dialsm_entries_key(entries, i, &len), key));
        }
    }
    CHECK(expected == 199);
    OK(dialsm_scan_next(scan, entries, status)); /* the end stays the end */
    CHECK(dialsm_entries_count(entries) == 0);
    dialsm_scan_free(scan);
    dialsm_scan_options_free(options);
    OK(dialsm_scan_create(db, NULL, NULL, NULL, &scan, status));
    OK(dialsm_scan_next(scan, entries, status));
    CHECK(dialsm_entries_count(entries) == 1000);
    dialsm_scan_free(scan);
    /* Entries are nobody's but ours. */
    OK(dialsm_close(db, status));
    CHECK(IS(dialsm_entries_key(entries, 999, &len), "key0999"));
    dialsm_entries_free(entries);
}

static void test_several(dialsm_db_t *db)
{
    dialsm_keyspace_t *other;
    OK(dialsm_keyspace_create(db, DIALSM_STR("other"), NULL, &other, status));
    OK(dialsm_put(db, other, NULL, DIALSM_STR("k"), DIALSM_STR("v"), status));
    const dialsm_keyspace_t *keyspaces[] = {NULL, other};
    dialsm_iter_t *iters[2];
    OK(dialsm_iters_create(db, NULL, 2, keyspaces, iters, status));
    OK(dialsm_iter_seek_to_first(iters[0], status));
    OK(dialsm_iter_seek_to_first(iters[1], status));
    CHECK(at(iters[0], "key0000") && at(iters[1], "k"));
    dialsm_iter_free(iters[0]);
    dialsm_iter_free(iters[1]);
    OK(dialsm_keyspace_drop(db, other, status));
    iters[0] = iters[1] = (dialsm_iter_t *)db;
    FAILS(DIALSM_NOT_FOUND, dialsm_iters_create(db, NULL, 2, keyspaces, iters, status));
    CHECK(iters[0] == NULL && iters[1] == NULL);
    dialsm_keyspace_free(other);
}

/* Iterators, scans and snapshots keep their database open. */
static void test_outliving(void)
{
    dialsm_db_t *db = open_new("outlived", NULL);
    const char *path = path_of("outlived");
    put(db, "k", "v");
    dialsm_iter_t *iter;
    dialsm_scan_t *scan;
    dialsm_snapshot_t *snapshot;
    OK(dialsm_iter_create(db, NULL, NULL, &iter, status));
    OK(dialsm_scan_create(db, NULL, NULL, NULL, &scan, status));
    OK(dialsm_snapshot_create(db, &snapshot, status));
    dialsm_db_free(db);
    FAILS(DIALSM_BUSY, dialsm_open(TEXT(path), NULL, &db, status));
    OK(dialsm_iter_seek_to_first(iter, status));
    CHECK(at(iter, "k"));
    dialsm_iter_free(iter);
    dialsm_entries_t *entries = dialsm_entries_create();
    OK(dialsm_scan_next(scan, entries, status));
    CHECK(dialsm_entries_count(entries) == 1);
    dialsm_scan_free(scan);
    dialsm_entries_free(entries);
    FAILS(DIALSM_BUSY, dialsm_open(TEXT(path), NULL, &db, status));
    dialsm_snapshot_free(snapshot);
    OK(dialsm_open(TEXT(path), NULL, &db, status));

    /* After a close they go on, and lock the directory; nothing new begins. */
    OK(dialsm_iter_create(db, NULL, NULL, &iter, status));
    OK(dialsm_close(db, status));
    OK(dialsm_iter_seek_to_first(iter, status));
    CHECK(at(iter, "k"));
    dialsm_iter_t *late;
    FAILS(DIALSM_CLOSED, dialsm_iter_create(db, NULL, NULL, &late, status));
    dialsm_db_t *second;
    FAILS(DIALSM_BUSY, dialsm_open(TEXT(path), NULL, &second, status));
    dialsm_iter_free(iter);
    OK(dialsm_open(TEXT(path), NULL, &second, status));
    dialsm_db_free(db);
    close_and_free(second);
}

void test_iterators(void)
{
    dialsm_db_t *db = open_new("iterators", NULL);
    fill(db, 1000);
    test_moves(db);
    test_bounds(db);
    test_several(db);
    test_entries(db);
    dialsm_db_free(db);
    test_outliving();
}
