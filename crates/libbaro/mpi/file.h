/* A collective file and one call with it. Internal to the collective layer. */
#ifndef BARO_MPI_FILE_H
#define BARO_MPI_FILE_H

#include "baro_mpi.h"
#include "layout.h"

#define BARO_MPI_TEXT_ 320

/* What an aggregator works with: the blocks of one round, and messages. All of it is there from the
 * beginning, so that no round fails halfway for want of memory. */
struct baro_mpi_aggregator_ {
    unsigned char *blocks;   /* of a round */
    unsigned char *covered;  /* a bit for each byte of them: written in this round */
    unsigned char *old;      /* what is there of a block that is written in part */
    char *is_there;          /* of each block, when reading: it was got */
    unsigned char *slots[2]; /* data of one rank each */
    baro_mpi_layout_t *views; /* of all ranks, if they tell their views */
    uint64_t version;         /* of the last put */
};

struct baro_mpi_file {
    MPI_Comm comm;
    int rank, ranks;
    baro_stage_t *stage;
    char dataset[256];
    int is_for_writes;
    baro_mpi_config_t config;
    int64_t block;       /* bytes */
    int64_t blocks;      /* of an aggregator in one round */
    int aggregators;     /* block b belongs to number b % aggregators */
    int *aggregator_ranks;
    int own;             /* number of this rank as an aggregator, or -1 */
    struct baro_mpi_aggregator_ at;
    baro_mpi_layout_t view;
    int64_t etype_bytes;
    MPI_Datatype pair; /* two integers of 64 bits */
    /* For calls, so that none of these can be missing halfway. Of each rank: */
    int64_t *ends;  /* which data of its view a call is about: start and end */
    int64_t *told;  /* what it has in a round for this aggregator: pieces and data bytes */
    int64_t *asked; /* what this rank has in a round for it, as an aggregator */
    int64_t *said;  /* of its view: pieces, extent and base */
    MPI_Request *requests;
    baro_mpi_counts_t counts;
};

/* The first error of this rank in a call. */
struct baro_mpi_fault_ {
    int code;
    char text[BARO_MPI_TEXT_];
};

/* One call of write_all or read_all. */
struct baro_mpi_call_ {
    baro_mpi_file_t *file;
    int is_write;
    int64_t start, end; /* data bytes of the view */
    baro_mpi_layout_t memory;
    unsigned char *buffer;
    struct baro_mpi_fault_ fault;
    unsigned char *packed;   /* data of a round, one aggregator after the other */
    baro_mpi_piece_t *lists; /* pieces of a round, in the same order, if lists are told */
    baro_mpi_piece_t *heard; /* pieces of another rank */
};

/* Notes an error, unless there is one. */
void baro_mpi_fail_(struct baro_mpi_fault_ *fault, int code, const char *format, ...);
/* Agrees on an error: returns BARO_OK if no rank has one, else the same code everywhere, and the text is
 * that of baro_mpi_error. *least becomes the smallest of all ranks. */
int baro_mpi_agree_(baro_mpi_file_t *file, const struct baro_mpi_fault_ *fault, int64_t *least);

/* Waits for requests. */
void baro_mpi_wait_(int count, MPI_Request *requests);

/* Exchanges the data of a round, whose first block is `first`, and puts or gets its blocks. */
void baro_mpi_write_round_(struct baro_mpi_call_ *call, int64_t first);
void baro_mpi_read_round_(struct baro_mpi_call_ *call, int64_t first);

/* Puts what was written of a block: all of it, or into what is there. */
void baro_mpi_put_block_(baro_mpi_file_t *file, struct baro_mpi_fault_ *fault, int64_t number, unsigned char *block,
                         const unsigned char *covered);
/* Gets a block into memory for all of its bytes; those that are not there are 0. */
void baro_mpi_get_block_(baro_mpi_file_t *file, struct baro_mpi_fault_ *fault, int64_t number, unsigned char *block);
void baro_mpi_cover_(unsigned char *covered, int64_t start, int64_t end);

#endif
