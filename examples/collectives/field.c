/* A field in three dimensions that the ranks of an MPI program write together through staging, step by step, and
 * read back in another decomposition.
 *
 *   mpicc -O2 field.c $(pkg-config --variable=mpi_sources baro) -o field $(pkg-config --cflags --libs baro)
 *   baro stage serve --socket /tmp/a.sock &
 *   baro stage serve --socket /tmp/b.sock &
 *   mpirun -n 4 ./field /tmp/a.sock /tmp/b.sock
 */
#include <baro_mpi.h>

#include <stdio.h>
#include <stdlib.h>

#define STEPS 3
enum { NX = 32, NY = 24, NZ = 16 };

static int rank, ranks;

static void must(int code)
{
    /* All ranks have the same code and text. */
    if (code != BARO_OK) {
        if (rank == 0)
            fprintf(stderr, "%s\n", baro_mpi_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static double value(int step, int x, int y, int z)
{
    return step * 1e6 + (x * NY + y) * NZ + z;
}

/* The part [first, last) of `size` that belongs to number `at` of `parts`. */
static void part_of(int size, int parts, int at, int *first, int *last)
{
    *first = size * at / parts;
    *last = size * (at + 1) / parts;
}

/* Writes a step: the ranks are a grid in x and y. */
static void write_step(baro_mpi_file_t *file, int step)
{
    int grid[2] = {0, 0}, sizes[3] = {NX, NY, NZ}, first[3] = {0}, last[3] = {0, 0, NZ}, parts[3];
    MPI_Datatype view;
    double *field, *next;
    MPI_Dims_create(ranks, 2, grid);
    part_of(NX, grid[0], rank / grid[1], &first[0], &last[0]);
    part_of(NY, grid[1], rank % grid[1], &first[1], &last[1]);
    for (int d = 0; d < 3; d++)
        parts[d] = last[d] - first[d];
    next = field = malloc(sizeof *field * (size_t)parts[0] * parts[1] * parts[2]);
    for (int x = first[0]; x < last[0]; x++)
        for (int y = first[1]; y < last[1]; y++)
            for (int z = first[2]; z < last[2]; z++)
                *next++ = value(step, x, y, z);
    MPI_Type_create_subarray(3, sizes, parts, first, MPI_ORDER_C, MPI_DOUBLE, &view);
    MPI_Type_commit(&view);
    if (step == 0)
        must(baro_mpi_set_view(file, 0, MPI_DOUBLE, view));
    /* The view is repeated for each step, so a step has a place in the view's data. */
    must(baro_mpi_write_all(file, (MPI_Offset)step * (next - field), field, (int)(next - field), MPI_DOUBLE));
    MPI_Type_free(&view);
    free(field);
}

/* Reads the last step in slabs of z; returns how many numbers are wrong. */
static int read_slabs(baro_mpi_file_t *file)
{
    int sizes[3] = {NX, NY, NZ}, first[3] = {0}, last, parts[3] = {NX, NY, 0}, count, wrong = 0;
    MPI_Datatype view;
    double *field, *next;
    part_of(NZ, ranks, rank, &first[2], &last);
    parts[2] = last - first[2];
    count = NX * NY * parts[2];
    next = field = malloc(sizeof *field * (size_t)(count + 1));
    if (count) {
        MPI_Type_create_subarray(3, sizes, parts, first, MPI_ORDER_C, MPI_DOUBLE, &view);
    } else {
        MPI_Type_dup(MPI_DOUBLE, &view);
    }
    MPI_Type_commit(&view);
    must(baro_mpi_set_view(file, 0, MPI_DOUBLE, view));
    must(baro_mpi_read_all(file, (MPI_Offset)(STEPS - 1) * count, field, count, MPI_DOUBLE));
    for (int x = 0; x < NX; x++)
        for (int y = 0; y < NY; y++)
            for (int z = first[2]; z < last; z++)
                wrong += *next++ != value(STEPS - 1, x, y, z);
    MPI_Type_free(&view);
    free(field);
    return wrong;
}

int main(int count, char **arguments)
{
    baro_stage_config_t staging = BARO_STAGE_CONFIG_INIT;
    baro_mpi_file_t *file;
    baro_stage_t *stage;
    int wrong, all_wrong;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    staging.replicas = count > 2 ? 2 : 1;
    stage = baro_stage_open((const char *const *)arguments + 1, (size_t)count - 1, &staging);
    must(baro_mpi_open(MPI_COMM_WORLD, stage, "example/field", BARO_MPI_WRITE, NULL, &file));
    for (int step = 0; step < STEPS; step++)
        write_step(file, step);
    must(baro_mpi_close(&file));
    must(baro_mpi_open(MPI_COMM_WORLD, stage, "example/field", BARO_MPI_READ, NULL, &file));
    wrong = read_slabs(file);
    must(baro_mpi_close(&file));
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"steps\": %d, \"bytes\": %zu, \"wrong\": %d}\n", STEPS, sizeof(double) * STEPS * NX * NY * NZ,
               all_wrong);
    baro_stage_close(stage);
    MPI_Finalize();
    return 0;
}
