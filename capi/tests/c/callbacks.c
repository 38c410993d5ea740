/* Comparators, merge operators, prefix extractors and event listeners in C, good and bad ones. */
#include "check.h"

/* States count how often they were destroyed. */
static void destroy(void *state)
{
    ++*(int *)state;
}

/* Longer keys come later; equal lengths by their bytes. */
static int by_length(void *state, const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    (void)state;
    if (a_len != b_len)
        return a_len < b_len ? -1 : 1;
    return a_len == 0 ? 0 : memcmp(a, b, a_len);
}

static int never_equal(void *state, const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    (void)state, (void)a, (void)a_len, (void)b, (void)b_len;
    return 1;
}

static int garbage(void *state, const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    unsigned *seed = state;
    if (a_len == b_len && memcmp(a, b, a_len) == 0)
        return 0;
    *seed = *seed * 1103515245u + 12345u;
    return (int)(*seed >> 16 & 2) * 1000000 - 1000000;
}

/* The longest of base and operands. */
static int longest(void *state, const uint8_t *key, size_t key_len, const uint8_t *base, size_t base_len,
                   size_t count, const uint8_t *const *operands, const size_t *lens,
                   dialsm_merge_result_t *result)
{
    (void)state, (void)key, (void)key_len;
    const uint8_t *best = base;
    size_t best_len = base == NULL ? 0 : base_len;
    for (size_t i = 0; i < count; i++) {
        if (lens[i] >= best_len) {
            best = operands[i];
            best_len = lens[i];
        }
    }
    /* In two pieces, for the sake of the second function. */
    return dialsm_merge_result_set(result, best, best_len / 2) == DIALSM_OK
           && dialsm_merge_result_append(result, best + best_len / 2, best_len - best_len / 2) == DIALSM_OK;
}

static int longest_of_operands(void *state, const uint8_t *key, size_t key_len, size_t count,
                               const uint8_t *const *operands, const size_t *lens,
                               dialsm_merge_result_t *result)
{
    return longest(state, key, key_len, NULL, 0, count, operands, lens, result);
}

/* What a broken operator does, by the first byte of the key. */
static int broken_merge(void *state, const uint8_t *key, size_t key_len, const uint8_t *base, size_t base_len,
                        size_t count, const uint8_t *const *operands, const size_t *lens,
                        dialsm_merge_result_t *result)
{
    (void)state, (void)base, (void)base_len, (void)count, (void)operands, (void)lens;
    static const uint8_t none[1];
    switch (key_len == 0 ? 0 : key[0]) {
    case 'n': return 1; /* says yes and gives nothing */
    case 'f': return 0;
    case 'l': /* ignores what it is told about a size that cannot be */
        BAD(dialsm_merge_result_set(result, none, (size_t)-1) == DIALSM_TOO_LARGE ? DIALSM_INVALID_ARGUMENT
                                                                                  : DIALSM_OK);
        return 1;
    case '0': /* says something after all, and then no */
        OK(dialsm_merge_result_set(result, "x", 1));
        return 0;
    default: OK(dialsm_merge_result_set(result, NULL, 0)); return 77; /* any number but 0 is yes */
    }
}

/* All up to the first ':'. */
static int up_to_colon(void *state, const uint8_t *key, size_t key_len, size_t *start, size_t *len)
{
    (void)state;
    const uint8_t *colon = key_len == 0 ? NULL : memchr(key, ':', key_len);
    *start = 0;
    *len = colon == NULL ? 0 : (size_t)(colon - key);
    return colon != NULL;
}

static int beyond_the_key(void *state, const uint8_t *key, size_t key_len, size_t *start, size_t *len)
{
    (void)key;
    *start = *(int *)state != 0 ? (size_t)-1 : 0;
    *len = *(int *)state != 0 ? 2 : key_len;
    return 1;
}

/* What is no name of a user's, or can't be stored. */
static void test_names(void)
{
    static char long_name[256];
    memset(long_name, 'n', sizeof long_name);
    static const struct {
        const char *name;
        size_t len;
    } bad[] = {{"", 0}, {NULL, 0}, {"dialsm.mine", 11}, {long_name, sizeof long_name}};
    int destroyed = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *name = bad[i].name;
        size_t len = bad[i].len;
        dialsm_comparator_t *order;
        FAILS(DIALSM_INVALID_ARGUMENT,
              dialsm_comparator_create(name, len, &destroyed, by_length, true, destroy, &order, status));
        dialsm_merge_operator_t *operator;
        FAILS(DIALSM_INVALID_ARGUMENT, dialsm_merge_operator_create(name, len, &destroyed, longest, NULL, destroy,
                                                                    &operator, status));
        dialsm_prefix_extractor_t *extractor;
        FAILS(DIALSM_INVALID_ARGUMENT, dialsm_prefix_extractor_create(name, len, &destroyed, up_to_colon, destroy,
                                                                      &extractor, status));
        CHECK(order == NULL && operator == NULL && extractor == NULL);
    }
    CHECK(destroyed == 12);
}

/* An order that is none may be found out anywhere, but never as a defect of the library, and by its name. */
static void blames_comparator(dialsm_code_t code)
{
    CHECK(code == dialsm_status_code(status) && code != DIALSM_INTERNAL);
    if (code == DIALSM_CALLBACK || code == DIALSM_CORRUPTION)
        CHECK(strstr(dialsm_status_message(status), "comparator") != NULL);
}

static void test_comparators(void)
{
    int destroyed = 0;
    dialsm_comparator_t *order;
    OK(dialsm_comparator_create(DIALSM_STR("test.by-length"), &destroyed, by_length, true, destroy, &order,
                                status));
    dialsm_options_t *options = dialsm_options_create();
    OK(dialsm_options_set_comparator(options, order, status));
    dialsm_comparator_free(order);
    dialsm_db_t *db = open_new("ordered", options);
    dialsm_options_free(options);
    CHECK(destroyed == 0);
    put(db, "zz", "2");
    put(db, "aaa", "3");
    put(db, "y", "1");
    dialsm_iter_t *iter;
    OK(dialsm_iter_create(db, NULL, NULL, &iter, status));
    const char *expected[] = {"y", "zz", "aaa"};
    OK(dialsm_iter_seek_to_first(iter, status));
    for (int i = 0; i < 3; i++) {
        size_t len;
        CHECK(IS(dialsm_iter_key(iter, &len), expected[i]));
        OK(dialsm_iter_next(iter, status));
    }
    OK(dialsm_close(db, status));
    dialsm_db_free(db);
    CHECK(destroyed == 0); /* the iterator still needs it */
    dialsm_iter_free(iter);
    CHECK(destroyed == 1);
    const char *path = path_of("ordered");
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open(TEXT(path), NULL, &db, status)); /* another order */

    /* Where none can be made, the state is freed all the same. */
    destroyed = 0;
    FAILS(DIALSM_INVALID_ARGUMENT,
          dialsm_comparator_create(DIALSM_STR("x"), &destroyed, NULL, true, destroy, &order, status));
    CHECK(destroyed == 1 && order == NULL);
    FAILS(DIALSM_INVALID_ARGUMENT,
          dialsm_comparator_create("\xff", 1, &destroyed, by_length, true, destroy, &order, status));
    CHECK(destroyed == 2);

    /* Orders that are none. */
    static const dialsm_compare_fn bad[] = {never_equal, garbage};
    for (int i = 0; i < 2; i++) {
        unsigned seed = 7;
        OK(dialsm_comparator_create(DIALSM_STR("test.bad"), &seed, bad[i], false, NULL, &order, status));
        options = dialsm_options_create();
        OK(dialsm_options_set_shards(options, 1, status));
        OK(dialsm_options_set_comparator(options, order, status));
        char name[32], key[32];
        snprintf(name, sizeof name, "bad order %d", i);
        db = open_new(name, options);
        size_t refused = 0;
        for (int k = 0; k < 300; k++) {
            snprintf(key, sizeof key, "k%d", k % 100);
            refused += dialsm_put(db, NULL, NULL, TEXT(key), "v", 1, status) != DIALSM_OK;
        }
        CHECK(i == 1 || refused == 300);
        blames_comparator(dialsm_flush(db, NULL, NULL, status));
        blames_comparator(dialsm_compact_range(db, NULL, NULL, NULL, 0, NULL, 0, status));
        OK(dialsm_iter_create(db, NULL, NULL, &iter, status));
        dialsm_iter_seek_to_first(iter, status);
        for (int k = 0; k < 1000 && dialsm_iter_valid(iter); k++)
            dialsm_iter_next(iter, status);
        dialsm_iter_free(iter);
        dialsm_close(db, status);
        dialsm_db_free(db);
        path = path_of(name);
        blames_comparator(dialsm_open(TEXT(path), options, &db, status));
        if (db != NULL)
            blames_comparator(dialsm_compact_range(db, NULL, NULL, NULL, 0, NULL, 0, status));
        dialsm_db_free(db);
        dialsm_options_free(options);
        dialsm_comparator_free(order);
    }

    options = dialsm_options_create();
    order = dialsm_comparator_create_reverse_bytewise();
    OK(dialsm_options_set_comparator(options, order, status));
    dialsm_comparator_free(order);
    db = open_new("reverse", options);
    put(db, "a", "1");
    put(db, "b", "2");
    OK(dialsm_iter_create(db, NULL, NULL, &iter, status));
    OK(dialsm_iter_seek_to_first(iter, status));
    size_t len;
    CHECK(IS(dialsm_iter_key(iter, &len), "b"));
    dialsm_iter_free(iter);
    close_and_free(db);
    OK(dialsm_options_set_comparator(options, NULL, status));
    dialsm_options_free(options);
}

static void test_merges(void)
{
    int destroyed = 0;
    dialsm_merge_operator_t *operator;
    OK(dialsm_merge_operator_create(DIALSM_STR("test.longest"), &destroyed, longest, longest_of_operands,
                                    destroy, &operator, status));
    dialsm_options_t *options = dialsm_options_create();
    OK(dialsm_options_set_merge_operator(options, operator, status));
    dialsm_merge_operator_free(operator);
    dialsm_db_t *db = open_new("merged", options);
    dialsm_options_free(options);
    put(db, "k", "base");
    for (int i = 0; i < 3; i++) {
        OK(dialsm_merge(db, NULL, NULL, DIALSM_STR("k"), DIALSM_STR("x"), status));
        OK(dialsm_merge(db, NULL, NULL, DIALSM_STR("k"), DIALSM_STR("longer"), status));
        OK(dialsm_merge(db, NULL, NULL, DIALSM_STR("no base"), DIALSM_STR("o"), status));
        OK(dialsm_flush(db, NULL, NULL, status));
    }
    CHECK(has(db, NULL, NULL, "k", "longer") && has(db, NULL, NULL, "no base", "o"));
    OK(dialsm_compact_range(db, NULL, NULL, NULL, 0, NULL, 0, status));
    CHECK(has(db, NULL, NULL, "k", "longer") && has(db, NULL, NULL, "no base", "o"));
    close_and_free(db);
    CHECK(destroyed == 1);

    /* A broken one: reads of its keys fail, others go on, and nothing is lost. */
    OK(dialsm_merge_operator_create(DIALSM_STR("test.longest"), NULL, broken_merge, NULL, NULL, &operator,
                                    status));
    options = dialsm_options_create();
    OK(dialsm_options_set_merge_operator(options, operator, status));
    dialsm_merge_operator_free(operator);
    db = open_new("broken", options);
    static const char *const keys[] = {"nothing", "false", "length", "0"};
    char *value;
    put(db, "good", "value");
    OK(dialsm_merge(db, NULL, NULL, DIALSM_STR("works"), DIALSM_STR("x"), status));
    for (int i = 0; i < 4; i++) {
        OK(dialsm_merge(db, NULL, NULL, TEXT(keys[i]), DIALSM_STR("operand"), status));
        FAILS(DIALSM_CALLBACK, dialsm_get(db, NULL, NULL, TEXT(keys[i]), &value, NULL, status));
        CHECK(value == NULL);
    }
    OK(dialsm_flush(db, NULL, NULL, status));
    OK(dialsm_compact_range(db, NULL, NULL, NULL, 0, NULL, 0, status));
    CHECK(has(db, NULL, NULL, "good", "value") && has(db, NULL, NULL, "works", ""));
    for (int i = 0; i < 4; i++)
        FAILS(DIALSM_CALLBACK, dialsm_get(db, NULL, NULL, TEXT(keys[i]), &value, NULL, status));
    close_and_free(db);
    dialsm_options_free(options);
    OK(dialsm_merge_operator_create(DIALSM_STR("test.longest"), NULL, longest, NULL, NULL, &operator, status));
    options = dialsm_options_create();
    OK(dialsm_options_set_merge_operator(options, operator, status));
    db = open_new("broken", options);
    CHECK(has(db, NULL, NULL, "nothing", "operand"));
    close_and_free(db);
    dialsm_merge_operator_free(operator);

    operator = dialsm_merge_operator_create_counter();
    OK(dialsm_options_set_merge_operator(options, operator, status));
    dialsm_merge_operator_free(operator);
    db = open_new("counted", options);
    OK(dialsm_merge(db, NULL, NULL, DIALSM_STR("n"), DIALSM_STR("\x05\0\0\0\0\0\0\0"), status));
    OK(dialsm_merge(db, NULL, NULL, DIALSM_STR("n"), DIALSM_STR("\x02\0\0\0\0\0\0\0"), status));
    size_t len;
    OK(dialsm_get(db, NULL, NULL, DIALSM_STR("n"), &value, &len, status));
    CHECK(len == 8 && value[0] == 7);
    dialsm_free(value);
    close_and_free(db);
    OK(dialsm_options_set_merge_operator(options, NULL, status));
    dialsm_options_free(options);
    BAD(dialsm_merge_result_set(NULL, "x", 1));
    BAD(dialsm_merge_result_append(NULL, "x", 1));
}

/* How many keys a scan shows that begins at `start` and ends with its prefix. */
static int shown(dialsm_db_t *db, const char *start)
{
    dialsm_read_options_t *reads = dialsm_read_options_create();
    OK(dialsm_read_options_set_prefix_same_as_start(reads, true));
    dialsm_iter_t *iter;
    OK(dialsm_iter_create(db, NULL, reads, &iter, status));
    dialsm_read_options_free(reads);
    int count = 0;
    for (dialsm_iter_seek(iter, TEXT(start), status); dialsm_iter_valid(iter); count++)
        OK(dialsm_iter_next(iter, status));
    if (dialsm_iter_status(iter, status) != DIALSM_OK)
        count = -(int)dialsm_status_code(status);
    CHECK(strstr(dialsm_status_message(status), "panicked") == NULL);
    dialsm_iter_free(iter);
    return count;
}

static void test_prefixes(void)
{
    int destroyed = 0;
    dialsm_prefix_extractor_t *extractors[5];
    OK(dialsm_prefix_extractor_create(DIALSM_STR("test.colon"), &destroyed, up_to_colon, destroy,
                                      &extractors[0], status));
    OK(dialsm_prefix_extractor_create_first_bytes(2, false, &extractors[1], status));
    OK(dialsm_prefix_extractor_create_first_bytes(2, true, &extractors[2], status));
    extractors[3] = dialsm_prefix_extractor_create_delimiter(':');
    for (int i = 0; i < 4; i++) {
        dialsm_options_t *options = dialsm_options_create();
        OK(dialsm_options_set_prefix_extractor(options, extractors[i], status));
        dialsm_prefix_extractor_free(extractors[i]);
        char name[32];
        snprintf(name, sizeof name, "prefixes %d", i);
        dialsm_db_t *db = open_new(name, options);
        OK(dialsm_options_set_prefix_extractor(options, NULL, status));
        dialsm_options_free(options);
        put(db, "a:1", "");
        put(db, "a:2", "");
        put(db, "b:1", "");
        OK(dialsm_flush(db, NULL, NULL, status));
        CHECK(shown(db, "a:1") == 2 && shown(db, "b:") == 1 && shown(db, "c:") == 0);
        close_and_free(db);
    }
    CHECK(destroyed == 1);
    FAILS(DIALSM_INVALID_ARGUMENT,
          dialsm_prefix_extractor_create_first_bytes((size_t)-1, true, &extractors[0], status));

    /* One that begins to lie: scans fail, and nothing else. */
    int lies = 0;
    OK(dialsm_prefix_extractor_create(DIALSM_STR("test.lies"), &lies, beyond_the_key, NULL, &extractors[4],
                                      status));
    dialsm_options_t *options = dialsm_options_create();
    OK(dialsm_options_set_prefix_extractor(options, extractors[4], status));
    dialsm_prefix_extractor_free(extractors[4]);
    dialsm_db_t *db = open_new("lies", options);
    dialsm_options_free(options);
    put(db, "k", "v");
    CHECK(shown(db, "k") == 1);
    lies = 1;
    CHECK(shown(db, "k") == -DIALSM_CALLBACK);
    CHECK(strstr(dialsm_status_message(status), "no part of its key") != NULL);
    put(db, "l", "v");
    OK(dialsm_flush(db, NULL, NULL, status));
    CHECK(has(db, NULL, NULL, "k", "v") && has(db, NULL, NULL, "l", "v"));
    close_and_free(db);
}

/* What a listener heard: only its thread writes here, and the test reads when the database is closed. */
typedef struct {
    int destroyed, begun[2], ended[2], out_of_order, closed;
    uint64_t wall_us;
    dialsm_db_t *db;
} heard_t;

static void destroy_heard(void *state)
{
    ((heard_t *)state)->destroyed++;
}

static void hear(void *state, const dialsm_event_t *event)
{
    heard_t *heard = state;
    CHECK(event->size == sizeof *event && event->reserved == 0);
    CHECK(event->severity >= DIALSM_SEVERITY_ERROR && event->severity <= DIALSM_SEVERITY_DEBUG);
    CHECK(strlen(event->name) == event->name_len && strlen(event->fields) == event->fields_len);
    CHECK(event->wall_us != 0 && event->fields[0] != ' ');
    heard->wall_us = event->wall_us;
    static const char *const begins[] = {"flush_begin", "compaction_begin"};
    static const char *const ends[] = {"flush_end", "compaction_end"};
    for (int i = 0; i < 2; i++) {
        bool is_begin = strcmp(event->name, begins[i]) == 0, is_end = strcmp(event->name, ends[i]) == 0;
        heard->begun[i] += is_begin;
        heard->ended[i] += is_end;
        heard->out_of_order += heard->ended[i] > heard->begun[i];
        if (is_begin || is_end) {
            CHECK(event->severity == DIALSM_SEVERITY_INFO);
            CHECK(strncmp(event->fields, "job=", 4) == 0);
            CHECK(strstr(event->fields, " keyspace=default shard=0 ") != NULL);
        }
    }
    heard->closed += strcmp(event->name, "closed") == 0;
}

/* Closes the database that it hears of. */
static void close_it(void *state, const dialsm_event_t *event)
{
    heard_t *heard = state;
    if (strcmp(event->name, "flush_end") == 0)
        heard->closed += dialsm_close(heard->db, NULL) == DIALSM_OK;
}

static void test_events(void)
{
    heard_t heard = {0};
    dialsm_event_listener_t *listener;
    OK(dialsm_event_listener_create(&heard, hear, destroy_heard, &listener, status));
    dialsm_options_t *options = dialsm_options_create(), *own = dialsm_options_create_for_keyspace();
    OK(dialsm_options_set_shards(options, 1, status));
    OK(dialsm_options_add_event_listener(options, listener, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_add_event_listener(own, listener, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_add_event_listener(options, NULL, status));
    dialsm_options_free(own);
    dialsm_event_listener_free(listener);
    dialsm_db_t *db = open_new("events", options);
    dialsm_options_free(options);
    for (int i = 0; i < 2; i++) {
        put(db, "k", "v");
        OK(dialsm_flush(db, NULL, NULL, status));
    }
    OK(dialsm_compact_range(db, NULL, NULL, NULL, 0, NULL, 0, status));
    OK(dialsm_close(db, status));
    CHECK(heard.begun[0] >= 2 && heard.begun[1] >= 1 && heard.closed == 1 && heard.out_of_order == 0);
    CHECK(heard.begun[0] == heard.ended[0] && heard.begun[1] == heard.ended[1]);
    CHECK(heard.destroyed == 1);
    dialsm_db_free(db);
    CHECK(heard.destroyed == 1);

    /* Where none can be made, and where nothing is opened with it, the state is freed all the same. */
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_event_listener_create(&heard, NULL, destroy_heard, &listener, status));
    CHECK(heard.destroyed == 2 && listener == NULL);
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_event_listener_create(&heard, hear, destroy_heard, NULL, status));
    CHECK(heard.destroyed == 3);
    OK(dialsm_event_listener_create(&heard, hear, destroy_heard, &listener, status));
    dialsm_event_listener_free(listener);
    CHECK(heard.destroyed == 4);

    heard = (heard_t){0};
    OK(dialsm_event_listener_create(&heard, close_it, NULL, &listener, status));
    options = dialsm_options_create();
    OK(dialsm_options_add_event_listener(options, listener, status));
    dialsm_event_listener_free(listener);
    heard.db = db = open_new("closed by a listener", options);
    dialsm_options_free(options);
    put(db, "k", "v");
    dialsm_code_t code = dialsm_flush(db, NULL, NULL, status);
    CHECK(code == DIALSM_OK || code == DIALSM_CLOSED || code == DIALSM_CANCELLED);
    code = dialsm_close(db, status);
    CHECK(code == DIALSM_OK || code == DIALSM_CLOSED);
    dialsm_db_free(db);
}

void test_callbacks(void)
{
    test_events();
    test_names();
    test_comparators();
    test_merges();
    test_prefixes();
}
