/* Publishes the seconds of every single read, write and sync if the user asks for it
 * (BAROGRAPH_IO_EACH=1), in one ring of the file per thread, as in docs/reference/ingest-format.md.
 *
 * A thread takes a ring with its first call that counts. The ring is reused when the thread is
 * gone; the end of a thread is not observed, because that would take memory. A value is counted as
 * lost if its ring is being written (in a signal handler), if the process shares the file without
 * having made it, or if the thread finds no ring. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "format.h"

int publishes_each;
int each_values[KINDS];

/* Number of this thread's ring, plus 1; 0 if it has none yet. */
TLS unsigned ring_taken;
/* Whether this thread's ring is being written. */
TLS int is_putting;
/* Calls until a thread that found no ring looks for one again. */
TLS unsigned rest;
#define REST 1024

static uint64_t *word(uint64_t at) { return (uint64_t *)(mapped + at); }

static uint64_t head_at(unsigned ring) { return HEADS_AT + (uint64_t)ring * HEAD_BYTES; }

static int is_thread_gone(uint64_t thread)
{
    return syscall(SYS_tgkill, (long)file_pid, (long)thread, 0) != 0 && errno == ESRCH;
}

static int reserve(unsigned ring)
{
    uint64_t at = RINGS_AT(EACH_RINGS_MAX) + (uint64_t)ring * RING_BYTES(EACH_RING_RECORDS);
    return reserve_part(at, RING_BYTES(EACH_RING_RECORDS));
}

/* Takes a ring that was never used, or whose thread is gone. */
static int take_ring(void)
{
    uint64_t thread = (uint64_t)syscall(SYS_gettid);
    /* The first ring has the phases of I/O, if there are any. */
    for (unsigned ring = volume_count ? 1 : 0; ring < EACH_RINGS_MAX; ring++) {
        uint64_t head = head_at(ring);
        uint64_t holder = __atomic_load_n(word(head + HEAD_THREAD), __ATOMIC_RELAXED);
        if (holder != 0 && holder != thread && !is_thread_gone(holder))
            continue;
        if (!__atomic_compare_exchange_n(word(head + HEAD_THREAD), &holder, thread, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        if (!reserve(ring)) {
            __atomic_store_n(word(head + HEAD_THREAD), 0, __ATOMIC_RELEASE);
            return 0;
        }
        __atomic_store_n(word(head + HEAD_STATE), RING_IN_USE, __ATOMIC_RELEASE);
        uint64_t used = __atomic_load_n(word(HEADER_RINGS_USED), __ATOMIC_RELAXED);
        while (used < ring + 1 && !__atomic_compare_exchange_n(word(HEADER_RINGS_USED), &used, ring + 1, 1, __ATOMIC_RELEASE,
                                                               __ATOMIC_RELAXED))
            ;
        ring_taken = ring + 1;
        return 1;
    }
    return 0;
}

static void put_record(unsigned ring, int series, double seconds)
{
    uint64_t head = head_at(ring);
    uint64_t position = __atomic_load_n(word(head + HEAD_COMMITTED), __ATOMIC_RELAXED);
    uint64_t reserved = __atomic_load_n(word(head + HEAD_RESERVED), __ATOMIC_RELAXED);
    if (position >= reserved) {
        __atomic_store_n(word(head + HEAD_RESERVED), position + EACH_RING_RECORDS / 8, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
    }
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    union {
        double seconds;
        uint64_t bits;
    } payload = {seconds};
    uint64_t place = position % EACH_RING_RECORDS;
    uint64_t *record =
        word(RINGS_AT(EACH_RINGS_MAX) + (uint64_t)ring * RING_BYTES(EACH_RING_RECORDS) + place * RECORD_BYTES);
    __atomic_store_n(record, position << 32 | (uint64_t)RECORD_FLOAT << 24 | (uint64_t)series, __ATOMIC_RELAXED);
    __atomic_store_n(record + 1, (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec, __ATOMIC_RELAXED);
    __atomic_store_n(record + 2, payload.bits, __ATOMIC_RELAXED);
    __atomic_store_n(word(head + HEAD_COMMITTED), position + 1, __ATOMIC_RELEASE);
}

static int has_ring(void)
{
    if (ring_taken != 0)
        return 1;
    if (rest != 0) {
        rest--;
        return 0;
    }
    if (take_ring())
        return 1;
    rest = REST;
    return 0;
}

void put_each(int kind, int64_t ns)
{
    if (each_values[kind] < 0 || __atomic_load_n(&file_state, __ATOMIC_ACQUIRE) != READY)
        return;
    int before = errno;
    /* A child that was made without the C library's fork does not write to a ring of its parent. */
    int is_own = (pid_t)syscall(SYS_getpid) == file_pid;
    int is_free = is_own && !__atomic_exchange_n(&is_putting, 1, __ATOMIC_ACQ_REL);
    if (is_free && has_ring())
        put_record(ring_taken - 1, each_values[kind], (double)ns / NS_PER_S);
    else
        __atomic_fetch_add(word(HEADER_HOMELESS), 1, __ATOMIC_RELAXED);
    if (is_free)
        __atomic_store_n(&is_putting, 0, __ATOMIC_RELEASE);
    errno = before;
}

void forget_ring(void)
{
    ring_taken = 0;
    rest = 0;
    is_putting = 0;
}
