/* Ranks that do as rank 0 reads from its standard input, one command a line, and say how it ended. Run by
 * e2e/test_collectives.py, which kills servers in between:
 *
 *   collective_steps DATASET ACKS EXCHANGE WRONG_RANK SERVER...
 *
 * WRONG_RANK (or -1) is a rank whose servers are nowhere. Commands: `open MODE BLOCK`, `write STEP`, `read STEP`,
 * `view BAD_RANK`, `argument RANK`, `close`. */
#include "../../mpi/baro_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of each rank: rows that take turns with those of the others. */
#define ROWS 96
#define ROW 1000

static int rank, ranks;
static unsigned char memory[ROWS * ROW];

/* The byte of a step at a place in the file. */
static unsigned char byte_of(int step, int row, int at)
{
    return (unsigned char)(step * 37 + (row * ranks + rank) * 11 + at);
}

static int set_rows(baro_mpi_file_t *file, int wrong_rank)
{
    MPI_Datatype rows;
    int code;
    MPI_Type_vector(ROWS, ROW, ranks * ROW, MPI_BYTE, &rows);
    MPI_Type_commit(&rows);
    code = baro_mpi_set_view(file, rank == wrong_rank ? -1 : rank * ROW, MPI_BYTE, rows);
    MPI_Type_free(&rows);
    return code;
}

static int write_step(baro_mpi_file_t *file, int step)
{
    for (int row = 0; row < ROWS; row++)
        for (int at = 0; at < ROW; at++)
            memory[row * ROW + at] = byte_of(step, row, at);
    return baro_mpi_write_all(file, 0, memory, ROWS * ROW, MPI_BYTE);
}

/* The number of bytes that are not those of the step is added to `wrong`. */
static int read_step(baro_mpi_file_t *file, int step, int *wrong)
{
    int code;
    memset(memory, 0xee, sizeof memory);
    code = baro_mpi_read_all(file, 0, memory, ROWS * ROW, MPI_BYTE);
    for (int row = 0; row < ROWS; row++)
        for (int at = 0; at < ROW; at++)
            *wrong += memory[row * ROW + at] != byte_of(step, row, at);
    return code;
}

static int do_command(const char *line, const char *dataset, const baro_mpi_config_t *given, baro_stage_t *stage,
                      baro_mpi_file_t **file, int *wrong)
{
    baro_mpi_config_t config = *given;
    int number = 0, block = 0;
    if (sscanf(line, "open %d %d", &number, &block) == 2) {
        config.block_bytes = (uint64_t)block;
        return baro_mpi_open(MPI_COMM_WORLD, stage, dataset, number, &config, file);
    }
    if (sscanf(line, "view %d", &number) == 1)
        return set_rows(*file, number);
    if (sscanf(line, "write %d", &number) == 1)
        return write_step(*file, number);
    if (sscanf(line, "read %d", &number) == 1)
        return read_step(*file, number, wrong);
    if (sscanf(line, "argument %d", &number) == 1)
        return baro_mpi_write_all(*file, 0, memory, rank == number ? -1 : 5, MPI_BYTE);
    return baro_mpi_close(file);
}

/* Gives all ranks the line of rank 0, for which they wait without work. */
static void share(char *line, int bytes)
{
    MPI_Request request;
    int is_done = 0;
    MPI_Ibcast(line, bytes, MPI_CHAR, 0, MPI_COMM_WORLD, &request);
    while (!is_done) {
        MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
        if (!is_done)
            usleep(500);
    }
}

/* Tells how each rank has ended: the codes, whether all have the same text, and the wrong bytes. */
static void tell(const char *line, int code, int wrong)
{
    int *codes = calloc((size_t)ranks, sizeof *codes), all_wrong, is_same, is_same_for_all;
    char text[400] = "", of_first[400];
    if (code != BARO_OK)
        snprintf(text, sizeof text, "%s", baro_mpi_error());
    memcpy(of_first, text, sizeof text);
    MPI_Bcast(of_first, sizeof of_first, MPI_CHAR, 0, MPI_COMM_WORLD);
    is_same = strcmp(of_first, text) == 0;
    MPI_Reduce(&is_same, &is_same_for_all, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Gather(&code, 1, MPI_INT, codes, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        for (char *at = text; *at; at++)
            if (*at == '"' || *at == '\\')
                *at = '\'';
        printf("{\"command\": \"%s\", \"same_text\": %d, \"wrong\": %d, \"text\": \"%s\", \"codes\": [", line,
               is_same_for_all, all_wrong, text);
        for (int r = 0; r < ranks; r++)
            printf("%s%d", r ? ", " : "", codes[r]);
        printf("]}\n");
        fflush(stdout);
    }
    free(codes);
}

int main(int count, char **arguments)
{
    static const char *const nowhere[] = {"/nowhere/at/all.sock", "/nowhere/else.sock"};
    baro_stage_config_t staging = BARO_STAGE_CONFIG_INIT;
    baro_mpi_config_t config = BARO_MPI_CONFIG_INIT;
    baro_mpi_file_t *file = NULL;
    baro_stage_t *stage;
    char line[100] = "";
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count != 7)
        MPI_Abort(MPI_COMM_WORLD, 2);
    config.acks = (uint32_t)atoi(arguments[2]);
    config.exchange = strcmp(arguments[3], "lists") == 0;
    config.aggregators = 2;
    config.buffer_bytes = 65536;
    staging.replicas = 2;
    stage = baro_stage_open(atoi(arguments[4]) == rank ? nowhere : (const char *const *)arguments + 5, 2, &staging);
    for (;;) {
        int wrong = 0, code;
        if (rank == 0 && (!fgets(line, sizeof line, stdin) || strchr(line, '\n') == NULL))
            line[0] = 0;
        line[strcspn(line, "\n")] = 0;
        share(line, sizeof line);
        if (line[0] == 0)
            break;
        code = do_command(line, arguments[1], &config, stage, &file, &wrong);
        tell(line, code, wrong);
    }
    if (file)
        baro_mpi_close(&file);
    baro_stage_close(stage);
    MPI_Finalize();
    return 0;
}
