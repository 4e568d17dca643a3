/* Measures the cost of a put and of a frame for the calling program: ns of CPU time of the thread,
 * least and median of some rounds, and instructions if the kernel allows counting them.
 *
 *   cc -O2 -I crates/libbaro/include crates/libbaro/benches/put_cost.c -L DIR \
 *     -Wl,-rpath,DIR -lbaro -o put_cost
 *   BAROGRAPH_RUN_DIR=$(mktemp -d -p /dev/shm) ./put_cost */
#include <baro.h>

#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 31
#define PUTS 1000000

static baro_publication_t step, step_off;
static baro_value_t x, x_off;
static int counter = -1;

static void put_enabled(int n)
{
    for (int i = 0; i < n; i++) {
        baro_put_f64(x, i);
        __asm__ volatile("" ::: "memory");
    }
}

static void put_disabled(int n)
{
    for (int i = 0; i < n; i++) {
        baro_put_f64(x_off, i);
        __asm__ volatile("" ::: "memory");
    }
}

static void put_by_call(int n)
{
    for (int i = 0; i < n; i++) {
        union {
            double number;
            uint64_t word;
        } both = {i};
        baro_put_slowly(x, BARO_FLOAT, both.word, NULL);
    }
}

static void frame_alone(int n)
{
    for (int i = 0; i < n; i++)
        baro_frame(step, (uint64_t)i);
}

static void frame_disabled(int n)
{
    for (int i = 0; i < n; i++) {
        baro_frame(step_off, (uint64_t)i);
        __asm__ volatile("" ::: "memory");
    }
}

static void frame_of_one(int n)
{
    for (int i = 0; i < n; i++) {
        baro_put_f64(x, i);
        baro_frame(step, (uint64_t)i);
    }
}

static void frame_of_thousand(int n)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < 1000; j++)
            baro_put_f64(x, j);
        baro_frame(step, (uint64_t)i);
    }
}

static void floor_of_ours(int n)
{
    for (int i = 0; i < n; i++)
        __asm__ volatile("rdtsc" ::: "rax", "rdx", "memory");
}

static double cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static uint64_t instructions(void)
{
    uint64_t count = 0;
    if (counter < 0 || read(counter, &count, sizeof count) != sizeof count)
        return 0;
    return count;
}

static void measure(const char *what, void (*run)(int), int n)
{
    double ns[ROUNDS];
    uint64_t least = UINT64_MAX;
    run(n / 10);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t from = instructions();
        double start = cpu_ns();
        run(n);
        ns[i] = (cpu_ns() - start) / n;
        uint64_t count = instructions() - from;
        if (count < least)
            least = count;
    }
    qsort(ns, ROUNDS, sizeof ns[0], compare);
    printf("%-22s %10.2f %10.2f", what, ns[0], ns[ROUNDS / 2]);
    if (counter >= 0)
        printf(" %14.1f\n", (double)least / n);
    else
        printf(" %14s\n", "-");
}

int main(void)
{
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_HARDWARE;
    attr.config = PERF_COUNT_HW_INSTRUCTIONS;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    counter = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);

    baro_t *b = baro_open("put_cost", NULL);
    if (!baro_is_enabled(b)) {
        fprintf(stderr, "%s\n", baro_error());
        return 1;
    }
    step = baro_publication(b, "put_cost", BARO_READERS_OWNER);
    x = baro_value(step, "x", BARO_FLOAT, "1", BARO_GAUGE, "");
    printf("%-22s %10s %10s %14s\n", "", "ns least", "ns median", "instructions");
    measure("counter alone", floor_of_ours, PUTS);
    measure("put", put_enabled, PUTS);
    measure("put, disabled", put_disabled, PUTS);
    measure("put by a call", put_by_call, PUTS);
    measure("frame alone", frame_alone, PUTS);
    measure("frame, disabled", frame_disabled, PUTS);
    measure("frame of 1", frame_of_one, PUTS);
    measure("frame of 1,000", frame_of_thousand, PUTS / 1000);
    printf("lost %llu\n", (unsigned long long)baro_lost(b));
    baro_close(b);
    return 0;
}
