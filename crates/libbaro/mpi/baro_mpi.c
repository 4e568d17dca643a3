/* Collective files: opened, told of views, and closed; and the loop of rounds of a call. */
#include "baro_mpi.h"
#include "file.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((uint64_t)4 << 20)
#define BUFFER_BYTES ((uint64_t)16 << 20)
#define BYTES_MAX ((uint64_t)1 << 30)
/* The block that tells readers of a file how it is cut. */
#define LAYOUT_NAME "layout"
#define LAYOUT_TEXT "barograph collective file\nversion 1\nblock_bytes %llu\n"
#define TRIES_BEFORE_YIELD 50
/* What a rank says that has no error. */
#define NO_FAULT INT64_MAX
#define RANKS_MAX ((int64_t)1 << 31)

static __thread char error_text[BARO_MPI_TEXT_ + 32];

const char *baro_mpi_error(void)
{
    return error_text;
}

void baro_mpi_fail_(struct baro_mpi_fault_ *fault, int code, const char *format, ...)
{
    va_list arguments;
    if (fault->code)
        return;
    fault->code = code;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
}

int baro_mpi_agree_(baro_mpi_file_t *file, const struct baro_mpi_fault_ *fault, int64_t *least)
{
    int64_t mine[2] = {fault->code ? fault->code * RANKS_MAX + file->rank : NO_FAULT, least ? *least : 0}, all[2];
    char text[BARO_MPI_TEXT_];
    int64_t rank;
    MPI_Request request;
    MPI_Iallreduce(mine, all, 2, MPI_INT64_T, MPI_MIN, file->comm, &request);
    baro_mpi_wait_(1, &request);
    if (least)
        *least = all[1];
    if (all[0] == NO_FAULT)
        return BARO_OK;
    rank = all[0] & (RANKS_MAX - 1);
    memcpy(text, fault->text, sizeof text);
    MPI_Bcast(text, sizeof text, MPI_CHAR, (int)rank, file->comm);
    snprintf(error_text, sizeof error_text, "rank %lld: %s", (long long)rank, text);
    return (int)((all[0] - rank) / RANKS_MAX);
}

/* Waits as MPI_Waitall does, but leaves the processor to others: MPI libraries wait in a loop, and the server of
 * staging for which all ranks of a node wait may need the processor of one of them. */
void baro_mpi_wait_(int count, MPI_Request *requests)
{
    for (int n = 0; n < count; n++) {
        int is_done = 0;
        for (int tries = 0; !is_done; tries++) {
            MPI_Test(&requests[n], &is_done, MPI_STATUS_IGNORE);
            if (!is_done && tries > TRIES_BEFORE_YIELD)
                sched_yield();
        }
    }
}

/* Reads the settings of rank 0. */
static void settle(baro_mpi_file_t *file, struct baro_mpi_fault_ *fault, const baro_mpi_config_t *given,
                   const char *dataset)
{
    baro_mpi_config_t *config = &file->config;
    if (given && (given->size < sizeof given->size || given->size > sizeof *given))
        baro_mpi_fail_(fault, BARO_E_ARGUMENT, "the settings do not begin with BARO_MPI_CONFIG_INIT");
    else if (given)
        memcpy(config, given, given->size);
    if (!dataset || strlen(dataset) >= sizeof file->dataset)
        baro_mpi_fail_(fault, BARO_E_ARGUMENT, "the name of the dataset is null, or longer than 255 bytes");
    else
        strcpy(file->dataset, dataset);
    if (config->block_bytes % 8 || config->block_bytes > BYTES_MAX)
        baro_mpi_fail_(fault, BARO_E_ARGUMENT, "a block has a multiple of 8 bytes, 1 GiB at most");
    if (config->buffer_bytes == 0)
        config->buffer_bytes = BUFFER_BYTES;
    if (config->buffer_bytes > BYTES_MAX)
        baro_mpi_fail_(fault, BARO_E_ARGUMENT, "the buffer of an aggregator has 1 GiB at most");
    if (config->aggregators < 0)
        baro_mpi_fail_(fault, BARO_E_ARGUMENT, "the number of aggregators is negative");
    if (config->exchange != BARO_MPI_VIEWS && config->exchange != BARO_MPI_LISTS)
        baro_mpi_fail_(fault, BARO_E_ARGUMENT, "no exchange has the number %d", config->exchange);
}

/* Finds how a file is cut, or says how a new one is. */
static void find_layout(baro_mpi_file_t *file, struct baro_mpi_fault_ *fault)
{
    baro_stage_key_t key = BARO_STAGE_NAME(file->dataset, LAYOUT_NAME);
    baro_stage_put_options_t options = BARO_STAGE_PUT_INIT;
    unsigned long long bytes = 0, wanted = file->config.block_bytes;
    char text[256];
    baro_stage_info_t info = {0};
    int code = baro_stage_get(file->stage, &key, text, sizeof text - 1, &info);
    if (code == BARO_OK) {
        text[info.bytes] = 0;
        if (sscanf(text, LAYOUT_TEXT, &bytes) != 1 || bytes == 0 || bytes % 8 || bytes > BYTES_MAX)
            baro_mpi_fail_(fault, BARO_E_DATA, "the block %s of %s is not that of a collective file", LAYOUT_NAME,
                           file->dataset);
        else if (wanted && wanted != bytes)
            baro_mpi_fail_(fault, BARO_E_ARGUMENT, "the blocks of %s have %llu bytes, not %llu", file->dataset, bytes,
                           wanted);
    } else if (code != BARO_NOTHING) {
        baro_mpi_fail_(fault, code, "the layout of %s: %s", file->dataset, baro_error());
    } else if (!file->is_for_writes) {
        baro_mpi_fail_(fault, BARO_NOTHING, "there is no collective file %s", file->dataset);
    } else {
        bytes = wanted ? wanted : BLOCK_BYTES;
        snprintf(text, sizeof text, LAYOUT_TEXT, bytes);
        options.acks = file->config.acks;
        options.durable = file->config.durable;
        options.wait_ns = file->config.wait_ns;
        code = baro_stage_put(file->stage, &key, text, strlen(text), &options, NULL);
        if (code != BARO_OK)
            baro_mpi_fail_(fault, code, "the layout of %s: %s", file->dataset, baro_error());
    }
    file->block = (int64_t)bytes;
}

/* Chooses the aggregators: the first rank of each node, then the second ones, and so on. */
static void choose_aggregators(baro_mpi_file_t *file, int *locals)
{
    MPI_Comm node;
    int local, nodes = 0, left;
    MPI_Comm_split_type(file->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_free(&node);
    MPI_Allgather(&local, 1, MPI_INT, locals, 1, MPI_INT, file->comm);
    for (int r = 0; r < file->ranks; r++)
        nodes += locals[r] == 0;
    left = file->config.aggregators ? file->config.aggregators : nodes;
    file->own = -1;
    for (int turn = 0; turn < file->ranks && left > 0; turn++)
        for (int r = 0; r < file->ranks && left > 0; r++)
            if (locals[r] == turn) {
                if (r == file->rank)
                    file->own = file->aggregators;
                file->aggregator_ranks[file->aggregators++] = r;
                left--;
            }
}

static int make_aggregator(baro_mpi_file_t *file)
{
    struct baro_mpi_aggregator_ *at = &file->at;
    size_t bytes = (size_t)(file->blocks * file->block);
    at->blocks = malloc(bytes);
    at->covered = malloc(bytes / 8);
    at->old = malloc((size_t)file->block);
    at->is_there = malloc((size_t)file->blocks);
    at->slots[0] = malloc(bytes);
    at->slots[1] = malloc(bytes);
    at->views = calloc((size_t)file->ranks, sizeof *at->views);
    if (!at->blocks || !at->covered || !at->old || !at->is_there || !at->slots[0] || !at->slots[1] || !at->views)
        return 0;
    for (int r = 0; r < file->ranks; r++)
        if (baro_mpi_view_(0, MPI_BYTE, &at->views[r]))
            return 0;
    return 1;
}

static void destroy(baro_mpi_file_t *file)
{
    if (file->at.views)
        for (int r = 0; r < file->ranks; r++)
            baro_mpi_layout_free_(&file->at.views[r]);
    free(file->at.views);
    free(file->at.blocks);
    free(file->at.covered);
    free(file->at.old);
    free(file->at.is_there);
    free(file->at.slots[0]);
    free(file->at.slots[1]);
    free(file->aggregator_ranks);
    free(file->ends);
    free(file->told);
    free(file->asked);
    free(file->said);
    free(file->requests);
    baro_mpi_layout_free_(&file->view);
    MPI_Type_free(&file->pair);
    MPI_Comm_free(&file->comm);
    free(file);
}

/* Prepares what a rank needs, after rank 0 has told the settings. */
static void prepare(baro_mpi_file_t *file, struct baro_mpi_fault_ *fault)
{
    size_t ranks = (size_t)file->ranks;
    int *locals = calloc(ranks, sizeof *locals);
    file->aggregator_ranks = calloc(ranks, sizeof *file->aggregator_ranks);
    file->ends = calloc(2 * ranks, sizeof *file->ends);
    file->told = calloc(2 * ranks, sizeof *file->told);
    file->asked = calloc(2 * ranks, sizeof *file->asked);
    file->said = calloc(3 * ranks, sizeof *file->said);
    file->requests = calloc(2 * ranks, sizeof *file->requests);
    if (!locals || !file->aggregator_ranks || !file->ends || !file->told || !file->asked || !file->said ||
        !file->requests) {
        /* Some bytes for each rank: nothing could go on without them. */
        fprintf(stderr, "baro_mpi_open: no memory\n");
        MPI_Abort(file->comm, 1);
    }
    choose_aggregators(file, locals);
    free(locals);
    file->blocks = (int64_t)file->config.buffer_bytes / file->block;
    if (file->blocks == 0)
        file->blocks = 1;
    if (baro_mpi_view_(0, MPI_BYTE, &file->view) || (file->own >= 0 && !make_aggregator(file)))
        baro_mpi_fail_(fault, BARO_E_BUSY, "there is no memory for an aggregator of %lld blocks",
                       (long long)file->blocks);
}

int baro_mpi_open(MPI_Comm comm, baro_stage_t *stage, const char *dataset, int mode, const baro_mpi_config_t *config,
                  baro_mpi_file_t **opened)
{
    struct baro_mpi_fault_ fault = {0};
    baro_mpi_file_t *file = calloc(1, sizeof *file);
    int code;
    if (opened)
        *opened = NULL;
    if (!opened || !file || comm == MPI_COMM_NULL) {
        snprintf(error_text, sizeof error_text, "no communicator, no place for the file, or no memory");
        free(file);
        return BARO_E_ARGUMENT;
    }
    MPI_Comm_dup(comm, &file->comm);
    MPI_Comm_rank(file->comm, &file->rank);
    MPI_Comm_size(file->comm, &file->ranks);
    MPI_Type_contiguous(2, MPI_INT64_T, &file->pair);
    MPI_Type_commit(&file->pair);
    file->stage = stage;
    file->etype_bytes = 1;
    file->config = (baro_mpi_config_t)BARO_MPI_CONFIG_INIT;
    file->is_for_writes = mode == BARO_MPI_WRITE;
    if (!stage)
        baro_mpi_fail_(&fault, BARO_E_ARGUMENT, "the client of staging is null");
    if (mode != BARO_MPI_WRITE && mode != BARO_MPI_READ)
        baro_mpi_fail_(&fault, BARO_E_ARGUMENT, "no mode has the number %d", mode);
    if (file->rank == 0) {
        settle(file, &fault, config, dataset);
        if (!fault.code)
            find_layout(file, &fault);
    }
    code = baro_mpi_agree_(file, &fault, NULL);
    if (code == BARO_OK) {
        MPI_Bcast(&file->config, sizeof file->config, MPI_BYTE, 0, file->comm);
        MPI_Bcast(file->dataset, sizeof file->dataset, MPI_CHAR, 0, file->comm);
        MPI_Bcast(&file->is_for_writes, 1, MPI_INT, 0, file->comm);
        MPI_Bcast(&file->block, 1, MPI_INT64_T, 0, file->comm);
        prepare(file, &fault);
        code = baro_mpi_agree_(file, &fault, NULL);
    }
    if (code != BARO_OK)
        destroy(file);
    else
        *opened = file;
    return code;
}

/* Makes room for the views of all ranks, as long as these have said. */
static baro_mpi_layout_t *room_for_views(const baro_mpi_file_t *file, const int64_t *said)
{
    baro_mpi_layout_t *views = calloc((size_t)file->ranks, sizeof *views);
    for (int r = 0; views && r < file->ranks; r++) {
        const int64_t *of = said + 3 * r;
        views[r].count = (size_t)of[0];
        views[r].extent = of[1];
        views[r].base = of[2];
        views[r].pieces = malloc((views[r].count + 1) * sizeof *views[r].pieces);
        views[r].starts = malloc((views[r].count + 1) * sizeof *views[r].starts);
        if (!views[r].pieces || !views[r].starts) {
            for (; r >= 0; r--)
                baro_mpi_layout_free_(&views[r]);
            free(views);
            return NULL;
        }
    }
    return views;
}

/* Tells the view of each rank to the aggregators, which keep them in `views`. */
static void tell_views(baro_mpi_file_t *file, const baro_mpi_layout_t *view, baro_mpi_layout_t *views)
{
    MPI_Request *requests = file->requests;
    int count = 0;
    for (int r = 0; views && r < file->ranks; r++) {
        MPI_Irecv(views[r].pieces, (int)views[r].count, file->pair, r, 0, file->comm, &requests[count++]);
        if (r != file->rank)
            file->counts.metadata_bytes += views[r].count * sizeof *views[r].pieces;
    }
    for (int a = 0; a < file->aggregators; a++)
        MPI_Isend(view->pieces, (int)view->count, file->pair, file->aggregator_ranks[a], 0, file->comm,
                  &requests[count++]);
    baro_mpi_wait_(count, requests);
    for (int r = 0; views && r < file->ranks; r++)
        baro_mpi_index_(&views[r]);
    file->counts.metadata_bytes += (uint64_t)(file->ranks - 1) * 3 * sizeof(int64_t);
}

static void free_views(const baro_mpi_file_t *file, baro_mpi_layout_t *views)
{
    for (int r = 0; views && r < file->ranks; r++)
        baro_mpi_layout_free_(&views[r]);
    free(views);
}

/* Reads the view that a program gives. */
static void read_view(struct baro_mpi_fault_ *fault, MPI_Offset displacement, MPI_Datatype etype,
                      MPI_Datatype filetype, baro_mpi_layout_t *view, int64_t *etype_bytes)
{
    MPI_Count unit = 0, bytes = 0;
    const char *wrong = "the etype is MPI_DATATYPE_NULL";
    if (etype != MPI_DATATYPE_NULL)
        wrong = baro_mpi_view_(displacement, filetype, view);
    if (!wrong) {
        MPI_Type_size_x(etype, &unit);
        MPI_Type_size_x(filetype, &bytes);
        if (unit <= 0 || bytes % unit)
            wrong = "the filetype is not made of whole etypes";
    }
    if (wrong)
        baro_mpi_fail_(fault, BARO_E_ARGUMENT, "%s", wrong);
    *etype_bytes = unit;
}

/* Makes `view` the view of the file, and what was there before `view`. */
static void change_views(baro_mpi_file_t *file, baro_mpi_layout_t *view, baro_mpi_layout_t **views)
{
    baro_mpi_layout_t before = file->view, *all_before = file->at.views;
    file->view = *view;
    *view = before;
    if (*views) {
        file->at.views = *views;
        *views = all_before;
    }
}

int baro_mpi_set_view(baro_mpi_file_t *file, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype)
{
    struct baro_mpi_fault_ fault = {0};
    baro_mpi_layout_t view = {0}, *views = NULL;
    int64_t etype_bytes;
    int code;
    if (!file) {
        snprintf(error_text, sizeof error_text, "the file is null");
        return BARO_E_ARGUMENT;
    }
    read_view(&fault, displacement, etype, filetype, &view, &etype_bytes);
    code = baro_mpi_agree_(file, &fault, NULL);
    if (code == BARO_OK && file->config.exchange == BARO_MPI_VIEWS) {
        int64_t mine[3] = {(int64_t)view.count, view.extent, view.base};
        MPI_Allgather(mine, 3, MPI_INT64_T, file->said, 3, MPI_INT64_T, file->comm);
        if (file->own >= 0 && !(views = room_for_views(file, file->said)))
            baro_mpi_fail_(&fault, BARO_E_BUSY, "there is no memory for the views of all ranks");
        code = baro_mpi_agree_(file, &fault, NULL);
        if (code == BARO_OK)
            tell_views(file, &view, views);
    }
    if (code == BARO_OK) {
        change_views(file, &view, &views);
        file->etype_bytes = etype_bytes;
    }
    free_views(file, views);
    baro_mpi_layout_free_(&view);
    return code;
}

/* Whether a byte of a view would be behind the end of any file. */
static int is_too_far(const baro_mpi_layout_t *view, int64_t at)
{
    int64_t start, offset;
    baro_mpi_cursor_t cursor;
    if (__builtin_mul_overflow(at / view->size, view->extent, &start) || start >= BARO_MPI_OFFSET_END_ - view->base)
        return 1;
    cursor = baro_mpi_seek_(view, at);
    /* Base and start are below the end together, and so is the offset of the piece. */
    baro_mpi_next_(&cursor, 1, &offset);
    return offset < 0 || offset >= BARO_MPI_OFFSET_END_;
}

/* Finds which data of the view and of memory a call is about. */
static void find_data(struct baro_mpi_call_ *call, MPI_Offset offset, int count, MPI_Datatype type)
{
    baro_mpi_file_t *file = call->file;
    struct baro_mpi_fault_ *fault = &call->fault;
    MPI_Count size = 0;
    int64_t bytes = 0, start = 0, end = 0;
    const char *wrong = NULL;
    if (type == MPI_DATATYPE_NULL)
        wrong = "the datatype is MPI_DATATYPE_NULL";
    else
        MPI_Type_size_x(type, &size);
    if (call->is_write && !file->is_for_writes)
        wrong = "the file was opened for reads";
    else if (offset < 0 || count < 0)
        wrong = "the offset or the count is negative";
    else if (!wrong && (__builtin_mul_overflow(size, (int64_t)count, &bytes) ||
                        __builtin_mul_overflow((int64_t)offset, file->etype_bytes, &start) ||
                        __builtin_add_overflow(start, bytes, &end)))
        wrong = "the data are longer than any file";
    else if (bytes % file->etype_bytes)
        wrong = "the data are not whole etypes of the view";
    else if (bytes && file->view.count == 0)
        wrong = "the view has no bytes";
    else if (bytes && !call->buffer)
        wrong = "the memory is null";
    else if (bytes && is_too_far(&file->view, end - 1))
        wrong = "the data are behind the end of any file";
    if (!wrong && bytes)
        wrong = baro_mpi_flatten_(type, &call->memory);
    if (wrong) {
        baro_mpi_fail_(fault, BARO_E_ARGUMENT, "%s", wrong);
        return;
    }
    call->start = start;
    call->end = bytes ? end : start;
}

/* Makes room for the largest round of a call. */
static void make_room(struct baro_mpi_call_ *call)
{
    const baro_mpi_file_t *file = call->file;
    int64_t window = file->blocks * file->block * file->aggregators;
    int64_t bytes = call->end - call->start, pieces = 0, most = 0;
    if (bytes) {
        /* Each piece may be cut where it begins a block, and at each block within it. */
        pieces = 2 * baro_mpi_pieces_between_(&file->view, call->start, call->end) + bytes / file->block;
        pieces = pieces < window ? pieces : window;
    }
    call->packed = malloc((size_t)(bytes < window ? bytes : window) + 1);
    if (file->config.exchange == BARO_MPI_LISTS) {
        MPI_Allreduce(&pieces, &most, 1, MPI_INT64_T, MPI_MAX, file->comm);
        call->lists = malloc((size_t)(pieces + 1) * sizeof *call->lists);
        if (file->own >= 0)
            call->heard = malloc((size_t)(most + 1) * sizeof *call->heard);
    }
    if (!call->packed || (most && (!call->lists || (file->own >= 0 && !call->heard))))
        baro_mpi_fail_(&call->fault, BARO_E_BUSY, "there is no memory for the data of a call");
}

/* The first block at or behind `block` in which this rank has data; INT64_MAX if there is none. */
static int64_t next_block(const struct baro_mpi_call_ *call, int64_t block)
{
    const baro_mpi_file_t *file = call->file;
    int64_t at, offset;
    baro_mpi_cursor_t cursor;
    if (call->start == call->end)
        return INT64_MAX;
    at = call->end;
    if (block <= BARO_MPI_OFFSET_END_ / file->block)
        at = baro_mpi_data_before_(&file->view, block * file->block);
    if (at < call->start)
        at = call->start;
    if (at >= call->end)
        return INT64_MAX;
    cursor = baro_mpi_seek_(&file->view, at);
    baro_mpi_next_(&cursor, 1, &offset);
    return offset / file->block;
}

static int transfer(struct baro_mpi_call_ *call, MPI_Offset offset, int count, MPI_Datatype type)
{
    baro_mpi_file_t *file = call->file;
    int64_t block = 0;
    int code = BARO_OK;
    if (!file) {
        snprintf(error_text, sizeof error_text, "the file is null");
        return BARO_E_ARGUMENT;
    }
    find_data(call, offset, count, type);
    make_room(call);
    if (file->config.exchange == BARO_MPI_VIEWS) {
        int64_t mine[2] = {call->start, call->end};
        MPI_Request request;
        MPI_Iallgather(mine, 2, MPI_INT64_T, file->ends, 2, MPI_INT64_T, file->comm, &request);
        baro_mpi_wait_(1, &request);
        file->counts.metadata_bytes += (uint64_t)(file->ranks - 1) * sizeof mine;
    }
    while (code == BARO_OK) {
        int64_t next = next_block(call, block);
        code = baro_mpi_agree_(file, &call->fault, &next);
        if (code != BARO_OK || next == INT64_MAX)
            break;
        if (call->is_write)
            baro_mpi_write_round_(call, next);
        else
            baro_mpi_read_round_(call, next);
        block = next + file->blocks * file->aggregators;
    }
    baro_mpi_layout_free_(&call->memory);
    free(call->packed);
    free(call->lists);
    free(call->heard);
    return code;
}

int baro_mpi_write_all(baro_mpi_file_t *file, MPI_Offset offset, const void *memory, int count, MPI_Datatype datatype)
{
    struct baro_mpi_call_ call = {.file = file, .is_write = 1, .buffer = (unsigned char *)memory};
    return transfer(&call, offset, count, datatype);
}

int baro_mpi_read_all(baro_mpi_file_t *file, MPI_Offset offset, void *memory, int count, MPI_Datatype datatype)
{
    struct baro_mpi_call_ call = {.file = file, .buffer = memory};
    return transfer(&call, offset, count, datatype);
}

int baro_mpi_close(baro_mpi_file_t **file)
{
    if (!file || !*file) {
        snprintf(error_text, sizeof error_text, "the file is null");
        return BARO_E_ARGUMENT;
    }
    MPI_Barrier((*file)->comm);
    destroy(*file);
    *file = NULL;
    return BARO_OK;
}

void baro_mpi_counts(const baro_mpi_file_t *file, baro_mpi_counts_t *counts)
{
    memset(counts, 0, sizeof *counts);
    if (!file)
        return;
    *counts = file->counts;
    counts->block_bytes = (uint64_t)file->block;
    counts->aggregators = (uint64_t)file->aggregators;
}
