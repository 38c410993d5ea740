/* What the process around a database does to it: forks, paths, file descriptors. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* All that hangs on a database. */
struct handles {
    dialsm_db_t *db;
    dialsm_keyspace_t *keyspace;
    dialsm_snapshot_t *snapshot;
    dialsm_iter_t *iter;
    dialsm_scan_t *scan;
    dialsm_read_options_t *reads;
    dialsm_batch_t *batch;
};

enum { CODES_MAX = 64 };

/* What a child got, sent through a pipe: how it ends is a tool's to say. */
struct told {
    int count;
    bool is_at_entry; /* an iterator of the parent */
    dialsm_code_t codes[CODES_MAX];
};

static void tell(struct told *told, dialsm_code_t code)
{
    if (told->count < CODES_MAX)
        told->codes[told->count++] = code;
}

static void use_in_child(struct handles *h, struct told *told)
{
    char *text;
    bool is;
    uint64_t number;
    dialsm_pinned_t *pinned = dialsm_pinned_create();
    dialsm_entries_t *entries = dialsm_entries_create();
    dialsm_names_t *names;
    dialsm_keyspace_t *keyspace;
    dialsm_snapshot_t *snapshot;
    dialsm_iter_t *iter;
    dialsm_scan_t *scan;
    dialsm_stalls_t stalls = {.size = sizeof stalls};
    tell(told, dialsm_scan_next(h->scan, entries, NULL));
    tell(told, dialsm_iter_next(h->iter, NULL));
    tell(told, dialsm_iter_prev(h->iter, NULL));
    tell(told, dialsm_iter_seek(h->iter, "k", 1, NULL));
    tell(told, dialsm_iter_seek_to_first(h->iter, NULL));
    tell(told, dialsm_iter_next_batch(h->iter, entries, 1, 0, NULL));
    tell(told, dialsm_iter_pin_value(h->iter, pinned, NULL));
    tell(told, dialsm_iter_status(h->iter, NULL));
    told->is_at_entry = dialsm_iter_valid(h->iter) || dialsm_iter_key(h->iter, NULL) != NULL;
    tell(told, dialsm_put(h->db, NULL, NULL, "k", 1, "v", 1, NULL));
    tell(told, dialsm_put(h->db, h->keyspace, NULL, "k", 1, "v", 1, NULL));
    tell(told, dialsm_write(h->db, NULL, h->batch, NULL));
    tell(told, dialsm_get(h->db, NULL, h->reads, "k", 1, &text, NULL, NULL));
    tell(told, dialsm_get_pinned(h->db, NULL, NULL, "k", 1, pinned, NULL));
    tell(told, dialsm_keyspaces(h->db, &names, NULL));
    tell(told, dialsm_keyspace_find(h->db, "other", 5, &keyspace, NULL));
    tell(told, dialsm_snapshot_create(h->db, &snapshot, NULL));
    tell(told, dialsm_iter_create(h->db, NULL, NULL, &iter, NULL));
    tell(told, dialsm_scan_create(h->db, NULL, NULL, NULL, &scan, NULL));
    tell(told, dialsm_property(h->db, NULL, DIALSM_STR("dialsm.options"), &text, NULL, NULL));
    tell(told, dialsm_statistics(h->db, &text, NULL, NULL));
    tell(told, dialsm_counter(h->db, "writes", 6, &number, NULL));
    tell(told, dialsm_stalls(h->db, NULL, &stalls, NULL));
    tell(told, dialsm_is_idle(h->db, &is, NULL));
    tell(told, dialsm_wait_until_idle(h->db, NULL));
    tell(told, dialsm_flush(h->db, NULL, NULL, NULL));
    tell(told, dialsm_compact_range(h->db, NULL, NULL, NULL, 0, NULL, 0, NULL));
    tell(told, dialsm_sync(h->db, NULL));
    tell(told, dialsm_verify(h->db, NULL, NULL, NULL, NULL));
    tell(told, dialsm_close(h->db, NULL));
    dialsm_entries_free(entries);
    dialsm_pinned_free(pinned);
}

/* The parent has a database open: none may be opened beside it. */
static void open_in_child(struct told *told, const char *path, const char *parents)
{
    dialsm_db_t *db;
    dialsm_names_t *names;
    dialsm_options_t *options;
    tell(told, dialsm_open(TEXT(path), NULL, &db, NULL));
    tell(told, dialsm_open(TEXT(parents), NULL, &db, NULL));
    tell(told, dialsm_open_read_only(TEXT(parents), NULL, &db, NULL));
    tell(told, dialsm_destroy(TEXT(parents), NULL));
    tell(told, dialsm_list_keyspaces(TEXT(parents), &names, NULL));
    tell(told, dialsm_options_load(TEXT(parents), &options, NULL));
}

static void free_all(struct handles *h)
{
    dialsm_batch_free(h->batch);
    dialsm_read_options_free(h->reads);
    dialsm_scan_free(h->scan);
    dialsm_iter_free(h->iter);
    dialsm_snapshot_free(h->snapshot);
    dialsm_keyspace_free(h->keyspace);
    dialsm_db_free(h->db);
}

static void fork_once(struct handles *h, const char *path, const char *parents)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    struct told told = {0};
    if (child == 0) {
        alarm(60); /* ends it where it hangs */
        use_in_child(h, &told);
        open_in_child(&told, path, parents);
        free_all(h);
        _exit(write(ends[1], &told, sizeof told) != sizeof told);
    }
    CHECK(close(ends[1]) == 0);
    CHECK(read(ends[0], &told, sizeof told) == sizeof told);
    CHECK(close(ends[0]) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(told.count == 35 && !told.is_at_entry);
    for (int i = 0; i < told.count; i++)
        if (told.codes[i] != DIALSM_FORKED) {
            fprintf(stderr, "call %d of the child: %s\n", i, dialsm_code_name(told.codes[i]));
            exit(1);
        }
}

/* In a child every call on what is the parent's says so, at once, and the parent goes on. */
static void test_fork(void)
{
    dialsm_options_t *options = dialsm_options_create();
    OK(dialsm_options_set_shards(options, 2, status));
    OK(dialsm_options_set(options, DIALSM_STR("scan_threads"), DIALSM_STR("2"), status));
    struct handles h;
    h.db = open_new("forked", options);
    dialsm_options_free(options);
    char key[32], value[2000], parents[8300], path[8300];
    memset(value, 'v', sizeof value);
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "key %04d", i);
        OK(dialsm_put(h.db, NULL, NULL, TEXT(key), value, sizeof value, status));
    }
    OK(dialsm_flush(h.db, NULL, NULL, status));
    OK(dialsm_keyspace_create(h.db, DIALSM_STR("other"), NULL, &h.keyspace, status));
    OK(dialsm_snapshot_create(h.db, &h.snapshot, status));
    h.reads = dialsm_read_options_create();
    OK(dialsm_read_options_set_snapshot(h.reads, h.snapshot));
    h.batch = dialsm_batch_create();
    OK(dialsm_batch_put(h.batch, h.keyspace, DIALSM_STR("k"), DIALSM_STR("v"), status));
    OK(dialsm_iter_create(h.db, NULL, NULL, &h.iter, status));
    OK(dialsm_iter_seek_to_first(h.iter, status));
    OK(dialsm_scan_create(h.db, NULL, NULL, NULL, &h.scan, status));
    dialsm_entries_t *entries = dialsm_entries_create();
    size_t entries_seen = 0;
    snprintf(parents, sizeof parents, "%s", path_of("forked"));
    snprintf(path, sizeof path, "%s", path_of("of a child"));
    for (int round = 0; round < 5; round++) {
        OK(dialsm_scan_next(h.scan, entries, status));
        entries_seen += dialsm_entries_count(entries);
        fork_once(&h, path, parents);
        CHECK(access(path, F_OK) != 0); /* refused before anything is made */
    }
    while (dialsm_scan_next(h.scan, entries, status) == DIALSM_OK && dialsm_entries_count(entries) > 0)
        entries_seen += dialsm_entries_count(entries);
    CHECK(entries_seen == 1000);
    dialsm_entries_free(entries);
    CHECK(dialsm_iter_valid(h.iter));
    OK(dialsm_iter_next(h.iter, status));
    OK(dialsm_write(h.db, NULL, h.batch, status));
    OK(dialsm_verify(h.db, NULL, NULL, NULL, status));
    free_all(&h);
}

/* A child whose parent has nothing open opens its own. */
static void test_own(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    const char *path = path_of("own");
    pid_t child = fork();
    CHECK(child >= 0);
    dialsm_code_t codes[4] = {DIALSM_INTERNAL};
    if (child == 0) {
        alarm(60);
        dialsm_db_t *db = NULL;
        codes[0] = dialsm_open(TEXT(path), NULL, &db, NULL);
        codes[1] = dialsm_put(db, NULL, NULL, "k", 1, "v", 1, NULL);
        codes[2] = dialsm_flush(db, NULL, NULL, NULL);
        codes[3] = dialsm_close(db, NULL);
        dialsm_db_free(db);
        _exit(write(ends[1], codes, sizeof codes) != sizeof codes);
    }
    CHECK(close(ends[1]) == 0);
    CHECK(read(ends[0], codes, sizeof codes) == sizeof codes);
    CHECK(close(ends[0]) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(codes[0] == DIALSM_OK && codes[1] == DIALSM_OK && codes[2] == DIALSM_OK && codes[3] == DIALSM_OK);
    dialsm_db_t *db;
    OK(dialsm_open(TEXT(path), NULL, &db, status));
    CHECK(has(db, NULL, NULL, "k", "v"));
    close_and_free(db);
}

/* What is no path makes nothing. */
static void test_paths(void)
{
    dialsm_db_t *db;
    dialsm_names_t *names;
    dialsm_options_t *options;
    CHECK(access("LOCK", F_OK) != 0);
    static const struct {
        const char *path;
        size_t len;
    } bad[] = {{"", 0}, {NULL, 0}, {"a\0b", 3}, {"\0", 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *path = bad[i].path;
        size_t len = bad[i].len;
        FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open(path, len, NULL, &db, status));
        FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open_read_only(path, len, NULL, &db, status));
        FAILS(DIALSM_INVALID_ARGUMENT, dialsm_destroy(path, len, status));
        FAILS(DIALSM_INVALID_ARGUMENT, dialsm_upgrade(path, len, NULL, NULL, status));
        FAILS(DIALSM_INVALID_ARGUMENT, dialsm_list_keyspaces(path, len, &names, status));
        FAILS(DIALSM_INVALID_ARGUMENT, dialsm_options_load(path, len, &options, status));
    }
    CHECK(access("LOCK", F_OK) != 0 && access("a", F_OK) != 0);

    char path[8300];
    snprintf(path, sizeof path, "%s", path_of("a file"));
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    CHECK(file >= 0 && write(file, "mine", 4) == 4 && close(file) == 0);
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open(TEXT(path), NULL, &db, status));
    CHECK(strstr(dialsm_status_message(status), "a file stands where") != NULL);
    CHECK(strcmp(dialsm_status_file(status), path) == 0);
    FAILS(DIALSM_NOT_FOUND, dialsm_open_read_only(TEXT(path), NULL, &db, status));
    FAILS(DIALSM_IO, dialsm_destroy(TEXT(path), status));
    struct stat found;
    CHECK(stat(path, &found) == 0 && found.st_size == 4);
    strcat(path, "/below");
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_open(TEXT(path), NULL, &db, status));

    /* Those above it are made, too. */
    db = open_new("made/all/of/it", NULL);
    OK(dialsm_checkpoint(db, TEXT(path_of("made/copy")), status));
    FAILS(DIALSM_INVALID_ARGUMENT, dialsm_checkpoint(db, "", 0, status));
    close_and_free(db);
}

/* Without file descriptors a flush fails, says why, and is made up for when there are some again. */
static void test_descriptors(void)
{
    dialsm_db_t *db = open_new("descriptors", NULL);
    put(db, "before", "v");
    struct rlimit limit, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    int lowest = dup(0);
    CHECK(lowest >= 0 && close(lowest) == 0);
    none.rlim_cur = (rlim_t)lowest;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    FAILS(DIALSM_IO, dialsm_flush(db, NULL, NULL, status));
    CHECK(dialsm_status_os_error(status) == EMFILE);
    FAILS(DIALSM_IO, dialsm_put(db, NULL, NULL, "during", 6, "v", 1, status));
    CHECK(dialsm_status_os_error(status) == EMFILE);
    CHECK(has(db, NULL, NULL, "before", "v"));
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    /* By itself, within a moment. */
    for (int i = 0; dialsm_put(db, NULL, NULL, "after", 5, "v", 1, status) != DIALSM_OK; i++) {
        CHECK(dialsm_status_os_error(status) == EMFILE && i < 6000);
        usleep(10000);
    }
    OK(dialsm_flush(db, NULL, NULL, status));
    CHECK(has(db, NULL, NULL, "before", "v") && has(db, NULL, NULL, "after", "v"));
    CHECK(has(db, NULL, NULL, "during", NULL));

    /* With one the table can be made, and its name is synced without another. */
    lowest = dup(0);
    CHECK(lowest >= 0 && close(lowest) == 0);
    none.rlim_cur = (rlim_t)lowest + 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    put(db, "last", "v");
    OK(dialsm_flush(db, NULL, NULL, status));
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(has(db, NULL, NULL, "last", "v"));
    OK(dialsm_verify(db, NULL, NULL, NULL, status));
    close_and_free(db);
}

void test_process(void)
{
    test_own();
    test_fork();
    test_paths();
    test_descriptors();
}
