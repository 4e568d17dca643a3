/* Blocks of a collective file: put whole, or merged into what is there, and got. */
#include "file.h"

#include <string.h>
#include <time.h>

void baro_mpi_cover_(unsigned char *covered, int64_t start, int64_t end)
{
    for (; start < end && start % 8; start++)
        covered[start / 8] |= (unsigned char)(1u << start % 8);
    if (end - start >= 8) {
        memset(covered + start / 8, 0xff, (size_t)((end - start) / 8));
        start += (end - start) / 8 * 8;
    }
    for (; start < end; start++)
        covered[start / 8] |= (unsigned char)(1u << start % 8);
}

static int is_covered(const unsigned char *covered, int64_t at)
{
    return covered[at / 8] >> at % 8 & 1;
}

/* The end of the last byte that is covered; 0 if none is. */
static int64_t covered_end(const unsigned char *covered, int64_t bytes)
{
    int64_t at = (bytes + 7) / 8 * 8;
    while (at && !covered[at / 8 - 1])
        at -= 8;
    while (at && !is_covered(covered, at - 1))
        at--;
    return at;
}

static int is_all_covered(const unsigned char *covered, int64_t bytes)
{
    int64_t at = 0;
    while (at + 8 <= bytes && covered[at / 8] == 0xff)
        at += 8;
    while (at < bytes && is_covered(covered, at))
        at++;
    return at == bytes;
}

/* Fills the bytes that are not covered from `old`. */
static void merge(unsigned char *block, const unsigned char *covered, const unsigned char *old, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 8) {
        int64_t end = bytes - at < 8 ? bytes : at + 8;
        if (covered[at / 8] == 0xff)
            continue;
        if (covered[at / 8] == 0 && end == at + 8) {
            memcpy(block + at, old + at, 8);
            continue;
        }
        for (int64_t n = at; n < end; n++)
            if (!is_covered(covered, n))
                block[n] = old[n];
    }
}

/* Gets what is there of a block, and fills up the rest with 0. Returns the length of what is there. */
static int64_t get(baro_mpi_file_t *file, struct baro_mpi_fault_ *fault, int64_t number, unsigned char *memory,
                   uint64_t *version)
{
    baro_stage_key_t key = BARO_STAGE_NUMBER(file->dataset, (uint64_t)number);
    baro_stage_info_t info;
    int code = baro_stage_get(file->stage, &key, memory, (size_t)file->block, &info);
    int64_t length = code == BARO_OK ? (int64_t)info.bytes : 0;
    file->counts.blocks_got++;
    *version = code == BARO_OK ? info.version : 0;
    if (code == BARO_E_TOO_LONG)
        baro_mpi_fail_(fault, BARO_E_DATA, "block %lld of %s is longer than a block of this file", (long long)number,
                       file->dataset);
    else if (code != BARO_OK && code != BARO_NOTHING)
        baro_mpi_fail_(fault, code, "block %lld of %s: %s", (long long)number, file->dataset, baro_error());
    memset(memory + length, 0, (size_t)(file->block - length));
    return length;
}

void baro_mpi_get_block_(baro_mpi_file_t *file, struct baro_mpi_fault_ *fault, int64_t number, unsigned char *block)
{
    uint64_t version;
    get(file, fault, number, block, &version);
}

static int put(baro_mpi_file_t *file, int64_t number, const unsigned char *block, int64_t length, uint64_t above)
{
    baro_stage_key_t key = BARO_STAGE_NUMBER(file->dataset, (uint64_t)number);
    baro_stage_put_options_t options = BARO_STAGE_PUT_INIT;
    struct timespec now;
    uint64_t time;
    clock_gettime(CLOCK_REALTIME, &now);
    time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    /* Clocks of nodes differ, and the versions of a block only grow. */
    if (above < file->at.version)
        above = file->at.version;
    file->at.version = options.version = time > above ? time : above + 1;
    options.acks = file->config.acks;
    options.durable = file->config.durable;
    options.wait_ns = file->config.wait_ns;
    return baro_stage_put(file->stage, &key, block, (size_t)length, &options, NULL);
}

void baro_mpi_put_block_(baro_mpi_file_t *file, struct baro_mpi_fault_ *fault, int64_t number, unsigned char *block,
                         const unsigned char *covered)
{
    int64_t length = covered_end(covered, file->block);
    uint64_t version = 0;
    int code;
    if (length == 0 || fault->code)
        return;
    if (!is_all_covered(covered, file->block)) {
        int64_t before = get(file, fault, number, file->at.old, &version);
        if (fault->code)
            return;
        if (length < before)
            length = before;
        merge(block, covered, file->at.old, length);
        file->counts.blocks_merged += before > 0;
    }
    code = put(file, number, block, length, version);
    if (code == BARO_E_REFUSED) {
        /* Perhaps it was put by a node whose clock is ahead. */
        baro_stage_key_t key = BARO_STAGE_NUMBER(file->dataset, (uint64_t)number);
        baro_stage_info_t info;
        char why[BARO_MPI_TEXT_];
        strncpy(why, baro_error(), sizeof why - 1);
        why[sizeof why - 1] = 0;
        if (baro_stage_stat(file->stage, &key, &info) == BARO_OK && info.version >= file->at.version)
            code = put(file, number, block, length, info.version);
        else
            baro_mpi_fail_(fault, code, "block %lld of %s: %s", (long long)number, file->dataset, why);
    }
    if (code != BARO_OK)
        baro_mpi_fail_(fault, code, "block %lld of %s: %s", (long long)number, file->dataset, baro_error());
    else
        file->counts.blocks_put++;
}
