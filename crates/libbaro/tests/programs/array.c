/* Reads packed arrays: argv[1] is a file of doubles, argv[2] one of floats, argv[3] a damaged one,
 * argv[4] one of two arrays of doubles. Each array has 60 x 50 values, sin(i / 100) of the index i. */
#include <baro.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, baro_error()); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

#define COUNT 3000

static double value(size_t at)
{
    return sin((double)at / 100);
}

static void doubles(const baro_array_t *array)
{
    static double values[COUNT];
    baro_array_info_t info;
    baro_bucket_t bucket;
    uint32_t read = 0;
    CHECK(baro_array_info(array, &info) == BARO_OK);
    CHECK(info.axes == 2 && info.value_bytes == 8 && info.is_exact && info.missing == 0);
    CHECK(info.dims[0] == 60 && info.dims[1] == 50 && info.dims[2] == 0 && info.max > info.min);
    CHECK(info.buckets > 5);
    for (uint32_t at = 0; at < info.buckets; at++) {
        char error[40];
        double most = 0, squares = 0;
        CHECK(baro_array_bucket(array, at, &bucket) == BARO_OK && bucket.bytes > 0);
        snprintf(error, sizeof error, "linf=%.17g", bucket.linf);
        CHECK(baro_array_read_f64(array, error, NULL, values, COUNT, at % 3, &read) == BARO_OK);
        CHECK(read >= 1 && read <= at + 1);
        for (size_t i = 0; i < COUNT; i++) {
            double difference = fabs(values[i] - value(i));
            most = difference > most ? difference : most;
            squares += difference * difference;
        }
        CHECK(most <= bucket.linf);
        CHECK(read != at + 1 || sqrt(squares / COUNT) <= bucket.rmse);
    }
    CHECK(bucket.linf == 0 && bucket.nrmse == 0 && isinf(bucket.psnr) && isinf(bucket.psnr_max));
    CHECK(baro_array_bucket(array, info.buckets, &bucket) == BARO_E_ARGUMENT);
    const uint64_t region[4] = {10, 12, 3, 8};
    CHECK(baro_array_read_f64(array, NULL, region, values, 10, 0, &read) == BARO_OK && read == info.buckets);
    for (size_t i = 0; i < 10; i++)
        CHECK(values[i] == value((10 + i / 5) * 50 + 3 + i % 5));
}

static void refused(const baro_array_t *array)
{
    static double values[COUNT];
    float few[1];
    const uint64_t outside[4] = {0, 61, 0, 5}, empty[4] = {3, 3, 0, 5};
    values[0] = 7;
    CHECK(baro_array_read_f64(array, "mse=1", NULL, values, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(strstr(baro_error(), "write nrmse=1e-4") != NULL);
    CHECK(baro_array_read_f64(array, "\xff", NULL, values, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_array_read_f64(array, NULL, NULL, values, COUNT - 1, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_array_read_f64(array, NULL, NULL, NULL, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_array_read_f64(array, NULL, outside, values, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_array_read_f64(array, NULL, empty, values, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_array_read_f64(NULL, NULL, NULL, values, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_array_read_f32(array, NULL, NULL, few, 1, 1, NULL) == BARO_E_TYPE);
    CHECK(values[0] == 7);
    CHECK(baro_array_info(NULL, NULL) == BARO_E_ARGUMENT && baro_array_info(array, NULL) == BARO_OK);
    CHECK(baro_array_bucket(NULL, 0, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_array_open(NULL) == NULL && baro_array_of_bytes(NULL, 5) == NULL);
    CHECK(baro_array_open("/none/field.baro") == NULL && strstr(baro_error(), "/none/field.baro") != NULL);
    CHECK(baro_array_of_bytes("BAROPROG", 8) == NULL && baro_array_of_bytes("", 0) == NULL);
    baro_array_close(NULL);
}

static void floats(const char *path)
{
    static float values[COUNT];
    static double wide[COUNT];
    baro_array_t *array = baro_array_open(path);
    CHECK(array != NULL);
    CHECK(baro_array_read_f32(array, "psnr=60", NULL, values, COUNT, 2, NULL) == BARO_OK);
    CHECK(baro_array_read_f64(array, "psnr=60", NULL, wide, COUNT, 1, NULL) == BARO_OK);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(values[i] == wide[i] && fabs(wide[i] - value(i)) < 0.05);
    baro_array_close(array);
    CHECK(baro_array_info(array, NULL) == BARO_E_ARGUMENT);
    baro_array_close(array);
}

/* Without an agent, a step reads what the error needs, and says why. */
static void steps(const baro_array_t *array, const char *why)
{
    static double values[COUNT];
    baro_step_t step = {.error = "nrmse=1e-4", .run_dir = "/nowhere", .priority = 7, .dry_run = 1};
    baro_decision_t decision;
    baro_bucket_t bucket;
    memset(&decision, 0xff, sizeof decision);
    for (int again = 0; again < 2; again++) {
        CHECK(baro_array_step_f64(array, &step, values, COUNT, 2, &decision) == BARO_OK);
        CHECK(decision.id == 0 && !decision.reported && isnan(decision.weight) && isnan(decision.degree));
        CHECK(decision.nrmse <= 1e-4 && decision.proposed == 0 && decision.bytes == 0);
        CHECK(strncmp(decision.reason, why, strlen(why)) == 0 && strlen(decision.reason) < 256);
        CHECK(baro_array_bucket(array, decision.buckets - 1, &bucket) == BARO_OK);
        CHECK(bucket.nrmse == decision.nrmse && fabs(values[7] - value(7)) < 1e-2);
    }
    step = (baro_step_t){0};
    step.run_dir = "/nowhere";
    CHECK(baro_array_step_f64(array, &step, values, COUNT, 1, NULL) == BARO_OK);
    CHECK(values[COUNT - 1] == value(COUNT - 1));
    CHECK(baro_array_step_f64(array, NULL, values, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_array_step_f64(array, &step, values, COUNT - 1, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_array_step_f64(array, &step, NULL, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_array_step_f32(array, &step, (float *)values, COUNT, 1, NULL) == BARO_E_TYPE);
    step.priority = 11;
    CHECK(baro_array_step_f64(array, &step, values, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    step.priority = 0;
    step.interval_s = -1;
    CHECK(baro_array_step_f64(array, &step, values, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    step.interval_s = NAN;
    CHECK(baro_array_step_f64(array, &step, values, COUNT, 1, NULL) == BARO_E_ARGUMENT);
    step.interval_s = 1;
    step.error = "nrmse=much";
    CHECK(baro_array_step_f64(array, &step, values, COUNT, 1, NULL) == BARO_E_ARGUMENT);
}

/* A file of two arrays: "a" of step 1 and "b" of step 2. */
static void several(const char *path)
{
    static double values[COUNT];
    CHECK(baro_array_open(path) == NULL && strstr(baro_error(), "a step 1, b step 2") != NULL);
    CHECK(baro_array_open_one(path, NULL, -1) == NULL);
    CHECK(baro_array_open_one(path, "a", 2) == NULL);
    CHECK(baro_array_open_one(NULL, "a", 1) == NULL);
    baro_array_t *first = baro_array_open_one(path, "a", -1);
    baro_array_t *second = baro_array_open_one(path, NULL, 2);
    CHECK(first != NULL && second != NULL);
    CHECK(baro_array_read_f64(first, NULL, NULL, values, COUNT, 1, NULL) == BARO_OK);
    CHECK(values[7] == value(7));
    CHECK(baro_array_read_f64(second, NULL, NULL, values, COUNT, 1, NULL) == BARO_OK);
    CHECK(values[7] == value(7));
    baro_array_close(first);
    baro_array_close(second);
}

static size_t whole(const char *path, char *bytes, size_t most)
{
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    size_t count = fread(bytes, 1, most, file);
    CHECK(count > 0 && count < most);
    fclose(file);
    return count;
}

int main(int count, char **paths)
{
    static char bytes[1 << 20];
    static double values[COUNT];
    CHECK(count == 5);
    baro_array_t *array = baro_array_open(paths[1]);
    CHECK(array != NULL);
    /* A host that closes what it has not opened: no descriptor of the library is among them. */
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    doubles(array);
    refused(array);
    steps(array, "no agent answers");
    several(paths[4]);
    CHECK(open("/dev/null", O_RDONLY) == 3);
    size_t read = whole(paths[1], bytes, sizeof bytes);
    baro_array_t *copied = baro_array_of_bytes(bytes, read);
    CHECK(copied != NULL);
    memset(bytes, 0, sizeof bytes);
    doubles(copied);
    steps(copied, "the array is in memory");
    baro_array_close(copied);
    floats(paths[2]);
    baro_array_t *damaged = baro_array_open(paths[3]);
    CHECK(damaged != NULL);
    CHECK(baro_array_read_f64(damaged, NULL, NULL, values, COUNT, 1, NULL) == BARO_E_DATA);
    CHECK(strstr(baro_error(), "checksum") != NULL);
    CHECK(baro_array_read_f64(damaged, "nrmse=0.1", NULL, values, COUNT, 1, NULL) == BARO_OK);
    baro_array_close(damaged);
    /* The file becomes another one while it is open. */
    CHECK(rename(paths[2], paths[1]) == 0);
    CHECK(baro_array_read_f64(array, NULL, NULL, values, COUNT, 1, NULL) == BARO_E_DATA);
    CHECK(strstr(baro_error(), "is another array now") != NULL);
    CHECK(unlink(paths[1]) == 0);
    CHECK(baro_array_read_f64(array, NULL, NULL, values, COUNT, 1, NULL) == BARO_E_DATA);
    baro_array_close(array);
    return 0;
}
