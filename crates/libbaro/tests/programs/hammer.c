/* Puts without pause into small rings while somebody reads: the argument is the number of puts per
 * thread. */
#include <baro.h>

#include <pthread.h>
#include <stdlib.h>

static baro_publication_t step;
static baro_value_t x;
static int64_t count;

static void *put(void *unused)
{
    for (int64_t i = 0; i < count; i++) {
        baro_put_i64(x, i);
        if (i % 7 == 6)
            baro_frame(step, (uint64_t)i);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t other;
    baro_config_t config = BARO_CONFIG_INIT;
    config.ring_records = 1 << 12;
    count = argc == 2 ? atoll(argv[1]) : 0;
    baro_t *b = baro_open("hammer", &config);
    step = baro_publication(b, "hammer", BARO_READERS_OWNER);
    x = baro_value(step, "x", BARO_INT, "1", BARO_COUNTER, "");
    pthread_create(&other, NULL, put, NULL);
    put(NULL);
    pthread_join(other, NULL);
    baro_close(b);
    return 0;
}
