/* Programs that know nothing of turns, and do I/O on a volume where programs take them:
 * `turns MODE FOLDER`. The folder is on the volume. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1 << 20)
#define CHUNK (MIB / 8)

static char chunk[CHUNK];

static void must(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static int file(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    must(fd >= 0, name);
    return fd;
}

/* Writes eighths of a MiB; errno stays what it was. */
static void writes(int fd, int eighths)
{
    while (eighths-- > 0) {
        errno = EXDEV;
        must(write(fd, chunk, sizeof chunk) == sizeof chunk && errno == EXDEV, "write");
    }
}

static void naps(int ms) { usleep(1000 * ms); }

static void ends_well(pid_t child)
{
    int status;
    must(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child");
}

/* Three MiB in one file, which is read again. */
static void checkpoint(void)
{
    int fd = file("own");
    writes(fd, 24);
    must(fsync(fd) == 0, "fsync");
    must(close(fd) == 0, "close");
    fd = file("own");
    for (int n = 0; n < 24; n++)
        must(read(fd, chunk, sizeof chunk) == sizeof chunk, "read");
    must(close(fd) == 0, "close");
}

/* Less than a MiB in a second, however it is asked for; and much elsewhere. */
static void little(void)
{
    int fd = file("log"), null = open("/dev/null", O_WRONLY), elsewhere = file("../elsewhere");
    for (int n = 0; n < 20; n++) {
        must(write(fd, "a line\n", 7) == 7, "write");
        must(pread(fd, chunk, sizeof chunk, 0) > 0, "pread");
        must(fsync(fd) == 0, "fsync");
    }
    static char large[2 * MIB];
    must(pread(fd, large, sizeof large, 0) > 0, "pread");
    writes(null, 24);
    writes(elsewhere, 24);
}

/* One call that is much by itself, of each kind. */
static void large(void)
{
    static char all[2 * MIB];
    struct iovec parts[] = {{all, MIB}, {all + MIB, MIB}};
    int fd = file("one");
    must(write(fd, all, sizeof all) == sizeof all, "write");
    close(fd);
    fd = file("two");
    must(writev(fd, parts, 2) == sizeof all, "writev");
    close(fd);
    fd = file("one");
    must(read(fd, all, sizeof all) == sizeof all, "read");
    close(fd);
    FILE *stream = fopen("three", "w");
    must(stream && fwrite(all, 1, sizeof all, stream) == sizeof all && fclose(stream) == 0, "fwrite");
    int from = file("one"), to = file("four");
    must(copy_file_range(from, NULL, to, NULL, 1 << 30, 0) == sizeof all, "copy_file_range");
}

/* Both are much; the inner one is another volume. */
static void two_volumes(void)
{
    must(mkdir("inner", 0700) == 0, "mkdir");
    int outer = file("own"), inner = file("inner/own");
    writes(outer, 10);
    writes(inner, 10);
    writes(outer, 10);
    close(outer);
    close(inner);
}

static void *write_some(void *fd)
{
    writes(*(int *)fd, 2);
    return NULL;
}

static void thousand_threads(void)
{
    int fd = file("own");
    static pthread_t threads[1000];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int n = 0; n < 1000; n++)
        must(pthread_create(&threads[n], &small, write_some, &fd) == 0, "pthread_create");
    for (int n = 0; n < 1000; n++)
        pthread_join(threads[n], NULL);
    close(fd);
}

/* ---- Signals ---- */

static int handler_fd;
static volatile sig_atomic_t handled;

static void on_alarm(int number)
{
    (void)number;
    must(pwrite(handler_fd, chunk, sizeof chunk, 0) == sizeof chunk, "pwrite");
    handled++;
}

/* A handler writes all the time, also while the program waits for its turn. */
static void handler(void)
{
    struct itimerval often = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    int fd = file("own");
    handler_fd = file("handler");
    writes(fd, 7);
    signal(SIGALRM, on_alarm);
    must(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
    writes(fd, 1);
    int during = handled;
    setitimer(ITIMER_REAL, &never, NULL);
    must(during >= 5, "a handler that goes on");
    close(fd);
    close(handler_fd);
}

/* ---- Forks ---- */

static void forks(void)
{
    int fd = file("own");
    writes(fd, 10);
    pid_t child = fork();
    if (child == 0) {
        /* The phase of its parent is not its own, and closing ends none. */
        close(fd);
        fd = file("child");
        writes(fd, 10);
        _exit(0);
    }
    ends_well(child);
    child = vfork();
    if (child == 0) {
        close(fd);
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    ends_well(child);
    child = _Fork();
    if (child == 0) {
        /* Behind the library's back. */
        writes(fd, 10);
        close(fd);
        _exit(0);
    }
    ends_well(child);
    writes(fd, 1);
    close(fd);
}

/* ---- Ends of phases ---- */

static void closes(void)
{
    int first = file("first"), second = file("second");
    writes(first, 10);
    writes(second, 1);
    close(first);
    writes(second, 1);
    int copy = dup(second);
    closefrom(second);
    (void)copy;
    first = file("first");
    writes(first, 10);
    second = file("second");
    must(dup2(second, first) == first, "dup2");
    naps(300);
    FILE *stream = fdopen(file("third"), "w");
    for (int n = 0; n < 10; n++)
        must(fwrite(chunk, sizeof chunk, 1, stream) == 1, "fwrite");
    fclose(stream);
}

static void pauses(void)
{
    int fd = file("own");
    writes(fd, 10);
    naps(1500);
    /* This is little, and no phase. */
    writes(fd, 1);
    naps(1500);
    writes(fd, 10);
    exit(0);
}

/* Writes until it is told to end. */
static void goes_on(void)
{
    struct stat found;
    int fd = file("own");
    while (stat("end", &found) != 0) {
        writes(fd, 8);
        must(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0, "ftruncate");
        naps(5);
    }
    close(fd);
}

static void cut_short(void)
{
    int fd = file("own");
    writes(fd, 10);
    file("is at work");
    struct stat found;
    while (stat("cut", &found) != 0)
        naps(1);
    writes(fd, 10);
    close(fd);
    for (int n = 0; n < 50; n++) {
        fd = file("own");
        writes(fd, 10);
        close(fd);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {{"checkpoint", checkpoint}, {"little", little}, {"large", large}, {"thousand_threads", thousand_threads},
             {"handler", handler},       {"forks", forks},   {"closes", closes}, {"pauses", pauses},
             {"goes_on", goes_on},       {"cut_short", cut_short}, {"two_volumes", two_volumes}};

int main(int count, char **arguments)
{
    must(count > 2 && chdir(arguments[2]) == 0, "turns MODE FOLDER");
    for (unsigned n = 0; n < sizeof modes / sizeof *modes; n++)
        if (strcmp(modes[n].name, arguments[1]) == 0) {
            modes[n].run();
            return 0;
        }
    return 1;
}
