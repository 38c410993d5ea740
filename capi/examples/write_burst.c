/*
 * Writes as fast as it can for a while, and says how long writes were held up, and how many values went to
 * another shard than their own meanwhile. Usage: write_burst DIRECTORY [MEGABYTES]
 */
#include <dialsm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void check(dialsm_code_t code, const dialsm_status_t *status)
{
    if (code == DIALSM_OK)
        return;
    fprintf(stderr, "%s: %s\n", dialsm_code_name(code), dialsm_status_message(status));
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    size_t megabytes = argc > 2 ? (size_t)atol(argv[2]) : 64;
    dialsm_status_t *status = dialsm_status_create();
    dialsm_options_t *options = dialsm_options_create();
    /* Small memtables, so that a short burst meets their limits; by name, or by a function for each option. */
    check(dialsm_options_set(options, DIALSM_STR("write_buffer_bytes"), DIALSM_STR("4M"), status), status);
    check(dialsm_options_set_shards(options, 4, status), status);
    dialsm_db_t *db;
    check(dialsm_open(argv[1], strlen(argv[1]), options, &db, status), status);
    dialsm_options_free(options);

    char key[32], value[1000];
    memset(value, 'x', sizeof value);
    double begun = now_ms(), longest = 0;
    unsigned number = 1;
    for (size_t i = 0; i < megabytes * 1000; i++) {
        number = number * 1664525u + 1013904223u;
        snprintf(key, sizeof key, "%016u", number);
        double before = now_ms();
        check(dialsm_put(db, NULL, NULL, key, 16, value, sizeof value, status), status);
        double took = now_ms() - before;
        if (took > longest)
            longest = took;
    }
    double took = now_ms() - begun;

    /* The caller says how long its structures are, so that a later library may know longer ones. */
    dialsm_stalls_t stalls = {.size = sizeof stalls};
    dialsm_clues_t clues = {.size = sizeof clues};
    check(dialsm_stalls(db, NULL, &stalls, status), status);
    check(dialsm_clues(db, &clues, status), status);
    printf("%zu MB in %.0f ms; the longest write took %.1f ms\n", megabytes, took, longest);
    printf("stalls: %llu, %.0f ms in all, the longest %.1f ms\n", (unsigned long long)stalls.all.count,
           (double)stalls.all.total_ns / 1e6, (double)stalls.all.longest_ns / 1e6);
    printf("redirected: %llu values, %llu clues now\n", (unsigned long long)clues.redirects,
           (unsigned long long)clues.clues);

    /* Bring them home; by itself the database does that when it is calm. */
    check(dialsm_rollback(db, status), status);
    check(dialsm_clues(db, &clues, status), status);
    printf("after a rollback: %llu clues\n", (unsigned long long)clues.clues);
    check(dialsm_close(db, status), status);
    dialsm_db_free(db);
    dialsm_status_free(status);
    return 0;
}
