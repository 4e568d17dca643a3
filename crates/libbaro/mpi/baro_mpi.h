/* Collective writes and reads of MPI programs through staging (docs/guide/collectives.md).
 *
 * The binary interface of MPI differs between its implementations, so this is source: a program
 * compiles it with its own mpicc, and links libbaro.
 *
 *   mpicc program.c $(pkg-config --variable=mpi_sources baro) $(pkg-config --cflags --libs baro)
 *
 * A file of staging is a dataset of blocks of one size, each with the number of its place. Ranks set
 * views of it, as with MPI_File_set_view, and write and read together: the pieces of all ranks are
 * gathered at some ranks, the aggregators, each of which puts and gets whole blocks.
 *
 * All functions but baro_mpi_error and baro_mpi_counts are collective: all ranks of the communicator
 * call them, in the same order. They return BARO_OK on all ranks or the same error on all of them, and
 * then baro_mpi_error has the same text everywhere, with the rank that has failed. None of them hangs
 * because of an error of staging or an argument. A file is for one thread at a time. */
#ifndef BARO_MPI_H
#define BARO_MPI_H

#include <baro.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baro_mpi_file baro_mpi_file_t;

/* What aggregators are told of the pieces of a rank. */
#define BARO_MPI_VIEWS 0 /* its view, once; each call then has a beginning and an end alone */
#define BARO_MPI_LISTS 1 /* the offset and length of each piece, in each call */

/* How a file is opened. */
#define BARO_MPI_READ 0  /* it must be there */
#define BARO_MPI_WRITE 1 /* for writes and reads; it is made if it is not there */

/* Settings of baro_mpi_open; those of rank 0 count. Start from BARO_MPI_CONFIG_INIT; 0 means the
 * default. */
typedef struct {
    size_t size;           /* of this struct */
    uint64_t block_bytes;  /* of a new file, a multiple of 8, 1 GiB at most (default: 4 MiB); of one
                            * that is there: 0, or what it has */
    uint64_t buffer_bytes; /* of the blocks that an aggregator has in memory at a time, 1 GiB at most
                            * (default: 16 MiB); it needs three times as much */
    int aggregators;       /* how many ranks (default: one for each node) */
    int exchange;          /* BARO_MPI_VIEWS (default) or BARO_MPI_LISTS */
    uint32_t acks;         /* servers that have to acknowledge a block (default: all replicas) */
    int durable;           /* 1: blocks are on a durable tier before a write returns */
    int64_t wait_ns;       /* longest wait for room on a server (default: 1 s; below 0: no wait) */
} baro_mpi_config_t;

#define BARO_MPI_CONFIG_INIT {sizeof(baro_mpi_config_t), 0, 0, 0, 0, 0, 0, 0}

/* Opens a file. `stage` is this rank's client of staging, each rank with the same servers; it is not
 * closed with the file. The communicator is duplicated. config may be null, on all ranks. BARO_NOTHING if
 * there is no such file to read. *file is null after an error. */
int baro_mpi_open(MPI_Comm comm, baro_stage_t *stage, const char *dataset, int mode,
                  const baro_mpi_config_t *config, baro_mpi_file_t **file);

/* Sets what this rank sees of the file, as MPI_File_set_view does: from `displacement` on (in
 * bytes) the pieces of `filetype`, repeated. Until then, it sees all bytes. The datatypes may be freed
 * afterwards. BARO_E_ARGUMENT, which leaves all views as they were, if pieces are negative, not in
 * ascending order, or overlap, also with those of the next repetition. */
int baro_mpi_set_view(baro_mpi_file_t *file, MPI_Offset displacement, MPI_Datatype etype,
                      MPI_Datatype filetype);

/* Writes `count` elements of `datatype` from memory to this rank's view, from `offset` on (in etypes
 * of the view). A rank that has nothing to write has count 0. Where ranks write the same byte, that of
 * the highest one is there afterwards. After an error, any part may have been written. */
int baro_mpi_write_all(baro_mpi_file_t *file, MPI_Offset offset, const void *memory, int count,
                       MPI_Datatype datatype);

/* Reads as baro_mpi_write_all writes. Bytes that were never written are 0, also behind the end. After
 * an error, any part of the memory may have been written to. */
int baro_mpi_read_all(baro_mpi_file_t *file, MPI_Offset offset, void *memory, int count,
                      MPI_Datatype datatype);

/* Closes a file when all ranks have come here, and sets *file to null. What was written is there
 * before. */
int baro_mpi_close(baro_mpi_file_t **file);

/* What this rank has done with a file since it was opened. */
typedef struct {
    uint64_t block_bytes;    /* of the file */
    uint64_t aggregators;    /* of the file */
    uint64_t rounds;         /* of exchange, over all calls */
    uint64_t data_bytes;     /* of data that other ranks have sent to this one */
    uint64_t metadata_bytes; /* that other ranks have told this one of their views and pieces */
    uint64_t blocks_put;     /* by this rank as an aggregator */
    uint64_t blocks_got;     /* by this rank as an aggregator, with those that are not there */
    uint64_t blocks_merged;  /* of those that were put: written in part, into what was there */
} baro_mpi_counts_t;

void baro_mpi_counts(const baro_mpi_file_t *file, baro_mpi_counts_t *counts);

/* The text of the last error of this thread. */
const char *baro_mpi_error(void);

#ifdef __cplusplus
}
#endif

#endif
