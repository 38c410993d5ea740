/* Version, status, options of databases. */
#include "check.h"

void test_status(void)
{
    CHECK(dialsm_abi_version() == DIALSM_ABI_VERSION);
    CHECK(strncmp(dialsm_version(), "0.", 2) == 0);
    CHECK(strcmp(dialsm_code_name(DIALSM_OK), "ok") == 0);
    CHECK(strcmp(dialsm_code_name(DIALSM_NOT_FOUND), "not found") == 0);
    CHECK(strcmp(dialsm_code_name(4711), "unknown code") == 0);
    CHECK(dialsm_status_code(status) == DIALSM_OK);
    CHECK(strcmp(dialsm_status_message(status), "") == 0);
    CHECK(dialsm_status_file(status) == NULL);
    uint64_t offset = 1;
    CHECK(!dialsm_status_offset(status, &offset) && offset == 0);
    CHECK(dialsm_status_os_error(status) == 0);

    dialsm_options_t *options = dialsm_options_create();
    OK(dialsm_options_set(options, DIALSM_STR("create_if_missing"), DIALSM_STR("false"), status));
    dialsm_db_t *db = (dialsm_db_t *)status;
    const char *path = path_of("absent");
    FAILS(DIALSM_NOT_FOUND, dialsm_open(TEXT(path), options, &db, status));
    CHECK(db == NULL);
    dialsm_options_free(options);

    /* A file in the way: the status names it, and the system's error. */
    path = path_of("file");
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fclose(file) == 0);
    CHECK(dialsm_open(TEXT(path), NULL, &db, status) != DIALSM_OK);
    CHECK(dialsm_status_file(status) != NULL && strstr(dialsm_status_file(status), "file") != NULL);
    CHECK(dialsm_status_os_error(status) != 0);
    OK(dialsm_destroy(DIALSM_STR("/nowhere/at/all"), status));
    CHECK(dialsm_status_file(status) == NULL && dialsm_status_os_error(status) == 0);

    /* Damage: the status has file and offset. */
    db = open_new("damaged", NULL);
    put(db, "key", "value");
    OK(dialsm_flush(db, NULL, NULL, status));
    close_and_free(db);
    char name[8300];
    bool is_damaged = false;
    for (int number = 1; number < 100 && !is_damaged; number++) {
        snprintf(name, sizeof name, "%s/%06d.sst", path_of("damaged"), number);
        file = fopen(name, "r+");
        if (file == NULL)
            continue;
        /* The block that the key is in comes first, behind the file's header. */
        for (long at = 64; at < 110; at++) {
            CHECK(fseek(file, at, SEEK_SET) == 0);
            CHECK(fputc(0xaa, file) != EOF);
        }
        CHECK(fclose(file) == 0);
        is_damaged = true;
    }
    if (is_damaged) {
        path = path_of("damaged");
        dialsm_code_t code = dialsm_open(TEXT(path), NULL, &db, status);
        if (code == DIALSM_OK) {
            char *value;
            code = dialsm_get(db, NULL, NULL, DIALSM_STR("key"), &value, NULL, status);
            CHECK(value == NULL);
        }
        CHECK(code == DIALSM_CORRUPTION);
        CHECK(dialsm_status_file(status) != NULL);
        CHECK(dialsm_status_offset(status, &offset));
        dialsm_db_free(db);
    } else {
        CHECK(!"a table to damage");
    }
}

static void test_setters(void)
{
    dialsm_options_t *options = dialsm_options_create();
    char *text;
    size_t len;
#define OPTION(setter, value, name, default_text)                                       \
    OK(setter(options, value, status));                                                 \
    OK(dialsm_options_get(options, DIALSM_STR(name), &text, &len, status));             \
    CHECK(same(text, len, default_text));                                               \
    dialsm_free(text);                                                                  \
    FAILS(DIALSM_INVALID_ARGUMENT, setter(NULL, value, status));
#include "options_typed.inc"
#undef OPTION
    OK(dialsm_options_set_shards(options, 4, status));
    OK(dialsm_options_set_redirect_pressure(options, 0.5, status));
    OK(dialsm_options_set_rollback(options, false, status));
    OK(dialsm_options_set_compression(options, DIALSM_COMPRESSION_NONE, status));
    OK(dialsm_options_set_recovery_mode(options, DIALSM_RECOVERY_ABSOLUTE_CONSISTENCY, status));
    OK(dialsm_options_text(options, &text, &len, status));
    CHECK(len == strlen(text));
    CHECK(strstr(text, "shards = 4\n") && strstr(text, "redirect_pressure = 0.5\n"));
    CHECK(strstr(text, "rollback = false\n") && strstr(text, "compression = none\n"));
    CHECK(strstr(text, "recovery_mode = absolute_consistency\n"));

    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_set_shards(options, 1000, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_set_compression(options, 99, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_set_redirect_pressure(options, -1, status));
    double zero = 0;
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_set_level_multiplier(options, zero / zero, status));
    char *after;
    OK(dialsm_options_text(options, &after, NULL, status));
    CHECK(strcmp(text, after) == 0); /* a failure has changed nothing */
    dialsm_free(text);
    dialsm_free(after);
    dialsm_options_free(options);
}

void test_options(void)
{
    test_setters();
    size_t count = 0;
    while (dialsm_option_name(count) != NULL)
        count++;
    CHECK(count > 30 && dialsm_option_name((size_t)-1) == NULL);

    dialsm_options_t *options = dialsm_options_create_for_machine(8, (uint64_t)16 << 30);
    char *text;
    size_t len;
    OK(dialsm_options_get(options, DIALSM_STR("background_jobs_max"), &text, &len, status));
    CHECK(same(text, len, "8"));
    dialsm_free(text);
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_get(options, DIALSM_STR("no such"), &text, &len, status));
    CHECK(text == NULL && len == 0);
    FAILS(DIALSM_INVALID_ARGUMENT,
          dialsm_options_set(options, DIALSM_STR("shards"), DIALSM_STR("many"), status));
    OK(dialsm_options_set_text(options, DIALSM_STR("# a comment\nshards = 2\nblock_bytes = 8K\n"), status));
    FAILS(DIALSM_INVALID_ARGUMENT,
          dialsm_options_set_text(options, DIALSM_STR("shards = 3\nshards = x\n"), status));
    dialsm_options_t *copy = dialsm_options_copy(options);
    OK(dialsm_options_get(copy, DIALSM_STR("shards"), &text, NULL, status));
    CHECK(strcmp(text, "2") == 0);
    dialsm_free(text);
    OK(dialsm_options_validate(copy, status));
    OK(dialsm_options_set(copy, DIALSM_STR("level0_stop_trigger"), DIALSM_STR("1"), status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_validate(copy, status));
    CHECK(strstr(dialsm_status_message(status), "level0_stop_trigger") != NULL);
    dialsm_db_t *db;
    const char *path = path_of("invalid");
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open(TEXT(path), copy, &db, status));
    dialsm_options_free(copy);

    /* Options of keyspaces: none of the database, and used where a keyspace is wanted only. */
    dialsm_options_t *own = dialsm_options_create_for_keyspace();
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_set_shards(own, 2, status));
    OK(dialsm_options_set_block_bytes(own, 16384, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open(TEXT(path), own, &db, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_add_keyspace(own, DIALSM_STR("k"), NULL, status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_add_keyspace(options, DIALSM_STR("k"), options, status));
    OK(dialsm_options_add_keyspace(options, DIALSM_STR("own"), own, status));
    dialsm_options_free(own);
    db = open_new("kept", options);
    dialsm_options_free(options);
    dialsm_keyspace_t *keyspace;
    OK(dialsm_keyspace_find(db, DIALSM_STR("own"), &keyspace, status));
    CHECK(dialsm_keyspace_shards(keyspace) == 2);
    OK(dialsm_property(db, keyspace, DIALSM_STR("dialsm.options"), &text, NULL, status));
    CHECK(strstr(text, "block_bytes = 16K\n") != NULL);
    dialsm_free(text);
    dialsm_keyspace_free(keyspace);
    close_and_free(db);

    path = path_of("kept");
    OK(dialsm_options_load(TEXT(path), &options, status));
    OK(dialsm_options_get(options, DIALSM_STR("block_bytes"), &text, NULL, status));
    CHECK(strcmp(text, "8K") == 0);
    dialsm_free(text);
    OK(dialsm_open(TEXT(path), options, &db, status));
    close_and_free(db);
    dialsm_options_free(options);
    path = path_of("never");
    FAILS(DIALSM_NOT_FOUND, dialsm_options_load(TEXT(path), &options, status));
    CHECK(options == NULL);
}
