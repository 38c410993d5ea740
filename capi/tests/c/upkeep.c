/* Flushes, compactions, checkpoints, statistics. */
#include "check.h"

static void progress(void *state, uint64_t done_bytes, uint64_t total_bytes)
{
    CHECK(done_bytes <= total_bytes);
    ++*(int *)state;
}

static void test_figures(dialsm_db_t *db, dialsm_keyspace_t *keyspace)
{
    char *text;
    size_t len, count = 0;
    OK(dialsm_property(db, NULL, DIALSM_STR("dialsm.num-keyspaces"), &text, &len, status));
    CHECK(same(text, len, "2"));
    dialsm_free(text);
    FAILS(DIALSM_NOT_FOUND, dialsm_property(db, NULL, DIALSM_STR("dialsm.nonsense"), &text, &len, status));
    CHECK(text == NULL && len == 0);
    for (const char *name; (name = dialsm_property_name(count)) != NULL; count++) {
        char first[64];
        snprintf(first, sizeof first, "%.*s%s", (int)strcspn(name, "<"), name, strchr(name, '<') ? "0" : "");
        OK(dialsm_property(db, keyspace, TEXT(first), &text, NULL, status));
        dialsm_free(text);
    }
    CHECK(count > 20);
    OK(dialsm_statistics(db, &text, &len, status));
    CHECK(len == strlen(text) && strstr(text, "stalls") != NULL);
    dialsm_free(text);
    OK(dialsm_statistics_json(db, &text, &len, status));
    CHECK(len == strlen(text) && text[0] == '{' && text[len - 1] == '}' && strstr(text, "\"stall\":{"));
    dialsm_free(text);
    uint64_t writes = 0;
    OK(dialsm_counter(db, DIALSM_STR("writes"), &writes, status));
    CHECK(writes >= 100);
    FAILS(DIALSM_NOT_FOUND, dialsm_counter(db, DIALSM_STR("nonsense"), &writes, status));
    CHECK(writes == 0);

    dialsm_stalls_t stalls = {.size = sizeof stalls};
    OK(dialsm_stalls(db, NULL, &stalls, status));
    CHECK(stalls.state == DIALSM_STALL_OPEN && stalls.all.total_ns >= stalls.all.longest_ns);
    OK(dialsm_stalls(db, keyspace, &stalls, status));
    dialsm_clues_t clues = {.size = sizeof clues};
    OK(dialsm_clues(db, &clues, status));
    CHECK(clues.clues <= clues.redirects);
    /* A structure of a later version is longer; what this one does not know is 0. */
    struct {
        dialsm_clues_t known;
        uint64_t later;
    } longer = {{.size = sizeof longer}, 7};
    OK(dialsm_clues(db, &longer.known, status));
    CHECK(longer.later == 0 && longer.known.size == sizeof longer);
    clues.size = 0;
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_clues(db, &clues, status));
    stalls.size = 8;
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_stalls(db, NULL, &stalls, status));
}

static void test_compactions(dialsm_db_t *db, dialsm_keyspace_t *keyspace)
{
    dialsm_flush_options_t *flush = dialsm_flush_options_create();
    OK(dialsm_flush_options_set_wait(flush, false));
    OK(dialsm_flush(db, keyspace, flush, status));
    OK(dialsm_flush_options_set_wait(flush, true));
    OK(dialsm_flush_options_set_allow_stall(flush, true));
    OK(dialsm_flush_options_set_atomic(flush, true));
    OK(dialsm_flush_all(db, flush, status));
    dialsm_flush_options_free(flush);
    OK(dialsm_flush_all(db, NULL, status));
    OK(dialsm_sync(db, status));

    dialsm_compact_options_t *compact = dialsm_compact_options_create();
    dialsm_cancel_t *cancel = dialsm_cancel_create();
    OK(dialsm_compact_options_set_target_level(compact, -1));
    OK(dialsm_compact_options_set_rewrite_bottom(compact, true));
    BAD(dialsm_compact_options_set_target_level(compact, -7));
    BAD(dialsm_compact_options_set_target_level(compact, 1000));
    OK(dialsm_compact_options_set_cancel(compact, cancel));
    OK(dialsm_compact_range(db, NULL, compact, DIALSM_STR("key01"), DIALSM_STR("key02"), status));
    OK(dialsm_compact_range(db, keyspace, compact, NULL, 0, NULL, 0, status));
    dialsm_cancel(cancel);
    FAILS(DIALSM_CANCELLED, dialsm_compact_range(db, NULL, compact, NULL, 0, NULL, 0, status));
    dialsm_cancel_free(cancel);
    OK(dialsm_compact_options_set_cancel(compact, NULL));
    OK(dialsm_compact_options_set_target_level(compact, 100));
    CHECK(dialsm_compact_range(db, NULL, compact, NULL, 0, NULL, 0, status) != DIALSM_INTERNAL);
    dialsm_compact_options_free(compact);
    OK(dialsm_wait_until_idle(db, status));
    bool is_idle = false;
    OK(dialsm_is_idle(db, &is_idle, status));
    CHECK(is_idle);
    OK(dialsm_rollback(db, status));
}

void test_upkeep(void)
{
    dialsm_options_t *options = dialsm_options_create();
    OK(dialsm_options_set_shards(options, 4, status));
    dialsm_db_t *db = open_new("upkeep", options);
    dialsm_options_free(options);
    dialsm_keyspace_t *keyspace;
    OK(dialsm_keyspace_create(db, DIALSM_STR("second"), NULL, &keyspace, status));
    char key[32];
    for (int i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "key%03d", i);
        put(db, key, "value");
        OK(dialsm_put(db, keyspace, NULL, TEXT(key), DIALSM_STR("second"), status));
    }
    test_compactions(db, keyspace);
    test_figures(db, keyspace);

    const char *names[] = {"redirect", "clues_max"}, *values[] = {"false", "5"};
    size_t name_lens[] = {8, 9}, value_lens[] = {5, 1};
    OK(dialsm_set_options(db, NULL, 2, names, name_lens, values, value_lens, status));
    char *text;
    OK(dialsm_property(db, NULL, DIALSM_STR("dialsm.options"), &text, NULL, status));
    CHECK(strstr(text, "redirect = false\n") && strstr(text, "clues_max = 5\n"));
    dialsm_free(text);
    FAILS(DIALSM_INVALID_ARGUMENT,
          dialsm_set_options(db, keyspace, 2, names, name_lens, values, value_lens, status));
    names[0] = "shards", name_lens[0] = 6, values[0] = "8", value_lens[0] = 1;
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_set_options(db, NULL, 1, names, name_lens, values, value_lens, status));

    int told = 0;
    dialsm_verified_t verified = {.size = sizeof verified};
    OK(dialsm_verify(db, &told, progress, &verified, status));
    CHECK(told > 0 && verified.tables > 0 && verified.entries >= 1000 && verified.bytes > 0);
    OK(dialsm_verify(db, NULL, NULL, NULL, status));

    char copy[8300];
    snprintf(copy, sizeof copy, "%s", path_of("copy"));
    OK(dialsm_checkpoint(db, TEXT(copy), status));
    FAILS(DIALSM_ALREADY_EXISTS, dialsm_checkpoint(db, TEXT(copy), status));
    put(db, "key000", "later");
    dialsm_db_t *second;
    OK(dialsm_open(TEXT(copy), NULL, &second, status));
    CHECK(has(second, NULL, NULL, "key000", "value") && has(db, NULL, NULL, "key000", "later"));
    close_and_free(second);
    dialsm_keyspace_free(keyspace);
    close_and_free(db);
}
