/* Phases of I/O on scheduled volumes: programs that know nothing of it take turns
 * (docs/design/0012-agreement.md).
 *
 * A phase begins when the program moves much within a second, and the call that would make it much
 * waits for a grant first. It is over when the last descriptor of it is closed, or when nothing or
 * little was moved for some time. There is no thread to see that: the next call sees it, and the
 * agent, who is told of a phase four times a second while there is I/O, and takes one of which it
 * hears nothing for over.
 *
 * A phase is one word, which is changed by compare-and-swap, so threads, handlers and forks meet no
 * lock. All threads wait for the same answer, and each of them does what is due: none depends on
 * another one that may have been taken away. A handler that comes while its own thread waits does
 * its I/O at once. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "format.h"
#include "phases.h"

/* So many bytes within a second are worth a turn. */
#define MUCH_BYTES (1 << 20)
#define MUCH_MS 1000
/* A phase is over after so long without a call, and when it takes so long to move as much again. */
#define QUIET_MS 1000
#define LITTLE_MS 5000
/* The agent is told of a phase at calls, this often; so taking a grant away takes effect. */
#define TELL_MS 250
/* A call of so many bytes, or a sync after so many, may take longer than the lease. */
#define LONG_BYTES (64 << 20)
#define LONG_SYNC_BYTES (16 << 20)
/* The bounds of programs that ask by themselves (crates/client/src/publish/phase.rs). */
#define ANSWER_NS (2 * (int64_t)NS_PER_S)
#define WAIT_NS (60 * (int64_t)NS_PER_S)
#define RENEW_NS (NS_PER_S / 2)
/* Who had no answer, or is not scheduled, does not ask for so long. */
#define UNANSWERED_NS (10 * (int64_t)NS_PER_S)
#define UNSCHEDULED_NS (60 * (int64_t)NS_PER_S)
/* Most changes by others that one call follows. */
#define TRIES_MAX 8

struct volume volumes[VOLUMES_MAX];
/* The phase that a descriptor belongs to, by the lower half of its number; 0 for none. */
static uint32_t members[FDS_MAX];
/* Phases of this process and its parents. The number of a phase is a multiple of the number of
 * answers, and its volume: so each volume has an answer of its own. */
static uint64_t begun;
/* Monotonic time until which this thread waits: a handler in between does not. A time, and not a
 * mark: a handler may leave by longjmp. */
TLS int64_t waits_until_ns;

static uint64_t load(const uint64_t *from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }

static int changes(struct volume *volume, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(&volume->phase, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static uint64_t *word_at(uint64_t at) { return (uint64_t *)(mapped + at); }

/* Children behind the library's back share memory or the file with their parent: they take no turn,
 * and end none. */
static int is_own_process(void) { return (pid_t)syscall(SYS_getpid) == file_pid; }

static int has_file(void)
{
    if (__atomic_load_n(&file_state, __ATOMIC_ACQUIRE) == PENDING)
        make_file();
    return __atomic_load_n(&file_state, __ATOMIC_ACQUIRE) == READY;
}

/* The agent's answer to a phase; 0 if there is none. */
static int answer_to(uint64_t number)
{
    uint64_t answer = load(word_at(HEADER_ANSWERS + number % ANSWERS_MAX * 8));
    int is_of_it = ((answer ^ number) & ((1ull << ANSWER_PHASE_BITS) - 1)) == 0;
    return is_of_it ? (int)(answer >> ANSWER_PHASE_BITS & 0xff) : 0;
}

/* ---- How much is moved ---- */

static uint64_t size_of(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) ? (uint64_t)found.st_size : UINT64_MAX;
}

/* The bytes that a call will move. A read asks for more than there is, as a rule: what counts is
 * what earlier reads gave, and of a large one what the file has. */
static uint64_t expected(struct volume *volume, int kind, int fd, uint64_t bytes)
{
    if (kind == SYNC)
        return load(&volume->unsynced);
    if (kind == WRITE)
        return bytes;
    uint64_t size = bytes >= MUCH_BYTES ? size_of(fd) : 0;
    return bytes < size ? bytes : size;
}

static int is_much(struct volume *volume, uint64_t bytes, uint32_t ms)
{
    int is_recent = ms - __atomic_load_n(&volume->portion_ms, __ATOMIC_RELAXED) <= MUCH_MS;
    uint64_t before = is_recent ? load(&volume->portion) : 0;
    return bytes >= MUCH_BYTES || before + bytes >= MUCH_BYTES;
}

static void begin_portion(struct volume *volume, uint32_t ms, uint64_t bytes)
{
    __atomic_store_n(&volume->portion_ms, ms, __ATOMIC_RELAXED);
    __atomic_store_n(&volume->portion, bytes, __ATOMIC_RELAXED);
}

static void add_to_portion(struct volume *volume, uint32_t ms, uint64_t bytes)
{
    int in_phase = stage_of(load(&volume->phase)) != PHASE_ENDED;
    uint32_t age_ms = ms - __atomic_load_n(&volume->portion_ms, __ATOMIC_RELAXED);
    uint64_t all = __atomic_add_fetch(&volume->portion, bytes, __ATOMIC_RELAXED);
    if (in_phase && all >= MUCH_BYTES)
        begin_portion(volume, ms, 0);
    else if (age_ms > (in_phase ? LITTLE_MS : MUCH_MS))
        begin_portion(volume, ms, bytes);
}

/* Whether a phase at work is over: its program has paused, or moves little. */
static int is_over(struct volume *volume, uint32_t ms)
{
    if (__atomic_load_n(&volume->long_calls, __ATOMIC_RELAXED) != 0)
        return 0;
    return ms - __atomic_load_n(&volume->active_ms, __ATOMIC_RELAXED) > QUIET_MS ||
           ms - __atomic_load_n(&volume->portion_ms, __ATOMIC_RELAXED) > LITTLE_MS;
}

/* ---- Begin and end ---- */

/* Notes, before others can see it, that a phase is at work from now on. */
static void begin_work(struct volume *volume)
{
    uint32_t ms = coarse_ms();
    begin_portion(volume, ms, 0);
    __atomic_store_n(&volume->active_ms, ms, __ATOMIC_RELAXED);
    __atomic_store_n(&volume->told_ms, ms, __ATOMIC_RELAXED);
}

static void begin_wait(struct volume *volume, int64_t now_ns)
{
    __atomic_store_n(&volume->waits_since_ns, now_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&volume->renew_ns, now_ns, __ATOMIC_RELAXED);
}

static void begin_phase(int of, uint64_t before)
{
    struct volume *volume = &volumes[of];
    uint64_t says = load(word_at(HEADER_SCHEDULES));
    int64_t now_ns = now();
    int is_nobody = says == 0 && now_ns < __atomic_load_n(&nobody_until_ns, __ATOMIC_RELAXED);
    int stage = is_nobody ? PHASE_ALONE : PHASE_WAITS;
    uint64_t number = __atomic_add_fetch(&begun, 1, __ATOMIC_RELAXED) * ANSWERS_MAX + (unsigned)of;
    if (stage == PHASE_ALONE)
        begin_work(volume);
    else
        begin_wait(volume, now_ns);
    if (!changes(volume, before, number << NUMBER_SHIFT | (unsigned)stage))
        return; /* another thread has begun one */
    __atomic_store_n(&volume->done, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&volume->long_calls, 0, __ATOMIC_RELAXED);
    if (stage == PHASE_ALONE)
        tell_phase(of);
}

/* Whether a phase may begin now. */
static int may_begin(struct volume *volume)
{
    return is_own_process() && has_file() && now() >= __atomic_load_n(&volume->off_until_ns, __ATOMIC_RELAXED) &&
           load(word_at(HEADER_SCHEDULES)) != SCHEDULES_NOTHING;
}

static void end_phase(int of, uint64_t phase)
{
    if (changes(&volumes[of], phase, number_of(phase) << NUMBER_SHIFT | PHASE_ENDED))
        tell_phase_at_once(of);
}

/* Makes a descriptor one of a phase; returns 0 if the phase has changed meanwhile. */
static int join(struct volume *volume, uint64_t phase, int fd)
{
    uint32_t number = (uint32_t)number_of(phase);
    if (fd < 0 || fd >= FDS_MAX || __atomic_load_n(&members[fd], __ATOMIC_RELAXED) == number)
        return 1;
    if (__atomic_exchange_n(&members[fd], number, __ATOMIC_ACQ_REL) == number)
        return 1;
    while (!changes(volume, phase, phase + (1u << HOLDERS_SHIFT))) {
        phase = load(&volume->phase);
        if ((uint32_t)number_of(phase) != number || stage_of(phase) == PHASE_ENDED)
            return 0;
    }
    return 1;
}

void leave_phase(int fd)
{
    uint32_t member = __atomic_load_n(&members[fd], __ATOMIC_RELAXED);
    int before = errno;
    if (member == 0 || !is_own_process() || __atomic_exchange_n(&members[fd], 0, __ATOMIC_ACQ_REL) != member)
        return;
    int of = member % ANSWERS_MAX;
    struct volume *volume = &volumes[of];
    uint64_t phase = load(&volume->phase), next;
    do {
        if ((uint32_t)number_of(phase) != member || holders_of(phase) == 0 || stage_of(phase) == PHASE_ENDED)
            return;
        next = phase - (1u << HOLDERS_SHIFT);
        if (holders_of(next) == 0)
            next &= ~(uint64_t)STAGE_MASK;
    } while (!__atomic_compare_exchange_n(&volume->phase, &phase, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    if (stage_of(next) == PHASE_ENDED) {
        __atomic_store_n(&volume->unsynced, 0, __ATOMIC_RELAXED);
        tell_phase_at_once(of);
    }
    errno = before;
}

/* ---- Waiting ---- */

/* Ends the wait of all threads for a phase. */
static void settle(int of, uint64_t phase, int stage)
{
    struct volume *volume = &volumes[of];
    begin_work(volume);
    uint64_t number = number_of(phase);
    while (number_of(phase) == number && stage_of(phase) == PHASE_WAITS) {
        if (changes(volume, phase, (phase & ~(uint64_t)STAGE_MASK) | (unsigned)stage)) {
            tell_phase(of);
            return;
        }
        phase = load(&volume->phase);
    }
}

/* The stage after the wait, as far as it is known by now; `PHASE_WAITS` if it is not. */
static int stage_after(struct volume *volume, uint64_t number, int64_t now_ns)
{
    int64_t waited_ns = now_ns - __atomic_load_n(&volume->waits_since_ns, __ATOMIC_RELAXED);
    int answer = answer_to(number);
    if (answer == ANSWER_GO)
        return PHASE_GRANTED;
    if (answer == ANSWER_UNSCHEDULED) {
        __atomic_store_n(&volume->off_until_ns, now_ns + UNSCHEDULED_NS, __ATOMIC_RELAXED);
        return PHASE_ENDED;
    }
    if (answer == 0 && waited_ns >= ANSWER_NS) {
        __atomic_store_n(&volume->off_until_ns, now_ns + UNANSWERED_NS, __ATOMIC_RELAXED);
        return PHASE_ALONE;
    }
    int is_nobody = now_ns < __atomic_load_n(&nobody_until_ns, __ATOMIC_RELAXED);
    return is_nobody || waited_ns >= WAIT_NS ? PHASE_ALONE : PHASE_WAITS;
}

/* Says again that a phase waits, if that is due; returns for how long to sleep, 0 for not. */
static int64_t ask_again(int of, int64_t now_ns)
{
    struct volume *volume = &volumes[of];
    int64_t renew_ns = __atomic_load_n(&volume->renew_ns, __ATOMIC_RELAXED);
    if (now_ns < renew_ns)
        return renew_ns - now_ns;
    if (__atomic_compare_exchange_n(&volume->renew_ns, &renew_ns, now_ns + RENEW_NS, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        tell_phase_at_once(of);
    return 0;
}

/* Sleeps until the answers have changed; returns 0 if that is not possible. */
static int sleep_on_answers(uint32_t seen, int64_t ns)
{
    struct timespec longest = {ns / NS_PER_S, ns % NS_PER_S};
    long slept = syscall(SYS_futex, mapped + HEADER_ANSWERS_MOVED, FUTEX_WAIT, seen, &longest, 0, 0);
    return slept == 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT;
}

static void wait_for_turn(int of, uint64_t number)
{
    struct volume *volume = &volumes[of];
    waits_until_ns = now() + 2 * WAIT_NS;
    for (;;) {
        /* Before the answer is looked at: one that comes after that ends the sleep. */
        uint32_t seen = __atomic_load_n((uint32_t *)(mapped + HEADER_ANSWERS_MOVED), __ATOMIC_ACQUIRE);
        uint64_t phase = load(&volume->phase);
        if (number_of(phase) != number || stage_of(phase) != PHASE_WAITS)
            break;
        int64_t now_ns = now();
        int stage = stage_after(volume, number, now_ns);
        if (stage != PHASE_WAITS) {
            settle(of, phase, stage);
            continue;
        }
        int64_t sleep_ns = ask_again(of, now_ns);
        if (sleep_ns > 0 && !sleep_on_answers(seen, sleep_ns))
            settle(of, phase, PHASE_ALONE);
    }
    waits_until_ns = 0;
}

/* ---- A call ---- */

/* Tells the agent how far a phase is, if that is due, so that it is known to be at work. */
static void tell_if_due(int of, uint32_t ms)
{
    struct volume *volume = &volumes[of];
    uint32_t told_ms = __atomic_load_n(&volume->told_ms, __ATOMIC_RELAXED);
    int is_due = ms - told_ms >= TELL_MS;
    if (is_due && is_own_process() &&
        __atomic_compare_exchange_n(&volume->told_ms, &told_ms, ms, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        tell_phase(of);
}

/* Follows the phase of a volume until the call may go on; returns whether it is one of a phase. */
static int take_turn(int of, int fd, uint64_t bytes)
{
    struct volume *volume = &volumes[of];
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        uint64_t phase = load(&volume->phase);
        uint32_t ms = coarse_ms();
        int stage = stage_of(phase);
        if (stage == PHASE_ENDED) {
            if (!is_much(volume, bytes, ms) || !may_begin(volume))
                return 0;
            begin_phase(of, phase);
        } else if (stage != PHASE_WAITS && is_over(volume, ms)) {
            if (!is_own_process())
                return 0;
            end_phase(of, phase);
        } else if (!join(volume, phase, fd)) {
            continue;
        } else if (stage == PHASE_WAITS) {
            if (!is_own_process())
                return 0;
            wait_for_turn(of, number_of(phase));
        } else if (stage == PHASE_GRANTED && answer_to(number_of(phase)) == ANSWER_WAIT) {
            if (!is_own_process())
                return 0;
            /* Its turn is over. */
            begin_wait(volume, now());
            phase = load(&volume->phase);
            if (stage_of(phase) == PHASE_GRANTED)
                changes(volume, phase, (phase & ~(uint64_t)STAGE_MASK) | PHASE_WAITS);
        } else {
            __atomic_store_n(&volume->active_ms, ms, __ATOMIC_RELAXED);
            tell_if_due(of, ms);
            return 1;
        }
    }
    return 0;
}

static int begin_if_long(int of, int kind, uint64_t bytes)
{
    struct volume *volume = &volumes[of];
    if (bytes < (kind == SYNC ? LONG_SYNC_BYTES : LONG_BYTES))
        return 0;
    if (__atomic_fetch_add(&volume->long_calls, 1, __ATOMIC_RELAXED) == 0 && is_own_process())
        tell_phase(of);
    return 1;
}

static void end_long(int of)
{
    struct volume *volume = &volumes[of];
    uint32_t calls = __atomic_load_n(&volume->long_calls, __ATOMIC_RELAXED);
    /* A phase that has begun since has counted anew. */
    while (calls > 0 && !__atomic_compare_exchange_n(&volume->long_calls, &calls, calls - 1, 0, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED))
        ;
    if (calls == 1 && is_own_process())
        tell_phase(of);
}

int enter_phase(int of, int kind, int fd, uint64_t bytes)
{
    int before = errno;
    int is_long = 0;
    if (waits_until_ns == 0 || now() >= waits_until_ns) {
        bytes = expected(&volumes[of], kind, fd, bytes);
        is_long = take_turn(of, fd, bytes) && begin_if_long(of, kind, bytes);
    }
    errno = before;
    return is_long;
}

void leave_call(int of, int kind, uint64_t bytes, int is_long)
{
    struct volume *volume = &volumes[of];
    int before = errno;
    uint32_t ms = coarse_ms();
    __atomic_fetch_add(&volume->done, bytes, __ATOMIC_RELAXED);
    if (kind == WRITE && stage_of(load(&volume->phase)) != PHASE_ENDED)
        __atomic_fetch_add(&volume->unsynced, bytes, __ATOMIC_RELAXED);
    else if (kind == SYNC)
        __atomic_store_n(&volume->unsynced, 0, __ATOMIC_RELAXED);
    add_to_portion(volume, ms, bytes);
    __atomic_store_n(&volume->active_ms, ms, __ATOMIC_RELAXED);
    if (is_long)
        end_long(of);
    errno = before;
}

/* ---- The process ---- */

void forget_phases(void)
{
    for (int of = 0; of < volume_count; of++) {
        struct volume *volume = &volumes[of];
        __atomic_store_n(&volume->phase, number_of(load(&volume->phase)) << NUMBER_SHIFT, __ATOMIC_RELAXED);
        begin_portion(volume, 0, 0);
        __atomic_store_n(&volume->unsynced, 0, __ATOMIC_RELAXED);
    }
    waits_until_ns = 0;
    forget_frames();
}

/* A program that ends in good order need not be found out about. */
__attribute__((destructor)) static void end_phases(void)
{
    for (int of = 0; of < volume_count && is_own_process(); of++) {
        uint64_t phase = load(&volumes[of].phase);
        if (stage_of(phase) != PHASE_ENDED)
            end_phase(of, phase);
    }
}
