/* Reads a range of keys, as it was, while it changes. Usage: iterator_and_snapshot DIRECTORY */
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
    dialsm_db_t *db;
    check(dialsm_open(argv[1], strlen(argv[1]), NULL, &db, status), status);
    char key[32];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "user/%03d", i);
        check(dialsm_put(db, NULL, NULL, key, strlen(key), DIALSM_STR("old"), status), status);
    }
    dialsm_snapshot_t *snapshot;
    check(dialsm_snapshot_create(db, &snapshot, status), status);
    check(dialsm_delete_range(db, NULL, NULL, DIALSM_STR("user/010"), DIALSM_STR("user/090"), status), status);

    /* One key at a time, backward, within a prefix, as it is now. */
    dialsm_read_options_t *options = dialsm_read_options_create();
    check(dialsm_read_options_set_prefix(options, DIALSM_STR("user/09")), NULL);
    dialsm_iter_t *iter;
    check(dialsm_iter_create(db, NULL, options, &iter, status), status);
    dialsm_iter_seek_to_last(iter, status);
    for (int shown = 0; dialsm_iter_valid(iter) && shown < 3; shown++) {
        size_t key_len, value_len;
        const char *found = dialsm_iter_key(iter, &key_len), *value = dialsm_iter_value(iter, &value_len);
        printf("%.*s = %.*s\n", (int)key_len, found, (int)value_len, value);
        dialsm_iter_prev(iter, status);
    }
    check(dialsm_iter_status(iter, status), status); /* for all moves at once */
    dialsm_iter_free(iter);

    /* Many keys a call, forward, as they were. */
    check(dialsm_read_options_set_prefix(options, DIALSM_STR("user/")), NULL);
    check(dialsm_read_options_set_snapshot(options, snapshot), NULL);
    check(dialsm_iter_create(db, NULL, options, &iter, status), status);
    dialsm_entries_t *entries = dialsm_entries_create();
    size_t keys = 0, bytes = 0, count;
    check(dialsm_iter_seek_to_first(iter, status), status);
    do {
        const char *data;
        const size_t *ends;
        check(dialsm_iter_next_batch(iter, entries, 32, 0, status), status);
        count = dialsm_entries_view(entries, &data, &ends);
        keys += count;
        bytes += count > 0 ? ends[2 * count - 1] : 0;
    } while (count > 0);
    printf("%zu keys of %zu bytes, with their values\n", keys, bytes);

    dialsm_entries_free(entries);
    dialsm_iter_free(iter);
    dialsm_read_options_free(options);
    dialsm_snapshot_free(snapshot);
    check(dialsm_close(db, status), status);
    dialsm_db_free(db);
    dialsm_status_free(status);
    return 0;
}
