/* Rounds of a collective call: pieces go between the ranks that have the data and the aggregators that
 * have the blocks. A round has some blocks of each aggregator, which takes the ranks in order, so that it
 * needs memory for two of them, whatever their number.
 *
 * Nobody waits for ever: a rank sends all that it has before it works as an aggregator, or has asked for
 * all that it wants, and an aggregator answers also after an error. */
#include "file.h"

#include <limits.h>
#include <string.h>

#define TAG_DATA 1
#define TAG_LIST 2

/* The pieces of a rank in the blocks of one aggregator, in ascending order: of a view, or of a list. */
struct walk {
    const baro_mpi_file_t *file;
    const baro_mpi_layout_t *view; /* null: of the list */
    int64_t start, end;            /* data bytes of the view */
    int64_t block, last;           /* the next block, and the end of the round */
    baro_mpi_cursor_t cursor;
    int64_t at, until; /* data bytes of the view in the block before `block` */
    const baro_mpi_piece_t *list;
    int64_t left; /* in the list */
};

/* The first block of an aggregator at or behind `first`. */
static int64_t first_of(const baro_mpi_file_t *file, int aggregator, int64_t first)
{
    int64_t behind = (aggregator - first) % file->aggregators;
    return first + (behind < 0 ? behind + file->aggregators : behind);
}

static struct walk walk_view(const baro_mpi_file_t *file, const baro_mpi_layout_t *view, int64_t start, int64_t end,
                             int aggregator, int64_t first)
{
    struct walk walk = {.file = file, .view = view, .start = start, .end = end};
    walk.block = first_of(file, aggregator, first);
    walk.last = first + file->blocks * file->aggregators;
    return walk;
}

static struct walk walk_list(const baro_mpi_file_t *file, const baro_mpi_piece_t *list, int64_t count)
{
    struct walk walk = {.file = file, .list = list, .left = count};
    return walk;
}

/* Goes to the data of the next block that has some: 0 if there is none. */
static int next_block(struct walk *walk)
{
    const baro_mpi_file_t *file = walk->file;
    while (walk->start < walk->end && walk->block < walk->last) {
        int64_t at = baro_mpi_data_before_(walk->view, walk->block * file->block);
        int64_t until = baro_mpi_data_before_(walk->view, (walk->block + 1) * file->block);
        walk->block += file->aggregators;
        walk->at = at > walk->start ? at : walk->start;
        walk->until = until < walk->end ? until : walk->end;
        if (walk->at < walk->until)
            return 1;
        if (at >= walk->end)
            return 0;
    }
    return 0;
}

/* Goes on by one piece: returns its length, 0 behind the last one; `data` is its place in the view. */
static int64_t next_piece(struct walk *walk, int64_t *offset, int64_t *data)
{
    int64_t length;
    if (!walk->view) {
        if (walk->left == 0)
            return 0;
        walk->left--;
        *offset = walk->list->offset;
        return walk->list++->length;
    }
    if (walk->at == walk->until) {
        if (!next_block(walk))
            return 0;
        walk->cursor = baro_mpi_seek_(walk->view, walk->at);
    }
    *data = walk->at;
    length = baro_mpi_next_(&walk->cursor, walk->until - walk->at, offset);
    walk->at += length;
    return length;
}

/* Sets how many pieces and data bytes a walk of a view has. */
static void measure(struct walk walk, int64_t *pieces, int64_t *bytes)
{
    *pieces = *bytes = 0;
    while (next_block(&walk)) {
        *pieces += baro_mpi_pieces_between_(walk.view, walk.at, walk.until);
        *bytes += walk.until - walk.at;
    }
}

/* The bytes of memory that a call writes or reads, in order: copied from place to place. */
struct stream {
    const struct baro_mpi_call_ *call;
    baro_mpi_cursor_t cursor;
    int64_t at; /* of the data in memory, or -1 */
};

static void copy(struct stream *stream, int64_t at, int64_t length, unsigned char *packed)
{
    const struct baro_mpi_call_ *call = stream->call;
    if (stream->at != at)
        stream->cursor = baro_mpi_seek_(&call->memory, at);
    stream->at = at + length;
    while (length > 0) {
        int64_t offset, part = baro_mpi_next_(&stream->cursor, length, &offset);
        if (call->is_write)
            memcpy(packed, call->buffer + offset, (size_t)part);
        else
            memcpy(call->buffer + offset, packed, (size_t)part);
        packed += part;
        length -= part;
    }
}

/* Copies the data of this rank for an aggregator between memory and `packed`. */
static void copy_for(const struct baro_mpi_call_ *call, int aggregator, int64_t first, unsigned char *packed)
{
    struct walk walk = walk_view(call->file, &call->file->view, call->start, call->end, aggregator, first);
    struct stream stream = {.call = call, .at = -1};
    while (next_block(&walk)) {
        copy(&stream, walk.at - call->start, walk.until - walk.at, packed);
        packed += walk.until - walk.at;
    }
}

static int64_t list_for(const struct baro_mpi_call_ *call, int aggregator, int64_t first, baro_mpi_piece_t *list)
{
    struct walk walk = walk_view(call->file, &call->file->view, call->start, call->end, aggregator, first);
    int64_t count = 0, data;
    while ((list[count].length = next_piece(&walk, &list[count].offset, &data)) > 0)
        count++;
    return count;
}

/* Finds what this rank has for each aggregator, and as an aggregator, what each rank has for it. */
static void count_pieces(struct baro_mpi_call_ *call, int64_t first)
{
    baro_mpi_file_t *file = call->file;
    memset(file->asked, 0, (size_t)file->ranks * 2 * sizeof *file->asked);
    for (int a = 0; a < file->aggregators; a++) {
        int64_t *asked = file->asked + 2 * file->aggregator_ranks[a];
        measure(walk_view(file, &file->view, call->start, call->end, a, first), &asked[0], &asked[1]);
    }
    if (file->config.exchange == BARO_MPI_LISTS) {
        MPI_Request request;
        MPI_Ialltoall(file->asked, 1, file->pair, file->told, 1, file->pair, file->comm, &request);
        baro_mpi_wait_(1, &request);
        file->counts.metadata_bytes += (uint64_t)(file->ranks - 1) * 2 * sizeof *file->told;
    } else if (file->own >= 0) {
        for (int r = 0; r < file->ranks; r++) {
            int64_t *told = file->told + 2 * r, *ends = file->ends + 2 * r;
            measure(walk_view(file, &file->at.views[r], ends[0], ends[1], file->own, first), &told[0], &told[1]);
        }
    }
    file->counts.rounds++;
}

/* Sends the lists of pieces of this rank; returns how many requests that made. */
static int send_lists(struct baro_mpi_call_ *call, int64_t first)
{
    baro_mpi_file_t *file = call->file;
    baro_mpi_piece_t *list = call->lists;
    int requests = 0;
    if (file->config.exchange != BARO_MPI_LISTS)
        return 0;
    for (int a = 0; a < file->aggregators; a++) {
        int64_t count = list_for(call, a, first, list);
        if (a != file->own && count)
            MPI_Isend(list, (int)count, file->pair, file->aggregator_ranks[a], TAG_LIST, file->comm,
                      &file->requests[requests++]);
        list += count;
    }
    return requests;
}

/* The pieces of a rank in this round, whose list is received first if there is one. */
static struct walk pieces_of(struct baro_mpi_call_ *call, int rank, int64_t first)
{
    baro_mpi_file_t *file = call->file;
    int64_t count = file->told[2 * rank];
    MPI_Request request;
    if (rank == file->rank)
        return walk_view(file, &file->view, call->start, call->end, file->own, first);
    if (file->config.exchange != BARO_MPI_LISTS)
        return walk_view(file, &file->at.views[rank], file->ends[2 * rank], file->ends[2 * rank + 1], file->own, first);
    MPI_Irecv(call->heard, (int)count, file->pair, rank, TAG_LIST, file->comm, &request);
    baro_mpi_wait_(1, &request);
    file->counts.metadata_bytes += (uint64_t)count * sizeof *call->heard;
    return walk_list(file, call->heard, count);
}

/* The place of a block in the memory of its aggregator. */
static int64_t place_of(const baro_mpi_file_t *file, int64_t offset, int64_t first)
{
    return (offset / file->block - first_of(file, file->own, first)) / file->aggregators;
}

/* Begins to receive the data of the next rank from `rank` on that has some. */
static int receive(struct baro_mpi_call_ *call, int rank, int slot, MPI_Request *request)
{
    baro_mpi_file_t *file = call->file;
    while (rank < file->ranks && file->told[2 * rank + 1] == 0)
        rank++;
    *request = MPI_REQUEST_NULL;
    if (rank < file->ranks && rank != file->rank) {
        int bytes = (int)file->told[2 * rank + 1];
        MPI_Irecv(file->at.slots[slot], bytes, MPI_BYTE, rank, TAG_DATA, file->comm, request);
        file->counts.data_bytes += (uint64_t)bytes;
    }
    return rank;
}

static void patch(struct baro_mpi_call_ *call, int rank, int64_t first, const unsigned char *data)
{
    baro_mpi_file_t *file = call->file;
    struct walk walk = pieces_of(call, rank, first);
    int64_t offset, length, unused;
    while ((length = next_piece(&walk, &offset, &unused)) > 0) {
        int64_t at = place_of(file, offset, first) * file->block + offset % file->block;
        memcpy(file->at.blocks + at, data, (size_t)length);
        baro_mpi_cover_(file->at.covered, at, at + length);
        data += length;
    }
}

/* Gathers the data of all ranks for this aggregator, rank after rank, and puts the blocks. */
static void gather(struct baro_mpi_call_ *call, int64_t first, const unsigned char *own)
{
    baro_mpi_file_t *file = call->file;
    int64_t number = first_of(file, file->own, first);
    int slot = 0;
    MPI_Request request, next;
    memset(file->at.covered, 0, (size_t)(file->blocks * file->block / 8));
    for (int rank = receive(call, 0, slot, &request); rank < file->ranks; slot = !slot, request = next) {
        int following = receive(call, rank + 1, !slot, &next);
        baro_mpi_wait_(1, &request);
        patch(call, rank, first, rank == file->rank ? own : file->at.slots[slot]);
        rank = following;
    }
    for (int64_t n = 0; n < file->blocks; n++, number += file->aggregators)
        baro_mpi_put_block_(file, &call->fault, number, file->at.blocks + n * file->block,
                            file->at.covered + n * file->block / 8);
}

void baro_mpi_write_round_(struct baro_mpi_call_ *call, int64_t first)
{
    baro_mpi_file_t *file = call->file;
    unsigned char *packed = call->packed, *own = NULL;
    int requests;
    count_pieces(call, first);
    requests = send_lists(call, first);
    for (int a = 0; a < file->aggregators; a++) {
        int to = file->aggregator_ranks[a];
        int64_t bytes = file->asked[2 * to + 1];
        copy_for(call, a, first, packed);
        if (a == file->own)
            own = packed;
        else if (bytes)
            MPI_Isend(packed, (int)bytes, MPI_BYTE, to, TAG_DATA, file->comm, &file->requests[requests++]);
        packed += bytes;
    }
    if (file->own >= 0)
        gather(call, first, own);
    baro_mpi_wait_(requests, file->requests);
}

/* Copies the pieces of a rank out of the blocks, which are got when they are needed first. */
static void pick(struct baro_mpi_call_ *call, int rank, int64_t first, unsigned char *data)
{
    baro_mpi_file_t *file = call->file;
    struct walk walk = pieces_of(call, rank, first);
    int64_t offset, length, unused;
    while ((length = next_piece(&walk, &offset, &unused)) > 0) {
        int64_t place = place_of(file, offset, first);
        unsigned char *block = file->at.blocks + place * file->block;
        if (!file->at.is_there[place]) {
            file->at.is_there[place] = 1;
            baro_mpi_get_block_(file, &call->fault, offset / file->block, block);
        }
        memcpy(data, block + offset % file->block, (size_t)length);
        data += length;
    }
}

/* Sends all ranks what they want of the blocks of this aggregator. */
static void scatter(struct baro_mpi_call_ *call, int64_t first, unsigned char *own)
{
    baro_mpi_file_t *file = call->file;
    MPI_Request sent[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int slot = 0;
    memset(file->at.is_there, 0, (size_t)file->blocks);
    for (int rank = 0; rank < file->ranks; rank++) {
        int64_t bytes = file->told[2 * rank + 1];
        if (bytes == 0)
            continue;
        if (rank == file->rank) {
            pick(call, rank, first, own);
            continue;
        }
        baro_mpi_wait_(1, &sent[slot]);
        pick(call, rank, first, file->at.slots[slot]);
        MPI_Isend(file->at.slots[slot], (int)bytes, MPI_BYTE, rank, TAG_DATA, file->comm, &sent[slot]);
        slot = !slot;
    }
    baro_mpi_wait_(2, sent);
}

void baro_mpi_read_round_(struct baro_mpi_call_ *call, int64_t first)
{
    baro_mpi_file_t *file = call->file;
    unsigned char *packed = call->packed, *own = NULL;
    int requests;
    count_pieces(call, first);
    requests = send_lists(call, first);
    for (int a = 0; a < file->aggregators; a++) {
        int from = file->aggregator_ranks[a];
        int64_t bytes = file->asked[2 * from + 1];
        if (a == file->own) {
            own = packed;
        } else if (bytes) {
            MPI_Irecv(packed, (int)bytes, MPI_BYTE, from, TAG_DATA, file->comm, &file->requests[requests++]);
            file->counts.data_bytes += (uint64_t)bytes;
        }
        packed += bytes;
    }
    if (file->own >= 0)
        scatter(call, first, own);
    baro_mpi_wait_(requests, file->requests);
    packed = call->packed;
    for (int a = 0; a < file->aggregators; a++) {
        copy_for(call, a, first, packed);
        packed += file->asked[2 * file->aggregator_ranks[a] + 1];
    }
}
