/* Writes, reads, snapshots, batches, keyspaces. */
#include "check.h"

void test_data(void)
{
    dialsm_db_t *db = open_new("data", NULL);
    put(db, "a", "1");
    put(db, "b", "");
    CHECK(has(db, NULL, NULL, "a", "1") && has(db, NULL, NULL, "b", "") && has(db, NULL, NULL, "c", NULL));
    OK(dialsm_put(db, NULL, NULL, NULL, 0, DIALSM_STR("of the empty key"), status));
    CHECK(has(db, NULL, NULL, "", "of the empty key"));
    OK(dialsm_put(db, NULL, NULL, DIALSM_STR("zero\0inside"), DIALSM_STR("v\0v"), status));

    char buffer[4] = "zzzz";
    size_t len = 9;
    bool is_found = false;
    OK(dialsm_get_into(db, NULL, NULL, DIALSM_STR("zero\0inside"), buffer, 2, &len, &is_found, status));
    CHECK(len == 3 && is_found && memcmp(buffer, "v\0zz", 4) == 0);
    OK(dialsm_get_into(db, NULL, NULL, DIALSM_STR("b"), NULL, 0, &len, &is_found, status));
    CHECK(len == 0 && is_found);
    OK(dialsm_get_into(db, NULL, NULL, DIALSM_STR("c"), buffer, 4, &len, &is_found, status));
    CHECK(len == 0 && !is_found);
    OK(dialsm_get_into(db, NULL, NULL, DIALSM_STR("c"), buffer, 4, NULL, NULL, NULL));

    dialsm_pinned_t *pinned = dialsm_pinned_create();
    CHECK(dialsm_pinned_value(pinned, &len) == NULL && len == 0);
    OK(dialsm_get_pinned(db, NULL, NULL, DIALSM_STR("a"), pinned, status));
    OK(dialsm_delete(db, NULL, NULL, DIALSM_STR("a"), status));
    CHECK(IS(dialsm_pinned_value(pinned, &len), "1")); /* what it holds stays */
    OK(dialsm_get_pinned(db, NULL, NULL, DIALSM_STR("a"), pinned, status));
    CHECK(dialsm_pinned_value(pinned, NULL) == NULL);
    OK(dialsm_get_pinned(db, NULL, NULL, DIALSM_STR("b"), pinned, status));
    CHECK(IS(dialsm_pinned_value(pinned, &len), ""));
    dialsm_pinned_clear(pinned);
    CHECK(dialsm_pinned_value(pinned, NULL) == NULL);
    dialsm_pinned_free(pinned);

    OK(dialsm_delete(db, NULL, NULL, DIALSM_STR("never there"), status));
    put(db, "once", "x");
    OK(dialsm_single_delete(db, NULL, NULL, DIALSM_STR("once"), status));
    CHECK(has(db, NULL, NULL, "once", NULL));
    put(db, "r1", "x");
    put(db, "r2", "x");
    put(db, "r3", "x");
    OK(dialsm_delete_range(db, NULL, NULL, DIALSM_STR("r1"), DIALSM_STR("r3"), status));
    CHECK(has(db, NULL, NULL, "r2", NULL) && has(db, NULL, NULL, "r3", "x"));
    FAILS(DIALSM_INVALID_ARGUMENT,
          dialsm_delete_range(db, NULL, NULL, DIALSM_STR("r3"), DIALSM_STR("r1"), status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_merge(db, NULL, NULL, DIALSM_STR("m"), DIALSM_STR("x"), status));

    const void *keys[] = {"r3", "r2", "b"};
    size_t lens[] = {2, 2, 1};
    dialsm_values_t *values = dialsm_values_create();
    CHECK(dialsm_values_count(values) == 0);
    OK(dialsm_multi_get(db, NULL, NULL, 3, keys, lens, values, status));
    CHECK(dialsm_values_count(values) == 3);
    CHECK(IS(dialsm_values_get(values, 0, &len), "x"));
    CHECK(dialsm_values_get(values, 1, &len) == NULL && len == 0);
    CHECK(IS(dialsm_values_get(values, 2, &len), ""));
    CHECK(dialsm_values_get(values, 3, NULL) == NULL);
    OK(dialsm_multi_get(db, NULL, NULL, 0, NULL, NULL, values, status));
    CHECK(dialsm_values_count(values) == 0);
    dialsm_values_free(values);

    dialsm_write_options_t *writes = dialsm_write_options_create();
    OK(dialsm_write_options_set_sync(writes, true));
    OK(dialsm_write_options_set_no_slowdown(writes, true));
    OK(dialsm_write_options_set_timeout_ns(writes, 60000000000u));
    OK(dialsm_put(db, NULL, writes, DIALSM_STR("synced"), DIALSM_STR("1"), status));
    OK(dialsm_write_options_set_disable_log(writes, true));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_put(db, NULL, writes, DIALSM_STR("k"), DIALSM_STR("v"), status));
    OK(dialsm_write_options_set_sync(writes, false));
    OK(dialsm_put(db, NULL, writes, DIALSM_STR("unlogged"), DIALSM_STR("1"), status));
    dialsm_write_options_free(writes);

    dialsm_snapshot_t *snapshot;
    OK(dialsm_snapshot_create(db, &snapshot, status));
    CHECK(dialsm_snapshot_sequence(snapshot) > 0 && dialsm_snapshot_sequence(NULL) == 0);
    put(db, "r3", "newer");
    dialsm_read_options_t *reads = dialsm_read_options_create();
    OK(dialsm_read_options_set_snapshot(reads, snapshot));
    OK(dialsm_read_options_set_fill_cache(reads, false));
    OK(dialsm_read_options_set_verify_checksums(reads, true));
    CHECK(has(db, NULL, reads, "r3", "x") && has(db, NULL, NULL, "r3", "newer"));
    OK(dialsm_read_options_set_timeout_ns(reads, 0));
    char *found = buffer;
    FAILS(DIALSM_TIMED_OUT, dialsm_get(db, NULL, reads, DIALSM_STR("r3"), &found, &len, status));
    CHECK(found == NULL && len == 0);
    OK(dialsm_read_options_set_timeout_ns(reads, UINT64_MAX));
    OK(dialsm_read_options_set_snapshot(reads, NULL));
    CHECK(has(db, NULL, reads, "r3", "newer"));
    dialsm_read_options_free(reads);
    dialsm_snapshot_free(snapshot);
    close_and_free(db);

    /* What was written is there again; a reader sees it, and can't write. */
    const char *path = path_of("data");
    OK(dialsm_open_read_only(TEXT(path), NULL, &db, status));
    CHECK(has(db, NULL, NULL, "r3", "newer") && has(db, NULL, NULL, "unlogged", "1"));
    FAILS(DIALSM_READ_ONLY, dialsm_put(db, NULL, NULL, DIALSM_STR("k"), DIALSM_STR("v"), status));
    dialsm_db_t *writer;
    FAILS(DIALSM_BUSY, dialsm_open(TEXT(path), NULL, &writer, status));
    close_and_free(db);
    uint32_t from = 9, to = 8;
    OK(dialsm_upgrade(TEXT(path), &from, &to, status));
    CHECK(from == to && from > 0);
    OK(dialsm_destroy(TEXT(path), status));
    FAILS(DIALSM_NOT_FOUND, dialsm_open_read_only(TEXT(path), NULL, &db, status));
    FAILS(DIALSM_NOT_FOUND, dialsm_upgrade(TEXT(path), &from, &to, status));
    CHECK(from == 0 && to == 0);
}

struct shown {
    size_t count;
    uint32_t ops[8];
    uint32_t keyspaces[8];
    char text[128];
};

static void show(void *state, uint32_t op, uint32_t keyspace_id, const uint8_t *key, size_t key_len,
                 const uint8_t *value, size_t value_len)
{
    struct shown *shown = state;
    shown->ops[shown->count] = op;
    shown->keyspaces[shown->count++] = keyspace_id;
    char line[32];
    snprintf(line, sizeof line, "%.*s=%.*s ", (int)key_len, (const char *)key, (int)value_len,
             (const char *)value);
    strcat(shown->text, line);
}

/* Ids of keyspaces mean others elsewhere: a batch is for one opening. */
static void test_foreign_batches(void)
{
    dialsm_db_t *one = open_new("batches one", NULL), *two = open_new("batches two", NULL), *again;
    dialsm_keyspace_t *of_one, *of_two, *of_again;
    OK(dialsm_keyspace_create(one, DIALSM_STR("k"), NULL, &of_one, status));
    OK(dialsm_keyspace_create(two, DIALSM_STR("other"), NULL, &of_two, status));
    CHECK(dialsm_keyspace_id(of_one) == dialsm_keyspace_id(of_two));
    dialsm_batch_t *batch = dialsm_batch_create();
    OK(dialsm_batch_put(batch, of_one, DIALSM_STR("key"), DIALSM_STR("v"), status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_write(two, NULL, batch, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_batch_put(batch, of_two, DIALSM_STR("key"), DIALSM_STR("v"), status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_batch_delete(batch, of_two, DIALSM_STR("key"), status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_batch_single_delete(batch, of_two, DIALSM_STR("key"), status));
    FAILS(DIALSM_INVALID_ARGUMENT,
          dialsm_batch_delete_range(batch, of_two, DIALSM_STR("a"), DIALSM_STR("z"), status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_batch_merge(batch, of_two, DIALSM_STR("key"), DIALSM_STR("v"), status));
    CHECK(dialsm_batch_count(batch) == 1 && has(two, of_two, NULL, "key", NULL));
    OK(dialsm_write(one, NULL, batch, status));
    CHECK(has(one, of_one, NULL, "key", "v"));

    OK(dialsm_close(one, status));
    const char *path = path_of("batches one");
    OK(dialsm_open(TEXT(path), NULL, &again, status));
    OK(dialsm_keyspace_find(again, DIALSM_STR("k"), &of_again, status));
    OK(dialsm_delete(again, of_again, NULL, DIALSM_STR("key"), status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_write(again, NULL, batch, status));
    CHECK(has(again, of_again, NULL, "key", NULL));
    dialsm_batch_clear(batch); /* and it is for any again */
    OK(dialsm_batch_put(batch, of_two, DIALSM_STR("key"), DIALSM_STR("v"), status));
    OK(dialsm_write(two, NULL, batch, status));
    dialsm_batch_free(batch);
    dialsm_keyspace_free(of_one);
    dialsm_keyspace_free(of_two);
    dialsm_keyspace_free(of_again);
    dialsm_db_free(one);
    close_and_free(two);
    close_and_free(again);
}

void test_batches(void)
{
    test_foreign_batches();
    dialsm_options_t *options = dialsm_options_create();
    dialsm_merge_operator_t *append;
    OK(dialsm_merge_operator_create_append(DIALSM_STR(","), &append, status));
    OK(dialsm_options_set_merge_operator(options, append, status));
    dialsm_merge_operator_free(append);
    dialsm_db_t *db = open_new("batches", options);
    dialsm_options_free(options);
    dialsm_keyspace_t *other;
    OK(dialsm_keyspace_create(db, DIALSM_STR("other"), NULL, &other, status));
    put(db, "old", "x");
    put(db, "once", "x");

    dialsm_batch_t *batch = dialsm_batch_create();
    OK(dialsm_write(db, NULL, batch, status)); /* an empty one is nothing */
    OK(dialsm_batch_put(batch, NULL, DIALSM_STR("k"), DIALSM_STR("v"), status));
    OK(dialsm_batch_put(batch, other, DIALSM_STR("k"), DIALSM_STR("w"), status));
    OK(dialsm_batch_delete(batch, NULL, DIALSM_STR("old"), status));
    OK(dialsm_batch_single_delete(batch, NULL, DIALSM_STR("once"), status));
    OK(dialsm_batch_delete_range(batch, NULL, DIALSM_STR("x"), DIALSM_STR("y"), status));
    OK(dialsm_batch_merge(batch, NULL, DIALSM_STR("m"), DIALSM_STR("1"), status));
    FAILS(DIALSM_TOO_LARGE, dialsm_batch_put(batch, NULL, "k", 65536, "v", 1, status));
    CHECK(dialsm_batch_count(batch) == 6);
    struct shown shown = {0};
    OK(dialsm_batch_each(batch, &shown, show, status));
    CHECK(shown.count == 6 && strcmp(shown.text, "k=v k=w old= once= x=y m=1 ") == 0);
    CHECK(shown.ops[0] == DIALSM_OP_PUT && shown.ops[2] == DIALSM_OP_DELETE);
    CHECK(shown.ops[3] == DIALSM_OP_SINGLE_DELETE && shown.ops[4] == DIALSM_OP_DELETE_RANGE);
    CHECK(shown.ops[5] == DIALSM_OP_MERGE && shown.keyspaces[1] == dialsm_keyspace_id(other));

    OK(dialsm_write(db, NULL, batch, status));
    OK(dialsm_write(db, NULL, batch, status)); /* it stays what it is */
    CHECK(has(db, NULL, NULL, "k", "v") && has(db, other, NULL, "k", "w") && has(db, NULL, NULL, "old", NULL));
    CHECK(has(db, NULL, NULL, "once", NULL) && has(db, NULL, NULL, "m", "1,1"));

    size_t len;
    const void *data = dialsm_batch_data(batch, &len);
    dialsm_batch_t *copy;
    OK(dialsm_batch_create_from_data(data, len, &copy, status));
    CHECK(dialsm_batch_count(copy) == 6);
    OK(dialsm_write(db, NULL, copy, status));
    CHECK(has(db, NULL, NULL, "m", "1,1,1"));
    dialsm_batch_free(copy);
    CHECK(dialsm_batch_create_from_data("\xff\xff\xff", 3, &copy, status) != DIALSM_OK && copy == NULL);
    for (size_t cut = 1; cut < len; cut++)
        if (dialsm_batch_create_from_data(data, cut, &copy, status) == DIALSM_OK)
            dialsm_batch_free(copy);

    /* An iterator shows what was there before a batch took it away, and goes on when the batch is gone. */
    dialsm_iter_t *iter;
    OK(dialsm_iter_create(db, NULL, NULL, &iter, status));
    OK(dialsm_iter_seek_to_first(iter, status));
    CHECK(IS(dialsm_iter_key(iter, &len), "k"));
    dialsm_batch_clear(batch);
    OK(dialsm_batch_delete_range(batch, NULL, DIALSM_STR("a"), DIALSM_STR("z"), status));
    OK(dialsm_write(db, NULL, batch, status));
    dialsm_batch_free(batch);
    CHECK(has(db, NULL, NULL, "k", NULL));
    CHECK(IS(dialsm_iter_value(iter, &len), "v"));
    OK(dialsm_iter_next(iter, status));
    CHECK(IS(dialsm_iter_key(iter, &len), "m") && IS(dialsm_iter_value(iter, &len), "1,1,1"));
    OK(dialsm_iter_next(iter, status));
    OK(dialsm_iter_next(iter, status));
    CHECK(!dialsm_iter_valid(iter));
    dialsm_iter_free(iter);
    batch = dialsm_batch_create();

    /* Of a keyspace that is gone nothing is written, and of the rest of the batch neither. */
    OK(dialsm_keyspace_drop(db, other, status));
    dialsm_batch_clear(batch);
    CHECK(dialsm_batch_count(batch) == 0);
    OK(dialsm_batch_put(batch, NULL, DIALSM_STR("new"), DIALSM_STR("v"), status));
    OK(dialsm_batch_put(batch, other, DIALSM_STR("new"), DIALSM_STR("v"), status));
    FAILS(DIALSM_NOT_FOUND, dialsm_write(db, NULL, batch, status));
    CHECK(has(db, NULL, NULL, "new", NULL));
    dialsm_keyspace_free(other);
    dialsm_batch_free(batch);
    close_and_free(db);
}

void test_keyspaces(void)
{
    dialsm_db_t *db = open_new("keyspaces", NULL);
    dialsm_keyspace_t *one, *again, *none;
    dialsm_options_t *own = dialsm_options_create_for_keyspace();
    OK(dialsm_keyspace_create(db, DIALSM_STR("eins \xc3\xa4"), own, &one, status));
    dialsm_options_free(own);
    FAILS(DIALSM_ALREADY_EXISTS, dialsm_keyspace_create(db, DIALSM_STR("eins \xc3\xa4"), NULL, &none, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_keyspace_create(db, DIALSM_STR("\xff"), NULL, &none, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_keyspace_create(db, DIALSM_STR(""), NULL, &none, status));
    FAILS(DIALSM_NOT_FOUND, dialsm_keyspace_find(db, DIALSM_STR("zwei"), &none, status));
    CHECK(none == NULL);
    OK(dialsm_keyspace_find(db, DIALSM_STR("eins \xc3\xa4"), &again, status));
    size_t len;
    CHECK(dialsm_keyspace_id(again) == dialsm_keyspace_id(one) && dialsm_keyspace_id(one) > 0);
    CHECK(IS(dialsm_keyspace_name(one, &len), "eins \xc3\xa4"));
    CHECK(dialsm_keyspace_name(NULL, &len) == NULL && len == 0);
    CHECK(dialsm_keyspace_shards(one) >= 1 && dialsm_keyspace_shards(NULL) == 0);
    OK(dialsm_put(db, one, NULL, DIALSM_STR("k"), DIALSM_STR("v"), status));
    CHECK(has(db, again, NULL, "k", "v") && has(db, NULL, NULL, "k", NULL));
    OK(dialsm_single_delete(db, one, NULL, DIALSM_STR("k"), status));
    CHECK(has(db, one, NULL, "k", NULL));
    OK(dialsm_put(db, one, NULL, DIALSM_STR("k"), DIALSM_STR("v"), status));
    OK(dialsm_delete(db, one, NULL, DIALSM_STR("k"), status));
    OK(dialsm_put(db, one, NULL, DIALSM_STR("k"), DIALSM_STR("v"), status));
    OK(dialsm_delete_range(db, one, NULL, DIALSM_STR("a"), DIALSM_STR("z"), status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_merge(db, one, NULL, DIALSM_STR("k"), DIALSM_STR("x"), status));
    dialsm_values_t *values = dialsm_values_create();
    const void *key = "k";
    len = 1;
    OK(dialsm_multi_get(db, one, NULL, 1, &key, &len, values, status));
    CHECK(dialsm_values_get(values, 0, NULL) == NULL);
    dialsm_values_free(values);

    dialsm_names_t *names;
    OK(dialsm_keyspaces(db, &names, status));
    CHECK(dialsm_names_count(names) == 2 && strcmp(dialsm_names_get(names, 0), "default") == 0);
    CHECK(strcmp(dialsm_names_get(names, 1), "eins \xc3\xa4") == 0 && dialsm_names_get(names, 2) == NULL);
    dialsm_names_free(names);
    const char *path = path_of("keyspaces");
    OK(dialsm_list_keyspaces(TEXT(path), &names, status));
    CHECK(dialsm_names_count(names) == 2);
    dialsm_names_free(names);
    path = path_of("nothing here");
    FAILS(DIALSM_NOT_FOUND, dialsm_list_keyspaces(TEXT(path), &names, status));
    CHECK(names == NULL);

    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_keyspace_drop(db, NULL, status));
    OK(dialsm_keyspace_drop(db, one, status));
    FAILS(DIALSM_NOT_FOUND, dialsm_keyspace_drop(db, again, status));
    FAILS(DIALSM_NOT_FOUND, dialsm_put(db, one, NULL, DIALSM_STR("k"), DIALSM_STR("v"), status));
    dialsm_keyspace_free(one);

    /* A handle on a keyspace holds the database open. */
    dialsm_db_free(db);
    path = path_of("keyspaces");
    FAILS(DIALSM_BUSY, dialsm_open(TEXT(path), NULL, &db, status));
    dialsm_keyspace_free(again);
    OK(dialsm_open(TEXT(path), NULL, &db, status));
    close_and_free(db);
}
