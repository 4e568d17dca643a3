/* What blocks of staging cost a program on the node of their server: reads of 1 MiB beside memcpy, over
 * connections that are kept and with one for each read, and the calls that move no data. Medians, in
 * the time of the clock. Run by staging.sh. */
#include <baro.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define BYTES (1u << 20)
#define ROUNDS 2000

static baro_stage_t *stage;
static const char *server;
static baro_stage_key_t key = BARO_STAGE_NUMBER("bench", 1);
static unsigned char data[BYTES], memory[BYTES];

static void copy(void)
{
    memcpy(memory, data, BYTES);
    /* The copy is not left out. */
    __asm__ volatile("" : : "r"(memory) : "memory");
}

static void get(void)
{
    baro_stage_get(stage, &key, memory, BYTES, NULL);
}

static void get_anew(void)
{
    baro_stage_t *kept = stage;
    stage = baro_stage_open(&server, 1, NULL);
    get();
    baro_stage_close(stage);
    stage = kept;
}

static void stat_block(void)
{
    baro_stage_stat(stage, &key, NULL);
}

static void map(void)
{
    baro_stage_block_t *block;
    baro_stage_map(stage, &key, &block);
    baro_stage_release(block);
}

static void put(void)
{
    baro_stage_put(stage, &key, data, BYTES, NULL, NULL);
}

/* What a connection is looked at by. */
static void look(void)
{
    struct stat stat;
    fstat(0, &stat);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median_us(void (*act)(void))
{
    static double times[ROUNDS];
    for (int n = 0; n < ROUNDS; n++) {
        double begun = now_us();
        act();
        times[n] = now_us() - begun;
    }
    qsort(times, ROUNDS, sizeof(times[0]), by_value);
    return times[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    static const struct {
        const char *what;
        void (*act)(void);
    } rows[] = {
        {"memcpy of 1 MiB", copy},
        {"get of 1 MiB", get},
        {"get of 1 MiB, a connection each", get_anew},
        {"put of 1 MiB", put},
        {"map and release", map},
        {"stat", stat_block},
        {"fstat of a descriptor", look},
    };
    if (argc != 2)
        return 2;
    server = argv[1];
    stage = baro_stage_open(&server, 1, NULL);
    if (baro_stage_put(stage, &key, data, BYTES, NULL, NULL) != BARO_OK) {
        fprintf(stderr, "%s\n", baro_error());
        return 1;
    }
    double base = 0;
    for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
        double us = median_us(rows[n].act);
        base = n == 0 ? us : base;
        printf("%-34s %9.2f us %8.3f of memcpy\n", rows[n].what, us, us / base);
    }
    baro_stage_close(stage);
    return 0;
}
