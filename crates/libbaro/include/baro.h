/* baro.h - barograph for C: publish a program's own values, be called, and read what is known of the node.
 *
 *   baro_t *b = baro_open("lulesh", NULL);
 *   baro_publication_t step = baro_publication(b, "lulesh", BARO_READERS_OWNER);
 *   baro_value_t r = baro_value(step, "residual", BARO_FLOAT, "1", BARO_GAUGE, "distance from the solution");
 *   for (uint64_t n = 0; n < 1000; n++) {
 *       baro_put_f64(r, residual);
 *       baro_frame(step, n);
 *   }
 *   baro_close(b);
 *
 * Link with -lbaro. The values are the stream app.lulesh.residual, its frames app.lulesh.frame.
 *
 * Every function may be called from any thread, none from a signal handler; where one thread at a time is
 * meant, it says so. A null pointer is an error and no crash, and so is what was closed or freed before; a handle of 0
 * does nothing, and nothing here ends the program or prints. Without an agent a put keeps the newest values in the
 * ring of its thread, for an agent that comes later; with BAROGRAPH=off in the environment it does nothing. After
 * fork() the child goes on in a file of its own. After vfork() it shares its parent's memory: it is to publish nothing,
 * for what it puts goes into its parent's ring, and counts as its parent's.
 *
 * Between its calls the library has no descriptor open. It sets a handler for SIGBUS, which hands on every fault that
 * is not in its own file; a program that sets one later has the last word.
 *
 * The ABI is stable within BARO_VERSION_MAJOR: a program that was built with an older header of it runs with a
 * newer library. Apache-2.0. */
#ifndef BARO_H
#define BARO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BARO_VERSION_MAJOR 1
#define BARO_VERSION_MINOR 4

/* The library's version: major << 16 | minor. */
uint32_t baro_version(void);

/* What functions return. Errors are negative. */
#define BARO_OK 0
#define BARO_NOTHING 1     /* there is nothing (yet), or it did not come in time */
#define BARO_E_ARGUMENT -1 /* a null pointer, a text that is not UTF-8, a selector that cannot be read */
#define BARO_E_NO_AGENT -2 /* no agent has ever been here, or its segment cannot be read */
#define BARO_E_UNKNOWN -3  /* no stream, or more than one */
#define BARO_E_TYPE -4     /* a text where a number was wanted */
#define BARO_E_SQL -5      /* the statement is wrong, refused, or beyond a limit */
#define BARO_E_REFUSED -6  /* a name, label or declaration that is not taken */
#define BARO_E_BUSY -7     /* the agent cannot take it now, or another thread has it: try again later */
#define BARO_E_TOO_LONG -8 /* a put that is longer than its value may be (since 1.4) */
#define BARO_E_INTERNAL -9 /* a defect of barograph */

/* What went wrong in this thread last, and what to do about it; never null, at most 1,023 bytes. The text stays as it is
 * for three more errors of the thread, and its memory as long as the thread. */
const char *baro_error(void);

/* ---- Publishing ---- */

typedef struct baro_publisher baro_t;
/* Handles: plain numbers, free to copy. 0 does nothing. */
typedef uint64_t baro_publication_t;
typedef uint64_t baro_value_t;

/* Types of values. A value takes the puts of its own type; a text takes JSON too, and JSON texts. */
#define BARO_INT 1
#define BARO_FLOAT 2
#define BARO_BOOL 3
#define BARO_TEXT 4
#define BARO_BYTES 6
#define BARO_JSON 7
#define BARO_FLOATS 8 /* an array of doubles */

/* What a value's numbers mean over time. */
#define BARO_GAUGE 1   /* goes up and down */
#define BARO_COUNTER 2 /* only grows */
#define BARO_STATE 3   /* one of a few states */

/* Who may read a publication. */
#define BARO_READERS_OWNER 0
#define BARO_READERS_GROUP 1
#define BARO_READERS_ALL 2

/* What a full ring does. */
#define BARO_DROP_OLDEST 0 /* the oldest values give way, and are counted by who reads */
#define BARO_BLOCK 1       /* the put waits up to block_ms_max while an agent lives, then drops and counts */

/* Begin with BARO_CONFIG_INIT; what is 0 is as barograph would have it. */
typedef struct {
    size_t size;           /* of this struct */
    const char *run_dir;   /* the agent's; where baro finds one by itself when null */
    uint32_t overflow;     /* BARO_DROP_OLDEST or BARO_BLOCK */
    uint32_t rings_max;    /* threads that may put at the same time (twice the processors, at least 256; at most 1,024) */
    uint64_t ring_records; /* of each thread, 24 bytes each (65,536) */
    uint64_t block_ms_max; /* longest wait of one put with BARO_BLOCK (100) */
} baro_config_t;

#define BARO_CONFIG_INIT {sizeof(baro_config_t), NULL, 0, 0, 0, 0}

/* Opens this process's way to the agent; config may be null. The process has one: who opens it again shares it.
 * The application's name is that of the program when it is null or empty. Where nothing can be published this is not
 * null all the same: it is disabled, and baro_error says why. Null only for arguments that make no sense. */
baro_t *baro_open(const char *application, const baro_config_t *config);
/* Publishes what this thread has put, and with the last one closes the way: other threads must have stopped
 * putting, for what they put later is read by nobody. */
void baro_close(baro_t *baro);
/* Whether puts go anywhere. */
int baro_is_enabled(const baro_t *baro);
/* Values of this process that were given up: a ring was full, a thread had none, a value was of another
 * type or too long. */
uint64_t baro_lost(const baro_t *baro);
/* Declarations of this process that the agent refuses now, for there is no room for more of them, or they cannot be what
 * they are declared as: none of their puts is kept. 0 before an agent has looked (since 1.4). */
uint64_t baro_refused_count(const baro_t *baro);

/* Adds a label to the streams of the publications that are made from now on. `rank` and `job` are known from
 * the launcher (Open MPI, MPICH, PMIx, Slurm, Flux, PBS, LSF) where they are not given. */
int baro_label(baro_t *baro, const char *name, const char *value);
/* Declares a publication, or finds it again. Names are lower-case words of letters, digits and _, joined by
 * dots. 0 when it is refused. */
baro_publication_t baro_publication(baro_t *baro, const char *name, int readers);
/* Declares a value, or finds it again. The same name with another type, unit or kind is refused (0). unit and
 * help may be null. */
baro_value_t baro_value(baro_publication_t publication, const char *name, int type, const char *unit,
                        int kind, const char *help);

/* As baro_value, of texts, bytes, JSON or arrays of at most bytes_max bytes (65,536 at most; 0: 4,096; the agent rounds
 * it up to a power of two). It keeps those whole; a longer text is cut at a character, what else is longer is lost; both
 * are counted. */
baro_value_t baro_value_sized(baro_publication_t publication, const char *name, int type, const char *unit,
                              int kind, const char *help, uint32_t bytes_max);

/* Whether the agent refuses this value now: 1 or 0, which it is before an agent has looked (since 1.4). */
int baro_refused(baro_value_t value);

/* Puts by any length: a text, JSON (the agent checks that it is, and counts what is not as lost), bytes, floats; at most
 * 64 KiB and a quarter of the ring. What is longer than that, or than was declared, is given up and counted
 * (BARO_E_TOO_LONG); of a text that is longer than was declared the agent keeps the beginning. BARO_E_TYPE for a value
 * of another type, BARO_E_REFUSED when there is no room. */
int baro_put_text(baro_value_t value, const char *text);
int baro_put_json(baro_value_t value, const char *json);
int baro_put_bytes(baro_value_t value, const uint8_t *bytes, size_t count);
int baro_put_floats(baro_value_t value, const double *values, size_t count);

/* Publishes what this thread has put, without a frame. */
void baro_commit(void);

/* ---- Puts of eight bytes, and frames: inline below ----
 *
 * static inline void baro_put_f64(baro_value_t value, double x);
 * static inline void baro_put_i64(baro_value_t value, int64_t x);
 * static inline void baro_put_bool(baro_value_t value, int x);
 *     Puts a value with the time of the call. Others see it when the thread ends a frame, commits or ends.
 * static inline void baro_frame(baro_publication_t publication, uint64_t number);
 *     Ends a frame: its number, and all that this thread has put since its last one, appear at once. Then applies
 *     what knobs were set to: at once, or at the frame of this number. */

/* ---- Being called: triggers, which run functions of this program, and knobs, which others set ----
 *
 *   static int checkpoint(const baro_call_t *call, void *data) { return write_checkpoint(data); }
 *
 *   baro_publication_on(b, step, "checkpoint", "writes a checkpoint", checkpoint, state, NULL);
 *   const baro_knob_t *tolerance = baro_knob_f64(step, "tolerance", 1e-3, 1e-9, 1, "1", "stops the solver");
 *   for (...) {
 *       solve(baro_knob_get_f64(tolerance));
 *       baro_poll(b);
 *   } */

/* More types of payloads, beside those of values, BARO_NULL and BARO_BYTES. */
#define BARO_JSON 7
#define BARO_FLOATS 8

/* A trigger that was fired; good until its handler returns. Later versions add fields at the end. */
typedef struct {
    uint64_t id;
    int64_t issued_ns;  /* since the epoch */
    int64_t expires_ns;
    const char *name;
    int type;     /* of the payload; BARO_NULL when there is none */
    size_t bytes; /* of it; of a text without its zero byte */
    union {
        int64_t i; /* BARO_INT, BARO_BOOL */
        double f;
        const char *text; /* BARO_TEXT, BARO_JSON: ends with a zero byte */
        const uint8_t *data;
        const double *floats; /* bytes / 8 of them */
    } as;
} baro_call_t;

/* Gives 0 when it is done, anything else when it has failed, which is told to who fired. It may do anything, and
 * must return: no longjmp, no exception, no end of its thread. The thread is not cancelled in it. */
typedef int (*baro_handler_t)(const baro_call_t *call, void *data);

/* Has triggers of a name run a handler while `baro` is open, where baro_poll or baro_listen says: one at a time in a
 * process, in the order in which they were fired. A later handler of the name takes the place of this one. */
int baro_on(baro_t *baro, const char *name, const char *help, baro_handler_t handler, void *data);
/* As baro_on; calls release(data), which may be null, when the handler is needed no more, or was refused. */
int baro_on_owned(baro_t *baro, const char *name, const char *help, baro_handler_t handler, void *data,
                  void (*release)(void *));
/* As baro_on_owned, as a trigger of a publication of `baro`: calls mean it by the labels of both, and who may read the
 * publication may read of them. Each publication has one handler of a name, beside that of baro_on. Of those that a call
 * means each runs, in the order in which they were set; if one fails, the process has failed. */
int baro_publication_on(baro_t *baro, baro_publication_t publication, const char *name, const char *help,
                        baro_handler_t handler, void *data, void (*release)(void *));
/* Starts a thread, one in a process, that sleeps until a trigger is fired and runs its handler at once, with all
 * signals blocked but those of faults (SIGBUS, SIGSEGV, SIGFPE, SIGILL); it ends with the last baro_close. Not in forked
 * children. Knobs are set by polls and frames alone. */
int baro_listen(baro_t *baro);
/* static inline int baro_poll(baro_t *baro);
 *     Runs the handlers of what was fired, and applies what knobs were set to, on this thread. Gives how many of
 *     both. When there is nothing it costs a load and a compare. */

/* A value of a publication that others may set; for good. Not to be touched but by the functions below. */
typedef struct {
    uint64_t word;
    uint64_t version;
    uint64_t type;
} baro_knob_t;

/* Declares a knob, or finds it again: it is a value, too. Null when it is refused. Where nothing can be published it
 * stays what it is. unit and help may be null. */
const baro_knob_t *baro_knob_f64(baro_publication_t publication, const char *name, double initial, double min,
                                 double max, const char *unit, const char *help);
const baro_knob_t *baro_knob_i64(baro_publication_t publication, const char *name, int64_t initial, int64_t min,
                                 int64_t max, const char *unit, const char *help);
const baro_knob_t *baro_knob_bool(baro_publication_t publication, const char *name, int initial, const char *help);
/* static inline double baro_knob_get_f64(const baro_knob_t *knob);
 * static inline int64_t baro_knob_get_i64(const baro_knob_t *knob);
 * static inline int baro_knob_get_bool(const baro_knob_t *knob);
 *     What it was set to last, as polls and frames apply it: a load. 0 for null. */
double baro_knob_read_f64(const baro_knob_t *knob);
int64_t baro_knob_read_i64(const baro_knob_t *knob);

/* ---- Calling: triggers and knobs of other programs, by the agent ----
 *
 * run_dir may be null: then the agent is found. target says who is meant, "label=value,label=value" (application, pid
 * and user among the labels); null is everyone. wait_ms is how long to wait until all that are meant have answered,
 * at most 30,000: not all in time is BARO_NOTHING. Nobody is meant: BARO_E_UNKNOWN. fired may be null. */

typedef struct {
    uint64_t matched;      /* processes that are meant */
    uint64_t acknowledged; /* of them, those that have done it... */
    uint64_t failed;       /* ...and those that could not */
    char id[40];           /* as in the table calls */
} baro_fired_t;

/* Fires a trigger. The payload is at a place, by its type: an int64_t, a double, an int (BARO_BOOL), or so many bytes
 * of text, JSON, bytes or doubles; of a text 0 is up to its zero byte. expires_ms: 0 is a minute. */
int baro_fire(const char *run_dir, const char *name, const char *target, int type, const void *payload, size_t bytes,
              uint64_t expires_ms, uint64_t wait_ms, baro_fired_t *fired);
/* Sets a knob, named "publication.knob". */
int baro_knob_set_f64(const char *run_dir, const char *knob, const char *target, double value, uint64_t wait_ms,
                      baro_fired_t *fired);
int baro_knob_set_i64(const char *run_dir, const char *knob, const char *target, int64_t value, uint64_t wait_ms,
                      baro_fired_t *fired);
int baro_knob_set_bool(const char *run_dir, const char *knob, const char *target, int value, uint64_t wait_ms,
                       baro_fired_t *fired);
/* As these, in every process at the end of the same frame of the knob's publication: at_frame is the number that they
 * give baro_frame. A process that has ended that frame before it knows of the setting leaves its knob as it is. */
int baro_knob_set_f64_at(const char *run_dir, const char *knob, const char *target, double value, uint64_t at_frame,
                         uint64_t wait_ms, baro_fired_t *fired);
int baro_knob_set_i64_at(const char *run_dir, const char *knob, const char *target, int64_t value, uint64_t at_frame,
                         uint64_t wait_ms, baro_fired_t *fired);
int baro_knob_set_bool_at(const char *run_dir, const char *knob, const char *target, int value, uint64_t at_frame,
                          uint64_t wait_ms, baro_fired_t *fired);

/* ---- Inline ---- */

/* Where a thread writes next. Not to be touched but by the functions below. */
typedef struct {
    uint64_t position;      /* the next record */
    uint64_t limit;         /* up to here without asking */
    uint64_t mask;          /* records of the ring, less one */
    uint64_t *records;      /* of three words: position and what it is, time, content */
    uint64_t *committed;    /* up to here others may read */
    const uint64_t *asleep; /* not 0: the agent wants to be woken */
    uint64_t owner;         /* handles that may be put here begin so */
    /* Since 1.1: what this thread has seen of the calls. */
    const uint32_t *calls; /* moves when something has come */
    uint32_t calls_polled; /* what it was at the last poll, when there is a file... */
    uint32_t calls_framed; /* ...and when knobs were applied last */
    uint32_t calls_left;   /* frames until the library is asked whether it is time to look elsewhere */
    uint32_t calls_step;
    int64_t calls_asked_ns;
} baro_cursor_t;

/* All that is not done inline; `here` (which may be null) is set to where this thread's cursor is found. */
void baro_put_slowly(baro_value_t value, uint64_t kind, uint64_t word, baro_cursor_t *const **here);
void baro_frame_slowly(baro_publication_t publication, uint64_t number, baro_cursor_t *const **here);
void baro_wake_agent(void);
int baro_poll_slowly(baro_cursor_t *const **here);
void baro_apply_slowly(baro_cursor_t *const **here);

#define BARO_KIND_FRAME_ 5

#if defined(__x86_64__) && defined(__GNUC__) && !defined(BARO_NO_INLINE)

#define BARO_UNUSED_ __attribute__((unused))

/* Nothing fits here: the first put of a thread goes the slow way, which sets baro_here_. */
BARO_UNUSED_ static baro_cursor_t baro_nowhere_ = {0, 0, 0, NULL, NULL, NULL, 0, NULL, 0, 0, 0, 0, 0};
BARO_UNUSED_ static baro_cursor_t *const baro_nowhere_at_ = &baro_nowhere_;
BARO_UNUSED_ static __thread baro_cursor_t *const *baro_here_ = &baro_nowhere_at_;

/* Whether this record may be written now. */
BARO_UNUSED_ static inline int baro_has_room_(const baro_cursor_t *c, uint64_t handle, uint64_t kind)
{
    return __builtin_expect((handle >> 24) == (c->owner | kind) && c->position < c->limit, 1);
}

BARO_UNUSED_ static inline void baro_write_(baro_cursor_t *c, uint64_t handle, uint64_t word)
{
    uint64_t at = c->position;
    uint64_t *record = c->records + (at & c->mask) * 3;
    __atomic_store_n(record, at << 32 | (handle & 0xffffffffu), __ATOMIC_RELAXED);
    __atomic_store_n(record + 1, (uint64_t)__builtin_ia32_rdtsc(), __ATOMIC_RELAXED);
    __atomic_store_n(record + 2, word, __ATOMIC_RELAXED);
    c->position = at + 1;
}

BARO_UNUSED_ static inline void baro_put_(baro_value_t value, uint64_t kind, uint64_t word)
{
    if (__builtin_expect(value == 0, 0))
        return;
    baro_cursor_t *c = *baro_here_;
    if (baro_has_room_(c, value, kind))
        baro_write_(c, value, word);
    else
        baro_put_slowly(value, kind, word, &baro_here_);
}

BARO_UNUSED_ static inline int baro_has_calls_(const baro_cursor_t *c, uint32_t seen)
{
    return __builtin_expect(c->calls == NULL, 0) ||
           __builtin_expect(__atomic_load_n(c->calls, __ATOMIC_ACQUIRE) != seen, 0);
}

BARO_UNUSED_ static inline int baro_poll(baro_t *baro)
{
    if (__builtin_expect(baro == NULL, 0))
        return 0;
    const baro_cursor_t *c = *baro_here_;
    return baro_has_calls_(c, c->calls_polled) ? baro_poll_slowly(&baro_here_) : 0;
}

BARO_UNUSED_ static inline void baro_frame(baro_publication_t publication, uint64_t number)
{
    if (__builtin_expect(publication == 0, 0))
        return;
    baro_cursor_t *c = *baro_here_;
    if (baro_has_room_(c, publication, BARO_KIND_FRAME_)) {
        baro_write_(c, publication, number);
        __atomic_store_n(c->committed, c->position, __ATOMIC_RELEASE);
        if (__builtin_expect(__atomic_load_n(c->asleep, __ATOMIC_RELAXED) != 0, 0))
            baro_wake_agent();
        if (__builtin_expect(--c->calls_left == 0, 0) || baro_has_calls_(c, c->calls_framed))
            baro_apply_slowly(&baro_here_);
    } else {
        baro_frame_slowly(publication, number, &baro_here_);
    }
}

#else /* no counter to read inline, or not this compiler's words: every put is a call */

#define BARO_UNUSED_

static inline void baro_put_(baro_value_t value, uint64_t kind, uint64_t word)
{
    if (value != 0)
        baro_put_slowly(value, kind, word, NULL);
}

static inline void baro_frame(baro_publication_t publication, uint64_t number)
{
    if (publication != 0)
        baro_frame_slowly(publication, number, NULL);
}

static inline int baro_poll(baro_t *baro)
{
    return baro != NULL ? baro_poll_slowly(NULL) : 0;
}

#endif

BARO_UNUSED_ static inline void baro_put_f64(baro_value_t value, double x)
{
    union {
        double number;
        uint64_t word;
    } both;
    both.number = x;
    baro_put_(value, BARO_FLOAT, both.word);
}

BARO_UNUSED_ static inline void baro_put_i64(baro_value_t value, int64_t x)
{
    baro_put_(value, BARO_INT, (uint64_t)x);
}

BARO_UNUSED_ static inline void baro_put_bool(baro_value_t value, int x)
{
    baro_put_(value, BARO_BOOL, x != 0);
}

BARO_UNUSED_ static inline double baro_knob_get_f64(const baro_knob_t *knob)
{
#ifdef __GNUC__
    union {
        double number;
        uint64_t word;
    } both;
    if (__builtin_expect(knob != NULL && knob->type == BARO_FLOAT, 1)) {
        both.word = __atomic_load_n(&knob->word, __ATOMIC_RELAXED);
        return both.number;
    }
#endif
    return baro_knob_read_f64(knob);
}

BARO_UNUSED_ static inline int64_t baro_knob_get_i64(const baro_knob_t *knob)
{
#ifdef __GNUC__
    if (__builtin_expect(knob != NULL && knob->type != BARO_FLOAT, 1))
        return (int64_t)__atomic_load_n(&knob->word, __ATOMIC_RELAXED);
#endif
    return baro_knob_read_i64(knob);
}

BARO_UNUSED_ static inline int baro_knob_get_bool(const baro_knob_t *knob)
{
    return baro_knob_get_i64(knob) != 0;
}

/* ---- Reading ---- */

typedef struct baro_node baro_node_t;     /* for any thread */
typedef struct baro_stream baro_stream_t; /* for one thread at a time */
typedef struct baro_table baro_table_t;   /* for any thread */

/* Maps the streams of the node's agent into this process; run_dir may be null: then it is found. Null when no agent
 * has ever been there. */
baro_node_t *baro_node_open(const char *run_dir);
void baro_node_close(baro_node_t *node);

/* The newest value of the one stream that a selector means, like disk.read.bytes{device=vda}: its time (ns since the
 * epoch) and how long ago its resource was looked at (ns). Each place may be null. */
int baro_latest(const baro_node_t *node, const char *selector, int64_t *ts, double *value, int64_t *age_ns);

/* As baro_latest, but where the stream is forecast what is expected of now (since 1.3): *quality is then BARO_PREDICTED,
 * *ts now, and the true value within *error of *value as often as the agent's confidence says (infinite while that is not
 * known). Else, and at the very time of a look, it is as baro_latest has it. Each place may be null. */
int baro_latest_expected(const baro_node_t *node, const char *selector, int64_t *ts, double *value, double *error,
                         int *quality, int64_t *age_ns);

/* Finds a stream once, to be read in nanoseconds for ever: it goes on when the agent restarts. */
baro_stream_t *baro_stream_open(const baro_node_t *node, const char *selector);
void baro_stream_close(baro_stream_t *stream);
/* As baro_latest, without a system call. Numbers only (BARO_NOTHING): of others the newest is
 * asked for in SQL, "SELECT value FROM app_lulesh_mesh WHERE newest". */
int baro_stream_latest_f64(baro_stream_t *stream, int64_t *ts, double *value);
/* As baro_latest_expected, of a stream that was found (since 1.3). */
int baro_stream_latest_expected(baro_stream_t *stream, int64_t *ts, double *value, double *error, int *quality,
                                int64_t *age_ns);
/* Sleeps until there is a sample that no earlier wait has shown (BARO_OK), or the time is over (BARO_NOTHING). */
int baro_wait(baro_stream_t *stream, int64_t timeout_ns);

/* ---- Every sample of many streams, since 1.2 ----
 *
 *   baro_subscription_t *disks = baro_subscribe(node, "disk.*{device=nvme*}");
 *   const baro_update_t *update;
 *   while (baro_subscription_next(disks, 1000000000, &update) == BARO_OK)
 *       if (update->type == BARO_FLOAT)
 *           printf("%s{%s} %g\n", update->name, update->labels, update->as.f);
 *   baro_subscription_close(disks); */

typedef struct baro_subscription baro_subscription_t; /* for one thread at a time */

/* What is known of a sample beside its value. */
#define BARO_MEASURED 0
#define BARO_DERIVED 1
#define BARO_PREDICTED 2
#define BARO_RECONCILED 3

/* One new sample; good, with all that it points to, until the subscription is asked or closed next. Later versions add
 * fields at the end. */
typedef struct {
    const char *name;   /* of its stream */
    const char *labels; /* "device=vda,node=n1"; empty when there are none */
    int64_t ts;         /* ns since the epoch */
    double error;       /* half width of the interval in which the true value lies; 0 when measured */
    int quality;        /* BARO_MEASURED, ... */
    int type;           /* of the value: BARO_INT, ..., BARO_FLOATS */
    size_t bytes;       /* of it; of a text without its zero byte, 8 for numbers */
    union {
        int64_t i; /* BARO_INT, BARO_BOOL */
        double f;
        const char *text; /* BARO_TEXT, BARO_JSON: ends with a zero byte */
        const uint8_t *data;
        const double *floats; /* bytes / 8 of them */
    } as;
    uint64_t missed; /* samples of its stream before it that came faster than they were asked for, and are gone */
} baro_update_t;

/* Follows the streams that a pattern means ("*", "disk.*{device=nvme*}"), also those that come later, and over a
 * restart of the agent: begins with the newest sample of each, then gives every one once, oldest first of each
 * stream. None need be there. The node may be closed before. Null after an error. */
baro_subscription_t *baro_subscribe(const baro_node_t *node, const char *pattern);
/* The next sample; waits for it up to timeout_ns, 0 or less is not at all. BARO_NOTHING, and *update is null, when
 * none came. */
int baro_subscription_next(baro_subscription_t *subscription, int64_t timeout_ns, const baro_update_t **update);
void baro_subscription_close(baro_subscription_t *subscription);

/* ---- SQL ---- */

/* Types of cells: BARO_INT (bools too), BARO_FLOAT, BARO_TEXT (JSON and arrays too: arrays as JSON), BARO_BYTES, and
 * this. */
#define BARO_NULL 0

typedef struct {
    int type;
    size_t bytes; /* of a text without its zero byte, or of bytes; 8 for numbers, 0 for null */
    union {
        int64_t i;
        double f;
        const char *text; /* ends with a zero byte; good until the table is freed */
        const uint8_t *data;
    } as;
} baro_cell_t;

/* Answers one read-only SQL statement in this process. The table is to be freed; it is null after an error. */
int baro_query(const baro_node_t *node, const char *sql, baro_table_t **table);
void baro_table_free(baro_table_t *table);
size_t baro_table_rows(const baro_table_t *table);
size_t baro_table_columns(const baro_table_t *table);
/* Null beyond the last column. */
const char *baro_table_name(const baro_table_t *table, size_t column);
/* BARO_NULL beyond the table. */
baro_cell_t baro_table_cell(const baro_table_t *table, size_t row, size_t column);

#ifdef __cplusplus
}
#endif

#endif
