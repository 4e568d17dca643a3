/* Reads a packed array again and again, as precisely as the agent decides and no less precisely than an
 * error: cc steps.c -lbaro; ./a.out field.baro nrmse=1e-3 10 */
#include <baro.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: steps FILE ERROR COUNT\n");
        return 2;
    }
    baro_array_info_t info;
    baro_array_t *array = baro_array_open(argv[1]);
    if (array == NULL || baro_array_info(array, &info) != BARO_OK) {
        fprintf(stderr, "%s\n", baro_error());
        return 1;
    }
    size_t count = 1;
    for (uint32_t axis = 0; axis < info.axes; axis++)
        count *= info.dims[axis];
    double *values = malloc(count * sizeof *values);
    if (values == NULL)
        return 1;
    baro_step_t step = {.error = argv[2], .priority = 7};
    for (int at = 0; at < atoi(argv[3]); at++) {
        baro_decision_t decision;
        if (baro_array_step_f64(array, &step, values, count, 1, &decision) != BARO_OK) {
            fprintf(stderr, "%s\n", baro_error());
            return 1;
        }
        /* The analysis of the values belongs here. */
        printf("decision %llu: %u buckets, NRMSE %g: %s\n", (unsigned long long)decision.id,
               (unsigned)decision.buckets, decision.nrmse, decision.reason);
    }
    free(values);
    baro_array_close(array);
    return 0;
}
