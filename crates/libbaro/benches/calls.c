/* Measures the cost of being called: a poll when there is nothing, and the way from a call to its
 * handler.
 *
 *   crates/libbaro/benches/calls.sh DIR       (DIR has libbaro.so: target/release)
 *
 * Polls: ns of CPU time of the thread, least and median of some rounds. The way: a call is written
 * into the calls file as an agent writes it (stores, then a futex wake), and the handler, on the
 * listening thread, takes the time. Beside it, alternating in the same run, a bare futex wake
 * between two threads is measured as the lower bound. Results are wall-clock ns at the percentiles,
 * and their ratio. The agent's work before that (rights, audit on disk) is not included. */
#include <baro.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 31
#define POLLS 1000000
#define CALLS 2000
#define WARM_UP 100

/* Constants of docs/reference/calls-format.md. */
#define SLOTS 256
#define HEADER_BYTES 4096
#define SLOT_BYTES 4096
#define FILE_BYTES (HEADER_BYTES + SLOTS * SLOT_BYTES)

static uint64_t *file;
static uint64_t written;
static int64_t arrived_ns;
static uint32_t arrivals, bare, bare_back;
static baro_t *app, *none;

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static long futex(uint32_t *word, int what, uint32_t value)
{
    return syscall(SYS_futex, word, what, value, NULL, NULL, 0);
}

static void must(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s: %s %s\n", what, strerror(errno), baro_error());
        exit(1);
    }
}

static void sleep_ns(int64_t ns)
{
    struct timespec nap = {ns / 1000000000, ns % 1000000000};
    nanosleep(&nap, NULL);
}

static int compare(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

/* ---- The agent's side ---- */

static void make_file(const char *run_dir)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/applications", run_dir);
    must(length > 0 && (mkdir(path, 0755) == 0 || errno == EEXIST), path);
    snprintf(path, sizeof path, "%s/applications/u%u", run_dir, geteuid());
    must(mkdir(path, 0755) == 0 || errno == EEXIST, path);
    snprintf(path, sizeof path, "%s/applications/u%u/calls", run_dir, geteuid());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    must(fd >= 0 && ftruncate(fd, FILE_BYTES) == 0, path);
    file = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(file != MAP_FAILED, "mmap");
    file[1] = 1;                                        /* version 1.0 */
    file[2] = 0x01020304 | (uint64_t)HEADER_BYTES << 32; /* byte order */
    file[3] = FILE_BYTES;
    file[4] = file[5] = 0x5eed; /* incarnation */
    file[6] = (uint64_t)now_ns(CLOCK_REALTIME);
    file[7] = 1; /* live */
    file[8] = SLOTS;
    file[9] = SLOT_BYTES;
    memcpy(file, "BAROCAL\0", 8);
}

static void fire(const char *name, int64_t sent_ns)
{
    uint64_t *slot = file + (HEADER_BYTES + written % SLOTS * SLOT_BYTES) / 8;
    uint64_t now = (uint64_t)now_ns(CLOCK_REALTIME);
    __atomic_store_n(slot, written * 2 + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memset(slot + 1, 0, 700);
    slot[1] = written + 1;
    slot[2] = now;
    slot[3] = now + 60000000000ull;
    slot[4] = 1 | 1 << 8 | (uint64_t)strlen(name) << 16 | 8ull << 48; /* a trigger with an int */
    memcpy(slot + 8, name, strlen(name));
    slot[88] = (uint64_t)sent_ns;
    __atomic_store_n(slot, written * 2 + 2, __ATOMIC_RELEASE);
    written++;
    __atomic_store_n(file + 32, written, __ATOMIC_RELEASE);
    futex((uint32_t *)(file + 32), FUTEX_WAKE, INT_MAX);
}

/* ---- The program's side ---- */

static int arrive(const baro_call_t *call, void *unused)
{
    (void)unused;
    arrived_ns = now_ns(CLOCK_MONOTONIC) - call->as.i;
    __atomic_store_n(&arrivals, (uint32_t)call->id, __ATOMIC_RELEASE);
    return 0;
}

/* Sleeps on a word of its own, and notes when it woke. */
static void *wake_up(void *unused)
{
    for (uint32_t turn = 1; turn <= CALLS + WARM_UP; turn++) {
        while (__atomic_load_n(&bare, __ATOMIC_ACQUIRE) < turn)
            futex(&bare, FUTEX_WAIT, turn - 1);
        arrived_ns = now_ns(CLOCK_MONOTONIC) - arrived_ns;
        __atomic_store_n(&bare_back, turn, __ATOMIC_RELEASE);
    }
    return unused;
}

static void await_word(uint32_t *word, uint32_t value)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
        sleep_ns(20000);
}

static double one_call(void)
{
    fire("arrive", now_ns(CLOCK_MONOTONIC));
    await_word(&arrivals, (uint32_t)written);
    return (double)arrived_ns;
}

static double one_wake(void)
{
    uint32_t turn = bare + 1;
    arrived_ns = now_ns(CLOCK_MONOTONIC);
    __atomic_store_n(&bare, turn, __ATOMIC_RELEASE);
    futex(&bare, FUTEX_WAKE, INT_MAX);
    await_word(&bare_back, turn);
    return (double)arrived_ns;
}

static void the_way(void)
{
    static double calls[CALLS], wakes[CALLS];
    static const double percentiles[] = {0.5, 0.9, 0.99};
    pthread_t thread;
    must(baro_on(app, "arrive", "takes the time", arrive, NULL) == BARO_OK, "baro_on");
    must(baro_listen(app) == BARO_OK, "baro_listen");
    must(pthread_create(&thread, NULL, wake_up, NULL) == 0, "pthread_create");
    for (int i = -WARM_UP; i < CALLS; i++) {
        double call = one_call();
        sleep_ns(100000); /* until everyone sleeps again */
        double wake = one_wake();
        sleep_ns(100000);
        if (i >= 0) {
            calls[i] = call;
            wakes[i] = wake;
        }
    }
    pthread_join(thread, NULL);
    qsort(calls, CALLS, sizeof calls[0], compare);
    qsort(wakes, CALLS, sizeof wakes[0], compare);
    printf("\n%-22s %10s %10s %10s\n", "ns from wake to code", "call", "futex", "ratio");
    for (int i = 0; i < 3; i++) {
        int at = (int)(percentiles[i] * (CALLS - 1));
        printf("p%-21g %10.0f %10.0f %10.2f\n", percentiles[i] * 100, calls[at], wakes[at], calls[at] / wakes[at]);
    }
}

/* ---- Polls ---- */

static const baro_knob_t *knob;

static void loop_alone(int n)
{
    for (int i = 0; i < n; i++)
        __asm__ volatile("" ::: "memory");
}

static void poll_nothing(int n)
{
    for (int i = 0; i < n; i++) {
        baro_poll(app);
        __asm__ volatile("" ::: "memory");
    }
}

static void poll_by_call(int n)
{
    for (int i = 0; i < n; i++)
        baro_poll_slowly(NULL);
}

static void poll_null(int n)
{
    for (int i = 0; i < n; i++) {
        baro_poll(none);
        __asm__ volatile("" ::: "memory");
    }
}

static void get_knob(int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += baro_knob_get_f64(knob);
        __asm__ volatile("" : "+m"(sum)::"memory");
    }
}

static void measure(const char *what, void (*run)(int))
{
    double ns[ROUNDS];
    run(POLLS / 10);
    for (int i = 0; i < ROUNDS; i++) {
        int64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);
        run(POLLS);
        ns[i] = (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - start) / POLLS;
    }
    qsort(ns, ROUNDS, sizeof ns[0], compare);
    printf("%-22s %10.2f %10.2f\n", what, ns[0], ns[ROUNDS / 2]);
}

int main(void)
{
    double load = 0;
    const char *run_dir = getenv("BAROGRAPH_RUN_DIR");
    must(run_dir != NULL, "BAROGRAPH_RUN_DIR names no directory");
    app = baro_open("calls", NULL);
    must(baro_is_enabled(app), "baro_open");
    baro_publication_t of = baro_publication(app, "calls", BARO_READERS_OWNER);
    knob = baro_knob_f64(of, "k", 0.5, 0, 1, "1", "");
    must(knob != NULL, "baro_knob_f64");
    getloadavg(&load, 1);
    printf("load %.1f\n%-22s %10s %10s\n", load, "", "ns least", "ns median");
    measure("loop alone", loop_alone);
    measure("poll, no agent", poll_nothing);
    make_file(run_dir);
    /* The file is found within about a second. */
    for (int64_t end = now_ns(CLOCK_MONOTONIC) + 2000000000; now_ns(CLOCK_MONOTONIC) < end;)
        baro_poll(app);
    measure("poll, nothing", poll_nothing);
    measure("poll by a call", poll_by_call);
    measure("poll, null", poll_null);
    measure("get of a knob", get_knob);
    the_way();
    baro_close(app);
    return 0;
}
