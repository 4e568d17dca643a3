/* A thread that is cancelled: it ends at a cancellation point of its own, not in the middle of a
 * put. */
#include <baro.h>

#include <pthread.h>
#include <stdio.h>

static baro_publication_t step;
static baro_value_t x;
static int is_asked;
static int has_put;

static void *put(void *unused)
{
    while (!__atomic_load_n(&is_asked, __ATOMIC_ACQUIRE)) {
    }
    /* The first put makes a ring, the first frame wakes the agent: system calls, where threads may
     * be cancelled. */
    baro_put_f64(x, 1);
    baro_frame(step, 1);
    has_put = 1;
    pthread_testcancel();
    has_put = 2;
    return unused;
}

int main(void)
{
    pthread_t thread;
    void *result;
    baro_t *b = baro_open("cancelled", NULL);
    step = baro_publication(b, "cancelled", BARO_READERS_OWNER);
    x = baro_value(step, "x", BARO_FLOAT, "1", BARO_GAUGE, "");
    pthread_create(&thread, NULL, put, NULL);
    pthread_cancel(thread);
    __atomic_store_n(&is_asked, 1, __ATOMIC_RELEASE);
    pthread_join(thread, &result);
    baro_close(b);
    if (result != PTHREAD_CANCELED || has_put != 1) {
        fprintf(stderr, "it got as far as %d\n", has_put);
        return 1;
    }
    return 0;
}
