/* Fires triggers and sets knobs; the agent that answers is a test. */
#include <baro.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, baro_error()); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

int main(int argc, char **argv)
{
    baro_fired_t fired;
    const int64_t number = -7;
    const double floats[] = {0.5, -1.5};
    const char *run_dir = argv[1];
    CHECK(argc == 2);
    CHECK(baro_fire(run_dir, "a", NULL, BARO_NULL, NULL, 0, 0, 0, NULL) == BARO_OK);
    CHECK(baro_fire(run_dir, "a", "rank=3, job=7", BARO_TEXT, "text", 0, 5000, 0, NULL) == BARO_OK);
    CHECK(baro_fire(run_dir, "a", "", BARO_JSON, "[1]x", 3, 0, 0, NULL) == BARO_OK);
    CHECK(baro_fire(run_dir, "a", "", BARO_INT, &number, 0, 0, 0, NULL) == BARO_OK);
    CHECK(baro_fire(run_dir, "a", "", BARO_BYTES, "\xff", 1, 0, 0, NULL) == BARO_OK);
    CHECK(baro_fire(run_dir, "a", "", BARO_FLOATS, floats, sizeof floats, 0, 0, NULL) == BARO_OK);
    CHECK(baro_knob_set_f64(run_dir, "p.f", "", 0.5, 1500, &fired) == BARO_NOTHING);
    CHECK(fired.matched == 3 && fired.acknowledged == 1 && fired.failed == 1 && strcmp(fired.id, "u0:9") == 0);
    CHECK(baro_knob_set_i64(run_dir, "p.i", "", 5, 0, NULL) == BARO_OK);
    CHECK(baro_knob_set_bool(run_dir, "p.t", "", 1, 0, NULL) == BARO_OK);
    CHECK(baro_fire(run_dir, "nobody", "", BARO_NULL, NULL, 0, 0, 0, NULL) == BARO_E_UNKNOWN);
    CHECK(strcmp(baro_error(), "told so") == 0);
    CHECK(baro_fire(run_dir, "busy", "", BARO_NULL, NULL, 0, 0, 0, NULL) == BARO_E_BUSY);
    CHECK(baro_fire(run_dir, "no", "", BARO_NULL, NULL, 0, 0, 0, NULL) == BARO_E_REFUSED);
    /* Refused without a request to the agent. */
    CHECK(baro_fire(run_dir, "a", "rank", BARO_NULL, NULL, 0, 0, 0, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_fire(run_dir, "a", "", BARO_TEXT, NULL, 0, 0, 0, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_fire(run_dir, "a", "", BARO_TEXT, "\xff", 0, 0, 0, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_fire(run_dir, "a", "", 99, "a", 1, 0, 0, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_fire(run_dir, "a", "", BARO_FLOATS, floats, 9, 0, 0, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_fire(run_dir, NULL, "", BARO_NULL, NULL, 0, 0, 0, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_fire("/nowhere", "a", "", BARO_NULL, NULL, 0, 0, 0, NULL) == BARO_E_NO_AGENT);
    CHECK(strstr(baro_error(), "/nowhere") != NULL);
    return 0;
}
