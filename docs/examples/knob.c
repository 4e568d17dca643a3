/* The smallest program that others may tune and end: cc knob.c -lbaro
 *
 *   baro knob set solver.tolerance 0.25
 *   baro call fire finish */
#include <baro.h>
#include <stdio.h>
#include <time.h>

static int finish(const baro_call_t *call, void *is_over)
{
    (void)call;
    *(int *)is_over = 1;
    return 0;
}

int main(void)
{
    const struct timespec work = {0, 1000000};
    int is_over = 0;
    baro_t *app = baro_open("example", NULL);
    baro_publication_t solver = baro_publication(app, "solver", BARO_READERS_OWNER);
    const baro_knob_t *tolerance = baro_knob_f64(solver, "tolerance", 1e-3, 0, 1, "1", "where the solver stops");
    baro_on(app, "finish", "ends the program after its step", finish, &is_over);
    for (uint64_t n = 0; !is_over; n++) {
        nanosleep(&work, NULL);
        baro_frame(solver, n); /* a good place for knobs */
        baro_poll(app);        /* and for calls */
    }
    printf("%g\n", baro_knob_get_f64(tolerance));
    baro_close(app);
    return 0;
}
