/* Inline puts from threads that Rust did not start, before and after a fork, with refusals and a
 * new opening. */
#include <baro.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 10

static baro_publication_t step;
static baro_value_t x, n, flag, note;

static void *put(void *number)
{
    for (int64_t i = 0; i < 1000; i++) {
        baro_put_f64(x, (double)((intptr_t)number * 1000 + i));
        if (i % 100 == 99)
            baro_frame(step, (uint64_t)(i / 100));
    }
    /* Published when the thread ends. */
    baro_put_i64(n, (int64_t)(intptr_t)number);
    return NULL;
}

static void declare(baro_t *b)
{
    step = baro_publication(b, "threads", BARO_READERS_GROUP);
    x = baro_value(step, "x", BARO_FLOAT, "1", BARO_GAUGE, NULL);
    n = baro_value(step, "n", BARO_INT, "1", BARO_COUNTER, NULL);
    flag = baro_value(step, "flag", BARO_BOOL, NULL, BARO_STATE, NULL);
    note = baro_value(step, "note", BARO_TEXT, NULL, BARO_STATE, NULL);
}

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, baro_error());
    return 1;
}

int main(void)
{
    const double floats[] = {1.5, -2.5};
    pthread_t threads[THREADS];
    baro_t *b = baro_open("programs", NULL);
    if (!baro_is_enabled(b))
        return fail("open");
    baro_label(b, "phase", "test");
    declare(b);
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, put, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);

    baro_put_bool(flag, 7);
    baro_put_text(note, "a note");
    baro_put_json(note, "[1]");
    baro_put_bytes(note, (const uint8_t *)"\0b", 2);
    baro_put_floats(note, floats, 2);
    baro_frame(step, 1000);
    if (baro_lost(b) != 0)
        return fail("lost");
    /* Of another type: not put, but counted. */
    baro_put_i64(x, 1);
    if (baro_lost(b) != 1)
        return fail("refused");

    pid_t child = fork();
    if (child == 0) {
        baro_put_f64(x, -1);
        baro_frame(step, 2000);
        _exit(baro_lost(b) == 0 ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0)
        return fail("child");
    baro_put_f64(x, -2);
    baro_frame(step, 1001);

    /* Opened again: earlier handles do nothing and have no effect. */
    baro_value_t stale = x;
    baro_close(b);
    b = baro_open("programs", NULL);
    declare(b);
    baro_put_f64(stale, -3);
    baro_put_f64(x, -4);
    baro_frame(step, 3000);
    if (baro_lost(b) != 1)
        return fail("stale");
    baro_close(b);
    return 0;
}
