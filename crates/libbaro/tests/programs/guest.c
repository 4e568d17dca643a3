/* A program that does what programs do to a library inside them: closes descriptors that are not
 * its own, makes children in every way, has limits, calls closed handles. The first argument
 * selects the case. */
#include <baro.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, baro_error()); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

#define FILES 12

static baro_t *b;
static baro_publication_t step;
static baro_value_t x;

static void declare(void)
{
    b = baro_open("guest", NULL);
    CHECK(baro_is_enabled(b));
    step = baro_publication(b, "guest", BARO_READERS_OWNER);
    x = baro_value(step, "x", BARO_FLOAT, "1", BARO_GAUGE, NULL);
    CHECK(x != 0);
}

static void *put_much(void *unused)
{
    for (int i = 0; i < 100000; i++) {
        baro_put_f64(x, i);
        if (i % 100 == 99)
            baro_frame(step, (uint64_t)i);
    }
    return unused;
}

static void in_thread(void *(*run)(void *))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
    pthread_join(thread, NULL);
}

/* The descriptors beyond the first three become the program's own, as in daemons. */
static void descriptors(const char *work)
{
    int files[FILES];
    char path[4096];
    declare();
    put_much(NULL);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/own.%d", work, i);
        files[i] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(files[i] >= 0 && write(files[i], "my bytes", 8) == 8);
    }
    in_thread(put_much);
    baro_value_t y = baro_value(step, "y", BARO_FLOAT, "1", BARO_GAUGE, NULL);
    CHECK(y != 0);
    baro_put_f64(y, 1);
    baro_frame(step, 1);
    CHECK(baro_lost(b) == 0);
    baro_close(b);
    for (int i = 0; i < FILES; i++) {
        struct stat found;
        CHECK(fstat(files[i], &found) == 0 && found.st_size == 8 && found.st_blocks <= 8);
    }
}

/* The library has no open descriptor at any moment when the program has control. */
static void none_open(void)
{
    int before = dup(0);
    close(before);
    declare();
    put_much(NULL);
    int after = dup(0);
    CHECK(before == after);
    close(after);
}

static void closed(void)
{
    declare();
    char first[64];
    CHECK(baro_label(b, "no good", "") < 0);
    const char *text = baro_error();
    strncpy(first, text, sizeof first - 1);
    first[sizeof first - 1] = 0;
    CHECK(baro_label(b, "", "") < 0 && baro_publication(b, "No", 0) == 0);
    CHECK(strncmp(text, first, sizeof first - 1) == 0);
    baro_t *again = b;
    baro_close(b);
    baro_close(again);
    CHECK(strstr(baro_error(), "closed") != NULL);
    CHECK(baro_is_enabled(b) == 0 && baro_lost(b) == 0 && baro_refused_count(b) == 0);
    CHECK(baro_label(b, "a", "b") == BARO_E_ARGUMENT && baro_publication(b, "guest", 0) == 0);
    CHECK(baro_listen(b) == BARO_E_ARGUMENT && baro_poll(b) == 0);
    CHECK(baro_on(b, "a", "b", NULL, NULL) == BARO_E_ARGUMENT);
    baro_put_f64(x, 1);
    baro_frame(step, 1);
    /* Handles that were never given out. */
    baro_close((baro_t *)(uintptr_t)4096);
    CHECK(baro_latest((baro_node_t *)(uintptr_t)b, "a", NULL, NULL, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_table_rows((baro_table_t *)(uintptr_t)4096) == 0);
    baro_stream_close((baro_stream_t *)(uintptr_t)b);
    CHECK(baro_wait((baro_stream_t *)(uintptr_t)b, 0) == BARO_E_ARGUMENT);
}

/* One child of each kind, which puts: those with memory of their own have a file of their own,
 * others have none. */
static void children(void)
{
    int status;
    declare();
    baro_put_f64(x, 1);
    baro_frame(step, 1);
    pid_t child = vfork();
    if (child == 0) {
        baro_t *second = baro_open("child", NULL);
        int is_enabled = baro_is_enabled(second);
        baro_value(step, "of_child", BARO_FLOAT, "1", BARO_GAUGE, NULL);
        baro_put_text(x, "");
        baro_close(b);
        baro_close(second);
        _exit(is_enabled);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        baro_put_f64(x, 2);
        baro_frame(step, 2);
        _exit(baro_lost(b) == 0 ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* This one first calls the functions that touch the file if it exists. */
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        baro_commit();
        baro_wake_agent();
        baro_poll(b);
        baro_poll_slowly(NULL);
        baro_frame(step, 3);
        baro_close(b);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void find(const char *run_dir, char *path, size_t bytes)
{
    char dir[2048];
    snprintf(dir, sizeof dir, "%s/ingest", run_dir);
    DIR *open = opendir(dir);
    CHECK(open != NULL);
    for (struct dirent *entry; (entry = readdir(open)) != NULL;)
        if (strstr(entry->d_name, ".ingest"))
            snprintf(path, bytes, "%s/%s", dir, entry->d_name);
    closedir(open);
}

static volatile sig_atomic_t seen;

static void on_bus_error(int signal)
{
    (void)signal;
    seen++;
    /* The fault would come again. */
    _exit(7);
}

/* A mapping of the program's own is cut short: a fault that is not the library's. */
static int own_fault(const char *work)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/own", work);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    volatile char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(map != MAP_FAILED && ftruncate(file, 0) == 0);
    pid_t child = fork();
    if (child == 0) {
        map[0] = 1;
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void truncated(const char *run_dir, const char *work, int has_handler)
{
    char path[4096] = "";
    if (has_handler)
        signal(SIGBUS, on_bus_error);
    declare();
    put_much(NULL);
    find(run_dir, path, sizeof path);
    CHECK(truncate(path, 0) == 0);
    put_much(NULL);
    in_thread(put_much);
    baro_value(step, "later", BARO_FLOAT, "1", BARO_GAUGE, NULL);
    int status = own_fault(work);
    CHECK(has_handler ? WIFEXITED(status) && WEXITSTATUS(status) == 7 : WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    CHECK(seen == 0 && unlink(path) == 0);
    baro_put_f64(x, -1);
    baro_frame(step, 77);
    baro_close(b);
}

/* Limits the size of files, in bytes; `is_enough` tells whether there can be an ingest file. */
static void limited(long bytes, int is_enough)
{
    struct rlimit limit = {(rlim_t)bytes, (rlim_t)bytes};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    b = baro_open("guest", NULL);
    CHECK(baro_is_enabled(b) == is_enough);
    CHECK(is_enough || strstr(baro_error(), "ulimit -f") != NULL);
    step = baro_publication(b, "guest", BARO_READERS_OWNER);
    x = baro_value(step, "x", BARO_FLOAT, "1", BARO_GAUGE, NULL);
    put_much(NULL);
    baro_close(b);
}

static pthread_barrier_t all;

static void *put_once(void *unused)
{
    baro_put_f64(x, 1);
    baro_frame(step, 1);
    pthread_barrier_wait(&all);
    return unused;
}

static void many(void)
{
    enum { THREADS = 256 };
    pthread_t threads[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    declare();
    pthread_barrier_init(&all, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], &small, put_once, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(baro_lost(b) == 0);
}

static void too_long(void)
{
    static uint8_t bytes[1 << 17];
    static double floats[1024];
    declare();
    baro_value_t small = baro_value(step, "small", BARO_BYTES, "1", BARO_STATE, NULL);
    baro_value_t large = baro_value_sized(step, "large", BARO_FLOATS, "1", BARO_STATE, NULL, 8192);
    CHECK(baro_put_bytes(small, bytes, 4096) == BARO_OK);
    CHECK(baro_put_bytes(small, bytes, 4097) == BARO_E_TOO_LONG && strstr(baro_error(), "4096") != NULL);
    CHECK(baro_put_floats(large, floats, 1024) == BARO_OK);
    CHECK(baro_put_floats(large, floats, 1025) == BARO_E_TOO_LONG);
    CHECK(baro_put_bytes(small, bytes, sizeof bytes) == BARO_E_TOO_LONG);
    CHECK(baro_put_floats(small, floats, 1) == BARO_E_TYPE);
    CHECK(baro_lost(b) == 4);
    baro_frame(step, 1);
    baro_close(b);
    CHECK(baro_put_bytes(small, bytes, 1) == BARO_E_REFUSED);
}

/* Ends frames until there is a new file: its directory was removed and made again. */
static void comes_back(const char *run_dir)
{
    char path[4096] = "", command[4096];
    declare();
    baro_put_f64(x, 1);
    baro_frame(step, 1);
    snprintf(command, sizeof command, "rm -r '%s'/* && mkdir '%s/ingest'", run_dir, run_dir);
    CHECK(system(command) == 0);
    for (uint64_t i = 2; path[0] == 0; i++) {
        baro_put_f64(x, (double)i);
        baro_frame(step, i);
        usleep(1000);
        find(run_dir, path, sizeof path);
    }
    CHECK(baro_lost(b) > 0);
    baro_put_f64(x, -1);
    baro_frame(step, 77);
    baro_close(b);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *run_dir = getenv("BAROGRAPH_RUN_DIR");
    const char *work = argc > 2 ? argv[2] : "/tmp";
    if (strcmp(what, "descriptors") == 0)
        descriptors(work);
    else if (strcmp(what, "none_open") == 0)
        none_open();
    else if (strcmp(what, "closed") == 0)
        closed();
    else if (strcmp(what, "children") == 0) {
        children();
        baro_put_f64(x, 4);
        baro_frame(step, 4);
        baro_close(b);
    } else if (strcmp(what, "truncated") == 0)
        truncated(run_dir, work, 0);
    else if (strcmp(what, "truncated_with_handler") == 0)
        truncated(run_dir, work, 1);
    else if (strcmp(what, "limited") == 0)
        limited(50 << 20, 1);
    else if (strcmp(what, "limited_too_much") == 0)
        limited(1 << 20, 0);
    else if (strcmp(what, "many") == 0)
        many();
    else if (strcmp(what, "too_long") == 0)
        too_long();
    else if (strcmp(what, "comes_back") == 0)
        comes_back(run_dir);
    else
        return 2;
    return 0;
}
