/* A phase that waits for its grant, loses it, and ends; and one that is not scheduled. */
#include <baro.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, baro_error()); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

int main(void)
{
    int grant = -1;
    double share = 0;
    baro_t *b = baro_open("waits", NULL);
    baro_io_volume_t *scratch = baro_io_volume(b, "/scratch");
    uint64_t phase = baro_io_begin(scratch, 4096, 0, 0, &grant);
    CHECK(phase == 1 && grant == BARO_IO_GRANTED);
    /* Until the grant is taken away. */
    while (baro_io_share(scratch, phase, &share) == BARO_OK) {
        CHECK(share > 0.49 && share < 0.51);
        usleep(100);
    }
    CHECK(baro_io_step(scratch, phase, 100, 0) == BARO_IO_GRANTED);
    CHECK(baro_io_end(scratch, phase, 4096) == BARO_OK);
    phase = baro_io_begin(scratch, 1, 0, 0, &grant);
    CHECK(phase == 2 && grant == BARO_IO_OFF);
    CHECK(baro_io_end(scratch, phase, 1) == BARO_OK);
    baro_io_volume_close(scratch);
    baro_close(b);
    return 0;
}
