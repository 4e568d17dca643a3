/* The shim's own ingest file (docs/reference/ingest-format.md, section Cells): makes it, in the
 * process itself and in its forked children, with system calls only, so that it can be done
 * anywhere; and adds to its cells.
 *
 * A process makes its file when the library is loaded. A forked child makes one with its first call
 * that counts: most children only call exec, and the program after that makes its own. Counts from
 * a time without a file, or while it is being made, go into memory of this library, and are moved
 * when there is one. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "declare.h"
#include "format.h"
#include "place.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

int file_state = OFF;
unsigned char *mapped;
pid_t file_pid;
int64_t file_begun_ns;
/* The same time, since the Unix epoch, in ns. */
static uint64_t created_ns;
/* Time before which a failed attempt is not repeated: the cause, such as a full file system, may
 * pass. */
static int64_t retry_ns;
#define RETRY_NS NS_PER_S
/* Whether the file could not be unmapped: then this process and its children have no file any
 * more. */
static int is_given_up;

/* Cells of a process that has no file. */
static uint64_t spilled[CELLS] __attribute__((aligned(64)));
static uint64_t map_bytes, file_bytes;
static uint64_t interval_ns = NS_PER_S / 10;
/* Content of a new file; a process makes one file at a time. */
static unsigned char header[HEADER_BYTES];
static unsigned char declarations[16384];
size_t declared;
unsigned char file_incarnation[16];

int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* ---- Adding ---- */

static uint64_t *cells_of_file(void) { return (uint64_t *)(mapped + CELLS_AT); }

static int has_file(void) { return __atomic_load_n(&file_state, __ATOMIC_SEQ_CST) == READY; }

static void raise_to(uint64_t *cell, uint64_t value)
{
    uint64_t seen = __atomic_load_n(cell, __ATOMIC_RELAXED);
    while (value > seen && !__atomic_compare_exchange_n(cell, &seen, value, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Moves counts from a time without a file into the file. Code that adds to the spilled cells checks
 * afterwards whether there is a file by now, and code that makes the file moves afterwards: so one
 * of the two moves them, and only once. */
static void move_spilled(void)
{
    for (int cell = 0; cell < PID_CELL; cell++) {
        uint64_t value = __atomic_exchange_n(&spilled[cell], 0, __ATOMIC_SEQ_CST);
        if (value == 0)
            continue;
        int of = cell % CELLS_OF_KIND;
        if (of == AT_NS)
            __atomic_store_n(cells_of_file() + cell, (uint64_t)(now() - file_begun_ns), __ATOMIC_SEQ_CST);
        else if (of == NS_MAX)
            raise_to(cells_of_file() + cell, value);
        else
            __atomic_fetch_add(cells_of_file() + cell, value, __ATOMIC_RELAXED);
    }
}

static uint64_t *cells_now(void)
{
    int state = __atomic_load_n(&file_state, __ATOMIC_ACQUIRE);
    if (__builtin_expect(state == PENDING, 0)) {
        int before = errno;
        make_file();
        errno = before;
        state = __atomic_load_n(&file_state, __ATOMIC_ACQUIRE);
    }
    return __builtin_expect(state == READY, 1) ? cells_of_file() : spilled;
}

static void end_count(uint64_t *all, uint64_t *cells, int64_t at_ns)
{
    int64_t since_begun_ns = at_ns - file_begun_ns;
    __atomic_store_n(cells + AT_NS, since_begun_ns > 0 ? (uint64_t)since_begun_ns : 1, __ATOMIC_RELEASE);
    if (__builtin_expect(all == spilled, 0)) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (has_file())
            move_spilled();
    }
}

void count(int kind, int64_t since_ns, uint64_t bytes, int failed)
{
    int64_t at_ns = now();
    int64_t took_ns = at_ns > since_ns ? at_ns - since_ns : 0;
    uint64_t *all = cells_now();
    uint64_t *cells = all + kind * CELLS_OF_KIND;
    __atomic_fetch_add(cells + CALLS, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(cells + NS, (uint64_t)took_ns, __ATOMIC_RELAXED);
    if (bytes != 0)
        __atomic_fetch_add(cells + BYTES, bytes, __ATOMIC_RELAXED);
    if (__builtin_expect(failed, 0))
        __atomic_fetch_add(cells + ERRORS, 1, __ATOMIC_RELAXED);
    raise_to(cells + NS_MAX, (uint64_t)took_ns);
    end_count(all, cells, at_ns);
    if (__builtin_expect(publishes_each, 0))
        put_each(kind, took_ns);
}

void count_untimed(int kind, uint64_t bytes)
{
    uint64_t *all = cells_now();
    uint64_t *cells = all + kind * CELLS_OF_KIND;
    __atomic_fetch_add(cells + CALLS, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(cells + BYTES, bytes, __ATOMIC_RELAXED);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    end_count(all, cells, (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec);
}

/* ---- Making the file ---- */

static void set(uint64_t at, uint64_t value) { memcpy(header + at, &value, sizeof value); }

static void set_halves(uint64_t at, uint32_t low, uint32_t high) { set(at, low | (uint64_t)high << 32); }

unsigned rings(void) { return publishes_each ? EACH_RINGS_MAX : 1; }

/* The smallest ring that the format allows if no ring is needed; for phases, some seconds of them. */
unsigned ring_records(void)
{
    if (publishes_each)
        return EACH_RING_RECORDS;
    return volume_count ? 1024 : 256;
}

/* Whether there is more in the file than declarations and cells. */
static int has_records(void) { return publishes_each || volume_count; }

/* Returns the start time of a process: field 22 of its `stat`, after a name that may contain
 * anything. */
static uint64_t start_ticks(pid_t pid)
{
    char path[32], text[1024];
    write_stat_path(path, pid);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    long length = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    text[length > 0 ? length : 0] = 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    uint64_t ticks = 0;
    for (at = at ? at + 1 : ""; *at >= '0' && *at <= '9'; at++)
        ticks = ticks * 10 + (uint64_t)(*at - '0');
    return ticks;
}

/* Writes the header of a new file, including its cells; returns 0 if there are no random bytes. */
static int write_header(unsigned char incarnation[16])
{
    memset(header, 0, sizeof header);
    if (syscall(SYS_getrandom, incarnation, 16, 0) != 16)
        return 0;
    memcpy(header, "BAROING", 8);
    set_halves(HEADER_VERSION, VERSION_MAJOR, VERSION_MINOR);
    set_halves(HEADER_ORDER, BYTE_ORDER_MARK, HEADER_BYTES);
    set(HEADER_FILE_BYTES, file_bytes);
    memcpy(header + HEADER_INCARNATION, incarnation, 16);
    set(HEADER_CREATED, created_ns);
    set(HEADER_PID, (uint64_t)file_pid);
    set(HEADER_START_TICKS, start_ticks(file_pid));
    set(HEADER_STATE, STATE_OPEN);
    set(HEADER_TIME_SOURCE, TIME_REALTIME);
    set(HEADER_DECLARED, declared);
    set(HEADER_DECLARATIONS_AT, DECLARATIONS_AT(rings()));
    set(HEADER_DECLARATIONS_BYTES, DECLARATIONS_BYTES);
    set(HEADER_HEADS_AT, HEADS_AT);
    set(HEADER_RINGS_MAX, rings());
    set(HEADER_RINGS_AT, RINGS_AT(rings()));
    set(HEADER_RING_RECORDS, ring_records());
    set(HEADER_CELLS, CELLS);
    set(HEADER_CELLS_INTERVAL, interval_ns);
    set(CELLS_AT + PID_CELL * 8, (uint64_t)file_pid);
    set(CELLS_AT + BEGUN_CELL * 8, created_ns);
    return 1;
}

/* Writes all pages that will be touched through the mapping, so that a full file system fails
 * now. Those for the rings, and for phases, are reserved when they are needed. */
static int fill(int fd)
{
    static const unsigned char zeros[HEADER_BYTES];
    struct rlimit limit;
    if (syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit) != 0 || limit.rlim_cur < file_bytes)
        return 0; /* the kernel would kill the process for exceeding the limit */
    if (syscall(SYS_ftruncate, fd, file_bytes) != 0)
        return 0;
    for (uint64_t at = HEADS_AT; publishes_each && at < DECLARATIONS_AT(rings()); at += sizeof zeros)
        if (syscall(SYS_pwrite64, fd, zeros, sizeof zeros, at) != (long)sizeof zeros)
            return 0;
    return syscall(SYS_pwrite64, fd, declarations, declared, DECLARATIONS_AT(rings())) == (long)declared &&
           syscall(SYS_pwrite64, fd, header, sizeof header, 0) == (long)sizeof header;
}

/* Maps anonymous memory in the place of the file: the addresses must stay, because there are
 * pointers to them. The memory is shared, because private memory is refused to a process with a
 * limit on its data. */
static int replace(void)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return mmap(mapped, map_bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
}

/* Unmaps the file. If that fails, the content of its addresses is unknown: nothing is mapped there
 * again, and all later counts go into the spilled cells. */
static void leave_file(void)
{
    if (replace())
        return;
    mapped = NULL;
    is_given_up = 1;
}

static int map_file(int fd)
{
    int fixed = mapped ? MAP_FIXED : 0;
    void *at = mmap(mapped, map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | fixed, fd, 0);
    if (at == MAP_FAILED) {
        if (mapped)
            leave_file();
        return 0;
    }
    mapped = at;
    return 1;
}

static int try_to_make(void)
{
    struct new_file file;
    if (!write_header(file_incarnation) || !open_new(&file, file_incarnation))
        return 0;
    int is_made = fill(file.fd) && map_file(file.fd);
    if (is_made && !name_new(&file)) {
        /* Nobody will read it. */
        leave_file();
        is_made = 0;
    }
    close_new(&file, is_made);
    return is_made;
}

void make_file(void)
{
    int pending = PENDING;
    if (!__atomic_compare_exchange_n(&file_state, &pending, MAKING, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return;
    int is_made = now() >= retry_ns && try_to_make();
    if (!is_made && now() >= retry_ns)
        retry_ns = now() + RETRY_NS;
    int unmade = is_given_up ? OFF : PENDING;
    __atomic_store_n(&file_state, is_made ? READY : unmade, __ATOMIC_SEQ_CST);
    if (is_made)
        move_spilled();
}

/* Starts the counts of this process. */
static void begin_process(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    created_ns = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
    file_begun_ns = now();
    file_pid = (pid_t)syscall(SYS_getpid);
    retry_ns = 0;
    __atomic_store_n(&file_state, is_given_up ? OFF : PENDING, __ATOMIC_SEQ_CST);
}

/* Reserves memory for a part of the file. Kernels before 5.14 cannot: there a full file system is
 * noticed only when it is written to. */
int reserve_part(uint64_t at, uint64_t bytes)
{
    return madvise(mapped + at, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

/* ---- Children, and files that are cut short ---- */

/* Leaves the parent's file in a child, so that the kernel frees the parent's lock when the parent
 * ends, and not when its last child does. The fork may have come from a signal handler within a
 * call that counts; that call then adds to the memory that is there instead. */
static void begin_child(void)
{
    int before = errno;
    if (mapped)
        leave_file();
    memset(spilled, 0, sizeof spilled);
    forget_ring();
    forget_phases();
    begin_process();
    errno = before;
}

static struct sigaction other_sigbus;

/* Handles a file that was cut short by somebody: its pages become anonymous memory, and the program
 * goes on. If the kernel gives no such memory, the fault is passed on like any other. */
static void on_sigbus(int number, siginfo_t *info, void *context)
{
    uintptr_t offset = (uintptr_t)info->si_addr - (uintptr_t)mapped;
    int before = errno;
    int is_answered = info->si_code == BUS_ADRERR && mapped && offset < map_bytes && replace();
    errno = before;
    if (is_answered)
        return;
    if (other_sigbus.sa_flags & SA_SIGINFO) {
        other_sigbus.sa_sigaction(number, info, context);
    } else if (other_sigbus.sa_handler == SIG_DFL || (other_sigbus.sa_handler == SIG_IGN && info->si_code > 0)) {
        /* As if there had been no handler: a faulting instruction faults again, a signal that was
         * sent is sent again. */
        signal(number, SIG_DFL);
        if (info->si_code <= 0)
            raise(number);
    } else if (other_sigbus.sa_handler != SIG_IGN) {
        other_sigbus.sa_handler(number);
    }
}

static void mind_sigbus(void)
{
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, &other_sigbus);
}

/* ---- The beginning ---- */

static const char *variable(const char *name)
{
    /* The environment of a set-user-id program cannot be trusted. */
    return getauxval(AT_SECURE) ? NULL : getenv(name);
}

void begin_file(void)
{
    const char *off = variable("BAROGRAPH");
    const char *ms = variable("BAROGRAPH_IO_INTERVAL_MS");
    const char *each = variable("BAROGRAPH_IO_EACH");
    long interval = ms ? strtol(ms, NULL, 10) : 0;
    if (interval >= 1 && interval <= 3600000)
        interval_ns = (uint64_t)interval * (NS_PER_S / 1000);
    publishes_each = each && strcmp(each, "1") == 0;
    if ((off && strcmp(off, "off") == 0) || !find_place(variable("BAROGRAPH_RUN_DIR")))
        return;
    begin_volumes(variable("BAROGRAPH_IO_SCHEDULE"));
    declared = declare_all(declarations, sizeof declarations);
    file_bytes = FILE_BYTES(rings(), ring_records());
    map_bytes = has_records() ? file_bytes : HEADER_BYTES;
    begin_process();
    make_file();
    mind_sigbus();
    pthread_atfork(NULL, NULL, begin_child);
}
