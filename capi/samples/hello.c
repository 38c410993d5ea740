/* What each of the samples builds, in its own way. */
#include <dialsm.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    dialsm_db_t *db;
    dialsm_status_t *status = dialsm_status_create();
    char value[16];
    size_t len;
    if (argc != 2 || dialsm_abi_version() != DIALSM_ABI_VERSION
        || dialsm_open(argv[1], strlen(argv[1]), NULL, &db, status) != DIALSM_OK
        || dialsm_put(db, NULL, NULL, DIALSM_STR("hello"), DIALSM_STR("world"), status) != DIALSM_OK
        || dialsm_get_into(db, NULL, NULL, DIALSM_STR("hello"), value, sizeof value, &len, NULL, status) != DIALSM_OK
        || dialsm_close(db, status) != DIALSM_OK) {
        fprintf(stderr, "%s\n", dialsm_status_message(status));
        return 1;
    }
    printf("hello %.*s\n", (int)len, value);
    dialsm_db_free(db);
    dialsm_status_free(status);
    return 0;
}
