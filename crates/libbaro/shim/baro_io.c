/* libbaro_io.so - a program's own I/O as a publication, without a change to it: preloaded, it counts and times what the
 * program asks of the C library.
 *
 *   baro io -- ./program          (or LD_PRELOAD=.../libbaro_io.so ./program)
 *
 * Published as app.io.<value>, a frame of all of them at most every BAROGRAPH_IO_INTERVAL_MS (100) and at the end: calls, bytes,
 * seconds and errors of reads and writes, calls and seconds of opens, closes and syncs; and the longest call since the frame
 * before. With BAROGRAPH_IO_EACH=1 the seconds of every read, write and sync as well.
 *
 * Regular files and block devices only: a pipe's or socket's wait is no storage's. What it cannot see: programs that are
 * linked statically or enter the kernel themselves, mapped files, asynchronous I/O, and of stdio all but fread and fwrite. What
 * it costs a call is two readings of the clock and a few additions. */
#define _GNU_SOURCE
/* The names below are defined here: no macro may rename them. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE

#include <baro.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NS_PER_S 1000000000

/* ---- What is counted ---- */

enum { READ, WRITE, OPEN, CLOSE, SYNC, KINDS };

static const char *const kinds[KINDS] = {"read", "write", "open", "close", "sync"};

typedef struct {
    uint64_t calls, bytes, ns, errors, ns_max;
} __attribute__((aligned(64))) count_t;

typedef struct {
    baro_value_t calls, bytes, seconds, errors, seconds_max, each;
} values_t;

static count_t counts[KINDS];
static values_t values[KINDS];
static uint64_t changes, told;
static int64_t told_ns, interval_ns = NS_PER_S / 10;
static int publishes_each;

static baro_t *baro;
static baro_publication_t io;
static uint64_t frames;
/* Who opens and publishes; a thread that finds it taken goes on. */
static pthread_mutex_t publishing = PTHREAD_MUTEX_INITIALIZER;
static int is_over, is_declared;

/* This thread is in here: what the library itself opens and writes is nobody's I/O. */
static __thread int inside;

/* ---- Files that count ---- */

#define FDS_MAX (1 << 16)
enum { UNKNOWN, COUNTS, COUNTS_NOT };
static uint8_t classes[FDS_MAX];

static int counts_for(int fd)
{
    if (fd < 0 || inside)
        return 0;
    uint8_t class = fd < FDS_MAX ? __atomic_load_n(&classes[fd], __ATOMIC_RELAXED) : UNKNOWN;
    if (class == UNKNOWN) {
        struct stat s;
        int before = errno;
        class = fstat(fd, &s) == 0 && (S_ISREG(s.st_mode) || S_ISBLK(s.st_mode)) ? COUNTS : COUNTS_NOT;
        errno = before;
        if (fd < FDS_MAX)
            __atomic_store_n(&classes[fd], class, __ATOMIC_RELAXED);
    }
    return class == COUNTS;
}

static void forget(int fd)
{
    if (fd >= 0 && fd < FDS_MAX)
        __atomic_store_n(&classes[fd], UNKNOWN, __ATOMIC_RELAXED);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* ---- Publishing ---- */

static baro_value_t declare(int kind, const char *what, int type, const char *unit, int meaning, const char *help)
{
    char name[64], text[128];
    snprintf(name, sizeof name, "%s.%s", kinds[kind], what);
    snprintf(text, sizeof text, help, kinds[kind]);
    return baro_value(io, name, type, unit, meaning, text);
}

static void open_publication(void)
{
    baro = baro_open(NULL, NULL);
    io = baro_publication(baro, "io", BARO_READERS_OWNER);
    for (int kind = 0; kind < KINDS; kind++) {
        int moves = kind == READ || kind == WRITE;
        values_t *v = &values[kind];
        v->calls = declare(kind, "calls.count", BARO_INT, "count", BARO_COUNTER, "calls that %s");
        v->seconds = declare(kind, "seconds", BARO_FLOAT, "seconds", BARO_COUNTER, "time within calls that %s");
        v->errors = declare(kind, "errors.count", BARO_INT, "count", BARO_COUNTER, "calls that %s and failed");
        v->seconds_max =
            declare(kind, "max.seconds", BARO_FLOAT, "seconds", BARO_GAUGE, "the longest %s since the frame before");
        if (moves)
            v->bytes = declare(kind, "bytes", BARO_INT, "bytes", BARO_COUNTER, "bytes %s");
        if (publishes_each && (moves || kind == SYNC))
            v->each = declare(kind, "each.seconds", BARO_FLOAT, "seconds", BARO_GAUGE, "time within one %s");
    }
    __atomic_store_n(&is_declared, 1, __ATOMIC_RELEASE);
}

static uint64_t load(const uint64_t *count) { return __atomic_load_n(count, __ATOMIC_RELAXED); }

/* glibc's: runs at the thread's end, the last registered first. */
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *object, void *library);
extern void *__dso_handle;
/* A thread's ring goes when the thread does; for the first thread that is before any destructor of a library runs. */
static __thread enum { NEW, KNOWN, GONE } thread;

static void publish(int64_t at_ns);

static void end_thread(void *nothing)
{
    (void)nothing;
    publish(now());
    thread = GONE;
}

/* All counts, as a frame. */
static void publish(int64_t at_ns)
{
    if (thread == GONE || pthread_mutex_trylock(&publishing) != 0)
        return;
    inside++;
    uint64_t seen = load(&changes);
    if (!is_over && seen != told) {
        if (!baro)
            open_publication();
        for (int kind = 0; kind < KINDS; kind++) {
            const values_t *v = &values[kind];
            count_t *c = &counts[kind];
            baro_put_i64(v->calls, (int64_t)load(&c->calls));
            baro_put_f64(v->seconds, (double)load(&c->ns) / NS_PER_S);
            baro_put_i64(v->errors, (int64_t)load(&c->errors));
            uint64_t longest = __atomic_exchange_n(&c->ns_max, 0, __ATOMIC_RELAXED);
            baro_put_f64(v->seconds_max, (double)longest / NS_PER_S);
            if (v->bytes)
                baro_put_i64(v->bytes, (int64_t)load(&c->bytes));
        }
        baro_frame(io, ++frames);
        /* After the library's own, and so to be run before it. */
        if (thread == NEW && __cxa_thread_atexit_impl(end_thread, NULL, &__dso_handle) == 0)
            thread = KNOWN;
        told = seen;
        __atomic_store_n(&told_ns, at_ns, __ATOMIC_RELAXED);
    }
    inside--;
    pthread_mutex_unlock(&publishing);
}

static void begin(void);

/* A call is over: `result` is what it gave, bytes where it moved some. */
static void count(int kind, int64_t since_ns, int64_t result)
{
    int before = errno;
    int64_t at_ns = now();
    uint64_t ns = (uint64_t)(at_ns - since_ns);
    if (__builtin_expect(load((uint64_t *)&told_ns) == 0, 0))
        begin(); /* another library's constructor was first */
    count_t *c = &counts[kind];
    __atomic_fetch_add(&c->calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&c->ns, ns, __ATOMIC_RELAXED);
    if (result < 0)
        __atomic_fetch_add(&c->errors, 1, __ATOMIC_RELAXED);
    else if (kind == READ || kind == WRITE)
        __atomic_fetch_add(&c->bytes, (uint64_t)result, __ATOMIC_RELAXED);
    uint64_t longest = load(&c->ns_max);
    while (ns > longest && !__atomic_compare_exchange_n(&c->ns_max, &longest, ns, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    __atomic_fetch_add(&changes, 1, __ATOMIC_RELAXED);
    if (publishes_each && thread != GONE) {
        /* The first call declares the values. */
        if (!__atomic_load_n(&is_declared, __ATOMIC_ACQUIRE))
            publish(at_ns);
        inside++;
        baro_put_f64(values[kind].each, (double)ns / NS_PER_S);
        baro_commit();
        inside--;
    }
    if (at_ns - __atomic_load_n(&told_ns, __ATOMIC_RELAXED) >= interval_ns)
        publish(at_ns);
    errno = before;
}

static void lock_all(void) { pthread_mutex_lock(&publishing); }
static void unlock_all(void) { pthread_mutex_unlock(&publishing); }

/* The child counts its own; what it publishes it publishes as a process of its own. */
static void begin_child(void)
{
    memset(counts, 0, sizeof counts);
    changes = told = frames = 0;
    unlock_all();
}

__attribute__((constructor)) static void begin(void)
{
    int64_t never = 0;
    if (!__atomic_compare_exchange_n(&told_ns, &never, now(), 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    const char *interval = getenv("BAROGRAPH_IO_INTERVAL_MS");
    long ms = interval ? strtol(interval, NULL, 10) : 0;
    if (ms >= 1 && ms <= 3600000)
        interval_ns = ms * (NS_PER_S / 1000);
    const char *each = getenv("BAROGRAPH_IO_EACH");
    publishes_each = each && strcmp(each, "1") == 0;
    pthread_atfork(lock_all, unlock_all, begin_child);
}

static void *publish_last(void *nothing)
{
    publish(now());
    return nothing;
}

/* By now the first thread may have no ring any more, and get none: another thread says the rest. */
__attribute__((destructor)) static void end(void)
{
    pthread_t last;
    if (load(&changes) != told) {
        if (pthread_create(&last, NULL, publish_last, NULL) == 0)
            pthread_join(last, NULL);
        else
            publish(now());
    }
    pthread_mutex_lock(&publishing);
    is_over = 1;
    inside++;
    if (baro)
        baro_close(baro);
    inside--;
    pthread_mutex_unlock(&publishing);
}

/* ---- The C library's functions ---- */

/* The next one of this name; a C library without it has no callers of it either. */
static void *next(void **place, const char *name)
{
    void *found = __atomic_load_n(place, __ATOMIC_RELAXED);
    if (!found) {
        found = dlsym(RTLD_NEXT, name);
        if (!found)
            abort();
        __atomic_store_n(place, found, __ATOMIC_RELAXED);
    }
    return found;
}

/* Defines `result name(parameters)`, which calls the next one and counts it if `fd` counts. */
#define TIMED(kind, result, name, fd, bytes, parameters, arguments)                                                            \
    EXPORT result name parameters                                                                                              \
    {                                                                                                                          \
        static void *place;                                                                                                    \
        result(*real) parameters = (result(*) parameters)next(&place, #name);                                                  \
        if (!counts_for(fd))                                                                                                   \
            return real arguments;                                                                                             \
        int64_t since_ns = now();                                                                                              \
        result given = real arguments;                                                                                         \
        count(kind, since_ns, (int64_t)(bytes));                                                                               \
        return given;                                                                                                          \
    }

TIMED(READ, ssize_t, read, fd, given, (int fd, void *to, size_t n), (fd, to, n))
TIMED(READ, ssize_t, __read_chk, fd, given, (int fd, void *to, size_t n, size_t room), (fd, to, n, room))
TIMED(READ, ssize_t, pread, fd, given, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
TIMED(READ, ssize_t, pread64, fd, given, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at))
TIMED(READ, ssize_t, __pread_chk, fd, given, (int fd, void *to, size_t n, off_t at, size_t room), (fd, to, n, at, room))
TIMED(READ, ssize_t, __pread64_chk, fd, given, (int fd, void *to, size_t n, off64_t at, size_t room), (fd, to, n, at, room))
TIMED(READ, ssize_t, readv, fd, given, (int fd, const struct iovec *to, int n), (fd, to, n))
TIMED(READ, ssize_t, preadv, fd, given, (int fd, const struct iovec *to, int n, off_t at), (fd, to, n, at))
TIMED(READ, ssize_t, preadv64, fd, given, (int fd, const struct iovec *to, int n, off64_t at), (fd, to, n, at))
TIMED(READ, ssize_t, preadv2, fd, given, (int fd, const struct iovec *to, int n, off_t at, int how), (fd, to, n, at, how))
TIMED(READ, ssize_t, preadv64v2, fd, given, (int fd, const struct iovec *to, int n, off64_t at, int how), (fd, to, n, at, how))

TIMED(WRITE, ssize_t, write, fd, given, (int fd, const void *from, size_t n), (fd, from, n))
TIMED(WRITE, ssize_t, pwrite, fd, given, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at))
TIMED(WRITE, ssize_t, pwrite64, fd, given, (int fd, const void *from, size_t n, off64_t at), (fd, from, n, at))
TIMED(WRITE, ssize_t, writev, fd, given, (int fd, const struct iovec *from, int n), (fd, from, n))
TIMED(WRITE, ssize_t, pwritev, fd, given, (int fd, const struct iovec *from, int n, off_t at), (fd, from, n, at))
TIMED(WRITE, ssize_t, pwritev64, fd, given, (int fd, const struct iovec *from, int n, off64_t at), (fd, from, n, at))
TIMED(WRITE, ssize_t, pwritev2, fd, given, (int fd, const struct iovec *from, int n, off_t at, int how), (fd, from, n, at, how))
TIMED(WRITE, ssize_t, pwritev64v2, fd, given, (int fd, const struct iovec *from, int n, off64_t at, int how),
      (fd, from, n, at, how))

TIMED(SYNC, int, fsync, fd, given, (int fd), (fd))
TIMED(SYNC, int, fdatasync, fd, given, (int fd), (fd))

/* Within the kernel: a copy to a file counts as a write of that, a copy of a file to a socket or pipe as a read. */
TIMED(WRITE, ssize_t, copy_file_range, to, given, (int from, off64_t * at, int to, off64_t *there, size_t n, unsigned how),
      (from, at, to, there, n, how))
TIMED(READ, ssize_t, sendfile, from, given, (int to, int from, off_t *at, size_t n), (to, from, at, n))
TIMED(READ, ssize_t, sendfile64, from, given, (int to, int from, off64_t *at, size_t n), (to, from, at, n))

/* stdio goes into the kernel by ways of its own: what is asked of it is counted, whenever it does. */
TIMED(READ, size_t, fread, fileno(f), given *size, (void *to, size_t size, size_t n, FILE *f), (to, size, n, f))
TIMED(READ, size_t, __fread_chk, fileno(f), given *size, (void *to, size_t room, size_t size, size_t n, FILE *f),
      (to, room, size, n, f))
TIMED(WRITE, size_t, fwrite, fileno(f), given *size, (const void *from, size_t size, size_t n, FILE *f), (from, size, n, f))

/* Opens: which file it is is known afterwards. */
static int opened(int fd, int64_t since_ns)
{
    if (inside)
        return fd;
    forget(fd);
    if (fd < 0 || counts_for(fd))
        count(OPEN, since_ns, fd < 0 ? -1 : 0);
    return fd;
}

/* The mode is there only if it is asked for. */
#define MODE(flags)                                                                                                            \
    mode_t mode = 0;                                                                                                           \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) {                                                           \
        va_list more;                                                                                                          \
        va_start(more, flags);                                                                                                 \
        mode = va_arg(more, mode_t);                                                                                           \
        va_end(more);                                                                                                          \
    }

#define OPENS(name, parameters, type, arguments, flags, with_mode)                                                             \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        static void *place;                                                                                                    \
        int(*real) type = (int(*) type)next(&place, #name);                                                                    \
        with_mode(flags) int64_t since_ns = now();                                                                             \
        return opened(real arguments, since_ns);                                                                               \
    }

#define NO_MODE(flags)
OPENS(open, (const char *path, int flags, ...), (const char *, int, ...), (path, flags, mode), flags, MODE)
OPENS(open64, (const char *path, int flags, ...), (const char *, int, ...), (path, flags, mode), flags, MODE)
OPENS(openat, (int dir, const char *path, int flags, ...), (int, const char *, int, ...), (dir, path, flags, mode), flags, MODE)
OPENS(openat64, (int dir, const char *path, int flags, ...), (int, const char *, int, ...), (dir, path, flags, mode), flags, MODE)
OPENS(__open_2, (const char *path, int flags), (const char *, int), (path, flags), flags, NO_MODE)
OPENS(__open64_2, (const char *path, int flags), (const char *, int), (path, flags), flags, NO_MODE)
OPENS(__openat_2, (int dir, const char *path, int flags), (int, const char *, int), (dir, path, flags), flags, NO_MODE)
OPENS(__openat64_2, (int dir, const char *path, int flags), (int, const char *, int), (dir, path, flags), flags, NO_MODE)
OPENS(creat, (const char *path, mode_t mode), (const char *, mode_t), (path, mode), mode, NO_MODE)
OPENS(creat64, (const char *path, mode_t mode), (const char *, mode_t), (path, mode), mode, NO_MODE)

#define FOPENS(name, parameters, arguments)                                                                                    \
    EXPORT FILE *name parameters                                                                                               \
    {                                                                                                                          \
        static void *place;                                                                                                    \
        FILE *(*real)parameters = (FILE * (*)parameters) next(&place, #name);                                                  \
        int64_t since_ns = now();                                                                                              \
        FILE *given = real arguments;                                                                                          \
        opened(given ? fileno(given) : -1, since_ns);                                                                          \
        return given;                                                                                                          \
    }

FOPENS(fopen, (const char *path, const char *how), (path, how))
FOPENS(fopen64, (const char *path, const char *how), (path, how))

EXPORT int close(int fd)
{
    static void *place;
    int (*real)(int) = (int (*)(int))next(&place, "close");
    int is_counted = counts_for(fd);
    if (!inside)
        forget(fd);
    int64_t since_ns = now();
    int given = real(fd);
    if (is_counted)
        count(CLOSE, since_ns, given);
    return given;
}

EXPORT int fclose(FILE *f)
{
    static void *place;
    int (*real)(FILE *) = (int (*)(FILE *))next(&place, "fclose");
    int fd = f ? fileno(f) : -1;
    int is_counted = counts_for(fd);
    if (!inside)
        forget(fd);
    int64_t since_ns = now();
    int given = real(f);
    if (is_counted)
        count(CLOSE, since_ns, given == 0 ? 0 : -1);
    return given;
}

/* A number that means another file from now on. */
#define RENUMBERS(name, parameters, arguments, fd)                                                                             \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        static void *place;                                                                                                    \
        int(*real) parameters = (int(*) parameters)next(&place, #name);                                                        \
        int given = real arguments;                                                                                            \
        if (!inside)                                                                                                           \
            forget(fd);                                                                                                        \
        return given;                                                                                                          \
    }

RENUMBERS(dup, (int old), (old), given)
RENUMBERS(dup2, (int old, int new), (old, new), given)
RENUMBERS(dup3, (int old, int new, int how), (old, new, how), given)
RENUMBERS(socket, (int domain, int type, int protocol), (domain, type, protocol), given)
RENUMBERS(accept, (int fd, struct sockaddr *from, socklen_t *length), (fd, from, length), given)
RENUMBERS(accept4, (int fd, struct sockaddr *from, socklen_t *length, int how), (fd, from, length, how), given)

#define PIPES(name, parameters, arguments)                                                                                     \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        static void *place;                                                                                                    \
        int(*real) parameters = (int(*) parameters)next(&place, #name);                                                        \
        int given = real arguments;                                                                                            \
        if (given == 0 && !inside) {                                                                                           \
            forget(ends[0]);                                                                                                   \
            forget(ends[1]);                                                                                                   \
        }                                                                                                                      \
        return given;                                                                                                          \
    }

PIPES(pipe, (int ends[2]), (ends))
PIPES(pipe2, (int ends[2], int how), (ends, how))
