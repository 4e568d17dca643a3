/* What an operation at the servers of a map costs a member, and a request a server: where nobody keeps
 * the map, and where an agent has told of it; beside a phase of I/O that is not scheduled. The words
 * of the agent are written by this program, from docs/reference/ingest-format.md. Run by maps.sh. */
#include <baro.h>

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 200000
#define RUNS 9

enum { TOLD_WORDS = 20, SLOT = 512, TOLD = 256 };

static baro_server_map_t *map;
static baro_map_server_t *server;
static baro_io_volume_t *volume;
static uint64_t epoch;

/* Time of the processor: other programs on the machine do not count. */
static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static uint64_t rotated(uint64_t word)
{
    word *= UINT64_C(0x9e3779b97f4a7c15);
    return word << 29 | word >> 35;
}

static uint64_t check_of(const uint64_t *words)
{
    uint64_t sums[4] = {1, 2, 3, 4}, all = 0;
    for (int n = 0; n < TOLD_WORDS; n++)
        sums[n % 4] = rotated(sums[n % 4] ^ words[n]);
    for (int n = 0; n < 4; n++)
        all = rotated(all ^ sums[n]);
    return all | 1;
}

/* Tells what an agent would, of the first two slots. */
static void tell(const char *directory)
{
    char path[PATH_MAX] = "";
    uint64_t declarations_at, words[TOLD_WORDS + 1] = {1, 0, epoch, epoch, 0xff};
    DIR *files = opendir(directory);
    for (struct dirent *entry; (entry = readdir(files)) != NULL;)
        if (strstr(entry->d_name, ".ingest") != NULL)
            snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
    closedir(files);
    int file = open(path, O_RDWR | O_CLOEXEC);
    words[TOLD_WORDS] = check_of(words);
    if (file < 0 || pread(file, &declarations_at, 8, 96) != 8)
        exit(1);
    for (int slot = 0; slot < 2; slot++) {
        off_t at = (off_t)declarations_at + 1044480 + slot * SLOT + TOLD;
        if (pwrite(file, words, sizeof(words), at) != (ssize_t)sizeof(words))
            exit(1);
    }
    close(file);
}

static void operation(void)
{
    baro_map_operation_t op;
    baro_map_begin(map, 0, &op);
    if (op.epoch != epoch || op.servers_count != 8)
        exit(1);
    baro_map_end(map, &op);
}

static void request(void)
{
    baro_map_request_t request;
    if (baro_map_serve_begin(server, epoch, &request) != BARO_MAP_SERVED)
        exit(1);
    baro_map_serve_end(server, &request, 4096);
}

static void phase(void)
{
    baro_io_end(volume, baro_io_begin(volume, 4096, 0, 0, NULL), 4096);
}

static void measure(const char *what, void (*act)(void), int rounds)
{
    double best = 1e300, worst = 0;
    act();
    for (int run = 0; run < RUNS; run++) {
        double begun = now_ns();
        for (int n = 0; n < rounds; n++)
            act();
        double ns = (now_ns() - begun) / rounds;
        best = ns < best ? ns : best;
        worst = ns > worst ? ns : worst;
    }
    printf("%-52s %8.1f to %8.1f ns\n", what, best, worst);
    fflush(stdout);
}

int main(int count, char **arguments)
{
    const uint32_t servers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    if (count < 2)
        return 2;
    baro_t *b = baro_open("maps", NULL);
    map = baro_server_map(b, "io", servers, 8);
    server = baro_map_server(b, "io", 1);
    volume = baro_io_volume(b, "/scratch");
    if (map == NULL || server == NULL || volume == NULL)
        return 1;
    measure("begin and end of an operation, no agent", operation, ROUNDS);
    measure("begin and end of a request, no agent", request, ROUNDS);
    measure("begin and end of a phase of I/O, no agent", phase, ROUNDS / 10);
    epoch = 5;
    tell(arguments[1]);
    measure("begin and end of an operation, in an epoch", operation, ROUNDS);
    measure("begin and end of a request, in an epoch", request, ROUNDS);
    baro_close(b);
    return 0;
}
