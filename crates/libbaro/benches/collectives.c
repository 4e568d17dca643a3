/* What collective writes and reads of a field in three dimensions cost: through staging, with views and with lists,
 * and through MPI-IO to a plain file. Medians over all ranks of the slowest one, in the time of the clock. Run by
 * collectives.sh: collectives DIRECTORY REPEATS AGGREGATORS SERVER... */
#include "../mpi/baro_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS_MAX 100

static int rank, ranks, repeats;
static baro_stage_t *stage;
static MPI_Datatype view;
static double *field;
static int count;

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(double *times)
{
    qsort(times, (size_t)repeats, sizeof *times, by_value);
    return times[repeats / 2];
}

static double seconds_since(double start)
{
    double mine = MPI_Wtime() - start, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static void must(int code)
{
    if (code != BARO_OK) {
        fprintf(stderr, "%s\n", baro_mpi_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void report(const char *way, int side, int wide, double *writes, double *reads, double told, double told_each)
{
    double bytes = (double)count * ranks * sizeof *field;
    if (rank == 0)
        printf("| %s | %d x %d x %d | %.0f | %.0f | %.0f | %.0f |\n", way, side, side, wide,
               bytes / median(writes) / 1e6, bytes / median(reads) / 1e6, told, told_each);
}

static double all_told(const baro_mpi_file_t *file)
{
    baro_mpi_counts_t counts;
    double mine, all;
    baro_mpi_counts(file, &counts);
    mine = (double)counts.metadata_bytes;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static void through_staging(int exchange, int aggregators, int side, int wide)
{
    double writes[REPEATS_MAX], reads[REPEATS_MAX], start, told, told_each;
    baro_mpi_config_t config = BARO_MPI_CONFIG_INIT;
    baro_mpi_file_t *file;
    char dataset[64];
    config.exchange = exchange;
    config.aggregators = aggregators;
    snprintf(dataset, sizeof dataset, "bench/%d-%d", side, wide);
    must(baro_mpi_open(MPI_COMM_WORLD, stage, dataset, BARO_MPI_WRITE, &config, &file));
    must(baro_mpi_set_view(file, 0, MPI_DOUBLE, view));
    told = all_told(file);
    for (int n = 0; n < repeats; n++) {
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        must(baro_mpi_write_all(file, 0, field, count, MPI_DOUBLE));
        writes[n] = seconds_since(start);
        start = MPI_Wtime();
        must(baro_mpi_read_all(file, 0, field, count, MPI_DOUBLE));
        reads[n] = seconds_since(start);
    }
    told_each = (all_told(file) - told) / repeats / 2;
    must(baro_mpi_close(&file));
    report(exchange == BARO_MPI_VIEWS ? "staging, views" : "staging, lists", side, wide, writes, reads, told,
           told_each);
}

static void through_mpi_io(const char *directory, int side, int wide)
{
    double writes[REPEATS_MAX], reads[REPEATS_MAX], start;
    MPI_File file;
    char path[512];
    snprintf(path, sizeof path, "%s/%d-%d", directory, side, wide);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_view(file, 0, MPI_DOUBLE, view, "native", MPI_INFO_NULL);
    for (int n = 0; n < repeats; n++) {
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        MPI_File_write_at_all(file, 0, field, count, MPI_DOUBLE, MPI_STATUS_IGNORE);
        writes[n] = seconds_since(start);
        start = MPI_Wtime();
        MPI_File_read_at_all(file, 0, field, count, MPI_DOUBLE, MPI_STATUS_IGNORE);
        reads[n] = seconds_since(start);
    }
    MPI_File_close(&file);
    report("MPI-IO (ROMIO), tmpfs", side, wide, writes, reads, 0, 0);
}

/* Each rank has a part of the last two dimensions: rows of `wide` / 2 numbers with four ranks. */
static void measure(const char *directory, int aggregators, int side, int wide)
{
    int grid[3] = {0, 0, 0}, place[3], periods[3] = {0, 0, 0}, sizes[3] = {side, side, wide}, parts[3], starts[3];
    MPI_Comm mesh;
    MPI_Dims_create(ranks, 2, grid + 1);
    grid[0] = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 3, grid, periods, 0, &mesh);
    MPI_Cart_coords(mesh, rank, 3, place);
    count = 1;
    for (int d = 0; d < 3; d++) {
        parts[d] = sizes[d] / grid[d];
        starts[d] = place[d] * parts[d];
        count *= parts[d];
    }
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &view);
    MPI_Type_commit(&view);
    field = malloc((size_t)count * sizeof *field);
    for (int n = 0; n < count; n++)
        field[n] = rank + n * 1e-9;
    through_mpi_io(directory, side, wide);
    through_staging(BARO_MPI_VIEWS, aggregators, side, wide);
    through_staging(BARO_MPI_LISTS, aggregators, side, wide);
    free(field);
    MPI_Type_free(&view);
    MPI_Comm_free(&mesh);
}

int main(int arguments_count, char **arguments)
{
    MPI_Init(&arguments_count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (arguments_count < 5)
        MPI_Abort(MPI_COMM_WORLD, 2);
    repeats = atoi(arguments[2]);
    if (repeats < 1 || repeats > REPEATS_MAX)
        repeats = 5;
    stage = baro_stage_open((const char *const *)arguments + 4, (size_t)arguments_count - 4, NULL);
    if (rank == 0)
        printf("%d ranks, %d repeats, %s aggregators\n"
               "| way | field | write MB/s | read MB/s | told once, B | told in each call, B |\n", ranks, repeats,
               arguments[3]);
    measure(arguments[1], atoi(arguments[3]), 128, 128);
    measure(arguments[1], atoi(arguments[3]), 256, 32);
    measure(arguments[1], atoi(arguments[3]), 512, 8);
    baro_stage_close(stage);
    MPI_Finalize();
    return 0;
}
