/* The shared parts of libbaro_io.so: the cells, the file that they are in, the classes of
 * descriptors.
 *
 * The rules for all parts, because the library is a guest in programs that know nothing of it:
 * - a wrapper takes no lock, allocates nothing and calls nothing that does: it may run in a signal
 *   handler, between fork and exec, in a child without fork handlers, or in a thread that the C
 *   library does not know;
 * - it owns no descriptor: the file is opened, mapped and closed at once, so that the program's
 *   descriptor numbers do not change;
 * - it keeps errno;
 * - a failure is silent: the program goes on, and its counts are lost. */
#ifndef BARO_SHIM_H
#define BARO_SHIM_H

#include <stdint.h>
#include <sys/types.h>

#define NS_PER_S 1000000000
#define TLS static __thread __attribute__((tls_model("initial-exec")))

/* ---- Counts (defined in file.c) ---- */

enum { READ, WRITE, OPEN, CLOSE, SYNC, KINDS };

/* The cells of one kind of call fill a cache line. `at_ns` is the time at which the last of them
 * changed, since the file was made. */
enum { CALLS, BYTES, NS, ERRORS, NS_MAX, AT_NS, CELLS_OF_KIND = 8 };
#define PID_CELL (KINDS * CELLS_OF_KIND)
#define BEGUN_CELL (PID_CELL + 1)
#define CELLS (PID_CELL + CELLS_OF_KIND)

/* Counts a call at its end, with the bytes that it moved and whether it failed. */
void count(int kind, int64_t since_ns, uint64_t bytes, int failed);
/* Counts a call so short that timing it would cost more than the call. */
void count_untimed(int kind, uint64_t bytes);

int64_t now(void);
/* Milliseconds of a clock that is cheap to read, and some milliseconds behind. */
uint32_t coarse_ms(void);

/* ---- The file (file.c) ---- */

/* States of the file. Ready: there is a file. Pending: there will be one, with the first call that
 * counts. Off: there is none. */
enum { PENDING, MAKING, READY, OFF };
extern int file_state;
/* Address of the mapped file, once it is ready; anonymous memory in a child that has not made its
 * own yet. */
extern unsigned char *mapped;
/* The process that made the file, and the time on the clock of `now`. */
extern pid_t file_pid;
extern int64_t file_begun_ns;
/* Makes the file, unless another thread is making it. */
void make_file(void);
/* Finds the place and makes the file; to be called before the first counted call. */
void begin_file(void);
/* The shape of the file. */
unsigned rings(void);
unsigned ring_records(void);
/* Reserves memory for a part of the file, so that a store to it cannot fail; returns 0 if there is
 * none. */
int reserve_part(uint64_t at, uint64_t bytes);
/* The file's declarations: their end, beyond which further ones are written to the file. */
extern size_t declared;
/* Identity of the file. */
extern unsigned char file_incarnation[16];

/* ---- One value for each call (each.c) ---- */

extern int publishes_each;
#define EACH_RINGS_MAX 64
#define EACH_RING_RECORDS 16384
void put_each(int kind, int64_t ns);
/* Lets go of the ring in a child, for its only thread. */
void forget_ring(void);
/* Number of the value of a kind in the declarations; -1 if there is none. */
extern int each_values[KINDS];

/* ---- Descriptors (classes.c) ---- */

/* Classes of descriptors: not counted, a regular file or block device, a directory. */
enum { NOTHING = 1, DATA, DIRECTORY };
#define CLASS_BITS 2
#define CLASS_MASK 3
#define FDS_MAX (1 << 16)
/* Returns the class of a descriptor in the lower two bits, and above them the number of the
 * scheduled volume that the file is on, from 1 on; 0 for none. */
int class_of(int fd);
/* The descriptor was closed, or refers to another file from now on. */
void forget(int fd);
void forget_from(unsigned first, unsigned last);

/* ---- Scheduled volumes (volumes.c) and phases of I/O on them (phases.c) ---- */

#define VOLUMES_MAX 16
/* Number of the volumes on which programs take turns; 0 unless the user asks for that. */
extern int volume_count;
/* Takes the volumes of a list `path:path=place:...`. */
void begin_volumes(const char *list);
/* Number of the volume that an open file is on, from 1 on; 0 for none. */
int volume_of(int fd);
/* The name of a volume, as the agent knows it. */
const char *volume_name(int volume);

/* A call is about to move so many bytes from or to a file on a volume: begins a phase of I/O if
 * that is much, and waits if it is not its turn. Returns whether the call may take long. */
int enter_phase(int volume, int kind, int fd, uint64_t bytes);
/* The call has ended. */
void leave_call(int volume, int kind, uint64_t bytes, int is_long);
/* A descriptor was closed: the last one of a phase ends it. */
void leave_phase(int fd);
/* Phases of a parent are not a child's. */
void forget_phases(void);

/* ---- The C library's own functions (wrappers) ---- */

#define EXPORT __attribute__((visibility("default")))

/* The next function of a name. All of them are looked up before the program runs, because looking
 * up takes a lock. */
struct real {
    const char *name;
    void *function;
};
void *look_up(struct real *real);

static inline void *real_function(struct real *real)
{
    void *function = __atomic_load_n(&real->function, __ATOMIC_RELAXED);
    return __builtin_expect(function != 0, 1) ? function : look_up(real);
}

/* Defines `real` as the next function of this name, with the same parameters. */
#define NEXT(result, called, parameters)                                                                                       \
    static struct real entry __attribute__((section("baro_reals"), used)) = {#called, 0};                                     \
    result(*real) parameters = (result(*) parameters)real_function(&entry)

/* Whether a call of a kind on a descriptor counts: for directories only the sync does. Returns what
 * `class_of` does, or 0. */
static inline int counts_for(int kind, int fd)
{
    int found = class_of(fd), class = found & CLASS_MASK;
    return class == DATA || (class == DIRECTORY && kind == SYNC) ? found : 0;
}

/* What is to be known at the end of a call on a scheduled volume: its number from 1 on, and whether
 * the call may take long. */
#define LONG_CALL 0x100

/* Waits, if the file is on a scheduled volume and it is not this program's turn. `found` is from
 * `counts_for`; `bytes` is looked at only on such a volume. */
#define BEGIN_IO(found, kind, fd, bytes) (__builtin_expect((found) >> CLASS_BITS, 0) ? begin_io(found, kind, fd, bytes) : 0)

static inline int begin_io(int found, int kind, int fd, uint64_t bytes)
{
    int volume = found >> CLASS_BITS;
    return enter_phase(volume - 1, kind, fd, bytes) ? volume | LONG_CALL : volume;
}

static inline void end_io(int begun, int kind, uint64_t bytes)
{
    if (__builtin_expect(begun != 0, 0))
        leave_call((begun & ~LONG_CALL) - 1, kind, bytes, begun & LONG_CALL);
}

#endif
