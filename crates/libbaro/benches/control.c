/* How long a control event is on its way: from the call that publishes it to the return of the call
 * that waits for it, in another process, by an agent; beside the same between two bare processes: 100
 * bytes by a pipe, and a store into a shared file with a wake of a process that sleeps on it. And what
 * publishing and checking cost the caller. Run by control.sh. */
#include <baro.h>

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 1000
#define SECOND_NS 1000000000

/* Times of both processes, on the monotonic clock of the machine. */
struct shared {
    uint32_t word;
    double sent[ROUNDS], received[ROUNDS];
};

static struct shared *shared;
static double times[ROUNDS];

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what)
{
    qsort(times, ROUNDS, sizeof(times[0]), by_size);
    printf("%-40s p50 %9.2f us  p90 %9.2f us  p99 %9.2f us\n", what, times[ROUNDS / 2], times[ROUNDS * 9 / 10],
           times[ROUNDS * 99 / 100]);
    fflush(stdout);
}

static void report_ways(const char *what)
{
    for (int n = 0; n < ROUNDS; n++)
        times[n] = shared->received[n] - shared->sent[n];
    report(what);
}

static void by_pipe(void)
{
    int ends[2];
    char message[100] = {0};
    if (pipe(ends) != 0)
        exit(1);
    pid_t reader = fork();
    if (reader == 0) {
        for (int n = 0; n < ROUNDS; n++) {
            if (read(ends[0], message, sizeof message) != sizeof message)
                _exit(1);
            shared->received[n] = now_us();
        }
        _exit(0);
    }
    for (int n = 0; n < ROUNDS; n++) {
        usleep(2000);
        shared->sent[n] = now_us();
        if (write(ends[1], message, sizeof message) != sizeof message)
            exit(1);
    }
    waitpid(reader, NULL, 0);
    report_ways("a pipe");
}

static void by_futex(void)
{
    pid_t reader = fork();
    if (reader == 0) {
        for (uint32_t n = 0; n < ROUNDS; n++) {
            while (__atomic_load_n(&shared->word, __ATOMIC_ACQUIRE) == n)
                syscall(SYS_futex, &shared->word, FUTEX_WAIT, n, NULL, NULL, 0);
            shared->received[n] = now_us();
        }
        _exit(0);
    }
    for (int n = 0; n < ROUNDS; n++) {
        usleep(2000);
        shared->sent[n] = now_us();
        __atomic_fetch_add(&shared->word, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &shared->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
    waitpid(reader, NULL, 0);
    report_ways("a bare futex");
}

/* Publishes after `pause_us`, so that the agent sleeps or is at work. */
static void by_agent(const char *what, useconds_t pause_us)
{
    baro_property_t properties[] = {{"server", "3"}};
    int ready[2];
    char byte = 0;
    if (pipe(ready) != 0)
        exit(1);
    pid_t reader = fork();
    if (reader == 0) {
        const baro_control_event_t *event;
        baro_node_t *node = baro_node_open(NULL);
        baro_control_filter_t filter = BARO_CONTROL_FILTER_INIT;
        filter.kind = "bench.*";
        baro_control_subscription_t *events = baro_control_subscribe(node, &filter);
        if (events == NULL || write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (uint64_t n = 0; n < ROUNDS + 1;) {
            int code = baro_control_wait(events, 10LL * SECOND_NS, &event);
            if (code != BARO_OK || event->missed > 0)
                _exit(2);
            double now = now_us();
            if (event->value >= 0)
                shared->received[(int)event->value] = now;
            n++;
        }
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1)
        exit(1);
    baro_t *b = baro_open("bench", NULL);
    /* The first one is not measured: the agent takes the program in. */
    baro_control_event(b, "bench.tick", "/scratch", -1, 1, properties, 1);
    usleep(2000000);
    for (int n = 0; n < ROUNDS; n++) {
        usleep(pause_us);
        shared->sent[n] = now_us();
        if (baro_control_event(b, "bench.tick", "/scratch", n, 1, properties, 1) != BARO_OK)
            exit(1);
        times[n] = now_us() - shared->sent[n];
    }
    int status;
    waitpid(reader, &status, 0);
    baro_close(b);
    if (status != 0) {
        fprintf(stderr, "the reader has missed events: %x\n", status);
        exit(1);
    }
    printf("%s:\n", what);
    report("  the call that publishes");
    report_ways("  to the return of the call that waits");
}

static void checks(void)
{
    const baro_control_event_t *event;
    baro_node_t *node = baro_node_open(NULL);
    baro_control_subscription_t *events = baro_control_subscribe(node, NULL);
    for (int n = 0; n < ROUNDS; n++) {
        double begun = now_us();
        if (baro_control_check(events, &event) < 0)
            exit(1);
        times[n] = now_us() - begun;
    }
    baro_control_close(events);
    baro_node_close(node);
    report("a check that finds nothing");
}

int main(void)
{
    int memory = MAP_SHARED | MAP_ANONYMOUS;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, memory, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    by_pipe();
    by_futex();
    by_agent("an event every 2 ms", 2000);
    by_agent("an event every 20 ms", 20000);
    checks();
    return 0;
}
