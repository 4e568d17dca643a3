/* Layouts of MPI datatypes: how a datatype was made is asked of MPI, down to the predefined ones. */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "there is no memory for the pieces of a datatype";
static const char too_many[] = "a datatype has more than 67,108,864 pieces";
static const char too_long[] = "a datatype is longer than any file";

/* A list of pieces that grows. */
struct pieces {
    baro_mpi_piece_t *at;
    size_t count, room;
    const char *fault;
};

static void add(struct pieces *list, int64_t offset, int64_t length)
{
    if (length == 0 || list->fault)
        return;
    if (list->count) {
        baro_mpi_piece_t *last = &list->at[list->count - 1];
        if (last->offset + last->length == offset) {
            last->length += length;
            return;
        }
    }
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 8;
        baro_mpi_piece_t *more;
        if (room > BARO_MPI_PIECES_MAX_) {
            list->fault = too_many;
            return;
        }
        more = realloc(list->at, room * sizeof *more);
        if (!more) {
            list->fault = no_memory;
            return;
        }
        list->at = more;
        list->room = room;
    }
    list->at[list->count].offset = offset;
    list->at[list->count++].length = length;
}

/* Adds `times` copies of `inner`, the first one at `offset` and each next one `stride` later. */
static void repeat(struct pieces *list, const struct pieces *inner, int64_t offset, int64_t times, int64_t stride)
{
    if (inner->fault)
        list->fault = inner->fault;
    if (inner->count == 0 || times <= 0 || list->fault)
        return;
    if (inner->count == 1 && inner->at[0].length == stride) {
        add(list, offset + inner->at[0].offset, times * stride);
        return;
    }
    for (int64_t n = 0; n < times && !list->fault; n++)
        for (size_t p = 0; p < inner->count; p++)
            add(list, offset + n * stride + inner->at[p].offset, inner->at[p].length);
}

/* What MPI tells of how a datatype was made. */
struct contents {
    int combiner;
    int *ints;
    MPI_Aint *addresses;
    MPI_Datatype *types;
    int types_count;
};

static void flatten(MPI_Datatype type, struct pieces *list);

static int64_t extent_of(MPI_Datatype type)
{
    MPI_Count lower, extent;
    MPI_Type_get_extent_x(type, &lower, &extent);
    return extent;
}

static void predefined(MPI_Datatype type, struct pieces *list)
{
    MPI_Count size;
    if (type == MPI_SHORT_INT) {
        /* The only pair with a gap between its members. */
        struct {
            short value;
            int index;
        } pair;
        add(list, 0, sizeof pair.value);
        add(list, (char *)&pair.index - (char *)&pair, sizeof pair.index);
        return;
    }
    MPI_Type_size_x(type, &size);
    add(list, 0, size);
}

/* Adds blocks of `inner`, of the same length or of a length each, at offsets in bytes or in extents. */
static void blocks(struct pieces *list, const struct pieces *inner, int64_t extent, int count, const int *lengths,
                   int is_same_length, const int *ints, const MPI_Aint *addresses)
{
    for (int n = 0; n < count && !list->fault; n++)
        repeat(list, inner, ints ? ints[n] * extent : (int64_t)addresses[n], lengths[is_same_length ? 0 : n], extent);
}

static void vector(struct pieces *list, const struct pieces *inner, int64_t extent, int64_t count, int64_t length,
                   int64_t stride)
{
    struct pieces block = {0};
    repeat(&block, inner, 0, length, extent);
    repeat(list, &block, 0, count, stride);
    free(block.at);
}

/* The indices of one dimension that a datatype has: runs of `length` that begin `step` after each other,
 * up to `end`. */
struct range {
    int64_t start, length, step, end;
};

/* Adds the elements of an array of `dimensions`, slowest first unless `is_fortran`, at some indices. */
static void array(struct pieces *list, const struct pieces *element, int64_t extent, int dimensions, const int *sizes,
                  const struct range *ranges, int is_fortran)
{
    struct pieces slab = {0};
    int64_t stride = extent;
    repeat(&slab, element, 0, 1, extent);
    for (int n = 0; n < dimensions; n++) {
        int d = is_fortran ? n : dimensions - 1 - n;
        struct range range = ranges[d];
        struct pieces next = {0};
        for (int64_t at = range.start; at < range.end && !next.fault; at += range.step) {
            int64_t length = range.end - at < range.length ? range.end - at : range.length;
            repeat(&next, &slab, at * stride, length, stride);
        }
        if (slab.fault)
            next.fault = slab.fault;
        free(slab.at);
        slab = next;
        stride *= sizes[d];
    }
    repeat(list, &slab, 0, 1, stride);
    free(slab.at);
}

static void subarray(struct pieces *list, const struct pieces *element, int64_t extent, const int *ints)
{
    int n = ints[0];
    const int *sizes = ints + 1, *subsizes = ints + 1 + n, *starts = ints + 1 + 2 * n;
    struct range *ranges = calloc((size_t)n + 1, sizeof *ranges);
    if (!ranges) {
        list->fault = no_memory;
        return;
    }
    for (int d = 0; d < n; d++) {
        struct range all = {starts[d], subsizes[d], subsizes[d] + 1, (int64_t)starts[d] + subsizes[d]};
        ranges[d] = all;
    }
    array(list, element, extent, n, sizes, ranges, ints[1 + 3 * n] == MPI_ORDER_FORTRAN);
    free(ranges);
}

/* The part of one process of an array that is distributed over a grid of them. */
static void distributed(struct pieces *list, const struct pieces *element, int64_t extent, const int *ints)
{
    int rank = ints[1], n = ints[2];
    const int *sizes = ints + 3, *ways = sizes + n, *arguments = ways + n, *processes = arguments + n;
    struct range *ranges = calloc((size_t)n + 1, sizeof *ranges);
    if (!ranges) {
        list->fault = no_memory;
        return;
    }
    /* The grid of processes is in C's order, whatever that of the array is. */
    for (int d = n - 1; d >= 0; d--) {
        int64_t at = rank % processes[d], size = sizes[d], length = size, step = size + 1, start = 0, end = size;
        rank /= processes[d];
        if (ways[d] == MPI_DISTRIBUTE_BLOCK) {
            length = arguments[d] == MPI_DISTRIBUTE_DFLT_DARG ? (size + processes[d] - 1) / processes[d] : arguments[d];
            start = at * length;
            end = start + length < size ? start + length : size;
        } else if (ways[d] == MPI_DISTRIBUTE_CYCLIC) {
            length = arguments[d] == MPI_DISTRIBUTE_DFLT_DARG ? 1 : arguments[d];
            start = at * length;
            step = length * processes[d];
        }
        struct range range = {start, length, step, end};
        ranges[d] = range;
    }
    array(list, element, extent, n, sizes, ranges, ints[3 + 4 * n] == MPI_ORDER_FORTRAN);
    free(ranges);
}

static void structure(struct pieces *list, const struct contents *made)
{
    for (int n = 0; n < made->ints[0] && !list->fault; n++) {
        struct pieces member = {0};
        flatten(made->types[n], &member);
        repeat(list, &member, made->addresses[n], made->ints[1 + n], extent_of(made->types[n]));
        free(member.at);
    }
}

static void derived(struct pieces *list, const struct contents *made)
{
    const int *ints = made->ints;
    const MPI_Aint *addresses = made->addresses;
    struct pieces inner = {0};
    int64_t extent;
    if (made->combiner == MPI_COMBINER_STRUCT) {
        structure(list, made);
        return;
    }
    flatten(made->types[0], &inner);
    extent = extent_of(made->types[0]);
    switch (made->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
        repeat(list, &inner, 0, 1, extent);
        break;
    case MPI_COMBINER_CONTIGUOUS:
        repeat(list, &inner, 0, ints[0], extent);
        break;
    case MPI_COMBINER_VECTOR:
        vector(list, &inner, extent, ints[0], ints[1], ints[2] * extent);
        break;
    case MPI_COMBINER_HVECTOR:
        vector(list, &inner, extent, ints[0], ints[1], addresses[0]);
        break;
    case MPI_COMBINER_INDEXED:
        blocks(list, &inner, extent, ints[0], ints + 1, 0, ints + 1 + ints[0], NULL);
        break;
    case MPI_COMBINER_HINDEXED:
        blocks(list, &inner, extent, ints[0], ints + 1, 0, NULL, addresses);
        break;
    case MPI_COMBINER_INDEXED_BLOCK:
        blocks(list, &inner, extent, ints[0], ints + 1, 1, ints + 2, NULL);
        break;
    case MPI_COMBINER_HINDEXED_BLOCK:
        blocks(list, &inner, extent, ints[0], ints + 1, 1, NULL, addresses);
        break;
    case MPI_COMBINER_SUBARRAY:
        subarray(list, &inner, extent, ints);
        break;
    case MPI_COMBINER_DARRAY:
        distributed(list, &inner, extent, ints);
        break;
    default:
        list->fault = "a datatype was made in a way that is not known here";
    }
    free(inner.at);
}

/* Adds the pieces of one element of a datatype, in the order of its data. */
static void flatten(MPI_Datatype type, struct pieces *list)
{
    struct contents made = {0};
    int ints, addresses, combiner;
    MPI_Type_get_envelope(type, &ints, &addresses, &made.types_count, &combiner);
    if (made.types_count == 0 && combiner != MPI_COMBINER_STRUCT) {
        predefined(type, list);
        return;
    }
    made.combiner = combiner;
    made.ints = malloc(((size_t)ints + 1) * sizeof *made.ints);
    made.addresses = malloc(((size_t)addresses + 1) * sizeof *made.addresses);
    made.types = malloc(((size_t)made.types_count + 1) * sizeof *made.types);
    if (made.ints && made.addresses && made.types) {
        MPI_Type_get_contents(type, ints, addresses, made.types_count, made.ints, made.addresses, made.types);
        derived(list, &made);
        for (int n = 0; n < made.types_count; n++) {
            int a, b, c, way;
            MPI_Type_get_envelope(made.types[n], &a, &b, &c, &way);
            /* Only datatypes that are not predefined are copies. */
            if (c > 0 || way == MPI_COMBINER_STRUCT)
                MPI_Type_free(&made.types[n]);
        }
    } else {
        list->fault = no_memory;
    }
    free(made.ints);
    free(made.addresses);
    free(made.types);
}

const char *baro_mpi_flatten_(MPI_Datatype type, baro_mpi_layout_t *layout)
{
    struct pieces list = {0};
    const char *fault;
    memset(layout, 0, sizeof *layout);
    if (type == MPI_DATATYPE_NULL)
        return "the datatype is MPI_DATATYPE_NULL";
    flatten(type, &list);
    layout->pieces = list.at;
    layout->count = list.count;
    layout->extent = extent_of(type);
    fault = list.fault ? list.fault : baro_mpi_index_(layout);
    if (fault) {
        baro_mpi_layout_free_(layout);
        return fault;
    }
    if (layout->count == 1 && layout->size == layout->extent) {
        /* Its repetitions are one piece. */
        layout->pieces[0].length = layout->size = layout->extent = BARO_MPI_OFFSET_END_;
    }
    return NULL;
}

const char *baro_mpi_index_(baro_mpi_layout_t *layout)
{
    if (!layout->starts)
        layout->starts = malloc((layout->count + 1) * sizeof *layout->starts);
    if (!layout->starts)
        return no_memory;
    layout->size = 0;
    for (size_t n = 0; n < layout->count; n++) {
        layout->starts[n] = layout->size;
        if (layout->pieces[n].length < 0 || layout->pieces[n].length > BARO_MPI_OFFSET_END_ - layout->size)
            return too_long;
        layout->size += layout->pieces[n].length;
    }
    return NULL;
}

const char *baro_mpi_view_(MPI_Offset displacement, MPI_Datatype filetype, baro_mpi_layout_t *layout)
{
    const char *fault = baro_mpi_flatten_(filetype, layout);
    int64_t end = 0;
    if (fault)
        return fault;
    if (displacement < 0)
        fault = "the displacement of the view is negative";
    else if (displacement >= BARO_MPI_OFFSET_END_)
        fault = "the displacement of the view is behind the end of any file";
    for (size_t n = 0; n < layout->count && !fault; n++) {
        const baro_mpi_piece_t *piece = &layout->pieces[n];
        if (piece->offset < 0)
            fault = "the filetype has a piece with a negative offset";
        else if (piece->offset < end)
            fault = "the pieces of the filetype overlap, or are not in ascending order";
        else if (piece->offset >= BARO_MPI_OFFSET_END_)
            fault = too_long;
        end = piece->offset + piece->length;
    }
    if (!fault && layout->count && end - layout->pieces[0].offset > layout->extent)
        fault = "the pieces of the filetype overlap with those of its next repetition";
    layout->base = displacement;
    if (fault)
        baro_mpi_layout_free_(layout);
    return fault;
}

void baro_mpi_layout_free_(baro_mpi_layout_t *layout)
{
    free(layout->pieces);
    free(layout->starts);
    memset(layout, 0, sizeof *layout);
}

baro_mpi_cursor_t baro_mpi_seek_(const baro_mpi_layout_t *layout, int64_t at)
{
    baro_mpi_cursor_t cursor = {layout, at / layout->size, 0, 0};
    size_t low = 0, high = layout->count;
    at %= layout->size;
    /* The last piece that begins at or before the byte. */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (layout->starts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    cursor.index = low;
    cursor.inside = at - layout->starts[low];
    return cursor;
}

int64_t baro_mpi_next_(baro_mpi_cursor_t *cursor, int64_t most, int64_t *offset)
{
    const baro_mpi_layout_t *layout = cursor->layout;
    const baro_mpi_piece_t *piece = &layout->pieces[cursor->index];
    int64_t length = piece->length - cursor->inside;
    *offset = layout->base + cursor->repetition * layout->extent + piece->offset + cursor->inside;
    if (length > most) {
        cursor->inside += most;
        return most;
    }
    cursor->inside = 0;
    if (++cursor->index == layout->count) {
        cursor->index = 0;
        cursor->repetition++;
    }
    return length;
}

int64_t baro_mpi_data_before_(const baro_mpi_layout_t *view, int64_t offset)
{
    size_t low = 0, high = view->count;
    int64_t repetition, inside;
    if (view->count == 0 || (offset -= view->base + view->pieces[0].offset) <= 0)
        return 0;
    repetition = offset / view->extent;
    offset = offset % view->extent + view->pieces[0].offset;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (view->pieces[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    inside = offset - view->pieces[low].offset;
    if (inside > view->pieces[low].length)
        inside = view->pieces[low].length;
    return repetition * view->size + view->starts[low] + inside;
}

int64_t baro_mpi_pieces_between_(const baro_mpi_layout_t *layout, int64_t start, int64_t end)
{
    baro_mpi_cursor_t first, last;
    if (start >= end)
        return 0;
    first = baro_mpi_seek_(layout, start);
    last = baro_mpi_seek_(layout, end - 1);
    return (last.repetition - first.repetition) * (int64_t)layout->count + 1 + (int64_t)last.index -
           (int64_t)first.index;
}
