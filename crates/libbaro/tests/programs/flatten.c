/* Datatypes of MPI as layouts: random ones, whose data are compared with those that MPI_Pack takes, and views
 * that are refused. Its argument is the number of datatypes; the seed is said when one differs. Run by
 * e2e/test_collectives.py. */
#include "../../mpi/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 3
#define MEMORY (1 << 20)

static unsigned long long seed;
static int kinds[12], compared;
static char memory[2 * MEMORY];

static int below(int most)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((seed >> 33) % (unsigned)most);
}

static MPI_Datatype predefined(void)
{
    /* Not MPI_LONG_DOUBLE: MPI_Pack of MPICH leaves its padding out. */
    MPI_Datatype types[] = {MPI_CHAR, MPI_SHORT, MPI_INT, MPI_DOUBLE, MPI_SHORT_INT, MPI_DOUBLE_INT, MPI_2INT};
    return types[below((int)(sizeof types / sizeof *types))];
}

static MPI_Datatype random_type(int depth);

static MPI_Datatype random_array(MPI_Datatype inner, int is_distributed)
{
    MPI_Datatype made;
    int n = 1 + below(3), order = below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, ranks = 1;
    int sizes[3], parts[3], starts[3], ways[3], arguments[3], processes[3];
    for (int d = 0; d < n; d++) {
        int way = below(3);
        sizes[d] = 1 + below(4);
        starts[d] = below(sizes[d]);
        parts[d] = 1 + below(sizes[d] - starts[d]);
        processes[d] = way == 2 ? 1 : 1 + below(3);
        ranks *= processes[d];
        ways[d] = way == 0 ? MPI_DISTRIBUTE_BLOCK : way == 1 ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_NONE;
        arguments[d] = MPI_DISTRIBUTE_DFLT_DARG;
        if (way != 2 && below(2))
            arguments[d] = (sizes[d] + processes[d] - 1) / processes[d];
    }
    if (is_distributed)
        MPI_Type_create_darray(ranks, below(ranks), n, sizes, ways, arguments, processes, order, inner, &made);
    else
        MPI_Type_create_subarray(n, sizes, parts, starts, order, inner, &made);
    return made;
}

static MPI_Datatype random_struct(int depth)
{
    MPI_Datatype members[3] = {MPI_BYTE, MPI_BYTE, MPI_BYTE}, made;
    int lengths[3] = {0}, n = below(4);
    MPI_Aint places[3] = {0};
    for (int m = 0; m < n; m++) {
        members[m] = random_type(depth - 1);
        lengths[m] = below(3);
        places[m] = below(4000) - 2000;
    }
    MPI_Type_create_struct(n, lengths, places, members, &made);
    for (int m = 0; m < n; m++)
        MPI_Type_free(&members[m]);
    return made;
}

/* A datatype that is freed by its receiver, like all that are made of it. */
static MPI_Datatype random_type(int depth)
{
    MPI_Datatype inner, made;
    int kind = below(12), n = below(4), lengths[4], places[4];
    MPI_Aint addresses[4];
    if (depth == 0) {
        MPI_Type_dup(predefined(), &made);
        return made;
    }
    kinds[kind]++;
    if (kind == 11)
        return random_struct(depth);
    inner = random_type(depth - 1);
    for (int m = 0; m < 4; m++) {
        lengths[m] = below(3);
        places[m] = below(9) - 4;
        addresses[m] = below(400) - 200;
    }
    switch (kind) {
    case 0:
        MPI_Type_contiguous(n, inner, &made);
        break;
    case 1:
        MPI_Type_vector(n, 1 + below(3), below(7) - 3, inner, &made);
        break;
    case 2:
        MPI_Type_create_hvector(n, 1 + below(3), below(400) - 200, inner, &made);
        break;
    case 3:
        MPI_Type_indexed(n, lengths, places, inner, &made);
        break;
    case 4:
        MPI_Type_create_hindexed(n, lengths, addresses, inner, &made);
        break;
    case 5:
        MPI_Type_create_indexed_block(n, 1 + below(2), places, inner, &made);
        break;
    case 6:
        MPI_Type_create_hindexed_block(n, 1 + below(2), addresses, inner, &made);
        break;
    case 7:
        made = random_array(inner, 0);
        break;
    case 8:
        made = random_array(inner, 1);
        break;
    case 9:
        MPI_Type_create_resized(inner, below(9) - 4, below(60), &made);
        break;
    default:
        MPI_Type_dup(inner, &made);
    }
    MPI_Type_free(&inner);
    return made;
}

/* Walks the data in parts of any length; returns how many bytes there are. */
static int64_t pack(const baro_mpi_layout_t *layout, int64_t bytes, const char *memory, char *packed)
{
    int64_t at = 0;
    while (at < bytes) {
        baro_mpi_cursor_t cursor = baro_mpi_seek_(layout, at);
        for (int part = below(20); part >= 0 && at < bytes; part--) {
            int64_t offset, most = 1 + below(40), length;
            length = baro_mpi_next_(&cursor, most < bytes - at ? most : bytes - at, &offset);
            memcpy(packed + at, memory + offset, (size_t)length);
            at += length;
        }
    }
    return at;
}

static int differs(MPI_Datatype type)
{
    static char ours[2 * MEMORY], theirs[2 * MEMORY];
    baro_mpi_layout_t layout;
    MPI_Count size, lower, extent, true_lower, true_extent;
    const char *fault = baro_mpi_flatten_(type, &layout);
    int count = 1 + below(3), place = 0;
    int64_t bytes;
    MPI_Type_size_x(type, &size);
    MPI_Type_get_extent_x(type, &lower, &extent);
    MPI_Type_get_true_extent_x(type, &true_lower, &true_extent);
    bytes = count * size;
    if (fault) {
        printf("a fault: %s\n", fault);
        return 1;
    }
    if (llabs(true_lower) + count * (llabs(extent) + true_extent) > MEMORY || bytes > MEMORY) {
        baro_mpi_layout_free_(&layout);
        return 0;
    }
    compared += bytes > 0;
    MPI_Pack(memory + MEMORY, count, type, theirs, sizeof theirs, &place, MPI_COMM_SELF);
    bytes = bytes ? pack(&layout, bytes, memory + MEMORY, ours) : 0;
    baro_mpi_layout_free_(&layout);
    return bytes != place || memcmp(ours, theirs, (size_t)bytes) != 0;
}

/* In a view, the data before an offset are those whose places are before it. */
static int view_differs(void)
{
    int lengths[6], places[6], end = 0;
    MPI_Datatype indexed, type;
    baro_mpi_layout_t view;
    int64_t base = below(100), data = 0, most;
    baro_mpi_cursor_t cursor;
    for (int n = 0; n < 6; n++) {
        places[n] = end + below(5);
        lengths[n] = 1 + below(5);
        end = places[n] + lengths[n];
    }
    MPI_Type_indexed(6, lengths, places, MPI_CHAR, &indexed);
    MPI_Type_create_resized(indexed, 0, end - (below(2) ? places[0] : 0), &type);
    if (baro_mpi_view_(base, type, &view))
        return 1;
    most = view.size < 1000 ? 3 * view.size : 3000;
    cursor = baro_mpi_seek_(&view, 0);
    for (int64_t offset = 0; data < most;) {
        int64_t place;
        baro_mpi_next_(&cursor, 1, &place);
        for (; offset <= place; offset++)
            if (baro_mpi_data_before_(&view, offset) != data)
                return 1;
        data++;
    }
    if (baro_mpi_pieces_between_(&view, 0, view.size) != (int64_t)view.count)
        return 1;
    baro_mpi_layout_free_(&view);
    MPI_Type_free(&indexed);
    MPI_Type_free(&type);
    return 0;
}

static void refuse(const char *what, MPI_Offset displacement, MPI_Datatype type)
{
    baro_mpi_layout_t view;
    const char *fault = baro_mpi_view_(displacement, type, &view);
    printf("{\"refused\": \"%s\", \"why\": \"%s\"}\n", what, fault ? fault : "");
}

static void refuse_views(void)
{
    MPI_Datatype type;
    int ones[2] = {1, 1}, twos[2] = {2, 2}, down[2] = {4, 0}, near[2] = {0, 1}, negative[2] = {-1, 3};
    refuse("displacement", -1, MPI_BYTE);
    MPI_Type_indexed(2, ones, down, MPI_INT, &type);
    refuse("order", 0, type);
    MPI_Type_free(&type);
    MPI_Type_indexed(2, twos, near, MPI_INT, &type);
    refuse("overlap", 0, type);
    MPI_Type_free(&type);
    MPI_Type_indexed(2, ones, negative, MPI_INT, &type);
    refuse("negative", 8, type);
    MPI_Type_free(&type);
    MPI_Type_create_resized(MPI_INT, 0, 3, &type);
    refuse("repetition", 0, type);
    MPI_Type_free(&type);
    refuse("none", 0, MPI_DATATYPE_NULL);
}

int main(int count, char **arguments)
{
    int types = count > 1 ? atoi(arguments[1]) : 1000, faults = 0, used = 0;
    unsigned long long base = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    MPI_Init(&count, &arguments);
    for (size_t n = 0; n < sizeof memory; n++)
        memory[n] = (char)below(256);
    for (int n = 0; n < types; n++) {
        MPI_Datatype type;
        seed = base + (unsigned)n;
        below(2);
        type = random_type(1 + below(DEPTH));
        MPI_Type_commit(&type);
        if (differs(type) || view_differs()) {
            printf("{\"seed\": %llu}\n", base + (unsigned)n);
            faults++;
        }
        MPI_Type_free(&type);
    }
    for (int kind = 0; kind < 12; kind++)
        used += kinds[kind] > 0;
    printf("{\"types\": %d, \"kinds\": %d, \"compared\": %d, \"faults\": %d}\n", types, used, compared, faults);
    refuse_views();
    MPI_Finalize();
    return faults != 0;
}
