/* Tells the agent of phases of I/O, by frames in the first ring of the file
 * (docs/reference/ingest-format.md, section Phases of I/O).
 *
 * The ring has one writer at a time. Whoever has news of a volume leaves a note, and then writes for
 * all that have left one, unless somebody is writing already, who looks at the notes again
 * afterwards. The writer holds off signals, so that no handler can come in between and wait for
 * what its own thread was about to write. */
#define _GNU_SOURCE
#include "shim.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "declare.h"
#include "format.h"
#include "phases.h"
#include "place.h"

/* The agent takes a phase of which it has heard nothing for so long for over: it is told four times
 * a second while there is I/O. */
#define LEASE_NS (2 * (int64_t)NS_PER_S)
#define NOBODY_NS NS_PER_S
#define SIGNAL_SET_BYTES 8
#define SIGNAL_BIT(number) (1ull << ((number) - 1))

int64_t nobody_until_ns;

/* Volumes with news, by bit; above them, those for which the agent is to look at once. */
static uint32_t noted;
#define AT_ONCE_SHIFT VOLUMES_MAX
static int is_writing;

/* What was told of a volume; for the writer alone. */
static struct {
    /* The newest phase that was told, and whether its end was. */
    uint64_t number;
    int is_over;
    /* Whether its values are declared in this file, from which number on. */
    int is_declared;
    uint32_t publication, value;
} told[VOLUMES_MAX];
static uint32_t publications;
static size_t declared_here;
static uint64_t position;

static uint64_t *word(uint64_t at) { return (uint64_t *)(mapped + at); }

static int declare(int volume)
{
    if (publications == 0) {
        publications = 1; /* that of the counts */
        declared_here = declared;
    }
    uint64_t from = DECLARATIONS_AT(rings());
    told[volume].publication = publications;
    told[volume].value = values_declared + (publications - 1) * PHASE_VALUES;
    declared_here += declare_phases(mapped + from + declared_here, PHASE_DECLARATIONS_BYTES, volume_name(volume),
                                    told[volume].publication, told[volume].value);
    __atomic_store_n(word(HEADER_DECLARED), declared_here, __ATOMIC_RELEASE);
    publications++;
    return told[volume].is_declared = 1;
}

static void put_record(uint32_t kind, uint32_t series, int64_t time_ns, uint64_t payload)
{
    uint64_t *record = word(RINGS_AT(rings()) + position % ring_records() * RECORD_BYTES);
    __atomic_store_n(record, position << 32 | (uint64_t)kind << 24 | series, __ATOMIC_RELAXED);
    __atomic_store_n(record + 1, (uint64_t)time_ns, __ATOMIC_RELAXED);
    __atomic_store_n(record + 2, payload, __ATOMIC_RELAXED);
    position++;
}

static void put_frame(int volume, uint64_t number, int stage)
{
    struct volume *of = &volumes[volume];
    if (!told[volume].is_declared && !declare(volume))
        return;
    uint32_t value = told[volume].value;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t now_ns = (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
    int is_long = __atomic_load_n(&of->long_calls, __ATOMIC_RELAXED) != 0;
    /* Room for the whole frame is announced before it is written. */
    __atomic_store_n(word(HEADS_AT + HEAD_RESERVED), position + PHASE_VALUES + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    put_record(RECORD_INT, value + PHASE_STAGE, now_ns, (uint64_t)stage);
    if (stage == PHASE_WAITS) {
        put_record(RECORD_INT, value + PHASE_DECLARED, now_ns, (uint64_t)-1);
        put_record(RECORD_INT, value + PHASE_PRIORITY, now_ns, 5);
    }
    put_record(RECORD_INT, value + PHASE_DONE, now_ns, __atomic_load_n(&of->done, __ATOMIC_RELAXED));
    if (stage != PHASE_ENDED)
        put_record(RECORD_INT, value + PHASE_LEASE, now_ns, is_long ? 0 : (uint64_t)LEASE_NS);
    put_record(RECORD_FRAME, told[volume].publication, now_ns, number);
    told[volume].number = number;
    told[volume].is_over = stage == PHASE_ENDED;
}

static void write_news_of(int volume)
{
    uint64_t phase = __atomic_load_n(&volumes[volume].phase, __ATOMIC_ACQUIRE);
    uint64_t before = told[volume].number;
    /* The end of a phase, and the begin of the next one, may be one piece of news. */
    if (before != 0 && before != number_of(phase) && !told[volume].is_over)
        put_frame(volume, before, PHASE_ENDED);
    if (number_of(phase) != 0 && !(before == number_of(phase) && told[volume].is_over))
        put_frame(volume, number_of(phase), stage_of(phase));
}

/* Reserves the heads, the declarations of phases and their ring. */
static int reserve(void)
{
    uint64_t end = DECLARATIONS_AT(rings()) + UP(declared + VOLUMES_MAX * PHASE_DECLARATIONS_BYTES);
    return reserve_part(HEADS_AT, end - HEADS_AT) && reserve_part(RINGS_AT(rings()), RING_BYTES(ring_records()));
}

static void write_news(uint32_t news)
{
    if (position == 0) {
        if (!reserve())
            return;
        __atomic_store_n(word(HEADS_AT + HEAD_THREAD), (uint64_t)file_pid, __ATOMIC_RELAXED);
        __atomic_store_n(word(HEADS_AT + HEAD_STATE), RING_IN_USE, __ATOMIC_RELEASE);
        uint64_t used = 0;
        __atomic_compare_exchange_n(word(HEADER_RINGS_USED), &used, 1, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
    for (int volume = 0; volume < volume_count; volume++)
        if (news >> volume & 1) {
            write_news_of(volume);
            __atomic_store_n(word(HEADS_AT + HEAD_COMMITTED), position, __ATOMIC_RELEASE);
        }
}

/* Holds off the signals that may be held off: a fault would end the process. */
static uint64_t hold_signals(void)
{
    uint64_t before = 0;
    uint64_t all = ~(SIGNAL_BIT(SIGBUS) | SIGNAL_BIT(SIGSEGV) | SIGNAL_BIT(SIGILL) | SIGNAL_BIT(SIGFPE) |
                     SIGNAL_BIT(SIGTRAP) | SIGNAL_BIT(SIGSYS) | SIGNAL_BIT(SIGABRT));
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, SIGNAL_SET_BYTES);
    return before;
}

static void tell(uint32_t news)
{
    uint64_t before = hold_signals();
    __atomic_fetch_or(&noted, news, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&noted, __ATOMIC_SEQ_CST) != 0 && !__atomic_exchange_n(&is_writing, 1, __ATOMIC_SEQ_CST)) {
        news = __atomic_exchange_n(&noted, 0, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&file_state, __ATOMIC_ACQUIRE) == READY)
            write_news(news);
        __atomic_store_n(&is_writing, 0, __ATOMIC_SEQ_CST);
        if (news >> AT_ONCE_SHIFT && !knock("phases.sock", file_incarnation))
            __atomic_store_n(&nobody_until_ns, now() + NOBODY_NS, __ATOMIC_RELAXED);
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, 0, SIGNAL_SET_BYTES);
}

void tell_phase(int volume) { tell(1u << volume); }

void tell_phase_at_once(int volume) { tell(1u << volume | 1u << (volume + AT_ONCE_SHIFT)); }

void forget_frames(void)
{
    noted = 0;
    is_writing = 0;
    publications = 0;
    position = 0;
    for (int volume = 0; volume < VOLUMES_MAX; volume++) {
        told[volume].number = 0;
        told[volume].is_over = told[volume].is_declared = 0;
    }
}
