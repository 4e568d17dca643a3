/* The functions of stdio. They enter the kernel on their own when their buffers are full or empty.
 * So the counts are of the calls of the program, whenever the kernel is entered, and the times are
 * those of these calls. */
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#define __NO_INLINE__ 1

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>

#include "shim.h"

/* Returns the descriptor of a stream; -1 if it has none. */
static int number_of(FILE *f)
{
    if (!f)
        return -1;
    int before = errno;
    int fd = fileno_unlocked(f);
    errno = before;
    return fd;
}

/* Whether a call without a result has failed. A read without a result may be at the end of the
 * file, and the error mark stays until it is cleared: a read has failed only if the mark was not
 * set before it. */
static int has_failed(int kind, int had_failed, FILE *f) { return ferror_unlocked(f) && (kind == WRITE || !had_failed); }

/* ---- Blocks ---- */

/* A result that is shorter than requested is the end of the file, or an error. */
#define BLOCKS(kind, name, parameters, arguments, f)                                                                           \
    EXPORT size_t name parameters                                                                                              \
    {                                                                                                                          \
        NEXT(size_t, name, parameters);                                                                                        \
        int found = counts_for(kind, number_of(f));                                                                            \
        if (!found)                                                                                                            \
            return real arguments;                                                                                             \
        int begun = BEGIN_IO(found, kind, number_of(f), (uint64_t)size *n);                                                    \
        int64_t since_ns = now();                                                                                              \
        int had_failed = ferror_unlocked(f);                                                                                   \
        size_t given = real arguments;                                                                                         \
        count(kind, since_ns, given *size, given < n && has_failed(kind, had_failed, f));                                      \
        end_io(begun, kind, given *size);                                                                                      \
        return given;                                                                                                          \
    }

BLOCKS(READ, fread, (void *to, size_t size, size_t n, FILE *f), (to, size, n, f), f)
BLOCKS(READ, fread_unlocked, (void *to, size_t size, size_t n, FILE *f), (to, size, n, f), f)
BLOCKS(READ, __fread_chk, (void *to, size_t room, size_t size, size_t n, FILE *f), (to, room, size, n, f), f)
BLOCKS(READ, __fread_unlocked_chk, (void *to, size_t room, size_t size, size_t n, FILE *f), (to, room, size, n, f), f)
BLOCKS(WRITE, fwrite, (const void *from, size_t size, size_t n, FILE *f), (from, size, n, f), f)
BLOCKS(WRITE, fwrite_unlocked, (const void *from, size_t size, size_t n, FILE *f), (from, size, n, f), f)

/* ---- Lines ---- */

#define LINES(name, parameters, arguments)                                                                                     \
    EXPORT char *name parameters                                                                                               \
    {                                                                                                                          \
        NEXT(char *, name, parameters);                                                                                        \
        int found = counts_for(READ, number_of(f));                                                                            \
        if (!found)                                                                                                            \
            return real arguments;                                                                                             \
        int begun = BEGIN_IO(found, READ, number_of(f), 0);                                                                    \
        int64_t since_ns = now();                                                                                              \
        int had_failed = ferror_unlocked(f);                                                                                   \
        char *given = real arguments;                                                                                          \
        count(READ, since_ns, given ? strlen(given) : 0, !given && has_failed(READ, had_failed, f));                           \
        end_io(begun, READ, given ? strlen(given) : 0);                                                                        \
        return given;                                                                                                          \
    }

LINES(fgets, (char *to, int n, FILE *f), (to, n, f))
LINES(fgets_unlocked, (char *to, int n, FILE *f), (to, n, f))
LINES(__fgets_chk, (char *to, size_t room, int n, FILE *f), (to, room, n, f))
LINES(__fgets_unlocked_chk, (char *to, size_t room, int n, FILE *f), (to, room, n, f))

#define LONG_LINES(name, parameters, arguments)                                                                                \
    EXPORT ssize_t name parameters                                                                                             \
    {                                                                                                                          \
        NEXT(ssize_t, name, parameters);                                                                                       \
        int found = counts_for(READ, number_of(f));                                                                            \
        if (!found)                                                                                                            \
            return real arguments;                                                                                             \
        int begun = BEGIN_IO(found, READ, number_of(f), 0);                                                                    \
        int64_t since_ns = now();                                                                                              \
        int had_failed = ferror_unlocked(f);                                                                                   \
        ssize_t given = real arguments;                                                                                        \
        count(READ, since_ns, given > 0 ? (uint64_t)given : 0, given < 0 && has_failed(READ, had_failed, f));                  \
        end_io(begun, READ, given > 0 ? (uint64_t)given : 0);                                                                  \
        return given;                                                                                                          \
    }

LONG_LINES(getline, (char **to, size_t *room, FILE *f), (to, room, f))
LONG_LINES(getdelim, (char **to, size_t *room, int end, FILE *f), (to, room, end, f))
LONG_LINES(__getdelim, (char **to, size_t *room, int end, FILE *f), (to, room, end, f))

#define TEXTS(name, parameters, arguments, f, bytes)                                                                           \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        NEXT(int, name, parameters);                                                                                           \
        int found = counts_for(WRITE, number_of(f));                                                                           \
        if (!found)                                                                                                            \
            return real arguments;                                                                                             \
        int begun = BEGIN_IO(found, WRITE, number_of(f), 0);                                                                   \
        int64_t since_ns = now();                                                                                              \
        int given = real arguments;                                                                                            \
        count(WRITE, since_ns, given < 0 ? 0 : (uint64_t)(bytes), given < 0);                                                  \
        end_io(begun, WRITE, given < 0 ? 0 : (uint64_t)(bytes));                                                               \
        return given;                                                                                                          \
    }

TEXTS(fputs, (const char *text, FILE *f), (text, f), f, strlen(text))
TEXTS(fputs_unlocked, (const char *text, FILE *f), (text, f), f, strlen(text))
TEXTS(puts, (const char *text), (text), stdout, strlen(text) + 1)

/* ---- Formats ---- */

TEXTS(vfprintf, (FILE * f, const char *format, va_list with), (f, format, with), f, given)
TEXTS(__vfprintf_chk, (FILE * f, int flag, const char *format, va_list with), (f, flag, format, with), f, given)
TEXTS(vprintf, (const char *format, va_list with), (format, with), stdout, given)
TEXTS(__vprintf_chk, (int flag, const char *format, va_list with), (flag, format, with), stdout, given)

/* The functions with variable arguments call those above. */
#define FORMATS(name, parameters, last, called)                                                                                \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        va_list with;                                                                                                          \
        va_start(with, last);                                                                                                  \
        int given = called;                                                                                                    \
        va_end(with);                                                                                                          \
        return given;                                                                                                          \
    }

extern int __vfprintf_chk(FILE *f, int flag, const char *format, va_list with);
extern int __vprintf_chk(int flag, const char *format, va_list with);
extern int __vdprintf_chk(int fd, int flag, const char *format, va_list with);

FORMATS(fprintf, (FILE * f, const char *format, ...), format, vfprintf(f, format, with))
FORMATS(__fprintf_chk, (FILE * f, int flag, const char *format, ...), format, __vfprintf_chk(f, flag, format, with))
FORMATS(printf, (const char *format, ...), format, vprintf(format, with))
FORMATS(__printf_chk, (int flag, const char *format, ...), format, __vprintf_chk(flag, format, with))

#define TO_DESCRIPTOR(name, parameters, arguments)                                                                             \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        NEXT(int, name, parameters);                                                                                           \
        int found = counts_for(WRITE, fd);                                                                                     \
        if (!found)                                                                                                            \
            return real arguments;                                                                                             \
        int begun = BEGIN_IO(found, WRITE, fd, 0);                                                                             \
        int64_t since_ns = now();                                                                                              \
        int given = real arguments;                                                                                            \
        count(WRITE, since_ns, given < 0 ? 0 : (uint64_t)given, given < 0);                                                    \
        end_io(begun, WRITE, given < 0 ? 0 : (uint64_t)given);                                                                 \
        return given;                                                                                                          \
    }

TO_DESCRIPTOR(vdprintf, (int fd, const char *format, va_list with), (fd, format, with))
TO_DESCRIPTOR(__vdprintf_chk, (int fd, int flag, const char *format, va_list with), (fd, flag, format, with))
FORMATS(dprintf, (int fd, const char *format, ...), format, vdprintf(fd, format, with))
FORMATS(__dprintf_chk, (int fd, int flag, const char *format, ...), format, __vdprintf_chk(fd, flag, format, with))

/* ---- Characters: one that is in the buffer, or fits into it, is counted and not timed ---- */

#ifdef __GLIBC__
static int has_character(FILE *f) { return f->_IO_read_ptr < f->_IO_read_end; }
static int has_room(FILE *f) { return f->_IO_write_ptr < f->_IO_write_end; }
#else
static int has_character(FILE *f) { return (void)f, 0; }
static int has_room(FILE *f) { return (void)f, 0; }
#endif

#define CHARACTERS(kind, name, parameters, arguments, f, is_short)                                                             \
    EXPORT int name parameters                                                                                                 \
    {                                                                                                                          \
        NEXT(int, name, parameters);                                                                                           \
        int found = counts_for(kind, number_of(f));                                                                            \
        if (!found)                                                                                                            \
            return real arguments;                                                                                             \
        if (is_short(f)) {                                                                                                     \
            int given = real arguments;                                                                                        \
            count_untimed(kind, given != EOF);                                                                                 \
            return given;                                                                                                      \
        }                                                                                                                      \
        /* The kernel moves what the buffer holds. */                                                                          \
        int begun = BEGIN_IO(found, kind, number_of(f), __fbufsize(f));                                                        \
        int64_t since_ns = now();                                                                                              \
        int had_failed = ferror_unlocked(f);                                                                                   \
        int given = real arguments;                                                                                            \
        count(kind, since_ns, given != EOF, given == EOF && has_failed(kind, had_failed, f));                                  \
        end_io(begun, kind, given != EOF ? __fbufsize(f) : 0);                                                                 \
        return given;                                                                                                          \
    }

#define READS_CHARACTER(name) CHARACTERS(READ, name, (FILE * f), (f), f, has_character)
#define WRITES_CHARACTER(name) CHARACTERS(WRITE, name, (int c, FILE *f), (c, f), f, has_room)
#undef getc
#undef putc
#undef getc_unlocked
#undef putc_unlocked
#undef getchar_unlocked
#undef putchar_unlocked
READS_CHARACTER(fgetc)
READS_CHARACTER(getc)
READS_CHARACTER(_IO_getc)
READS_CHARACTER(fgetc_unlocked)
READS_CHARACTER(getc_unlocked)
CHARACTERS(READ, getchar, (void), (), stdin, has_character)
CHARACTERS(READ, getchar_unlocked, (void), (), stdin, has_character)
WRITES_CHARACTER(fputc)
WRITES_CHARACTER(putc)
WRITES_CHARACTER(_IO_putc)
WRITES_CHARACTER(fputc_unlocked)
WRITES_CHARACTER(putc_unlocked)
CHARACTERS(WRITE, putchar, (int c), (c), stdout, has_room)
CHARACTERS(WRITE, putchar_unlocked, (int c), (c), stdout, has_room)

/* ---- Opening, flushing, closing ---- */

static FILE *opened(FILE *f, int64_t since_ns)
{
    int fd = number_of(f);
    forget(fd);
    if (!f || counts_for(OPEN, fd))
        count(OPEN, since_ns, 0, !f);
    return f;
}

#define FOPENS(name, parameters, arguments)                                                                                    \
    EXPORT FILE *name parameters                                                                                               \
    {                                                                                                                          \
        NEXT(FILE *, name, parameters);                                                                                        \
        int64_t since_ns = now();                                                                                              \
        return opened(real arguments, since_ns);                                                                               \
    }

FOPENS(fopen, (const char *path, const char *how), (path, how))
FOPENS(fopen64, (const char *path, const char *how), (path, how))
FOPENS(tmpfile, (void), ())
FOPENS(tmpfile64, (void), ())

/* Closes one file and opens another, with the same descriptor or another one. */
#define REOPENS(name)                                                                                                          \
    EXPORT FILE *name(const char *path, const char *how, FILE *f)                                                              \
    {                                                                                                                          \
        NEXT(FILE *, name, (const char *, const char *, FILE *));                                                              \
        int before = number_of(f);                                                                                             \
        int64_t since_ns = now();                                                                                              \
        FILE *given = real(path, how, f);                                                                                      \
        forget(before);                                                                                                        \
        return opened(given, since_ns);                                                                                        \
    }

REOPENS(freopen)
REOPENS(freopen64)

/* Earlier output goes to the kernel here: a write of no more bytes, which may fail. */
#define FLUSHES(name)                                                                                                          \
    EXPORT int name(FILE *f)                                                                                                   \
    {                                                                                                                          \
        NEXT(int, name, (FILE *));                                                                                             \
        int found = f && __fpending(f) != 0 ? counts_for(WRITE, number_of(f)) : 0;                                             \
        if (!found)                                                                                                            \
            return real(f);                                                                                                    \
        int begun = BEGIN_IO(found, WRITE, number_of(f), 0);                                                                   \
        int64_t since_ns = now();                                                                                              \
        int given = real(f);                                                                                                   \
        count(WRITE, since_ns, 0, given != 0);                                                                                 \
        end_io(begun, WRITE, 0);                                                                                               \
        return given;                                                                                                          \
    }

FLUSHES(fflush)
FLUSHES(fflush_unlocked)

EXPORT int fclose(FILE *f)
{
    NEXT(int, fclose, (FILE *));
    int fd = number_of(f);
    int is_counted = counts_for(CLOSE, fd);
    int64_t since_ns = now();
    int given = real(f);
    forget(fd);
    if (is_counted)
        count(CLOSE, since_ns, 0, given != 0);
    return given;
}
