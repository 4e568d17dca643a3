/* Ranks that write and read the same through staging and through MPI-IO, with the same views, and compare
 * the bytes. Run by e2e/test_collectives.py:
 *
 *   collective DIRECTORY DATASET EXCHANGE SEED SERVER...
 *
 * Each scenario has a dataset (DATASET/NAME) and a plain file of its own. Rank 0 prints a line of JSON for each. */
#include "../../mpi/baro_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096
#define BUFFER 8192
/* All scenarios are in so many bytes. */
#define FILE_BYTES 400000

static int rank, ranks;
static baro_stage_t *stage;
static const char *directory, *prefix;
static baro_mpi_config_t config = BARO_MPI_CONFIG_INIT;
static unsigned long long seed;

/* The same on all ranks. */
static int below(int most)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((seed >> 33) % (unsigned)most);
}

static void must(int code, const char *what)
{
    if (code != BARO_OK) {
        fprintf(stderr, "%s: %d: %s\n", what, code, baro_mpi_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* A file of staging and a plain one. */
struct both {
    const char *name;
    char path[512];
    baro_mpi_file_t *staged;
    MPI_File plain;
};

static struct both open_both(const char *name, int mode)
{
    struct both both = {.name = name};
    char dataset[300];
    snprintf(both.path, sizeof both.path, "%s/%s", directory, name);
    snprintf(dataset, sizeof dataset, "%s/%s", prefix, name);
    must(baro_mpi_open(MPI_COMM_WORLD, stage, dataset, mode, &config, &both.staged), "open");
    if (MPI_File_open(MPI_COMM_WORLD, both.path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &both.plain))
        MPI_Abort(MPI_COMM_WORLD, 2);
    /* What MPI-IO has in holes, and gives behind the end of a file, may be anything. */
    MPI_File_set_size(both.plain, FILE_BYTES);
    return both;
}

static void set_view(struct both *both, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype type)
{
    must(baro_mpi_set_view(both->staged, displacement, etype, type), "set_view");
    MPI_File_set_view(both->plain, displacement, etype, type, "native", MPI_INFO_NULL);
}

static void write_both(struct both *both, MPI_Offset offset, const void *memory, int count, MPI_Datatype type)
{
    must(baro_mpi_write_all(both->staged, offset, memory, count, type), "write_all");
    MPI_File_write_at_all(both->plain, offset, memory, count, type, MPI_STATUS_IGNORE);
    /* Other ranks see in a plain file what was written only after this. */
    MPI_File_sync(both->plain);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(both->plain);
}

/* Compares, and says where the first difference is. */
static int is_equal(const char *what, const char *ours, const char *theirs, size_t bytes)
{
    for (size_t n = 0; n < bytes; n++)
        if (ours[n] != theirs[n]) {
            fprintf(stderr, "%s: rank %d has %d and not %d at %zu of %zu\n", what, rank, ours[n], theirs[n], n, bytes);
            return 0;
        }
    return 1;
}

/* Reads the view both ways; returns whether the memory is the same afterwards, also between the pieces. */
static int reads_same(struct both *both, MPI_Offset offset, size_t bytes, int count, MPI_Datatype type)
{
    char *ours = calloc(1, bytes), *theirs = calloc(1, bytes);
    int is_same;
    must(baro_mpi_read_all(both->staged, offset, ours, count, type), "read_all");
    MPI_File_read_at_all(both->plain, offset, theirs, count, type, MPI_STATUS_IGNORE);
    is_same = is_equal(both->name, ours, theirs, bytes);
    free(ours);
    free(theirs);
    return is_same;
}

/* Whether a rank reads all bytes of the plain file, and zeros behind its end. */
static int reads_all(struct both *both)
{
    size_t more = FILE_BYTES + 3 * BLOCK;
    char *ours = malloc(more), *theirs = calloc(1, more);
    FILE *plain = fopen(both->path, "rb");
    int is_same = plain && fread(theirs, 1, more, plain) == FILE_BYTES;
    memset(ours, 7, more);
    must(baro_mpi_set_view(both->staged, 0, MPI_BYTE, MPI_BYTE), "set_view");
    must(baro_mpi_read_all(both->staged, 0, ours, (int)more, MPI_BYTE), "read_all");
    is_same = is_equal(both->path, ours, theirs, more) && is_same;
    if (plain)
        fclose(plain);
    free(ours);
    free(theirs);
    return is_same;
}

/* Ends a scenario: all bytes of both files are compared, and the counts of all ranks are told. */
static void finish(struct both *both, int is_same)
{
    uint64_t mine[5], all[5];
    baro_mpi_counts_t counts;
    baro_mpi_counts(both->staged, &counts);
    is_same = reads_all(both) && is_same;
    mine[0] = counts.data_bytes;
    mine[1] = counts.metadata_bytes;
    mine[2] = counts.blocks_put;
    mine[3] = counts.blocks_merged;
    mine[4] = !is_same;
    MPI_Reduce(mine, all, 5, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"scenario\": \"%s\", \"differ\": %d, \"data\": %llu, \"metadata\": %llu, "
               "\"put\": %llu, \"merged\": %llu, \"rounds\": %llu, \"aggregators\": %llu}\n",
               both->name, (int)all[4], (unsigned long long)all[0], (unsigned long long)all[1],
               (unsigned long long)all[2], (unsigned long long)all[3], (unsigned long long)counts.rounds,
               (unsigned long long)counts.aggregators);
    must(baro_mpi_close(&both->staged), "close");
    MPI_File_close(&both->plain);
}

static unsigned char *random_memory(size_t bytes)
{
    unsigned char *memory = malloc(bytes);
    unsigned long long state = seed + (unsigned)rank + 1;
    for (size_t n = 0; n < bytes; n++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        memory[n] = (unsigned char)(state >> 40);
    }
    return memory;
}

/* A field that is cut in three dimensions, in memory with a margin; read back in slabs, and by columns. */
static void field(void)
{
    enum { X = 24, Y = 20, Z = 28 };
    int grid[3] = {2, ranks / 2, 1}, sizes[3] = {X, Y, Z}, parts[3], starts[3], memory_sizes[3], ones[3] = {1, 1, 1};
    struct both both = open_both("field", BARO_MPI_WRITE);
    MPI_Datatype view, memory_type, slab;
    unsigned char *memory;
    int is_same, place[3] = {rank / (ranks / 2), rank % (ranks / 2), 0};
    for (int d = 0; d < 3; d++) {
        parts[d] = sizes[d] / grid[d];
        starts[d] = place[d] * parts[d];
        memory_sizes[d] = parts[d] + 2;
    }
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &view);
    MPI_Type_create_subarray(3, memory_sizes, parts, ones, MPI_ORDER_C, MPI_DOUBLE, &memory_type);
    MPI_Type_commit(&view);
    MPI_Type_commit(&memory_type);
    memory = random_memory((size_t)memory_sizes[0] * memory_sizes[1] * memory_sizes[2] * sizeof(double));
    set_view(&both, 100, MPI_DOUBLE, view);
    write_both(&both, 0, memory, 1, memory_type);
    /* A second step behind the first: the view is repeated. */
    write_both(&both, parts[0] * parts[1] * parts[2], memory, 1, memory_type);
    MPI_Type_free(&view);
    parts[0] = X / ranks;
    starts[0] = rank * parts[0];
    parts[1] = Y;
    parts[2] = Z;
    starts[1] = starts[2] = 0;
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &slab);
    MPI_Type_commit(&slab);
    set_view(&both, 100, MPI_DOUBLE, slab);
    is_same = reads_same(&both, 0, (size_t)parts[0] * Y * Z * 8, parts[0] * Y * Z, MPI_DOUBLE);
    MPI_Type_free(&slab);
    parts[0] = X;
    parts[2] = Z / ranks;
    starts[0] = 0;
    starts[2] = rank * parts[2];
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_DOUBLE, &slab);
    MPI_Type_commit(&slab);
    set_view(&both, 100, MPI_DOUBLE, slab);
    is_same = reads_same(&both, 0, (size_t)parts[2] * X * Y * 8, parts[2] * X * Y, MPI_DOUBLE) && is_same;
    MPI_Type_free(&slab);
    MPI_Type_free(&memory_type);
    free(memory);
    finish(&both, is_same);
}

/* Ranks in turn have three of some integers. The last one writes nothing, so there are holes. */
static void strided(void)
{
    enum { GROUPS = 700 };
    struct both both = open_both("strided", BARO_MPI_WRITE);
    MPI_Datatype vector, view;
    unsigned char *memory = random_memory(GROUPS * 3 * sizeof(int));
    int count = rank == ranks - 1 ? 0 : GROUPS * 3, is_same;
    MPI_Type_vector(5, 3, 3 * ranks, MPI_INT, &vector);
    MPI_Type_create_resized(vector, 0, 5 * 3 * ranks * (MPI_Aint)sizeof(int), &view);
    MPI_Type_commit(&view);
    set_view(&both, 64 + rank * 3 * (MPI_Offset)sizeof(int), MPI_INT, view);
    write_both(&both, 4, count ? memory : NULL, count, MPI_INT);
    /* Into what is there: the same, later, and over a part of it. */
    write_both(&both, 300 + 30 * rank, memory + 4 * rank, count / 2, MPI_INT);
    is_same = reads_same(&both, 11, 500 * sizeof(int), 500, MPI_INT);
    MPI_Type_free(&vector);
    MPI_Type_free(&view);
    free(memory);
    finish(&both, is_same);
}

/* An array in blocks that are dealt out to the ranks. */
static void dealt(void)
{
    struct both both = open_both("dealt", BARO_MPI_WRITE);
    int sizes[2] = {51, 67}, ways[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
    int arguments[2] = {3, MPI_DISTRIBUTE_DFLT_DARG}, grid[2] = {ranks / 2, 2}, bytes, is_same;
    unsigned char *memory;
    MPI_Datatype view;
    MPI_Type_create_darray(ranks, rank, 2, sizes, ways, arguments, grid, MPI_ORDER_C, MPI_FLOAT, &view);
    MPI_Type_commit(&view);
    MPI_Type_size(view, &bytes);
    memory = random_memory((size_t)bytes);
    set_view(&both, 0, MPI_FLOAT, view);
    write_both(&both, 0, memory, bytes / 4, MPI_FLOAT);
    is_same = reads_same(&both, 0, (size_t)bytes, bytes / 4, MPI_FLOAT);
    MPI_Type_free(&view);
    free(memory);
    finish(&both, is_same);
}

/* Ranks far from each other: what is between is neither put nor gone through. */
static void far(void)
{
    struct both both = open_both("far", BARO_MPI_WRITE);
    unsigned char *memory = random_memory(5000);
    set_view(&both, rank * (MPI_Offset)30 * BLOCK + 17, MPI_BYTE, MPI_BYTE);
    write_both(&both, 0, memory, 5000, MPI_BYTE);
    free(memory);
    finish(&both, 1);
}

/* Units of random sizes belong to random ranks, or to none; memory has gaps. */
static void random_views(int turn)
{
    enum { UNITS = 40 };
    char name[32];
    int lengths[UNITS], places[UNITS], mine = 0, end = 0, bytes, is_same, unit = 1 + below(9), offset = below(50);
    MPI_Datatype indexed, view, memory_type, gaps, etype;
    struct both both;
    unsigned char *memory;
    snprintf(name, sizeof name, "random%d", turn);
    both = open_both(name, BARO_MPI_WRITE);
    for (int n = 0; n < UNITS; n++) {
        int length = 1 + below(below(4) ? 8 : 300), owner = below(ranks + 1);
        if (owner == rank) {
            lengths[mine] = length;
            places[mine++] = end;
        }
        end += length;
    }
    MPI_Type_contiguous(unit, MPI_BYTE, &etype);
    MPI_Type_indexed(mine, lengths, places, etype, &indexed);
    MPI_Type_create_resized(indexed, 0, (MPI_Aint)end * unit, &view);
    MPI_Type_commit(&etype);
    MPI_Type_commit(&view);
    set_view(&both, below(3 * BLOCK), etype, view);
    /* Units in memory have a distance of two. */
    MPI_Type_create_resized(etype, 0, 2 * unit, &gaps);
    MPI_Type_contiguous(1 + below(7), gaps, &memory_type);
    MPI_Type_commit(&memory_type);
    MPI_Type_size(memory_type, &bytes);
    bytes = mine ? 1 + below(20000) / bytes : 0;
    memory = random_memory(100000);
    write_both(&both, offset, memory, bytes, memory_type);
    write_both(&both, below(2000), memory, bytes / 3, memory_type);
    is_same = reads_same(&both, below(100), 100000, bytes, memory_type);
    MPI_Type_free(&indexed);
    MPI_Type_free(&view);
    MPI_Type_free(&gaps);
    MPI_Type_free(&memory_type);
    MPI_Type_free(&etype);
    free(memory);
    finish(&both, is_same);
}

int main(int count, char **arguments)
{
    baro_stage_config_t staging = BARO_STAGE_CONFIG_INIT;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count < 6)
        MPI_Abort(MPI_COMM_WORLD, 2);
    directory = arguments[1];
    prefix = arguments[2];
    config.exchange = strcmp(arguments[3], "lists") == 0;
    seed = strtoull(arguments[4], NULL, 10);
    staging.replicas = count > 6 ? 2 : 1;
    stage = baro_stage_open((const char *const *)arguments + 5, (size_t)count - 5, &staging);
    config.block_bytes = BLOCK;
    config.buffer_bytes = BUFFER;
    config.aggregators = 3;
    field();
    strided();
    dealt();
    far();
    for (int turn = 0; turn < 3; turn++) {
        /* Also with one aggregator, one for each rank, and blocks that are not as long as pages. */
        config.aggregators = 1 + below(ranks);
        config.block_bytes = 8 * (1 + (uint64_t)below(900));
        random_views(turn);
    }
    baro_stage_close(stage);
    MPI_Finalize();
    return 0;
}
