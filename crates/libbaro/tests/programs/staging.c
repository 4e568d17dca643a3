/* Blocks of staging in a program that does what hosts do: it forks, closes descriptors, gets
 * signals and has threads. The arguments are what to do, and the addresses of servers. */
#include <baro.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, baro_error()); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

#define MIB (1u << 20)

static baro_stage_t *stage;
static unsigned char data[MIB], memory[MIB];

static void fill(unsigned char seed)
{
    for (size_t at = 0; at < MIB; at++)
        data[at] = (unsigned char)(seed + at + (at >> 8) * 7);
}

static int put(uint64_t number, size_t count)
{
    baro_stage_key_t key = BARO_STAGE_NUMBER("data", number);
    return baro_stage_put(stage, &key, data, count, NULL, NULL);
}

static int is_there(uint64_t number, size_t count)
{
    baro_stage_key_t key = BARO_STAGE_NUMBER("data", number);
    baro_stage_info_t info;
    memset(memory, 0xa5, count);
    return baro_stage_get(stage, &key, memory, MIB, &info) == BARO_OK && info.bytes == count &&
           memcmp(memory, data, count) == 0;
}

/* ---- What clients do ---- */

static void round_trips(void)
{
    const size_t lengths[4] = {0, 1, 4097, MIB};
    baro_stage_info_t info;
    for (uint64_t n = 0; n < 4; n++)
        CHECK(put(n, lengths[n]) == BARO_OK && is_there(n, lengths[n]));
    baro_stage_key_t named = BARO_STAGE_NAME("data", "a name");
    baro_stage_put_options_t options = BARO_STAGE_PUT_INIT;
    options.version = 7;
    CHECK(baro_stage_put(stage, &named, data, 100, &options, &info) == BARO_OK);
    CHECK(info.version == 7 && info.bytes == 100 && info.is_confirmed && info.checksum != 0);
    options.version = 6;
    CHECK(baro_stage_put(stage, &named, data, 99, &options, NULL) == BARO_E_REFUSED);
    CHECK(baro_stage_get(stage, &named, NULL, 0, &info) == BARO_E_TOO_LONG && info.bytes == 100);
    CHECK(baro_stage_get(stage, &named, memory, 99, &info) == BARO_E_TOO_LONG && info.bytes == 100);
    CHECK(baro_stage_get(stage, &named, memory, 100, NULL) == BARO_OK);
    CHECK(baro_stage_stat(stage, &named, &info) == BARO_OK && info.bytes == 100 && info.version == 7);
    /* Where they are: a block that was read has a time, and one that is nowhere no replica. */
    baro_stage_key_t keys[3] = {named, BARO_STAGE_NUMBER("data", 3), BARO_STAGE_NUMBER("data", 99)};
    baro_stage_replica_t replicas[2];
    size_t found;
    CHECK(baro_stage_locate(stage, keys, 3, replicas, 2, &found) == BARO_OK && found == 2);
    CHECK(replicas[0].index == 0 && replicas[0].info.version == 7 && replicas[0].server == 0);
    CHECK(replicas[1].index == 1 && replicas[1].info.bytes == MIB && replicas[1].tier == 0);
    CHECK(replicas[1].is_on_node && replicas[1].read_s > 0);
    CHECK(baro_stage_locate(stage, keys, 3, replicas, 1, &found) == BARO_E_TOO_LONG && found == 2);
    CHECK(baro_stage_locate(stage, NULL, 1, replicas, 2, &found) == BARO_E_ARGUMENT && found == 0);
    /* Keys in order: numbers before names. */
    baro_stage_list_t *list = baro_stage_list(stage, "da", NULL);
    const baro_stage_entry_t *entry;
    for (uint64_t n = 0; n < 4; n++) {
        CHECK(baro_stage_list_next(list, &entry) == BARO_OK && strcmp(entry->key.dataset, "data") == 0);
        CHECK(entry->key.name == NULL && entry->key.number == n && entry->info.bytes == lengths[n]);
    }
    CHECK(baro_stage_list_next(list, &entry) == BARO_OK && strcmp(entry->key.name, "a name") == 0);
    CHECK(entry->key.name_bytes == 6 && baro_stage_get(stage, &entry->key, memory, MIB, NULL) == BARO_OK);
    CHECK(baro_stage_list_next(list, &entry) == BARO_NOTHING && entry == NULL);
    CHECK(baro_stage_list_next(list, &entry) == BARO_NOTHING);
    baro_stage_list_close(list);
    list = baro_stage_list(stage, "data", "a n");
    CHECK(baro_stage_list_next(list, &entry) == BARO_OK && entry->info.version == 7);
    CHECK(baro_stage_list_next(list, &entry) == BARO_NOTHING);
    baro_stage_list_close(list);
    CHECK(baro_stage_list_next(list, &entry) == BARO_E_ARGUMENT);
    CHECK(baro_stage_remove(stage, &named, 6) == BARO_E_REFUSED);
    CHECK(baro_stage_remove(stage, &named, 0) == BARO_OK && baro_stage_remove(stage, &named, 0) == BARO_NOTHING);
    CHECK(baro_stage_get(stage, &named, memory, MIB, &info) == BARO_NOTHING && info.bytes == 0);
    CHECK(baro_stage_stat(stage, &named, NULL) == BARO_NOTHING);
}

static void refusals(const char *server)
{
    baro_stage_key_t bad = BARO_STAGE_NUMBER("\xff\xfe", 1), empty = BARO_STAGE_NUMBER("", 1);
    baro_stage_key_t none = BARO_STAGE_NUMBER(NULL, 1), good = BARO_STAGE_NUMBER("data", 1);
    baro_stage_key_t long_name = {"data", data, 4097, 0};
    const char *twice[2] = {"1=/a", "1=/b"}, *relative = "a/socket", *null = NULL, *odd = "\xff";
    baro_stage_config_t config = BARO_STAGE_CONFIG_INIT;
    config.size = 1;
    CHECK(baro_stage_open(&server, 1, &config) == NULL && strstr(baro_error(), "INIT") != NULL);
    CHECK(baro_stage_open(NULL, 0, NULL) == NULL && baro_stage_open(&server, 0, NULL) == NULL);
    CHECK(baro_stage_open(twice, 2, NULL) == NULL && strstr(baro_error(), "number 1") != NULL);
    CHECK(baro_stage_open(&relative, 1, NULL) == NULL && strstr(baro_error(), "absolute") != NULL);
    CHECK(baro_stage_open(&null, 1, NULL) == NULL && baro_stage_open(&odd, 1, NULL) == NULL);
    CHECK(baro_stage_open(&server, SIZE_MAX / 8, NULL) == NULL);
    CHECK(baro_stage_put(stage, &bad, data, 1, NULL, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_stage_put(stage, &empty, data, 1, NULL, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_stage_put(stage, &none, data, 1, NULL, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_stage_put(stage, &long_name, data, 1, NULL, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_stage_put(stage, &good, NULL, 1, NULL, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_stage_put(stage, &good, data, SIZE_MAX, NULL, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_stage_get(stage, &good, NULL, 1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_stage_get(stage, &good, memory, SIZE_MAX, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_stage_list(stage, "\xff", NULL) == NULL);
    CHECK(baro_stage_get((baro_stage_t *)memory, &good, memory, 1, NULL) == BARO_E_ARGUMENT);
}

/* ---- What hosts do ---- */

static void close_all(void)
{
    for (int fd = 3; fd < 256; fd++)
        close(fd);
}

/* Others have the numbers of the connections now: nothing is read from them, written to them or
 * closed. */
static void descriptors(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/file", folder);
    CHECK(is_there(3, MIB));
    close_all();
    CHECK(is_there(3, MIB));
    close_all();
    int files[32], pairs[16][2];
    for (int n = 0; n < 32; n++)
        CHECK((files[n] = open(path, O_RDWR | O_CREAT, 0600)) >= 0);
    CHECK(is_there(3, MIB) && put(9, MIB) == BARO_OK);
    struct stat stat;
    for (int n = 0; n < 32; n++) {
        CHECK(fstat(files[n], &stat) == 0 && stat.st_size == 0 && lseek(files[n], 0, SEEK_CUR) == 0);
        close(files[n]);
    }
    close_all();
    CHECK(is_there(3, MIB));
    close_all();
    /* Other sockets of the same kind. */
    for (int n = 0; n < 16; n++)
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[n]) == 0);
    CHECK(is_there(3, MIB));
    char byte;
    for (int n = 0; n < 16; n++)
        for (int end = 0; end < 2; end++)
            CHECK(read(pairs[n][end], &byte, 1) < 0 && errno == EAGAIN);
    close_all();
    /* Programs without standard input and output get no connection there. */
    int in = dup(0), out = dup(1);
    close(0);
    close(1);
    CHECK(is_there(3, MIB) && fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0);
    dup2(in, 0);
    dup2(out, 1);
    /* Whatever runs next has none of them. */
    for (int fd = 3; fd < 256; fd++)
        CHECK(fd == in || fd == out || fcntl(fd, F_GETFD) < 0 || (fcntl(fd, F_GETFD) & FD_CLOEXEC));
}

static void *get_often(void *at)
{
    unsigned char *own = malloc(MIB);
    for (int n = 0; n < 100; n++) {
        baro_stage_key_t key = BARO_STAGE_NUMBER("data", 3);
        CHECK(baro_stage_get(stage, &key, own, MIB, NULL) == BARO_OK && memcmp(own, data, MIB) == 0);
        key.number = 100 + (uint64_t)(size_t)at;
        CHECK(baro_stage_put(stage, &key, data, 70000, NULL, NULL) == BARO_OK);
    }
    free(own);
    return NULL;
}

static void run_child(int depth)
{
    CHECK(is_there(3, MIB) && put(20 + depth, 10) == BARO_OK && is_there(20 + depth, 10));
    if (depth < 2) {
        pid_t child = fork();
        if (child == 0) {
            run_child(depth + 1);
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    baro_stage_close(stage);
}

static void forks(void)
{
    CHECK(is_there(3, MIB));
    baro_stage_key_t key = BARO_STAGE_NUMBER("data", 3);
    baro_stage_block_t *block;
    CHECK(baro_stage_map(stage, &key, &block) == BARO_OK);
    pid_t children[4];
    for (int n = 0; n < 4; n++) {
        children[n] = fork();
        if (children[n] == 0) {
            CHECK(memcmp(baro_stage_block_data(block, NULL), data, MIB) == 0 && baro_stage_is_valid(block));
            run_child(0);
            _exit(0);
        }
        /* Both at once. */
        for (int times = 0; times < 50; times++)
            CHECK(is_there(3, MIB));
    }
    for (int n = 0; n < 4; n++) {
        int status = -1;
        CHECK(waitpid(children[n], &status, 0) == children[n] && status == 0);
    }
    CHECK(is_there(3, MIB));
    baro_stage_release(block);
}

/* Children of a process whose other threads are in the middle of calls. */
static void threads_and_forks(void)
{
    pthread_t threads[8];
    for (size_t n = 0; n < 8; n++)
        CHECK(pthread_create(&threads[n], NULL, get_often, (void *)n) == 0);
    for (int n = 0; n < 20; n++) {
        pid_t child = fork();
        if (child == 0)
            _exit(is_there(3, MIB) ? 0 : 1);
        int status = -1;
        while (waitpid(child, &status, 0) != child)
            CHECK(errno == EINTR);
        CHECK(status == 0);
    }
    for (int n = 0; n < 8; n++)
        pthread_join(threads[n], NULL);
}

static void on_signal(int number)
{
    (void)number;
}

static void whole(const char *server, const char *folder)
{
    round_trips();
    refusals(server);
    descriptors(folder);
    forks();
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    threads_and_forks();
    setitimer(ITIMER_REAL, &never, NULL);
}

/* ---- Shared memory ---- */

static void maps(void)
{
    baro_stage_key_t key = BARO_STAGE_NUMBER("data", 1), none = BARO_STAGE_NUMBER("data", 2);
    baro_stage_key_t empty = BARO_STAGE_NUMBER("data", 3), drop = BARO_STAGE_NUMBER("data", 4);
    baro_stage_block_t *block, *old;
    baro_stage_info_t info;
    CHECK(put(1, MIB) == BARO_OK && put(3, 0) == BARO_OK);
    CHECK(baro_stage_map(stage, &none, &block) == BARO_NOTHING && block == NULL);
    CHECK(baro_stage_map(stage, &empty, &block) == BARO_OK && baro_stage_is_valid(block) == 1);
    CHECK(baro_stage_block_data(block, &info) != NULL && info.bytes == 0);
    baro_stage_release(block);
    CHECK(baro_stage_map(stage, &key, &block) == BARO_OK);
    const unsigned char *bytes = baro_stage_block_data(block, &info);
    CHECK(info.bytes == MIB && memcmp(bytes, data, MIB) == 0 && baro_stage_is_valid(block) == 1);
    /* A later version. */
    old = block;
    fill(99);
    CHECK(put(1, MIB) == BARO_OK && baro_stage_is_valid(old) == 0 && baro_stage_is_valid(old) == 0);
    CHECK(baro_stage_map(stage, &key, &block) == BARO_OK);
    CHECK(memcmp(baro_stage_block_data(block, NULL), data, MIB) == 0 && baro_stage_is_valid(block) == 1);
    CHECK(baro_stage_remove(stage, &key, 0) == BARO_OK && baro_stage_is_valid(block) == 0);
    baro_stage_release(block);
    /* Evicted for others, which go to a tier of files first. */
    baro_stage_put_options_t options = BARO_STAGE_PUT_INIT;
    options.refetch_us = 1;
    CHECK(baro_stage_put(stage, &drop, data, MIB, &options, NULL) == BARO_OK);
    CHECK(baro_stage_map(stage, &drop, &block) == BARO_OK);
    options.refetch_us = 0;
    options.wait_ns = 60000000000;
    for (uint64_t n = 0; n < 1000 && baro_stage_is_valid(block); n++) {
        baro_stage_key_t other = BARO_STAGE_NUMBER("others", n);
        CHECK(baro_stage_put(stage, &other, data, MIB, &options, NULL) == BARO_OK);
    }
    CHECK(baro_stage_is_valid(block) == 0);
    /* The memory is still there, of all of them, without the client as well. */
    baro_stage_close(stage);
    unsigned sum = 0;
    const unsigned char *evicted = baro_stage_block_data(block, NULL);
    for (size_t at = 0; at < MIB; at++)
        sum += evicted[at] + bytes[at];
    CHECK(sum != 1 && baro_stage_is_valid(block) == 0);
    baro_stage_release(block);
    baro_stage_release(old);
    CHECK(baro_stage_is_valid(block) == 0 && baro_stage_block_data(block, NULL) == NULL);
    baro_stage_release(block);
}

/* ---- Servers that come and go ---- */

/* Tells the test that something is done, and waits for its word. */
static void told(const char *what)
{
    char line[16];
    printf("%s\n", what);
    CHECK(fgets(line, sizeof(line), stdin) != NULL);
}

static void restarts(const char *server)
{
    baro_stage_key_t key = BARO_STAGE_NUMBER("data", 1);
    baro_stage_block_t *block;
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(put(1, MIB) == BARO_OK && is_there(1, MIB));
    told("restart");
    CHECK(is_there(1, MIB));
    told("restart");
    CHECK(put(1, MIB) == BARO_OK && is_there(1, MIB));
    CHECK(baro_stage_map(stage, &key, &block) == BARO_OK);
    told("stop");
    /* Said at once: the timeout is longer than any test. */
    CHECK(baro_stage_get(stage, &key, memory, MIB, NULL) == BARO_E_UNREACHABLE);
    CHECK(strstr(baro_error(), "gone") != NULL);
    CHECK(put(2, 1) == BARO_E_UNREACHABLE && baro_stage_remove(stage, &key, 0) == BARO_E_UNREACHABLE);
    CHECK(baro_stage_map(stage, &key, &block) == BARO_E_UNREACHABLE && block == NULL);
    const baro_stage_entry_t *entry;
    baro_stage_list_t *list = baro_stage_list(stage, NULL, NULL);
    CHECK(baro_stage_list_next(list, &entry) == BARO_E_UNREACHABLE && entry == NULL);
    told("start");
    CHECK(is_there(1, MIB) && baro_stage_list_next(list, &entry) == BARO_OK);
    told("fence");
    /* Whoever does not know the servers of the epoch is refused, after its timeout. */
    baro_stage_config_t config = BARO_STAGE_CONFIG_INIT;
    config.timeout_ns = 50000000;
    baro_stage_t *late = baro_stage_open(&server, 1, &config);
    CHECK(baro_stage_get(late, &key, memory, MIB, NULL) == BARO_E_FENCED);
    CHECK(baro_stage_servers(late, 4, &server, 1) == BARO_OK);
    CHECK(baro_stage_servers(late, 3, NULL, 1) == BARO_E_ARGUMENT);
    CHECK(baro_stage_get(late, &key, memory, MIB, NULL) == BARO_OK);
    baro_stage_close(late);
}

/* The first server answers nonsense, the second closes connections, the third is none at all. */
static void strangers(const char **servers)
{
    baro_stage_config_t config = BARO_STAGE_CONFIG_INIT;
    config.timeout_ns = 3600000000000;
    for (int n = 0; n < 3; n++) {
        stage = baro_stage_open(&servers[n], 1, &config);
        baro_stage_key_t key = BARO_STAGE_NUMBER("data", 1);
        CHECK(baro_stage_get(stage, &key, memory, MIB, NULL) == BARO_E_UNREACHABLE);
        CHECK(put(1, MIB) == BARO_E_UNREACHABLE);
        baro_stage_close(stage);
    }
    config.replicas = 3;
    stage = baro_stage_open(servers, 3, &config);
    CHECK(!is_there(1, MIB) && strstr(baro_error(), "all replicas are gone") != NULL);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const char *server = argv[2];
    baro_stage_config_t config = BARO_STAGE_CONFIG_INIT;
    config.timeout_ns = 3600000000000;
    fill(1);
    CHECK((stage = baro_stage_open(&server, 1, &config)) != NULL);
    if (strcmp(argv[1], "whole") == 0)
        whole(server, argv[3]);
    else if (strcmp(argv[1], "maps") == 0)
        maps();
    else if (strcmp(argv[1], "restarts") == 0)
        restarts(server);
    else if (argc == 5)
        strangers((const char **)&argv[2]);
    baro_stage_close(stage);
    return 0;
}
