/* 64 threads on one database. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 64, ROUNDS = 40 };

struct shared {
    dialsm_db_t *db;
    dialsm_keyspace_t *keyspace;
    dialsm_snapshot_t *snapshot;
};

struct task {
    pthread_t thread;
    struct shared *shared;
    int number;
    const char *failed;
};

/* Not CHECK: the status of that one is the main thread's. */
#define HOLDS(condition)                 \
    do {                                 \
        if (!(condition)) {              \
            task->failed = #condition;   \
            goto end;                    \
        }                                \
    } while (0)

static void *work(void *argument)
{
    struct task *task = argument;
    dialsm_db_t *db = task->shared->db;
    dialsm_status_t *own = dialsm_status_create();
    dialsm_batch_t *batch = dialsm_batch_create();
    dialsm_read_options_t *reads = dialsm_read_options_create();
    dialsm_iter_t *iter = NULL;
    dialsm_read_options_set_snapshot(reads, task->shared->snapshot);
    for (int round = 0; round < ROUNDS; round++) {
        char key[32], value[32];
        snprintf(key, sizeof key, "thread %02d round %02d", task->number, round);
        snprintf(value, sizeof value, "value %d", round);
        HOLDS(dialsm_put(db, NULL, NULL, TEXT(key), TEXT(value), own) == DIALSM_OK);
        dialsm_batch_clear(batch);
        HOLDS(dialsm_batch_put(batch, task->shared->keyspace, TEXT(key), TEXT(value), own) == DIALSM_OK);
        HOLDS(dialsm_batch_put(batch, NULL, "common", 6, TEXT(key), own) == DIALSM_OK);
        HOLDS(dialsm_write(db, NULL, batch, own) == DIALSM_OK);
        char found[32];
        size_t len = 0;
        bool is_found = false;
        HOLDS(dialsm_get_into(db, task->shared->keyspace, NULL, TEXT(key), found, sizeof found, &len, &is_found,
                              own) == DIALSM_OK);
        HOLDS(is_found && same(found, len, value));
        HOLDS(dialsm_get_into(db, NULL, reads, TEXT(key), found, sizeof found, &len, &is_found, own) == DIALSM_OK);
        HOLDS(!is_found); /* newer than the snapshot */
        if (round % 10 == 0) {
            HOLDS(dialsm_iter_create(db, NULL, NULL, &iter, own) == DIALSM_OK);
            HOLDS(dialsm_iter_seek(iter, TEXT(key), own) == DIALSM_OK);
            const void *at = dialsm_iter_key(iter, &len);
            HOLDS(same(at, len, key));
            dialsm_iter_free(iter);
            iter = NULL;
        }
        if (round == 20 && task->number % 16 == 0)
            HOLDS(dialsm_flush_all(db, NULL, own) == DIALSM_OK);
        dialsm_stalls_t stalls = {.size = sizeof stalls};
        HOLDS(dialsm_stalls(db, NULL, &stalls, own) == DIALSM_OK);
    }
end:
    dialsm_iter_free(iter);
    dialsm_read_options_free(reads);
    dialsm_batch_free(batch);
    dialsm_status_free(own);
    return NULL;
}

/* Reads until the database is closed under its feet. */
static void *read_until_closed(void *argument)
{
    struct task *task = argument;
    for (;;) {
        bool is_found;
        dialsm_code_t code = dialsm_get_into(task->shared->db, NULL, NULL, "common", 6, NULL, 0, NULL, &is_found, NULL);
        if (code == DIALSM_CLOSED)
            return NULL;
        if (code != DIALSM_OK || !is_found) {
            task->failed = "a read before the close";
            return NULL;
        }
    }
}

static void run(struct task *tasks, struct shared *shared, void *(*what)(void *))
{
    for (int i = 0; i < THREADS; i++) {
        tasks[i] = (struct task){.shared = shared, .number = i};
        CHECK(pthread_create(&tasks[i].thread, NULL, what, &tasks[i]) == 0);
    }
}

static void join(struct task *tasks)
{
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(tasks[i].thread, NULL) == 0);
        if (tasks[i].failed != NULL) {
            fprintf(stderr, "thread %d: %s\n", i, tasks[i].failed);
            exit(1);
        }
    }
}

void test_threads(void)
{
    static struct task tasks[THREADS];
    struct shared shared = {.db = open_new("threads", NULL)};
    OK(dialsm_keyspace_create(shared.db, DIALSM_STR("k"), NULL, &shared.keyspace, status));
    OK(dialsm_snapshot_create(shared.db, &shared.snapshot, status));
    run(tasks, &shared, work);
    join(tasks);

    dialsm_scan_t *scan;
    dialsm_entries_t *entries = dialsm_entries_create();
    size_t count = 0, more;
    OK(dialsm_scan_create(shared.db, shared.keyspace, NULL, NULL, &scan, status));
    do {
        OK(dialsm_scan_next(scan, entries, status));
        more = dialsm_entries_count(entries);
        count += more;
    } while (more > 0);
    CHECK(count == THREADS * ROUNDS);
    dialsm_scan_free(scan);
    dialsm_entries_free(entries);

    dialsm_snapshot_free(shared.snapshot);
    dialsm_keyspace_free(shared.keyspace);
    run(tasks, &shared, read_until_closed);
    OK(dialsm_close(shared.db, status));
    join(tasks);
    dialsm_db_free(shared.db);
}
