/* The declarations in the file: the process, the publication `io`, its values, and the cells from
 * which they are read. They are written once, before the program runs, and are the same in its
 * forked children. */
#define _GNU_SOURCE
#include "declare.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "format.h"
#include "shim.h"

static unsigned char *start, *at, *end;
static unsigned char *begun;
static uint32_t publication, values;
uint32_t values_declared;

static void put(const void *bytes, size_t length)
{
    if ((size_t)(end - at) < length)
        return; /* the room is twice what is needed */
    memcpy(at, bytes, length);
    at += length;
}

static void put_u8(uint8_t value) { put(&value, sizeof value); }
static void put_u16(uint16_t value) { put(&value, sizeof value); }
static void put_u32(uint32_t value) { put(&value, sizeof value); }
static void put_f64(double value) { put(&value, sizeof value); }

/* Writes a text of up to three parts. A byte that is not ASCII becomes a question mark: texts are
 * UTF-8, and file names may be anything. */
static void put_text(const char *first, const char *second, const char *third)
{
    const char *parts[] = {first, second, third};
    unsigned char *length_at = at;
    put_u16(0);
    for (int part = 0; part < 3; part++)
        for (const char *c = parts[part]; *c && at - length_at < 512; c++)
            put_u8((unsigned char)*c < 0x80 ? (uint8_t)*c : '?');
    uint16_t length = (uint16_t)(at - length_at - 2);
    memcpy(length_at, &length, sizeof length);
}

static void begin(uint32_t kind)
{
    begun = at;
    put_u32(0);
    put_u32(kind);
}

static void finish(void)
{
    while ((at - begun) % 8 != 0)
        put_u8(0);
    uint32_t length = (uint32_t)(at - begun);
    memcpy(begun, &length, sizeof length);
}

/* Returns the value of the first variable that is set. */
static const char *first_of(const char *const *names)
{
    for (; *names; names++) {
        const char *value = getauxval(AT_SECURE) ? NULL : getenv(*names);
        if (value && *value)
            return value;
    }
    return NULL;
}

static void declare_process(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "FLUX_TASK_RANK", 0};
    static const char *const jobs[] = {"SLURM_JOB_ID", "PBS_JOBID", "FLUX_JOB_ID", "LSB_JOBID", 0};
    static const char *const runs[] = {"BAROGRAPH_IO_JOB", 0};
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    const char *slash = strrchr(path, '/');
    const char *rank = first_of(ranks), *job = first_of(jobs);
    /* Processes of one run of `baro io` are a job, unless a launcher is there to tell. */
    if (!job && !rank)
        job = first_of(runs);
    begin(DECLARES_PROCESS);
    put_text(slash ? slash + 1 : path, "", "");
    put_u16((uint16_t)((rank != NULL) + (job != NULL)));
    if (rank) {
        put_text("rank", "", "");
        put_text(rank, "", "");
    }
    if (job) {
        put_text("job", "", "");
        put_text(job, "", "");
    }
    finish();
}

static const char *const kinds[KINDS] = {"read", "write", "open", "close", "sync"};

static void declare_value(const char *kind, const char *what, uint8_t type, uint8_t meaning, const char *unit,
                          const char *help, const char *help_end)
{
    begin(DECLARES_VALUE);
    put_u32(publication);
    put_u8(type);
    put_u8(meaning);
    put_text(kind, *kind ? "." : "", what);
    put_text(unit, "", "");
    put_text(help, kind, help_end);
    finish();
    values++;
}

/* Declares a cell for the newest value, or for none. */
static void declare_cell(uint32_t value, int cell, uint8_t how, double scale)
{
    begin(DECLARES_CELL);
    put_u32(value);
    put_u32((uint32_t)cell);
    put_f64(scale);
    put_u8(how);
    finish();
}

static void declare_kind(int kind)
{
    const char *name = kinds[kind];
    int cell = kind * CELLS_OF_KIND;
    double second = 1.0 / NS_PER_S;
    declare_value(name, "calls.count", TYPE_INT, KIND_COUNTER, "count", "calls that ", "");
    declare_cell(values - 1, cell + CALLS, CELL_SUM, 1);
    declare_value(name, "seconds", TYPE_FLOAT, KIND_COUNTER, "seconds", "time within calls that ", "");
    declare_cell(values - 1, cell + NS, CELL_SUM, second);
    declare_value(name, "errors.count", TYPE_INT, KIND_COUNTER, "count", "calls that ", " and failed");
    declare_cell(values - 1, cell + ERRORS, CELL_SUM, 1);
    declare_value(name, "max.seconds", TYPE_FLOAT, KIND_GAUGE, "seconds", "the longest ", " since the frame before");
    declare_cell(values - 1, cell + NS_MAX, CELL_MAXIMUM, second);
    if (kind == READ || kind == WRITE) {
        declare_value(name, "bytes", TYPE_INT, KIND_COUNTER, "bytes", "bytes ", "");
        declare_cell(values - 1, cell + BYTES, CELL_SUM, 1);
    }
    declare_cell(NO_VALUE, cell + AT_NS, CELL_CLOCK, 1);
    each_values[kind] = -1;
    if (publishes_each && (kind == READ || kind == WRITE || kind == SYNC)) {
        each_values[kind] = (int)values;
        declare_value(name, "each.seconds", TYPE_FLOAT, KIND_GAUGE, "seconds", "time within one ", "");
    }
}

size_t declare_all(unsigned char *to, size_t room)
{
    start = at = to;
    end = to + room;
    declare_process();
    begin(DECLARES_PUBLICATION);
    put_u8(0); /* only its owner may read it */
    put_text("io", "", "");
    put_u16(0);
    finish();
    for (int kind = 0; kind < KINDS; kind++)
        declare_kind(kind);
    declare_value("", "pid", TYPE_INT, KIND_STATE, "", "the process", "");
    declare_cell(values - 1, PID_CELL, CELL_STATE, 1);
    declare_value("", "begun.ns", TYPE_INT, KIND_STATE, "ns", "when the process began to count, since the Unix epoch", "");
    declare_cell(values - 1, BEGUN_CELL, CELL_STATE, 1);
    values_declared = values;
    return (size_t)(at - start);
}

size_t declare_phases(unsigned char *to, size_t room, const char *volume, uint32_t as, uint32_t value)
{
    start = at = to;
    end = to + room;
    publication = as;
    values = value;
    begin(DECLARES_PUBLICATION);
    put_u8(0);
    put_text("io.phase", "", "");
    put_u16(1);
    put_text("volume", "", "");
    put_text(volume, "", "");
    finish();
    const char *stages = "0: ended, 1: waits, 2: does I/O with a grant, 3: does I/O without one";
    declare_value("", "stage", TYPE_INT, KIND_GAUGE, "", stages, "");
    declare_value("", "declared.bytes", TYPE_INT, KIND_GAUGE, "bytes",
                  "what a phase will read and write; -1 if it does not know", "");
    declare_value("", "done.bytes", TYPE_INT, KIND_GAUGE, "bytes", "what a phase has read and written", "");
    declare_value("", "priority", TYPE_INT, KIND_GAUGE, "", "1 to 10, 10 for the most important", "");
    declare_value("", "lease.ns", TYPE_INT, KIND_GAUGE, "ns",
                  "a phase of which nothing is heard for so long has ended; 0: the agent's lease", "");
    return (size_t)(at - start);
}
