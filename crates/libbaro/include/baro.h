/* baro.h - barograph for C: publishes a program's own values, runs its functions on request, and
 * reads the node's streams.
 *
 *   baro_t *b = baro_open("lulesh", NULL);
 *   baro_publication_t step = baro_publication(b, "lulesh", BARO_READERS_OWNER);
 *   baro_value_t r =
 *       baro_value(step, "residual", BARO_FLOAT, "1", BARO_GAUGE, "distance from the solution");
 *   for (uint64_t n = 0; n < 1000; n++) {
 *       baro_put_f64(r, residual);
 *       baro_frame(step, n);
 *   }
 *   baro_close(b);
 *
 * Link with -lbaro. The program above writes the streams app.lulesh.residual (the value) and
 * app.lulesh.frame (the numbers of the frames).
 *
 * Every function may be called from any thread and none from a signal handler; a function that is
 * for one thread at a time says so. A null pointer, or an object that is already closed or freed,
 * is an error and not a crash; a handle of 0 does nothing. The library never ends the program and
 * never prints. Without an agent, a put keeps the newest values in the ring of its thread, for an
 * agent that starts later; with BAROGRAPH=off in the environment a put does nothing. After fork()
 * the child publishes through a file of its own. After vfork() the child shares its parent's memory
 * and must not publish: its puts would go into its parent's ring and count as its parent's.
 *
 * Between calls the library keeps no descriptor open, except for the connections of a client of
 * staging (baro_stage_open), which the program may close as well. It installs a handler for SIGBUS,
 * which passes on every fault that is not in the library's own file; a handler that the program
 * installs later replaces it.
 *
 * The ABI is stable within BARO_VERSION_MAJOR: a program that was built with an older header of the
 * same major version runs with a newer library. Apache-2.0. */
#ifndef BARO_H
#define BARO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BARO_VERSION_MAJOR 1
#define BARO_VERSION_MINOR 11

/* The library's version: major << 16 | minor. */
uint32_t baro_version(void);

/* Return codes of functions. Errors are negative. */
#define BARO_OK 0
#define BARO_NOTHING 1     /* there is nothing (yet), or it did not come in time */
#define BARO_E_ARGUMENT -1 /* a null pointer, a text that is not UTF-8, an invalid selector */
#define BARO_E_NO_AGENT -2 /* no agent has ever been here, or its segment cannot be read */
#define BARO_E_UNKNOWN -3  /* no stream matches, or more than one; no such node is mirrored */
#define BARO_E_TYPE -4     /* a text where a number was expected */
#define BARO_E_SQL -5      /* the statement is wrong, refused, or beyond a limit */
#define BARO_E_REFUSED -6  /* a name, label or declaration that is not accepted */
#define BARO_E_BUSY -7     /* in use by another thread, or the agent is busy: try again later */
#define BARO_E_TOO_LONG -8 /* a put that is longer than its value may be (since 1.4) */
#define BARO_E_INTERNAL -9 /* a defect of barograph */
#define BARO_E_DATA -10    /* a packed array cannot be read, or not as precisely (since 1.7); a
                            * block of staging is damaged, or may be old (since 1.11) */
#define BARO_E_UNREACHABLE -11 /* no server of staging can be reached, or too few (since 1.11) */
#define BARO_E_FENCED -12      /* the epoch of the servers is over (since 1.11) */

/* Returns the last error of this thread and its remedy; never null, at most 1,023 bytes. The text
 * is unchanged until three more errors have happened in the thread; its memory is valid as long as
 * the thread lives. */
const char *baro_error(void);

/* ---- Publishing ---- */

typedef struct baro_publisher baro_t;
/* Handles: plain numbers, free to copy. 0 does nothing. */
typedef uint64_t baro_publication_t;
typedef uint64_t baro_value_t;

/* Types of values. A value accepts puts of its own type; a text value accepts JSON too, and a JSON
 * value accepts texts. */
#define BARO_INT 1
#define BARO_FLOAT 2
#define BARO_BOOL 3
#define BARO_TEXT 4
#define BARO_BYTES 6
#define BARO_JSON 7
#define BARO_FLOATS 8 /* an array of doubles */

/* Kinds of values: how a value behaves over time. */
#define BARO_GAUGE 1   /* goes up and down */
#define BARO_COUNTER 2 /* only grows */
#define BARO_STATE 3   /* one of a few states */

/* Who may read a publication. */
#define BARO_READERS_OWNER 0
#define BARO_READERS_GROUP 1
#define BARO_READERS_ALL 2

/* Overflow policies: what happens to a put when the ring is full. */
#define BARO_DROP_OLDEST 0 /* the oldest values are overwritten; the reader counts them */
#define BARO_BLOCK 1       /* waits up to block_ms_max while an agent lives, then drops the put */

/* Settings of baro_open. Start from BARO_CONFIG_INIT; a field that is 0 or null means its
 * default. */
typedef struct {
    size_t size;           /* of this struct */
    const char *run_dir;   /* the agent's run directory; null: the one that baro finds by itself */
    uint32_t overflow;     /* BARO_DROP_OLDEST or BARO_BLOCK */
    uint32_t rings_max;    /* threads that put at once, 1,024 at most (2 x processors, >= 256) */
    uint64_t ring_records; /* records in the ring of each thread, 24 bytes each (default: 65,536) */
    uint64_t block_ms_max; /* longest wait of one put with BARO_BLOCK (default: 100) */
} baro_config_t;

#define BARO_CONFIG_INIT {sizeof(baro_config_t), NULL, 0, 0, 0, 0}

/* Opens this process's publisher; config may be null. A process has one publisher: a second
 * baro_open shares it. If application is null or empty, it is the name of the program. If nothing
 * can be published, the result is a disabled publisher, not null, and baro_error gives the reason.
 * Null is returned only for invalid arguments. */
baro_t *baro_open(const char *application, const baro_config_t *config);
/* Publishes the puts of this thread and, if this is the last open publisher, closes it for the
 * process. Other threads must have stopped putting: nobody reads their later puts. */
void baro_close(baro_t *baro);
/* Whether puts are published. */
int baro_is_enabled(const baro_t *baro);
/* Number of values of this process that were dropped: a ring was full, a thread had no ring, or a
 * value had another type or was too long. */
uint64_t baro_lost(const baro_t *baro);
/* Number of declarations of this process that the agent refuses at present, because there is no
 * room for more of them or because they cannot be what they are declared as: none of their puts is
 * kept. 0 before an agent has looked (since 1.4). */
uint64_t baro_refused_count(const baro_t *baro);

/* Adds a label to the streams of publications that are declared from now on. `rank` and `job` are
 * taken from the launcher (Open MPI, MPICH, PMIx, Slurm, Flux, PBS, LSF) unless they are given. */
int baro_label(baro_t *baro, const char *name, const char *value);
/* Declares a publication, or finds it again. A name consists of lower-case words of letters, digits
 * and _, joined by dots. Returns 0 if it is refused. */
baro_publication_t baro_publication(baro_t *baro, const char *name, int readers);
/* Declares a value, or finds it again. The same name with another type, unit or kind is refused
 * (0). unit and help may be null. */
baro_value_t baro_value(baro_publication_t publication, const char *name, int type, const char *unit,
                        int kind, const char *help);

/* Like baro_value, for texts, bytes, JSON or arrays of at most bytes_max bytes (at most 65,536; 0
 * means 4,096; the agent rounds it up to a power of two). Values within that length are kept whole.
 * A longer text is cut at a character, any other longer value is dropped; both are counted. */
baro_value_t baro_value_sized(baro_publication_t publication, const char *name, int type, const char *unit,
                              int kind, const char *help, uint32_t bytes_max);

/* Whether the agent refuses this value at present: 1 or 0; 0 before an agent has looked (since
 * 1.4). */
int baro_refused(baro_value_t value);

/* Puts a value of variable length: a text, JSON (the agent checks that it is valid, and counts
 * invalid JSON as lost), bytes or floats; at most 64 KiB and a quarter of the ring. A longer put is
 * dropped and counted (BARO_E_TOO_LONG), and so is one that is longer than its declaration, except
 * a text, of which the agent keeps the beginning. BARO_E_TYPE for a value of another type,
 * BARO_E_REFUSED if there is no room. */
int baro_put_text(baro_value_t value, const char *text);
int baro_put_json(baro_value_t value, const char *json);
int baro_put_bytes(baro_value_t value, const uint8_t *bytes, size_t count);
int baro_put_floats(baro_value_t value, const double *values, size_t count);

/* Publishes the puts of this thread without ending a frame. */
void baro_commit(void);

/* ---- Puts of eight bytes, and frames: inline below ----
 *
 * static inline void baro_put_f64(baro_value_t value, double x);
 * static inline void baro_put_i64(baro_value_t value, int64_t x);
 * static inline void baro_put_bool(baro_value_t value, int x);
 *     Puts a value with the time of the call. Readers see it when the thread ends a frame, commits
 *     or ends.
 * static inline void baro_frame(baro_publication_t publication, uint64_t number);
 *     Ends a frame: its number, and all puts of this thread since its last frame, appear at once.
 *     Then applies new settings of knobs: those without a frame number, and those for this frame
 *     number. */

/* ---- Phases of I/O: a program says when it begins and ends to read and write much, and may wait
 *      for its turn on a volume that several programs use (docs/guide/scheduling.md) ----
 *
 *   baro_io_volume_t *scratch = baro_io_volume(b, "/scratch/run7");
 *   uint64_t phase = baro_io_begin(scratch, checkpoint_bytes, 0, 0, NULL);
 *   write_checkpoint();
 *   baro_io_end(scratch, phase, checkpoint_bytes);
 *
 * Nobody is held up for ever: without an agent, or on a volume whose I/O is not scheduled, begin
 * returns at once; without an answer after two seconds; without a grant after wait_ms. All processes of
 * a job and application that begin have one grant. A phase ends with its process. */
typedef struct baro_io_volume baro_io_volume_t;

/* Why a phase may go on. */
enum {
    BARO_IO_OFF = 0,      /* the I/O of the volume is not scheduled, or nothing is published */
    BARO_IO_GRANTED = 1,
    BARO_IO_LATE = 2,     /* it has waited for wait_ms */
    BARO_IO_NO_AGENT = 3, /* it has heard nothing of an agent */
};

/* Declares a volume, or finds it again: the absolute path of a file or directory on it, or its name
 * in the configuration of the agent. Returns null if it is refused. */
baro_io_volume_t *baro_io_volume(baro_t *baro, const char *volume);
void baro_io_volume_close(baro_io_volume_t *volume);
/* Begins a phase of I/O, and returns when it may do I/O: its number, 0 if nothing is published.
 * bytes is what it will read and write, -1 if it does not know; priority is 1 to 10 (10 for the most
 * important), 0 for the default; wait_ms is the longest wait, 0 for 60 seconds. grant, which may be
 * null, is why it may go on. From any thread; not from a signal handler. */
uint64_t baro_io_begin(baro_io_volume_t *volume, int64_t bytes, int priority, uint64_t wait_ms, int *grant);
/* Says how much a phase has done, at a place where it may wait: if its grant was taken away for
 * others, returns when it may go on. Returns why it may. Phases that do so are served in turns where
 * the policy has turns; others keep their grant to the end. */
int baro_io_step(baro_io_volume_t *volume, uint64_t phase, uint64_t bytes_done, uint64_t wait_ms);
/* Ends a phase. To end one twice does no harm. */
int baro_io_end(baro_io_volume_t *volume, uint64_t phase, uint64_t bytes_done);
/* The share of the volume that the agent has given a phase, 0 to 1; an error without a grant. */
int baro_io_share(baro_io_volume_t *volume, uint64_t phase, double *share);

/* ---- Server maps (since 1.10): a program does operations at servers that are added and taken out
 *      while it runs, or is one of these servers (docs/guide/epochs.md) ----
 *
 *   baro_server_map_t *map = baro_server_map(b, "solver-io", servers, 8);
 *   baro_map_operation_t op;
 *   do {
 *       baro_map_begin(map, 0, &op);
 *       fence = write_blocks(op.epoch, op.servers, op.servers_count);
 *   } while (fence != 0 && baro_map_refused(map, &op, fence) == BARO_OK);
 *   baro_map_end(map, &op);
 *
 * A server is asked with the epoch of the operation, and answers with its fence if that is over:
 *
 *   baro_map_server_t *server = baro_map_server(b, "solver-io", 3);
 *   if (baro_map_serve_begin(server, epoch, &request) == BARO_MAP_SERVED) {
 *       store_block();
 *       baro_map_serve_end(server, &request, bytes);
 *   } else
 *       answer_fenced(request.fence);
 *
 * Nobody is held up for ever: begin returns after wait_ms at the latest, and serve_begin after two
 * seconds. Where no agent keeps the map its epoch is 0, and its servers are those that were declared.
 * A process has at most 8 of these uses. From any thread; not from a signal handler. */
typedef struct baro_server_map baro_server_map_t;
typedef struct baro_map_server baro_map_server_t;

/* Why an operation has begun. */
enum {
    BARO_MAP_OFF = 0,     /* nobody keeps the map, or nothing is published */
    BARO_MAP_CURRENT = 1, /* in the epoch in force */
    BARO_MAP_LATE = 2,    /* it has waited for wait_ms: servers may refuse it */
};

/* The result of baro_map_serve_begin. */
enum {
    BARO_MAP_SERVED = 0,
    BARO_MAP_FENCED = 1,
};

/* Servers of a map have numbers below this one. */
#define BARO_MAP_SERVERS 1024

/* An operation that has begun. */
typedef struct {
    uint64_t number;
    uint64_t epoch; /* goes to the servers with each request */
    int start;
    uint32_t servers_count;
    uint16_t servers[BARO_MAP_SERVERS]; /* in order; those beyond servers_count mean nothing */
} baro_map_operation_t;

/* A request that is being served. */
typedef struct {
    uint64_t number;
    int64_t begun_ns;
    uint64_t before;
    uint64_t fence; /* the first epoch that is served, if the request is not */
} baro_map_request_t;

/* Declares that this process does operations at the servers of a map, or finds the map again. servers
 * are the numbers, below 1,024, of those that the program begins with: the first epoch of a map that is
 * new, and what is used where nobody keeps the map. Returns null if it is refused. */
baro_server_map_t *baro_server_map(baro_t *baro, const char *name, const uint32_t *servers, size_t count);
void baro_server_map_close(baro_server_map_t *map);
/* Begins an operation, and returns when it may be done: at once, unless the map is being changed.
 * wait_ms is the longest wait, 0 for 60 seconds. The list of servers is copied into the operation. */
int baro_map_begin(baro_server_map_t *map, uint64_t wait_ms, baro_map_operation_t *operation);
/* Ends an operation. To end one twice does no harm. */
int baro_map_end(baro_server_map_t *map, baro_map_operation_t *operation);
/* Ends an operation that a server has refused with a fence: begin it again. The next one begins in an
 * epoch that is not before that, as soon as it is in force. */
int baro_map_refused(baro_server_map_t *map, baro_map_operation_t *operation, uint64_t fence);

/* Declares that this process is a server of a map, by its number, or finds it again. */
baro_map_server_t *baro_map_server(baro_t *baro, const char *name, uint32_t number);
void baro_map_server_close(baro_map_server_t *server);
/* Begins to serve a request of an operation of an epoch: BARO_MAP_SERVED, or BARO_MAP_FENCED if the
 * epoch is over, or not known here yet. A server that no agent has told of a fence serves requests of
 * epoch 0 alone, after it has waited for the agent for two seconds. */
int baro_map_serve_begin(baro_map_server_t *server, uint64_t epoch, baro_map_request_t *request);
/* Ends a request of so many bytes, which is a sample of the server's load. To end one twice does no
 * harm. */
int baro_map_serve_end(baro_map_server_t *server, baro_map_request_t *request, uint64_t bytes);

/* ---- Being called: triggers run functions of this program, knobs are set by others ----
 *
 *   static int checkpoint(const baro_call_t *call, void *data) { return write_checkpoint(data); }
 *
 *   baro_publication_on(b, step, "checkpoint", "writes a checkpoint", checkpoint, state, NULL);
 *   const baro_knob_t *tolerance =
 *       baro_knob_f64(step, "tolerance", 1e-3, 1e-9, 1, "1", "stops the solver");
 *   for (...) {
 *       solve(baro_knob_get_f64(tolerance));
 *       baro_poll(b);
 *   } */

/* A trigger that was fired; good until its handler returns. Later versions add fields at the end. */
typedef struct {
    uint64_t id;
    int64_t issued_ns;  /* ns since the epoch, like expires_ns */
    int64_t expires_ns;
    const char *name;
    int type;     /* of the payload; BARO_NULL if there is none */
    size_t bytes; /* length of the payload; of a text without its zero byte */
    union {
        int64_t i; /* BARO_INT, BARO_BOOL */
        double f;
        const char *text; /* BARO_TEXT, BARO_JSON: ends with a zero byte */
        const uint8_t *data;
        const double *floats; /* bytes / 8 elements */
    } as;
} baro_call_t;

/* A handler. It returns 0 if it succeeded and anything else if it failed, which is reported to the
 * caller. It may do anything, and must return: no longjmp, no exception, no end of its thread. The
 * thread is not cancelled while it runs. */
typedef int (*baro_handler_t)(const baro_call_t *call, void *data);

/* Sets the handler that runs when a trigger of this name is fired while `baro` is open, on the
 * thread of baro_poll or baro_listen. Handlers run one at a time in a process, in the order of the
 * calls. A later handler for the same name replaces this one. */
int baro_on(baro_t *baro, const char *name, const char *help, baro_handler_t handler, void *data);
/* Like baro_on; calls release(data) when the handler is no longer needed or was refused. release
 * may be null. */
int baro_on_owned(baro_t *baro, const char *name, const char *help, baro_handler_t handler, void *data,
                  void (*release)(void *));
/* Like baro_on_owned, for a trigger of a publication of `baro`: calls match it by the labels of the
 * process and of the publication, and readers of the publication may read about the calls.
 * Each publication has one handler per name, in addition to that of baro_on. All handlers that a
 * call matches run, in the order in which they were set; if one fails, the process has failed. */
int baro_publication_on(baro_t *baro, baro_publication_t publication, const char *name, const char *help,
                        baro_handler_t handler, void *data, void (*release)(void *));
/* Starts a thread, one per process, that sleeps until a trigger is fired and runs its handler at
 * once. All signals are blocked in it except those of faults (SIGBUS, SIGSEGV, SIGFPE, SIGILL). It
 * ends with the last baro_close. It does not run in forked children. Only polls and frames apply
 * settings of knobs. */
int baro_listen(baro_t *baro);
/* static inline int baro_poll(baro_t *baro);
 *     Runs the handlers of new calls and applies new settings of knobs, on this thread. Returns the
 *     number of both. If there are none, it costs a load and a compare. */

/* A knob: a value of a publication that others may set. It is never freed. Use its fields only
 * through the functions below. */
typedef struct {
    uint64_t word;
    uint64_t version;
    uint64_t type;
} baro_knob_t;

/* Declares a knob, or finds it again; it is also a value of the publication. Returns null if it is
 * refused. If nothing can be published, the knob keeps its initial value. unit and help may be
 * null. */
const baro_knob_t *baro_knob_f64(baro_publication_t publication, const char *name, double initial, double min,
                                 double max, const char *unit, const char *help);
const baro_knob_t *baro_knob_i64(baro_publication_t publication, const char *name, int64_t initial, int64_t min,
                                 int64_t max, const char *unit, const char *help);
const baro_knob_t *baro_knob_bool(baro_publication_t publication, const char *name, int initial, const char *help);
/* static inline double baro_knob_get_f64(const baro_knob_t *knob);
 * static inline int64_t baro_knob_get_i64(const baro_knob_t *knob);
 * static inline int baro_knob_get_bool(const baro_knob_t *knob);
 *     Returns the last setting that a poll or frame has applied; one load. 0 for null. */
double baro_knob_read_f64(const baro_knob_t *knob);
int64_t baro_knob_read_i64(const baro_knob_t *knob);

/* ---- Calling: triggers and knobs of other programs, through the agent ----
 *
 * run_dir may be null: then the agent's run directory is found. target selects the processes by
 * labels, "label=value,label=value" (application, pid and user are labels too); null selects all.
 * wait_ms is the longest wait for the answers of all matched processes, at most 30,000;
 * BARO_NOTHING if not all have answered by then. BARO_E_UNKNOWN if no process matches. fired may be
 * null. */

typedef struct {
    uint64_t matched;      /* processes that match the target */
    uint64_t acknowledged; /* those of them that have done it */
    uint64_t failed;       /* those of them that could not */
    char id[40];           /* the call's id in the table calls */
} baro_fired_t;

/* Fires a trigger. payload points to a value of the given type: an int64_t, a double, an int
 * (BARO_BOOL), or `bytes` bytes of text, JSON, bytes or doubles; for a text, 0 bytes means up to
 * its zero byte. expires_ms: 0 means one minute. */
int baro_fire(const char *run_dir, const char *name, const char *target, int type, const void *payload, size_t bytes,
              uint64_t expires_ms, uint64_t wait_ms, baro_fired_t *fired);
/* Sets a knob, named "publication.knob". */
int baro_knob_set_f64(const char *run_dir, const char *knob, const char *target, double value, uint64_t wait_ms,
                      baro_fired_t *fired);
int baro_knob_set_i64(const char *run_dir, const char *knob, const char *target, int64_t value, uint64_t wait_ms,
                      baro_fired_t *fired);
int baro_knob_set_bool(const char *run_dir, const char *knob, const char *target, int value, uint64_t wait_ms,
                       baro_fired_t *fired);
/* Like the functions above, but every process applies the setting at the end of the same frame of
 * the knob's publication: at_frame is the number that the program passes to baro_frame. A process
 * that has already ended that frame when it learns of the setting leaves its knob unchanged. */
int baro_knob_set_f64_at(const char *run_dir, const char *knob, const char *target, double value, uint64_t at_frame,
                         uint64_t wait_ms, baro_fired_t *fired);
int baro_knob_set_i64_at(const char *run_dir, const char *knob, const char *target, int64_t value, uint64_t at_frame,
                         uint64_t wait_ms, baro_fired_t *fired);
int baro_knob_set_bool_at(const char *run_dir, const char *knob, const char *target, int value, uint64_t at_frame,
                          uint64_t wait_ms, baro_fired_t *fired);

/* ---- Where blocks go (since 1.11): advice of the agent by the state of this node's storage now
 *      (docs/guide/placement.md) ----
 *
 *   const char *targets[] = {"/nvme/cache", "/lustre/project"};
 *   int place;
 *   baro_advice_t advice;
 *   if (baro_advise(NULL, targets, NULL, 2, NULL, 0, 64 << 20, BARO_WRITE, "step 7", &place, &advice) == BARO_OK
 *       && place >= 0)
 *       write_block(targets[place]);
 *   if (advice.decision != 0)
 *       baro_advise_report(NULL, advice.decision, 64 << 20, seconds);
 */

/* What is to be fast: the way of a block there, or the way back. */
#define BARO_WRITE 0
#define BARO_READ 1

typedef struct {
    uint64_t decision; /* its number, for baro_advise_report; 0 if no agent has decided */
    double expected_s; /* seconds until the last of the blocks is expected to be there; -1 if not known */
} baro_advice_t;

/* Advises where blocks of `bytes` bytes go, and waits two seconds at most for it; there is always an
 * answer: without an agent it is hashing of the keys by the weights, and baro_error says why. targets
 * are absolute paths of directories, 32 at most; weights are their shares where nothing is known of
 * them, null for equal ones. keys are 256 at most; null and 0 for one block, which label names. places
 * gets the index of the target of each key, -1 if no target has room for it. label, advice and run_dir
 * may be null. */
int baro_advise(const char *run_dir, const char *const *targets, const double *weights, size_t targets_count,
                const char *const *keys, size_t keys_count, uint64_t bytes, int direction, const char *label,
                int *places, baro_advice_t *advice);
/* Tells the agent how long the blocks of a decision took, for its record. BARO_E_NO_AGENT if it has
 * not heard it. */
int baro_advise_report(const char *run_dir, uint64_t decision, uint64_t bytes, double seconds);

/* ---- Inline ---- */

/* The write position of a thread in its ring. Use it only through the functions below. */
typedef struct {
    uint64_t position;      /* the next record */
    uint64_t limit;         /* records before this one may be written without a call */
    uint64_t mask;          /* number of records in the ring, minus one */
    uint64_t *records;      /* three words each: position with handle, time, content */
    uint64_t *committed;    /* others may read the records before this one */
    const uint64_t *asleep; /* not 0: the agent sleeps and wants to be woken */
    uint64_t owner;         /* upper bits of the handles that may be put here */
    /* Since 1.1: how far this thread has seen the calls. */
    const uint32_t *calls; /* changes when a call or setting has arrived */
    uint32_t calls_polled; /* its value at the last poll, if there is a file */
    uint32_t calls_framed; /* its value when knobs were last applied */
    uint32_t calls_left;   /* frames until the library checks whether to look for another file */
    uint32_t calls_step;
    int64_t calls_asked_ns;
} baro_cursor_t;

/* The cases that are not done inline. `here`, which may be null, is set to the place of this
 * thread's cursor. */
void baro_put_slowly(baro_value_t value, uint64_t kind, uint64_t word, baro_cursor_t *const **here);
void baro_frame_slowly(baro_publication_t publication, uint64_t number, baro_cursor_t *const **here);
void baro_wake_agent(void);
int baro_poll_slowly(baro_cursor_t *const **here);
void baro_apply_slowly(baro_cursor_t *const **here);

#define BARO_KIND_FRAME_ 5

#if defined(__x86_64__) && defined(__GNUC__) && !defined(BARO_NO_INLINE)

#define BARO_UNUSED_ __attribute__((unused))

/* A cursor in which nothing fits: the first put of a thread takes the slow path, which sets
 * baro_here_. */
BARO_UNUSED_ static baro_cursor_t baro_nowhere_ = {0, 0, 0, NULL, NULL, NULL, 0, NULL, 0, 0, 0, 0, 0};
BARO_UNUSED_ static baro_cursor_t *const baro_nowhere_at_ = &baro_nowhere_;
BARO_UNUSED_ static __thread baro_cursor_t *const *baro_here_ = &baro_nowhere_at_;

/* Whether a record of this handle and kind may be written now. */
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

#else /* no time-stamp counter that can be read inline, or another compiler: every put is a call */

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

typedef struct baro_node baro_node_t;     /* for use by any thread */
typedef struct baro_stream baro_stream_t; /* for one thread at a time */
typedef struct baro_table baro_table_t;   /* for use by any thread */

/* Maps the streams of the node's agent into this process. run_dir may be null: then it is found.
 * Returns null if no agent has ever been there. */
baro_node_t *baro_node_open(const char *run_dir);
void baro_node_close(baro_node_t *node);

/* Maps the streams of another node of the cluster, as the agent of this node mirrors them (since
 * 1.5), for all functions below; the name of this node maps its own. Values are then read as those of
 * this node are, in nanoseconds; their ages are by the clock of this node. The result may be used
 * after node was closed, stays usable when the other node or the agent of this one restarts, and is
 * closed by baro_node_close. Returns null on error: baro_error() names the nodes that are mirrored. */
baro_node_t *baro_node_open_mirrored(const baro_node_t *node, const char *name);

/* Whether the values of a node are kept up to date (since 1.5): 1 if its agent lives, and something
 * was heard of it in the last 5 s if it is another node; 0 if not, and its values are out of date.
 * Negative on error. */
int baro_node_is_alive(const baro_node_t *node);

/* Reads the newest value of the one stream that a selector like disk.read.bytes{device=vda}
 * matches: its time (ns since the epoch) and the time since the last look at its resource (ns).
 * Each output pointer may be null. */
int baro_latest(const baro_node_t *node, const char *selector, int64_t *ts, double *value, int64_t *age_ns);

/* Like baro_latest, but if the stream has a forecast, reads the value predicted for now (since
 * 1.3): *quality is BARO_PREDICTED, *ts is now, and the true value is within *error of *value with
 * the agent's confidence (*error is infinite while that is not known). Without a forecast, and at
 * the very time of a look, the result is that of baro_latest. Each output pointer may be null. */
int baro_latest_expected(const baro_node_t *node, const char *selector, int64_t *ts, double *value, double *error,
                         int *quality, int64_t *age_ns);

/* Finds a stream once, so that it can be read in nanoseconds from then on; it stays usable when the
 * agent restarts. */
baro_stream_t *baro_stream_open(const baro_node_t *node, const char *selector);
void baro_stream_close(baro_stream_t *stream);
/* Like baro_latest, without a system call. For numbers only (others: BARO_NOTHING): the newest
 * value of another type is read in SQL, "SELECT value FROM app_lulesh_mesh WHERE newest". */
int baro_stream_latest_f64(baro_stream_t *stream, int64_t *ts, double *value);
/* Like baro_latest_expected, for a stream that was opened (since 1.3). */
int baro_stream_latest_expected(baro_stream_t *stream, int64_t *ts, double *value, double *error, int *quality,
                                int64_t *age_ns);
/* Sleeps until there is a sample that no earlier wait has returned for (BARO_OK), or until the
 * timeout (BARO_NOTHING). */
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

/* Quality of a sample: how its value was obtained. */
#define BARO_MEASURED 0
#define BARO_DERIVED 1
#define BARO_PREDICTED 2
#define BARO_RECONCILED 3

/* A new sample; valid, with everything that it points to, until the next call of
 * baro_subscription_next or baro_subscription_close. Later versions add fields at the end. */
typedef struct {
    const char *name;   /* name of the stream */
    const char *labels; /* labels of the stream, "device=vda,node=n1"; empty if it has none */
    int64_t ts;         /* ns since the epoch */
    double error;       /* half width of the interval in which the true value lies; 0 if measured */
    int quality;        /* BARO_MEASURED, ... */
    int type;           /* type of the value: BARO_INT, ..., BARO_FLOATS */
    size_t bytes;       /* length of the value; of a text without its zero byte, 8 for numbers */
    union {
        int64_t i; /* BARO_INT, BARO_BOOL */
        double f;
        const char *text; /* BARO_TEXT, BARO_JSON: ends with a zero byte */
        const uint8_t *data;
        const double *floats; /* bytes / 8 elements */
    } as;
    uint64_t missed; /* earlier samples of the stream, overwritten before they were read */
} baro_update_t;

/* Follows all streams that match a pattern ("*", "disk.*{device=nvme*}"), including those that are
 * registered later, across restarts of the agent: first the newest sample of each stream, then
 * every later sample once, the oldest first within each stream. No stream needs to match yet. The
 * node may be closed before the subscription. Returns null on error. */
baro_subscription_t *baro_subscribe(const baro_node_t *node, const char *pattern);
/* Returns the next sample; waits for it up to timeout_ns; 0 or less means no wait. If none came,
 * returns BARO_NOTHING and sets *update to null. */
int baro_subscription_next(baro_subscription_t *subscription, int64_t timeout_ns, const baro_update_t **update);
void baro_subscription_close(baro_subscription_t *subscription);

/* ---- File events, since 1.6 ----
 *
 *   baro_event_filter_t filter = BARO_EVENT_FILTER_INIT;
 *   filter.kinds = "close_write,rename";
 *   filter.glob = "*.h5";
 *   baro_event_feed_t *feed = baro_event_open(node, &filter);
 *   const baro_event_t *event;
 *   while (baro_event_next(feed, 1000000000, &event) == BARO_OK)
 *       if (event->gap == NULL)
 *           printf("%s %s\n", event->kind, event->path);
 *   baro_event_close(feed); */

typedef struct baro_event_feed baro_event_feed_t; /* for one thread at a time */

/* The events that are wanted, and where the feed begins. Start from BARO_EVENT_FILTER_INIT; a
 * field that is 0 or null means all events, and new ones only. */
typedef struct {
    size_t size;        /* of this struct */
    const char *kinds;  /* kinds of events, "create,unlink" */
    const char *path;   /* file or directory: events of it and of what is below it; any bytes */
    const char *glob;   /* pattern of the path, with * (slashes included) and ? */
    const char *source; /* name of one watch */
    int64_t since_ns;   /* past events from this time on, ns since the epoch */
    const char *after;  /* a text of baro_event_position: what came after it */
} baro_event_filter_t;

#define BARO_EVENT_FILTER_INIT {sizeof(baro_event_filter_t), NULL, NULL, NULL, NULL, 0, NULL}

/* A file event, or a gap in the feed; valid, with everything that it points to, until the next call
 * of baro_event_next or baro_event_close. Later versions add fields at the end. Texts are never
 * null but for gap; numbers that are unknown are -1. */
typedef struct {
    const char *kind;     /* "create", "close_write", "rename", ...: docs/reference/event-format.md */
    const char *source;   /* name of the watch */
    uint64_t index;       /* number of the event in its source; of a gap, of the event before it */
    int64_t ts;           /* ns since the epoch; 0 for a gap */
    const char *path;     /* bytes, of any encoding, and a zero byte */
    size_t path_bytes;    /* without the zero byte */
    const char *old_path; /* before a rename; else empty */
    size_t old_path_bytes;
    int64_t size;     /* of the file after the event, in bytes */
    int64_t uid;      /* user that caused the event */
    int64_t gid;      /* group of that user */
    const char *job;  /* job that caused the event; empty if it is unknown */
    int is_directory; /* 1 if it happened to a directory */
    int is_complete;  /* 0 if the path lacks its beginning */
    int is_reconciled; /* 1 if comparing has found the event later */
    const char *gap;  /* null for an event; else the reason why events are missing here */
    uint64_t before;  /* of a gap: number of the event after it; 0 if there is none yet */
    uint64_t missing; /* of a gap: how many events are missing; 0 if that is not known */
} baro_event_t;

/* Follows the file events that this process may read, across restarts of the agent: each event
 * once, in the order of its source. filter may be null. The node may be closed before the feed. If
 * the process forks, parent and child each have the whole feed from there on. Returns null on
 * error. */
baro_event_feed_t *baro_event_open(const baro_node_t *node, const baro_event_filter_t *filter);
/* Returns the next event or gap; waits for it about timeout_ns; 0 or less means no wait. If none
 * came, returns BARO_NOTHING and sets *event to null. */
int baro_event_next(baro_event_feed_t *feed, int64_t timeout_ns, const baro_event_t **event);
/* Returns the place after the last event as a text to keep: a feed that is opened with it as
 * `after`, by any process, leaves nothing out. Valid until the next call of baro_event_next or
 * baro_event_close; null on error. */
const char *baro_event_position(const baro_event_feed_t *feed);
void baro_event_close(baro_event_feed_t *feed);

/* ---- Control events, since 1.10: what programs and agents tell each other about storage and its
 *      control (docs/guide/control-events.md) ----
 *
 *   baro_property_t why[] = {{"server", "3"}};
 *   baro_control_event(b, "server.slow", "/scratch", 2.5, 0.9, why, 1);
 *
 *   baro_control_filter_t filter = BARO_CONTROL_FILTER_INIT;
 *   filter.kind = "server.*";
 *   filter.sources = "job=7";
 *   baro_control_subscription_t *events = baro_control_subscribe(node, &filter);
 *   const baro_control_event_t *event;
 *   while (baro_control_wait(events, 1000000000, &event) == BARO_OK)
 *       printf("%s %s %g\n", event->kind, event->subject, event->value);
 *   baro_control_close(events); */

/* A name, and a text; neither contains zero bytes. */
typedef struct {
    const char *name;
    const char *text;
} baro_property_t;

/* Says who may read the control events of this program (BARO_READERS_OWNER, ...), before the first
 * one; otherwise it is their owner. */
int baro_control_readers(baro_t *baro, int readers);
/* Publishes a control event, with the puts of this thread since its last frame. kind is 1 to 64
 * letters, digits, '.', '_' and '-'; subject may be null; value is NAN if there is none; confidence
 * is 0 to 1; there are `count` properties, 16 at most, each of another name. All texts together have
 * about 1,000 bytes. BARO_E_ARGUMENT if there can be no such event, BARO_E_REFUSED if there is no
 * room for it. It takes no lock and no memory; the first event of a process takes both. */
int baro_control_event(baro_t *baro, const char *kind, const char *subject, double value, double confidence,
                       const baro_property_t *properties, size_t count);

typedef struct baro_control_subscription baro_control_subscription_t; /* for one thread at a time */

/* The events that are wanted. Start from BARO_CONTROL_FILTER_INIT; a field that is 0 or null means
 * all events, and new ones only. In patterns, * is any run of characters and ? is one byte. */
typedef struct {
    size_t size;            /* of this struct */
    const char *kind;       /* pattern of the kind, "io.*" */
    const char *subject;    /* pattern of the subject */
    const char *sources;    /* labels of the source, "job=7,rank=0,application=lu*,node=n1" */
    const char *properties; /* properties that the event has, "policy=set10*,volume=*" */
    double confidence_min;  /* least confidence, 0 to 1 */
    int64_t age_ns_max;     /* greatest age when it is looked at */
    int64_t past_ns;        /* begins with past events that are not older than this, 4,096 at most */
    int exclude_own;        /* 1: without events of this process */
} baro_control_filter_t;

#define BARO_CONTROL_FILTER_INIT {sizeof(baro_control_filter_t), NULL, NULL, NULL, NULL, 0, 0, 0, 0}

/* A control event; valid, with everything that it points to, until the next call with its
 * subscription. Later versions add fields at the end. Texts are never null; labels that the source
 * does not have are empty. */
typedef struct {
    const char *kind;
    const char *subject;
    double value;      /* NAN if there is none */
    double confidence; /* 0 to 1 */
    int64_t ts;        /* ns since the epoch, by the clock of its node */
    int64_t age_ns;    /* since then; of another node, with the known difference of both clocks */
    uint64_t sequence; /* number among the events of its thread, from 1 on */
    uint64_t missed;   /* events of its thread, of any kind, that were lost before it */
    uint32_t pid;      /* of the process that published it, as it says */
    uint32_t thread;   /* number of the thread there */
    const char *node;  /* on which it was published */
    const char *application; /* empty for an agent */
    const char *job;
    const char *rank;
    const char *user;
    const char *labels; /* all labels of the source, "application=lulesh,rank=0,user=ada" */
    const baro_property_t *properties;
    size_t properties_count;
    int is_own; /* 1 if this process has published it */
} baro_control_event_t;

/* Subscribes to the control events that this process may read: those of programs and of the agent
 * on this node, and of all nodes whose events are mirrored here. The events of each thread of a
 * program come in their order, each once. filter may be null. The node may be closed before the
 * subscription. If the process forks, parent and child each have all events from there on. Returns
 * null on error. */
baro_control_subscription_t *baro_control_subscribe(const baro_node_t *node, const baro_control_filter_t *filter);
/* Returns the next event that is here already; never waits. If there is none, returns BARO_NOTHING
 * and sets *event to null. */
int baro_control_check(baro_control_subscription_t *subscription, const baro_control_event_t **event);
/* Like baro_control_check, and sleeps up to timeout_ns until there is an event. */
int baro_control_wait(baro_control_subscription_t *subscription, int64_t timeout_ns,
                      const baro_control_event_t **event);

/* A function that is run for an event. It returns 0 for the next one, and anything else to end the
 * dispatch. It may do anything but use its own subscription, except close it, and must return: no
 * longjmp, no exception, no end of its thread. The thread is not cancelled while it runs. */
typedef int (*baro_control_handler_t)(const baro_control_event_t *event, void *data);
/* Sets the function that baro_control_dispatch runs; a later one replaces it, null takes it away. */
int baro_control_on(baro_control_subscription_t *subscription, baro_control_handler_t handler, void *data);
/* Waits up to timeout_ns for an event, and runs the function for it and for those that are here by
 * then, in this thread. Returns for how many: at most 1,024; 0 if none came in time. */
int baro_control_dispatch(baro_control_subscription_t *subscription, int64_t timeout_ns);
/* Number of events that were lost so far, whatever the filter wants. */
uint64_t baro_control_missed(const baro_control_subscription_t *subscription);
/* The text of a property of an event; null without it. */
const char *baro_control_property(const baro_control_event_t *event, const char *name);
void baro_control_close(baro_control_subscription_t *subscription);

/* ---- SQL ---- */

/* Types of cells: BARO_INT (also for bools), BARO_FLOAT, BARO_TEXT (also for JSON, and for arrays
 * as JSON), BARO_BYTES, and BARO_NULL. */
#define BARO_NULL 0

typedef struct {
    int type;
    size_t bytes; /* length; of a text without its zero byte; 8 for numbers, 0 for null */
    union {
        int64_t i;
        double f;
        const char *text; /* ends with a zero byte; valid until the table is freed */
        const uint8_t *data;
    } as;
} baro_cell_t;

/* Runs one read-only SQL statement in this process. Free the table with baro_table_free; it is null
 * after an error. */
int baro_query(const baro_node_t *node, const char *sql, baro_table_t **table);
void baro_table_free(baro_table_t *table);
size_t baro_table_rows(const baro_table_t *table);
size_t baro_table_columns(const baro_table_t *table);
/* Name of a column; null beyond the last column. */
const char *baro_table_name(const baro_table_t *table, size_t column);
/* A cell; BARO_NULL beyond the table. */
baro_cell_t baro_table_cell(const baro_table_t *table, size_t row, size_t column);

/* ---- Packed arrays (since 1.7) ---- */

/* An array that `baro data pack` or barograph.progressive.pack has made; it is read as precisely as
 * is asked for. No agent is needed. */
typedef struct baro_array baro_array_t;

typedef struct {
    uint32_t axes;        /* 1 to 4 */
    uint32_t value_bytes; /* 4: float, 8: double */
    uint64_t dims[4];     /* lengths of the axes, the last one that of values side by side; 0 after it */
    uint32_t buckets;     /* number of buckets */
    int is_exact;         /* 1 if all buckets together give back every bit */
    double min, max;      /* of the values that are not missing; 0 if all are */
    uint64_t missing;     /* number of values that are no numbers, infinite, or the fill value */
} baro_array_info_t;

/* A bucket, with the errors of a reading of it and all before it. */
typedef struct {
    uint64_t bytes;
    double rmse;     /* root mean square of the differences, in the unit of the values */
    double linf;     /* largest absolute difference, in the unit of the values */
    double nrmse;    /* rmse as a share of the range of the values */
    double psnr;     /* 20 log10 of the range over rmse, in dB; infinite if nothing differs */
    double psnr_max; /* the same with the largest magnitude in place of the range */
} baro_bucket_t;

/* Opens a file, of which only the header is read now. No descriptor stays open: each reading opens
 * the file again, and fails if it has become another array. Returns null on error. */
baro_array_t *baro_array_open(const char *path);
/* Opens one of several arrays of a file (since 1.8): that of a name and of a time step. A null name and a
 * negative step stand for any; it is an error if these leave more than one. */
baro_array_t *baro_array_open_one(const char *path, const char *name, int64_t step);
/* Opens an array of `count` bytes, which are copied. Returns null on error. */
baro_array_t *baro_array_of_bytes(const void *bytes, size_t count);
void baro_array_close(baro_array_t *array);
int baro_array_info(const baro_array_t *array, baro_array_info_t *info);
/* Describes the bucket of an index; BARO_E_ARGUMENT beyond the last one. */
int baro_array_bucket(const baro_array_t *array, uint32_t index, baro_bucket_t *bucket);
/* Reads values within an error into memory of the caller, in C order. `error` is "nrmse=1e-4",
 * "psnr=80", "psnr_max=80" or "linf=0.1", and null for all of the array; bounds of a mean are those
 * of the whole array. `region` has the start and the end of a range for each axis, and is null for
 * all values; only its blocks are read. Values on a mesh are in the order of its points, and have
 * no parts. `count` is the number of values for which there is room, at least those of the region.
 * The work is shared by `threads` threads (0 and 1: the caller alone), which end before the
 * function returns. *buckets, unless null, becomes the number of buckets that were read. After an
 * error the values are as they were. BARO_E_DATA if the file cannot be read, is damaged, or has no
 * reading within the error; _f32 returns BARO_E_TYPE for an array of doubles. */
int baro_array_read_f64(const baro_array_t *array, const char *error, const uint64_t *region,
                        double *values, size_t count, uint32_t threads, uint32_t *buckets);
int baro_array_read_f32(const baro_array_t *array, const char *error, const uint64_t *region,
                        float *values, size_t count, uint32_t threads, uint32_t *buckets);

/* How a step is read (since 1.8). All zero stands for the defaults. */
typedef struct {
    const char *error;   /* the largest error, as above; null: the agent alone decides */
    const char *label;   /* name in the agent's decisions; null: that of the file */
    const char *run_dir; /* run directory of the agent; null: as for baro_open */
    double interval_s;   /* time between two steps; 0: that since the last step of this array */
    uint32_t priority;   /* 1 to 10, 10 for the most important reader; 0: 5 */
    int dry_run;         /* 1: the agent decides, and what the error needs is read */
} baro_step_t;

/* What was decided about a step, and what came of it. Numbers that are not known are NaN. */
typedef struct {
    uint64_t id;            /* as in the table `decisions`; 0: no agent has decided */
    uint32_t buckets;       /* number of buckets that were read */
    uint32_t proposed;      /* number of buckets that the agent proposed */
    double degree;          /* share of the augmentation that the bandwidth allows, 0 to 1 */
    double bandwidth;       /* that is expected of the device, in bytes/s */
    double bandwidth_error; /* half width of its interval */
    double weight;          /* of the I/O scheduler, during the step */
    double nrmse;           /* of this reading */
    uint64_t bytes;         /* that were read from the device in question, more than the buckets have
                             * if these are too few to measure it */
    double seconds;         /* for these bytes */
    int reported;           /* 1 if the agent knows what came of it */
    char reason[256];       /* in a sentence, with its 0 */
} baro_decision_t;

/* Reads all of the array as precisely as the agent decides, and no less precisely than the error asks:
 * the agent is asked before, which takes 2 s at most, and told after. It never fails because of the
 * agent: without one, what the error needs is read. `decision` may be null. Otherwise as
 * baro_array_read_f64. */
int baro_array_step_f64(const baro_array_t *array, const baro_step_t *step, double *values, size_t count,
                        uint32_t threads, baro_decision_t *decision);
int baro_array_step_f32(const baro_array_t *array, const baro_step_t *step, float *values, size_t count,
                        uint32_t threads, baro_decision_t *decision);

/* ---- Staging (since 1.11): blocks of bytes in the memory of nodes and in tiers that are faster
 *      than the file system (docs/guide/staging-programs.md) ----
 *
 *   const char *servers[] = {"/run/user/1000/stage.sock"};
 *   baro_stage_t *stage = baro_stage_open(servers, 1, NULL);
 *   baro_stage_key_t key = BARO_STAGE_NUMBER("run7/pressure", 12);
 *   baro_stage_put(stage, &key, field, field_bytes, NULL, NULL);
 *   if (baro_stage_get(stage, &key, field, field_bytes, NULL) != BARO_OK)
 *       fprintf(stderr, "%s\n", baro_error());
 *
 * A block has a key (a dataset, and in it a number or a name), a version, a checksum and 0 bytes to
 * 1 GiB. Only the user who has put it sees it. No agent is needed.
 *
 * All functions may be called from any thread, several at a time, except those of one list. The
 * library starts no thread. An operation takes timeout_ns at most, and the time that its data need
 * at rate_min; servers that are gone are noticed at once. A signal does not end it. After fork()
 * parent and child each go on, with connections of their own. Connections are closed by exec(); a
 * program that closes all descriptors between two calls, and gives their numbers to other files,
 * loses nothing by it: the library looks whether a descriptor is still its own. */
typedef struct baro_stage baro_stage_t;
typedef struct baro_stage_block baro_stage_block_t; /* a block in shared memory */
typedef struct baro_stage_list baro_stage_list_t;   /* for one thread at a time */

/* Settings of baro_stage_open. Start from BARO_STAGE_CONFIG_INIT; a field that is 0 or null means
 * its default. */
typedef struct {
    size_t size;            /* of this struct */
    uint64_t epoch;         /* of the list of servers, if somebody keeps a map of them */
    uint32_t replicas;      /* servers that have each block (default: 1) */
    int check;              /* 1: checks also the checksums of blocks that are read from memory of
                             * this node, which takes about as long as the copy */
    int accept_unconfirmed; /* 1: baro_stage_get takes blocks that may be older than ones that were
                             * acknowledged, where no replica knows better */
    uint32_t user;          /* over TCP: the number of the user (default: of this process) */
    const void *token;      /* over TCP: the token of the user */
    size_t token_bytes;
    int64_t timeout_ns;     /* longest time of an operation, without its data (default: 10 s) */
    uint64_t rate_min;      /* bytes/s that data need at least (default: 1 MiB/s) */
} baro_stage_config_t;

#define BARO_STAGE_CONFIG_INIT {sizeof(baro_stage_config_t), 0, 0, 0, 0, 0, NULL, 0, 0, 0}

/* The key of a block. */
typedef struct {
    const char *dataset; /* 1 to 255 bytes of UTF-8, without control characters */
    const void *name;    /* null: the block has a number */
    size_t name_bytes;   /* of the name, 4,096 at most; 0: the name ends at its first zero byte */
    uint64_t number;
} baro_stage_key_t;

#define BARO_STAGE_NUMBER(dataset, number) {dataset, NULL, 0, number}
#define BARO_STAGE_NAME(dataset, name) {dataset, name, 0, 0}

/* What is known of a block. */
typedef struct {
    uint64_t bytes;
    uint64_t version;  /* versions of a key only grow */
    uint64_t epoch;    /* of the servers when it was put */
    uint32_t checksum; /* CRC-32 (IEEE) */
    int is_confirmed;  /* 0 if it may be older than one that was acknowledged */
    int is_dirty;      /* 1 while it is on no durable tier */
} baro_stage_info_t;

/* How a block is put. Start from BARO_STAGE_PUT_INIT; a field that is 0 means its default. */
typedef struct {
    size_t size;         /* of this struct */
    uint64_t version;    /* default: the time in ns, or one more than that of the last put */
    uint32_t acks;       /* servers that have to acknowledge it (default: all replicas) */
    int durable;         /* 1: it is on a durable tier before it is acknowledged */
    int64_t wait_ns;     /* longest wait for room on a server (default: 1 s; below 0: no wait) */
    uint32_t refetch_us; /* time to have it again if it may be dropped (default: it must stay) */
} baro_stage_put_options_t;

#define BARO_STAGE_PUT_INIT {sizeof(baro_stage_put_options_t), 0, 0, 0, 0, 0}

/* Opens a client of `count` servers; config may be null. A server is the absolute path of a unix
 * socket ("/run/user/1000/stage.sock") or an address and a port ("10.0.0.3:7400"). Its number is
 * its place in the list, or comes before it ("3=10.0.0.3:7400"): blocks are placed by it, so all
 * clients have to give the same. Nothing is connected yet. Returns null on error. */
baro_stage_t *baro_stage_open(const char *const *servers, size_t count, const baro_stage_config_t *config);
/* Closes the client; blocks that are mapped, and lists, go on. */
void baro_stage_close(baro_stage_t *stage);
/* Sets the servers of a later epoch; those of an earlier one change nothing. An operation that is
 * refused for its epoch waits for this, in another thread, until its timeout; it returns
 * BARO_E_FENCED then. */
int baro_stage_servers(baro_stage_t *stage, uint64_t epoch, const char *const *servers, size_t count);

/* Puts a block on its replicas, and returns when they have answered. `data` is not kept. options
 * and info may be null. BARO_E_REFUSED if a later version is stored, there is no room or this user
 * may not; BARO_E_BUSY if there was no room in time; BARO_E_UNREACHABLE if fewer servers than
 * demanded have acknowledged it: it may be on some of them. */
int baro_stage_put(baro_stage_t *stage, const baro_stage_key_t *key, const void *data, size_t count,
                   const baro_stage_put_options_t *options, baro_stage_info_t *info);
/* Reads a block into memory of the caller with room for `room` bytes; info->bytes is its length.
 * BARO_NOTHING if there is none. BARO_E_TOO_LONG if it is longer: info->bytes is what it needs
 * (baro_stage_stat asks for that alone). BARO_E_UNREACHABLE at once if all its replicas are gone.
 * BARO_E_UNKNOWN if it is not there but may have been lost, BARO_E_DATA if it is damaged everywhere
 * or may be old. info may be null. After an error the memory may have been written to. */
int baro_stage_get(baro_stage_t *stage, const baro_stage_key_t *key, void *memory, size_t room,
                   baro_stage_info_t *info);
/* Says what is known of a block. Returns as baro_stage_get. */
int baro_stage_stat(baro_stage_t *stage, const baro_stage_key_t *key, baro_stage_info_t *info);
/* Removes a block whose version is not above version_max (0: whatever it is). BARO_NOTHING if there
 * is none; BARO_E_REFUSED if a later version is stored; BARO_E_UNREACHABLE if it could not be
 * removed everywhere, so that it may come back. */
int baro_stage_remove(baro_stage_t *stage, const baro_stage_key_t *key, uint64_t version_max);

/* Finds a block in the memory that a server on this node shares, to be read there without a copy.
 * BARO_NOTHING and null if it is not in such memory: baro_stage_get has it if it is elsewhere. */
int baro_stage_map(baro_stage_t *stage, const baro_stage_key_t *key, baro_stage_block_t **block);
/* The bytes of a block: readable until it is released, never writable. The server may give the
 * memory to another block at any time, so what was read counts only if baro_stage_is_valid says so
 * afterwards; decide nothing that could do harm before. info may be null. Null on error. */
const void *baro_stage_block_data(const baro_stage_block_t *block, baro_stage_info_t *info);
/* Whether all that was read of the block until now is the block: 1 or 0. 0 for good when it was
 * evicted, removed or replaced, or its epoch is over. It makes no system call. The memory of a
 * server that has ended stays as it was. */
int baro_stage_is_valid(const baro_stage_block_t *block);
/* Releases the memory: nobody may read it any more. */
void baro_stage_release(baro_stage_block_t *block);

/* A block of a list; valid, with its key, until the next call with its list. A name ends with a
 * zero byte, which is not counted. */
typedef struct {
    baro_stage_key_t key;
    baro_stage_info_t info;
} baro_stage_entry_t;

/* Lists this user's blocks in datasets whose names begin with `dataset` (null: all). If `name` is
 * not empty: only blocks with names that begin with it. Sorted by dataset, number and name. Blocks
 * that come or go meanwhile may be missing. The client may be closed before the list. Null on
 * error. */
baro_stage_list_t *baro_stage_list(const baro_stage_t *stage, const char *dataset, const char *name);
/* Returns the next block. BARO_NOTHING and null behind the last one; BARO_E_UNREACHABLE if so many
 * servers are gone that blocks could be missing. */
int baro_stage_list_next(baro_stage_list_t *list, const baro_stage_entry_t **entry);
void baro_stage_list_close(baro_stage_list_t *list);

/* A copy of a block on a server. */
typedef struct {
    size_t index;   /* of its key in the question */
    uint64_t server;
    int is_on_node; /* 1 if the server is on the node of this client */
    int tier;       /* 0 for memory, n for the nth directory of the server */
    double read_s;  /* expected seconds to read it whole from here; below 0 if unknown */
    baro_stage_info_t info;
} baro_stage_replica_t;

/* Finds where `count` blocks are, with one question to each server for many of them. Writes the
 * replicas of all blocks in the order of the keys; those of a block are sorted: confirmed ones
 * first, of these the newest, of these the one that is read soonest. A block that is nowhere, or
 * on servers alone that cannot be asked, has none. The expected time is by what such reads have
 * cost this client, or else by what the server has seen. `*found` is how many there are; if there
 * is room for fewer, as many as fit are written and BARO_E_TOO_LONG is returned.
 * BARO_E_UNREACHABLE if no server can be asked. */
int baro_stage_locate(baro_stage_t *stage, const baro_stage_key_t *keys, size_t count,
                      baro_stage_replica_t *replicas, size_t room, size_t *found);

#ifdef __cplusplus
}
#endif

#endif
