/* Classes of descriptors, kept so that the kernel is not asked at each call.
 *
 * A class is valid for some milliseconds, and until the program closes or renumbers the descriptor
 * by a function that is wrapped. So a descriptor that is closed unseen (by a system call of the
 * program's own, or by a library that was loaded before) is miscounted for at most this long. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HOLDS_MS 10
/* Bits of what `class_of` returns. */
#define FOUND_BITS 8
#define FOUND_MASK 0xff

/* Time at which the class was found, in milliseconds, and what was found. */
static uint64_t classes[FDS_MAX];
/* Descriptors from this number on were never looked at. */
static unsigned fds_used;

uint32_t coarse_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint32_t)t.tv_sec * 1000 + (uint32_t)(t.tv_nsec / 1000000);
}

/* Returns the mode of an open file; 0 if it is not known. Only the file type is needed, which never
 * changes: `fstat` would make a network file system write back, or ask its servers for size and
 * times, first. */
static mode_t mode_of(int fd)
{
#if defined SYS_statx && defined STATX_TYPE && defined AT_STATX_DONT_SYNC
    struct statx x;
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &x) == 0)
        return x.stx_mode;
    /* ENOSYS: the kernel lacks the call; EPERM: a container does not know it. */
    if (errno != ENOSYS && errno != EPERM)
        return 0;
#endif
    struct stat s;
    return fstat(fd, &s) == 0 ? s.st_mode : 0;
}

static int look_at(int fd)
{
    int before = errno;
    int class = NOTHING;
    mode_t mode = mode_of(fd);
    if (S_ISREG(mode) || S_ISBLK(mode))
        class = DATA | (volume_count ? volume_of(fd) << CLASS_BITS : 0);
    else if (S_ISDIR(mode))
        class = DIRECTORY;
    errno = before;
    return class;
}

int class_of(int fd)
{
    if (fd < 0)
        return NOTHING;
    if (fd >= FDS_MAX)
        return look_at(fd);
    uint64_t known = __atomic_load_n(&classes[fd], __ATOMIC_RELAXED);
    uint32_t ms = coarse_ms();
    if (known != 0 && ms - (uint32_t)(known >> FOUND_BITS) <= HOLDS_MS)
        return (int)(known & FOUND_MASK);
    int class = look_at(fd);
    __atomic_store_n(&classes[fd], (uint64_t)ms << FOUND_BITS | (uint64_t)class, __ATOMIC_RELAXED);
    unsigned used = __atomic_load_n(&fds_used, __ATOMIC_RELAXED);
    while (used <= (unsigned)fd &&
           !__atomic_compare_exchange_n(&fds_used, &used, (unsigned)fd + 1, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return class;
}

void forget(int fd)
{
    if (fd < 0 || fd >= FDS_MAX)
        return;
    __atomic_store_n(&classes[fd], 0, __ATOMIC_RELAXED);
    if (__builtin_expect(volume_count != 0, 0))
        leave_phase(fd);
}

void forget_from(unsigned first, unsigned last)
{
    unsigned used = __atomic_load_n(&fds_used, __ATOMIC_RELAXED);
    for (unsigned fd = first; fd < used && fd <= last; fd++)
        forget((int)fd);
}
