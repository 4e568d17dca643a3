/* What phases.c knows of the phases on a volume, and phase_frames.c tells the agent. */
#ifndef BARO_SHIM_PHASES_H
#define BARO_SHIM_PHASES_H

#include <stdint.h>

/* A phase in one word: its number, how many descriptors it has, and its stage. */
#define HOLDERS_SHIFT 4
#define NUMBER_SHIFT 24
#define STAGE_MASK 15u
#define HOLDERS_MASK 0xfffffu
static inline uint64_t number_of(uint64_t phase) { return phase >> NUMBER_SHIFT; }
static inline int stage_of(uint64_t phase) { return (int)(phase & STAGE_MASK); }
static inline uint64_t holders_of(uint64_t phase) { return phase >> HOLDERS_SHIFT & HOLDERS_MASK; }

/* A scheduled volume, and the newest phase of this process on it. All fields are changed by atomic
 * operations. */
struct volume {
    uint64_t phase;
    /* Bytes read and written in the phase; bytes written in phases since the last sync. */
    uint64_t done, unsynced;
    /* Bytes since `portion_ms`: whether there is much I/O. */
    uint64_t portion;
    uint32_t portion_ms;
    /* When the newest call began or ended, and when the phase was told last. */
    uint32_t active_ms, told_ms;
    /* Calls in progress that may take long. */
    uint32_t long_calls;
    /* Monotonic times: when it began to wait, when it asks again, and before which it does not ask
     * at all. */
    int64_t waits_since_ns, renew_ns, off_until_ns;
} __attribute__((aligned(64)));

extern struct volume volumes[VOLUMES_MAX];

/* Monotonic time before which nobody is there to answer. */
extern int64_t nobody_until_ns;

/* Tells the agent of the newest phase of a volume, and that it may look at once. Any number of
 * threads may call it, and handlers of signals: one of them tells for all, and none waits. */
void tell_phase(int volume);
void tell_phase_at_once(int volume);
/* Forgets what was told, in a child. */
void forget_frames(void);

#endif
