/* What the parts of libbaro_io.so share: cells to add to, the file that they are in, the classes of descriptors.
 *
 * The rules that every part keeps, because the library is a guest in programs that know nothing of it:
 *   - a wrapper takes no lock, allocates nothing and calls nothing that does: it may run in a signal handler, between fork
 *     and exec, in a child that no handler prepared, in a thread without a C library's blessing;
 *   - it owns no descriptor: the file is opened, mapped and closed at once, so numbers of the program stay what they are;
 *   - it keeps errno;
 *   - what cannot be done is given up in silence: the program goes on, its counts go nowhere. */
#ifndef BARO_SHIM_H
#define BARO_SHIM_H

#include <stdint.h>
#include <sys/types.h>

#define NS_PER_S 1000000000

/* ---- What is counted (file.c declares it) ---- */

enum { READ, WRITE, OPEN, CLOSE, SYNC, KINDS };

/* The cells of one kind of call fill a cache line. `at_ns` is when the last of them changed, since the file was made. */
enum { CALLS, BYTES, NS, ERRORS, NS_MAX, AT_NS, CELLS_OF_KIND = 8 };
#define PID_CELL (KINDS * CELLS_OF_KIND)
#define BEGUN_CELL (PID_CELL + 1)
#define CELLS (PID_CELL + CELLS_OF_KIND)

/* Ends of one call, from now on the caller's to change: counts it, with what it moved and whether it failed. */
void count(int kind, int64_t since_ns, uint64_t bytes, int failed);
/* The same for a call so short that to time it would cost more than it does. */
void count_untimed(int kind, uint64_t bytes);

int64_t now(void);

/* ---- The file (file.c) ---- */

/* Ready: there is a file. Pending: there will be one, with the first call that counts. Off: there is none. */
enum { PENDING, MAKING, READY, OFF };
extern int file_state;
/* Where the file is mapped, once it is ready; a page of nobody's in a child that has not made its own yet. */
extern unsigned char *mapped;
/* The process that made the file, and when: on the clock of `now`. */
extern pid_t file_pid;
extern int64_t file_begun_ns;
/* Makes the file, unless somebody does. */
void make_file(void);
/* Before the first call: finds the place, makes the file. */
void begin_file(void);

/* ---- One value for each call (each.c) ---- */

extern int publishes_each;
#define EACH_RINGS_MAX 64
#define EACH_RING_RECORDS 16384
void put_each(int kind, int64_t ns);
/* In a child, for its only thread. */
void forget_ring(void);
/* Number of the value of a kind in the declarations; -1 where there is none. */
extern int each_values[KINDS];

/* ---- Descriptors (classes.c) ---- */

/* What a descriptor is: of no interest, a regular file or block device, a directory. */
enum { NOTHING = 1, DATA, DIRECTORY };
int class_of(int fd);
void forget(int fd);
void forget_from(unsigned first, unsigned last);

/* ---- The C library's own functions (wrappers) ---- */

#define EXPORT __attribute__((visibility("default")))

/* The next function of a name. All of them are looked up before the program runs: looking up takes a lock. */
struct real {
    const char *name;
    void *function;
};
void *look_up(struct real *real);
void look_up_all(void);

static inline void *real_function(struct real *real)
{
    void *function = __atomic_load_n(&real->function, __ATOMIC_RELAXED);
    return __builtin_expect(function != 0, 1) ? function : look_up(real);
}

/* `real` is the next function of this name, with its own parameters. */
#define NEXT(result, called, parameters)                                                                                       \
    static struct real entry __attribute__((section("baro_reals"), used)) = {#called, 0};                                     \
    result(*real) parameters = (result(*) parameters)real_function(&entry)

/* Whether a call of a kind on a descriptor counts: of directories it is the sync alone. */
static inline int counts_for(int kind, int fd)
{
    int class = class_of(fd);
    return class == DATA || (class == DIRECTORY && kind == SYNC);
}

#endif
