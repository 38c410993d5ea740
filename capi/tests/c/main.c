/* Calls every function of dialsm.h, as it is meant and as it is not. */
#include "check.h"

dialsm_status_t *status;
char directory[4096];
const void *returned;

const char *path_of(const char *name)
{
    static char path[8192];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

dialsm_db_t *open_new(const char *name, const dialsm_options_t *options)
{
    dialsm_db_t *db = NULL;
    const char *path = path_of(name);
    OK(dialsm_open(TEXT(path), options, &db, status));
    CHECK(db != NULL);
    return db;
}

void close_and_free(dialsm_db_t *db)
{
    OK(dialsm_close(db, status));
    dialsm_db_free(db);
}

void put(dialsm_db_t *db, const char *key, const char *value)
{
    OK(dialsm_put(db, NULL, NULL, TEXT(key), TEXT(value), status));
}

bool same(const void *bytes, size_t len, const char *text)
{
    if (text == NULL)
        return bytes == NULL && len == 0;
    return bytes != NULL && len == strlen(text) && memcmp(bytes, text, len) == 0;
}

bool has(dialsm_db_t *db, const dialsm_keyspace_t *keyspace, const dialsm_read_options_t *options,
         const char *key, const char *value)
{
    char *found = NULL;
    size_t len = 0;
    OK(dialsm_get(db, keyspace, options, TEXT(key), &found, &len, status));
    bool is = same(found, len, value);
    dialsm_free(found);
    return is;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {
        {"status", test_status},     {"options", test_options},     {"data", test_data},
        {"batches", test_batches},   {"keyspaces", test_keyspaces}, {"iterators", test_iterators},
        {"callbacks", test_callbacks}, {"upkeep", test_upkeep},     {"hostile", test_hostile},
        {"process", test_process},     {"threads", test_threads},
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    snprintf(directory, sizeof directory, "%s", argv[1]);
    status = dialsm_status_create();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        printf("%s\n", parts[i].name);
        fflush(stdout);
        parts[i].run();
    }
    dialsm_status_free(status);
    printf("all of it passed\n");
    return 0;
}
