/* What the parts of the C test share. */
#ifndef CHECK_H
#define CHECK_H

#include "dialsm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern dialsm_status_t *status; /* the main thread's */
extern char directory[4096];    /* for databases */

/* Ends the program where `condition` does not hold. */
#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: %s\n  status: %s: %s\n", __FILE__, __LINE__, #condition,      \
                    dialsm_code_name(dialsm_status_code(status)), dialsm_status_message(status)); \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

#define OK(call) CHECK((call) == DIALSM_OK)
/* The call fails with the code, and the status has a message. */
#define FAILS(code, call)                                \
    do {                                                 \
        CHECK((call) == (code));                         \
        CHECK(dialsm_status_code(status) == (code));     \
        CHECK(dialsm_status_message(status)[0] != '\0'); \
    } while (0)
/* For calls that take no status. */
#define BAD(call) CHECK((call) == DIALSM_INVALID_ARGUMENT)

#define TEXT(text) (text), strlen(text)

/* The path of a database of that name, not there yet; one at a time. */
const char *path_of(const char *name);
dialsm_db_t *open_new(const char *name, const dialsm_options_t *options);
void close_and_free(dialsm_db_t *db);
void put(dialsm_db_t *db, const char *key, const char *value);
/* Whether the key has that value; NULL: none. */
bool has(dialsm_db_t *db, const dialsm_keyspace_t *keyspace, const dialsm_read_options_t *options,
         const char *key, const char *value);
bool same(const void *bytes, size_t len, const char *text);
/* Whether the call, which stores a length in `len`, returns those bytes. Not for several threads. */
#define IS(call, text) (returned = (call), same(returned, len, text))
extern const void *returned;

void test_status(void);
void test_options(void);
void test_data(void);
void test_batches(void);
void test_keyspaces(void);
void test_iterators(void);
void test_callbacks(void);
void test_upkeep(void);
void test_hostile(void);
void test_process(void);
void test_threads(void);

#endif
