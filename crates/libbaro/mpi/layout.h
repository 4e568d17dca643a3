/* Layouts: an MPI datatype as a list of its pieces, by which views of files and buffers in memory are
 * walked. Internal to the collective layer; no other source includes it. */
#ifndef BARO_MPI_LAYOUT_H
#define BARO_MPI_LAYOUT_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* Most pieces of a datatype: 1 GiB of memory. */
#define BARO_MPI_PIECES_MAX_ ((size_t)1 << 26)
/* The first offset that no file has. */
#define BARO_MPI_OFFSET_END_ ((int64_t)1 << 62)

typedef struct {
    int64_t offset, length;
} baro_mpi_piece_t;

/* Pieces that are repeated for ever, one `extent` after the other. The data are the bytes of the pieces
 * in their order. No piece is empty, and none touches the one before it. */
typedef struct {
    baro_mpi_piece_t *pieces;
    int64_t *starts; /* of each piece: the data bytes before it, in one repetition */
    size_t count;
    int64_t size;   /* data bytes of one repetition */
    int64_t extent; /* from one repetition to the next */
    int64_t base;   /* added to each offset */
} baro_mpi_layout_t;

/* A place in the data of a layout. */
typedef struct {
    const baro_mpi_layout_t *layout;
    int64_t repetition;
    size_t index;   /* of the piece */
    int64_t inside; /* bytes of the piece before the place */
} baro_mpi_cursor_t;

/* Makes the layout of a datatype. Returns null, or what is wrong with it. */
const char *baro_mpi_flatten_(MPI_Datatype type, baro_mpi_layout_t *layout);
/* Makes the layout of a view: as above, and it can be walked by the offsets in the file. */
const char *baro_mpi_view_(MPI_Offset displacement, MPI_Datatype filetype, baro_mpi_layout_t *layout);
/* Fills in `size` and `starts` of a layout with pieces; makes room for these if they are null. Returns null,
 * or what is wrong. */
const char *baro_mpi_index_(baro_mpi_layout_t *layout);
void baro_mpi_layout_free_(baro_mpi_layout_t *layout);

/* The place of a data byte. The layout must have data. */
baro_mpi_cursor_t baro_mpi_seek_(const baro_mpi_layout_t *layout, int64_t at);
/* Goes on by one piece, and `most` bytes at most; returns its length and sets its offset. */
int64_t baro_mpi_next_(baro_mpi_cursor_t *cursor, int64_t most, int64_t *offset);
/* Of a view: the data bytes whose offsets are below `offset`. */
int64_t baro_mpi_data_before_(const baro_mpi_layout_t *view, int64_t offset);
/* The pieces from the one with the data byte `start` to the one with the byte before `end`. */
int64_t baro_mpi_pieces_between_(const baro_mpi_layout_t *layout, int64_t start, int64_t end);

#endif
