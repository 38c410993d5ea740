/* Opens a database, puts a key, gets it again. Usage: open_put_get DIRECTORY */
#include <dialsm.h>

#include <stdio.h>
#include <string.h>

/* Says what went wrong, and returns main's result. */
static int failed(const dialsm_status_t *status)
{
    fprintf(stderr, "%s: %s", dialsm_code_name(dialsm_status_code(status)), dialsm_status_message(status));
    uint64_t offset;
    if (dialsm_status_file(status) != NULL)
        fprintf(stderr, " [%s", dialsm_status_file(status));
    if (dialsm_status_offset(status, &offset))
        fprintf(stderr, " at %llu", (unsigned long long)offset);
    fprintf(stderr, "%s\n", dialsm_status_file(status) != NULL ? "]" : "");
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    /* One status for all calls of a thread: it says how the last of them ended. */
    dialsm_status_t *status = dialsm_status_create();
    dialsm_db_t *db;
    int result = 0;

    /* NULL for options means the defaults, NULL for a keyspace the default one. */
    if (dialsm_open(argv[1], strlen(argv[1]), NULL, &db, status) != DIALSM_OK
        || dialsm_put(db, NULL, NULL, DIALSM_STR("greeting"), DIALSM_STR("hello"), status) != DIALSM_OK) {
        result = failed(status);
    } else {
        char *value;
        size_t len;
        if (dialsm_get(db, NULL, NULL, DIALSM_STR("greeting"), &value, &len, status) != DIALSM_OK)
            result = failed(status);
        else if (value == NULL)
            printf("no greeting\n"); /* which would be no error */
        else
            printf("greeting: %.*s\n", (int)len, value);
        dialsm_free(value);
        if (dialsm_close(db, status) != DIALSM_OK)
            result = failed(status);
    }
    dialsm_db_free(db);
    dialsm_status_free(status);
    return result;
}
