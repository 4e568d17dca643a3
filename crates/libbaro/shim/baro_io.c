/* libbaro_io.so - publishes a program's own I/O without a change to the program: preloaded, it
 * counts and times the program's calls to the C library.
 *
 *   baro io -- ./program          (or LD_PRELOAD=.../libbaro_io.so ./program)
 *
 * The streams are app.io.<value>: calls, bytes, seconds and errors of reads and writes; calls,
 * seconds and errors of opens, closes and syncs; the longest of each since the frame before; and
 * the process id. The wrappers add to 64-bit cells in a file. The agent reads it at most every
 * BAROGRAPH_IO_INTERVAL_MS (100 ms), and once more when the process is gone, however it ended. With
 * BAROGRAPH_IO_EACH=1 the seconds of every read, write and sync are published as well.
 *
 * Only regular files and block devices are counted (and syncs of directories): waiting for a pipe
 * or a socket is not storage. Not seen are: programs that are linked statically or enter the kernel
 * themselves, mapped files, asynchronous I/O, and formatted reading and wide characters of stdio.
 * The cost per call is two readings of the clock and a few additions.
 *
 * This file has the functions of descriptors; those of stdio are in stdio.c, the published file in
 * file.c. */
#define _GNU_SOURCE
/* The names below are defined here: no macro may rename them, and no header may define them
 * inline. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#define __NO_INLINE__ 1

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shim.h"

/* A pipe has no more bytes than this, as a rule. */
#define COPY_BYTES_MAX (1 << 16)

/* ---- The next functions ---- */

extern struct real __start_baro_reals[], __stop_baro_reals[];

/* Stands for a function that this C library lacks: fails like a kernel without the system call. */
static long absent(void)
{
    errno = ENOSYS;
    return -1;
}

void *look_up(struct real *real)
{
    int before = errno;
    void *found = dlsym(RTLD_NEXT, real->name);
    errno = before;
    found = found ? found : (void *)absent;
    __atomic_store_n(&real->function, found, __ATOMIC_RELAXED);
    return found;
}

__attribute__((constructor)) static void begin(void)
{
    /* A program may expect errno to be 0 when it starts. */
    int before = errno;
    for (struct real *real = __start_baro_reals; real < __stop_baro_reals; real++)
        look_up(real);
    begin_file();
    errno = before;
}

/* ---- Reads, writes, syncs ---- */

/* Bytes of all parts. */
static uint64_t sum_of(const struct iovec *parts, int n)
{
    uint64_t sum = 0;
    for (int part = 0; parts && part < n && part < IOV_MAX; part++)
        sum += parts[part].iov_len;
    return sum;
}

/* Defines `result name(parameters)`, which calls the next one, to move so many bytes, and counts it
 * if `fd` counts. */
#define TIMED(kind, name, fd, bytes, parameters, arguments)                                                                    \
    EXPORT ssize_t name parameters                                                                                             \
    {                                                                                                                          \
        NEXT(ssize_t, name, parameters);                                                                                       \
        int found = counts_for(kind, fd);                                                                                      \
        if (!found)                                                                                                            \
            return real arguments;                                                                                             \
        int begun = BEGIN_IO(found, kind, fd, bytes);                                                                          \
        int64_t since_ns = now();                                                                                              \
        ssize_t given = real arguments;                                                                                        \
        count(kind, since_ns, given > 0 ? (uint64_t)given : 0, given < 0);                                                     \
        end_io(begun, kind, given > 0 ? (uint64_t)given : 0);                                                                  \
        return given;                                                                                                          \
    }

TIMED(READ, read, fd, n, (int fd, void *to, size_t n), (fd, to, n))
TIMED(READ, __read_chk, fd, n, (int fd, void *to, size_t n, size_t room), (fd, to, n, room))
TIMED(READ, pread, fd, n, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
TIMED(READ, pread64, fd, n, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at))
TIMED(READ, __pread_chk, fd, n, (int fd, void *to, size_t n, off_t at, size_t room), (fd, to, n, at, room))
TIMED(READ, __pread64_chk, fd, n, (int fd, void *to, size_t n, off64_t at, size_t room), (fd, to, n, at, room))
TIMED(READ, readv, fd, sum_of(to, n), (int fd, const struct iovec *to, int n), (fd, to, n))
TIMED(READ, preadv, fd, sum_of(to, n), (int fd, const struct iovec *to, int n, off_t at), (fd, to, n, at))
TIMED(READ, preadv64, fd, sum_of(to, n), (int fd, const struct iovec *to, int n, off64_t at), (fd, to, n, at))
TIMED(READ, preadv2, fd, sum_of(to, n), (int fd, const struct iovec *to, int n, off_t at, int how), (fd, to, n, at, how))
TIMED(READ, preadv64v2, fd, sum_of(to, n), (int fd, const struct iovec *to, int n, off64_t at, int how), (fd, to, n, at, how))

TIMED(WRITE, write, fd, n, (int fd, const void *from, size_t n), (fd, from, n))
TIMED(WRITE, pwrite, fd, n, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at))
TIMED(WRITE, pwrite64, fd, n, (int fd, const void *from, size_t n, off64_t at), (fd, from, n, at))
TIMED(WRITE, writev, fd, sum_of(from, n), (int fd, const struct iovec *from, int n), (fd, from, n))
TIMED(WRITE, pwritev, fd, sum_of(from, n), (int fd, const struct iovec *from, int n, off_t at), (fd, from, n, at))
TIMED(WRITE, pwritev64, fd, sum_of(from, n), (int fd, const struct iovec *from, int n, off64_t at), (fd, from, n, at))
TIMED(WRITE, pwritev2, fd, sum_of(from, n), (int fd, const struct iovec *from, int n, off_t at, int how), (fd, from, n, at, how))
TIMED(WRITE, pwritev64v2, fd, sum_of(from, n), (int fd, const struct iovec *from, int n, off64_t at, int how), (fd, from, n, at, how))

#define SYNCS(name, parameters, arguments)                                                                                     \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        NEXT(int, name, parameters);                                                                                           \
        int found = counts_for(SYNC, fd);                                                                                      \
        if (!found)                                                                                                            \
            return real arguments;                                                                                             \
        int begun = BEGIN_IO(found, SYNC, fd, 0);                                                                              \
        int64_t since_ns = now();                                                                                              \
        int given = real arguments;                                                                                            \
        count(SYNC, since_ns, 0, given != 0);                                                                                  \
        end_io(begun, SYNC, 0);                                                                                                \
        return given;                                                                                                          \
    }

SYNCS(fsync, (int fd), (fd))
SYNCS(fdatasync, (int fd), (fd))
SYNCS(syncfs, (int fd), (fd))
SYNCS(sync_file_range, (int fd, off64_t from, off64_t n, unsigned how), (fd, from, n, how))

/* Bytes that a copy will move: programs ask for all that there may be. */
static uint64_t to_copy(int from, int is_file, size_t n)
{
    struct stat found;
    int before = errno;
    if (n < COPY_BYTES_MAX)
        return n;
    uint64_t size = is_file && fstat(from, &found) == 0 && S_ISREG(found.st_mode) ? (uint64_t)found.st_size : COPY_BYTES_MAX;
    errno = before;
    return size < n ? size : n;
}

/* Defines a copy within the kernel, from one descriptor to another: a read of the one and a write
 * of the other, whichever of them counts. */
#define COPIES(name, parameters, arguments)                                                                                    \
    EXPORT ssize_t name parameters                                                                                             \
    {                                                                                                                          \
        NEXT(ssize_t, name, parameters);                                                                                       \
        int is_read = counts_for(READ, from), is_written = counts_for(WRITE, to);                                              \
        int reads = BEGIN_IO(is_read, READ, from, n);                                                                          \
        int writes = BEGIN_IO(is_written, WRITE, to, to_copy(from, is_read, n));                                               \
        int64_t since_ns = now();                                                                                              \
        ssize_t given = real arguments;                                                                                        \
        uint64_t bytes = given > 0 ? (uint64_t)given : 0;                                                                      \
        if (is_read)                                                                                                           \
            count(READ, since_ns, bytes, given < 0);                                                                           \
        if (is_written)                                                                                                        \
            count(WRITE, since_ns, bytes, given < 0);                                                                          \
        end_io(reads, READ, bytes);                                                                                            \
        end_io(writes, WRITE, bytes);                                                                                          \
        return given;                                                                                                          \
    }

COPIES(copy_file_range, (int from, off64_t *at, int to, off64_t *there, size_t n, unsigned how), (from, at, to, there, n, how))
COPIES(splice, (int from, off64_t *at, int to, off64_t *there, size_t n, unsigned how), (from, at, to, there, n, how))
COPIES(sendfile, (int to, int from, off_t *at, size_t n), (to, from, at, n))
COPIES(sendfile64, (int to, int from, off64_t *at, size_t n), (to, from, at, n))

/* ---- Opens: the file is known only afterwards ---- */

static int opened(int fd, int64_t since_ns)
{
    forget(fd);
    if (fd < 0 || counts_for(OPEN, fd))
        count(OPEN, since_ns, 0, fd < 0);
    return fd;
}

/* The mode argument exists only if the flags ask for it. */
#define MODE(flags)                                                                                                            \
    mode_t mode = 0;                                                                                                           \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) {                                                           \
        va_list more;                                                                                                          \
        va_start(more, flags);                                                                                                 \
        mode = va_arg(more, mode_t);                                                                                           \
        va_end(more);                                                                                                          \
    }

#define OPENS(name, parameters, type, arguments, with_mode)                                                                    \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        NEXT(int, name, type);                                                                                                 \
        with_mode int64_t since_ns = now();                                                                                    \
        return opened(real arguments, since_ns);                                                                               \
    }

OPENS(open, (const char *path, int flags, ...), (const char *, int, ...), (path, flags, mode), MODE(flags))
OPENS(open64, (const char *path, int flags, ...), (const char *, int, ...), (path, flags, mode), MODE(flags))
OPENS(openat, (int dir, const char *path, int flags, ...), (int, const char *, int, ...), (dir, path, flags, mode), MODE(flags))
OPENS(openat64, (int dir, const char *path, int flags, ...), (int, const char *, int, ...), (dir, path, flags, mode),
      MODE(flags))
OPENS(__open_2, (const char *path, int flags), (const char *, int), (path, flags), )
OPENS(__open64_2, (const char *path, int flags), (const char *, int), (path, flags), )
OPENS(__openat_2, (int dir, const char *path, int flags), (int, const char *, int), (dir, path, flags), )
OPENS(__openat64_2, (int dir, const char *path, int flags), (int, const char *, int), (dir, path, flags), )
OPENS(creat, (const char *path, mode_t mode), (const char *, mode_t), (path, mode), )
OPENS(creat64, (const char *path, mode_t mode), (const char *, mode_t), (path, mode), )
OPENS(mkstemp, (char *path), (char *), (path), )
OPENS(mkstemp64, (char *path), (char *), (path), )
OPENS(mkostemp, (char *path, int flags), (char *, int), (path, flags), )
OPENS(mkostemp64, (char *path, int flags), (char *, int), (path, flags), )
OPENS(mkstemps, (char *path, int suffix), (char *, int), (path, suffix), )
OPENS(mkstemps64, (char *path, int suffix), (char *, int), (path, suffix), )
OPENS(mkostemps, (char *path, int suffix, int flags), (char *, int, int), (path, suffix, flags), )
OPENS(mkostemps64, (char *path, int suffix, int flags), (char *, int, int), (path, suffix, flags), )

EXPORT int close(int fd)
{
    NEXT(int, close, (int));
    int is_counted = counts_for(CLOSE, fd);
    int64_t since_ns = now();
    int given = real(fd);
    forget(fd);
    if (is_counted)
        count(CLOSE, since_ns, 0, given != 0);
    return given;
}

/* ---- Descriptors that refer to another file from now on ---- */

/* Closing many descriptors at once is no I/O of any of them, so it is not counted. */
EXPORT void closefrom(int first)
{
    NEXT(void, closefrom, (int));
    real(first);
    forget_from(first < 0 ? 0 : (unsigned)first, ~0u);
}

EXPORT int close_range(unsigned first, unsigned last, int how)
{
    NEXT(int, close_range, (unsigned, unsigned, int));
    int given = real(first, last, how);
    forget_from(first, last);
    return given;
}

#define RENUMBERS(name, parameters, arguments)                                                                                 \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        NEXT(int, name, parameters);                                                                                           \
        int given = real arguments;                                                                                            \
        forget(given);                                                                                                         \
        return given;                                                                                                          \
    }

RENUMBERS(dup, (int old), (old))
RENUMBERS(dup2, (int old, int new), (old, new))
RENUMBERS(dup3, (int old, int new, int how), (old, new, how))
RENUMBERS(socket, (int domain, int type, int protocol), (domain, type, protocol))
RENUMBERS(accept, (int fd, struct sockaddr *from, socklen_t *length), (fd, from, length))
RENUMBERS(accept4, (int fd, struct sockaddr *from, socklen_t *length, int how), (fd, from, length, how))

/* The argument is passed on whether it exists or not, as the C library itself does. */
#define CONTROLS(name)                                                                                                         \
    EXPORT int name(int fd, int what, ...)                                                                                     \
    {                                                                                                                          \
        NEXT(int, name, (int, int, ...));                                                                                      \
        va_list more;                                                                                                          \
        va_start(more, what);                                                                                                  \
        void *argument = va_arg(more, void *);                                                                                 \
        va_end(more);                                                                                                          \
        int given = real(fd, what, argument);                                                                                  \
        if (what == F_DUPFD || what == F_DUPFD_CLOEXEC)                                                                        \
            forget(given);                                                                                                     \
        return given;                                                                                                          \
    }

CONTROLS(fcntl)
CONTROLS(fcntl64)

#define PIPES(name, parameters, arguments)                                                                                     \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        NEXT(int, name, parameters);                                                                                           \
        int given = real arguments;                                                                                            \
        if (given == 0) {                                                                                                      \
            forget(ends[0]);                                                                                                   \
            forget(ends[1]);                                                                                                   \
        }                                                                                                                      \
        return given;                                                                                                          \
    }

PIPES(pipe, (int ends[2]), (ends))
PIPES(pipe2, (int ends[2], int how), (ends, how))
PIPES(socketpair, (int domain, int type, int protocol, int ends[2]), (domain, type, protocol, ends))
