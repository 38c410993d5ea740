/* An account and its history in two keyspaces, always changed together. Usage: batch_and_keyspaces DIRECTORY */
#include <dialsm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(dialsm_code_t code, const dialsm_status_t *status)
{
    if (code == DIALSM_OK)
        return;
    fprintf(stderr, "%s: %s\n", dialsm_code_name(code), dialsm_status_message(status));
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    dialsm_status_t *status = dialsm_status_create();

    /* Options of a keyspace's own; an opening creates those that are not there yet. */
    dialsm_options_t *options = dialsm_options_create();
    dialsm_options_t *of_history = dialsm_options_create_for_keyspace();
    check(dialsm_options_set_compression(of_history, DIALSM_COMPRESSION_LZ4, status), status);
    check(dialsm_options_add_keyspace(options, DIALSM_STR("history"), of_history, status), status);
    dialsm_options_free(of_history);
    dialsm_db_t *db;
    check(dialsm_open(argv[1], strlen(argv[1]), options, &db, status), status);
    dialsm_options_free(options);
    dialsm_keyspace_t *history;
    check(dialsm_keyspace_find(db, DIALSM_STR("history"), &history, status), status);

    /* All of a batch becomes visible at once, and survives a crash whole or not at all. */
    dialsm_batch_t *batch = dialsm_batch_create();
    check(dialsm_batch_put(batch, NULL, DIALSM_STR("account 7"), DIALSM_STR("120"), status), status);
    check(dialsm_batch_put(batch, history, DIALSM_STR("7/0001"), DIALSM_STR("+120"), status), status);
    check(dialsm_batch_delete(batch, NULL, DIALSM_STR("account 7 is new"), status), status);
    dialsm_write_options_t *durable = dialsm_write_options_create();
    check(dialsm_write_options_set_sync(durable, true), NULL);
    check(dialsm_write(db, durable, batch, status), status);
    dialsm_write_options_free(durable);
    dialsm_batch_free(batch);

    /* Without a copy: the value is held where it lies. */
    dialsm_pinned_t *value = dialsm_pinned_create();
    size_t len;
    check(dialsm_get_pinned(db, NULL, NULL, DIALSM_STR("account 7"), value, status), status);
    const char *text = dialsm_pinned_value(value, &len);
    printf("account 7: %.*s", (int)len, text);
    check(dialsm_get_pinned(db, history, NULL, DIALSM_STR("7/0001"), value, status), status);
    text = dialsm_pinned_value(value, &len);
    printf(", after %.*s\n", (int)len, text);
    dialsm_pinned_free(value);

    dialsm_keyspace_free(history);
    check(dialsm_close(db, status), status);
    dialsm_db_free(db);
    dialsm_status_free(status);
    return 0;
}
