/* Keeps the greatest number of each key, and makes a copy of the database. Usage: merge_and_checkpoint DIRECTORY COPY */
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

/* Called by any thread, in reads and in compactions: what it makes depends on its arguments alone. */
static int greatest(void *state, const uint8_t *key, size_t key_len, const uint8_t *base, size_t base_len,
                    size_t count, const uint8_t *const *operands, const size_t *lens,
                    dialsm_merge_result_t *result)
{
    uint8_t best = base != NULL && base_len == 1 ? base[0] : 0;
    for (size_t i = 0; i < count; i++) {
        if (lens[i] != 1)
            return 0; /* this key can't be read then; nothing of it is lost */
        if (operands[i][0] > best)
            best = operands[i][0];
    }
    (void)state, (void)key, (void)key_len;
    return dialsm_merge_result_set(result, &best, 1) == DIALSM_OK;
}

static dialsm_db_t *open_db(const char *path, dialsm_status_t *status)
{
    dialsm_merge_operator_t *operator;
    dialsm_options_t *options = dialsm_options_create();
    dialsm_db_t *db;
    check(dialsm_merge_operator_create(DIALSM_STR("example.greatest"), NULL, greatest, NULL, NULL, &operator, status),
          status);
    check(dialsm_options_set_merge_operator(options, operator, status), status);
    check(dialsm_open(path, strlen(path), options, &db, status), status);
    dialsm_merge_operator_free(operator); /* the database keeps it */
    dialsm_options_free(options);
    return db;
}

static void show(dialsm_db_t *db, const char *name, dialsm_status_t *status)
{
    uint8_t value = 0;
    check(dialsm_get_into(db, NULL, NULL, DIALSM_STR("highscore"), &value, 1, NULL, NULL, status), status);
    printf("%s: %d\n", name, value);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    dialsm_status_t *status = dialsm_status_create();
    dialsm_db_t *db = open_db(argv[1], status);
    static const uint8_t scores[] = {3, 9, 7};
    for (size_t i = 0; i < sizeof scores; i++)
        check(dialsm_merge(db, NULL, NULL, DIALSM_STR("highscore"), &scores[i], 1, status), status);

    /* A database of its own, at little cost: tables are linked where the file system allows it. */
    check(dialsm_checkpoint(db, argv[2], strlen(argv[2]), status), status);
    static const uint8_t better = 11;
    check(dialsm_merge(db, NULL, NULL, DIALSM_STR("highscore"), &better, 1, status), status);
    show(db, "highscore", status);
    dialsm_db_t *copy = open_db(argv[2], status);
    show(copy, "in the copy", status);

    check(dialsm_close(copy, status), status);
    check(dialsm_close(db, status), status);
    dialsm_db_free(copy);
    dialsm_db_free(db);
    dialsm_status_free(status);
    return 0;
}
