/* The part of the ingest format that the shim writes: the names and numbers of
 * docs/reference/ingest-format.md. */
#ifndef BARO_SHIM_FORMAT_H
#define BARO_SHIM_FORMAT_H

#define HEADER_BYTES 4096
#define HEAD_BYTES 256
#define RECORD_BYTES 24
#define DECLARATIONS_BYTES (1 << 20)
#define BYTE_ORDER_MARK 0x01020304
#define VERSION_MAJOR 1
#define VERSION_MINOR 3

#define UP(bytes) (((uint64_t)(bytes) + HEADER_BYTES - 1) / HEADER_BYTES * HEADER_BYTES)
#define HEADS_AT HEADER_BYTES
#define DECLARATIONS_AT(rings) UP(HEADER_BYTES + (rings) * HEAD_BYTES)
#define RINGS_AT(rings) (DECLARATIONS_AT(rings) + DECLARATIONS_BYTES)
#define RING_BYTES(records) UP((records) * RECORD_BYTES)
#define FILE_BYTES(rings, records) (RINGS_AT(rings) + (rings) * RING_BYTES(records))

/* Offsets in the header. */
enum {
    HEADER_VERSION = 8,
    HEADER_ORDER = 16,
    HEADER_FILE_BYTES = 24,
    HEADER_INCARNATION = 32,
    HEADER_CREATED = 48,
    HEADER_PID = 56,
    HEADER_START_TICKS = 64,
    HEADER_STATE = 72,
    HEADER_TIME_SOURCE = 80,
    HEADER_DECLARED = 88,
    HEADER_DECLARATIONS_AT = 96,
    HEADER_DECLARATIONS_BYTES = 104,
    HEADER_HEADS_AT = 112,
    HEADER_RINGS_MAX = 120,
    HEADER_RINGS_USED = 128,
    HEADER_RINGS_AT = 136,
    HEADER_RING_RECORDS = 144,
    HEADER_HOMELESS = 160,
    HEADER_CELLS = 176,
    HEADER_CELLS_INTERVAL = 184,
    HEADER_SCHEDULES = 192,
    HEADER_ANSWERS_MOVED = 200,
    HEADER_ANSWERS = 208,
    CELLS_AT = 512,
};

/* Offsets in a ring's head. */
enum { HEAD_COMMITTED = 0, HEAD_RESERVED = 8, HEAD_STATE = 16, HEAD_THREAD = 24 };

enum { STATE_OPEN = 1, TIME_REALTIME = 2, RING_IN_USE = 1, RECORD_INT = 1, RECORD_FLOAT = 2, RECORD_FRAME = 5 };

/* Phases of I/O: the agent's word `schedules`, the answers, and the stages of a phase. */
enum { SCHEDULES = 1, SCHEDULES_NOTHING = 2 };
#define ANSWERS_MAX 16
#define ANSWER_PHASE_BITS 48
enum { ANSWER_WAIT = 1, ANSWER_GO = 2, ANSWER_UNSCHEDULED = 3 };
enum { PHASE_ENDED = 0, PHASE_WAITS = 1, PHASE_GRANTED = 2, PHASE_ALONE = 3 };

/* Declarations. */
enum { DECLARES_PROCESS = 1, DECLARES_PUBLICATION = 2, DECLARES_VALUE = 3, DECLARES_CELL = 6 };
enum { TYPE_INT = 1, TYPE_FLOAT = 2 };
enum { KIND_GAUGE = 1, KIND_COUNTER = 2, KIND_STATE = 3 };
enum { CELL_SUM = 0, CELL_MAXIMUM = 1, CELL_STATE = 2, CELL_CLOCK = 3 };
#define NO_VALUE 0xffffffffu

#endif
