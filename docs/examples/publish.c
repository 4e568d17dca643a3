/* The smallest program that publishes: cc publish.c -lbaro */
#include <baro.h>

int main(void)
{
    baro_t *app = baro_open("example", NULL);
    baro_publication_t step = baro_publication(app, "example", BARO_READERS_OWNER);
    baro_value_t residual = baro_value(step, "residual", BARO_FLOAT, "1", BARO_GAUGE, "distance from the solution");
    for (uint64_t n = 0; n < 1000; n++) {
        baro_put_f64(residual, 1.0 / (double)(n + 1));
        baro_frame(step, n);
    }
    baro_close(app);
    return 0;
}
