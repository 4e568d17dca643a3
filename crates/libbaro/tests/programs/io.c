/* The programs into which the I/O shim is preloaded: `io MODE FOLDER`. Each mode does a known
 * amount of I/O. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static char block[4096];

static void must(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static int file(const char *name, int flags)
{
    int fd = open(name, flags | O_CREAT, 0600);
    must(fd >= 0, name);
    return fd;
}

/* Writes of a block. */
static void writes(int fd, int times)
{
    while (times-- > 0)
        must(pwrite(fd, block, sizeof block, 0) == sizeof block, "pwrite");
}

static void ends_well(pid_t child)
{
    int status;
    must(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child");
}

/* ---- Forks ---- */

static volatile int is_over;

static void *write_on(void *fd)
{
    while (!is_over)
        writes(*(int *)fd, 1);
    return NULL;
}

static void forks_beside_threads(void)
{
    int fd = file("threads", O_RDWR);
    pthread_t threads[4];
    for (int n = 0; n < 4; n++)
        must(pthread_create(&threads[n], NULL, write_on, &fd) == 0, "pthread_create");
    for (int n = 0; n < 300; n++) {
        pid_t child = fork();
        if (child == 0) {
            writes(fd, 1);
            _exit(0);
        }
        ends_well(child);
    }
    is_over = 1;
    for (int n = 0; n < 4; n++)
        pthread_join(threads[n], NULL);
}

static void vforks(char **arguments)
{
    int fd = file("own", O_RDWR);
    writes(fd, 10);
    pid_t child = vfork();
    if (child == 0) {
        execl(arguments[0], arguments[0], "underscore_exit", arguments[2], (char *)NULL);
        _exit(1);
    }
    ends_well(child);
    writes(fd, 1);
}

static int write_in_clone(void *fd)
{
    writes(*(int *)fd, 3);
    return 0;
}

/* Children that are made without fork handlers. */
static void children_behind_the_library(void)
{
    int fd = file("own", O_RDWR);
    static char stack[65536];
    writes(fd, 10);
    pid_t child = _Fork();
    if (child == 0) {
        writes(fd, 3);
        _exit(0);
    }
    ends_well(child);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        writes(fd, 3);
        _exit(0);
    }
    ends_well(child);
    ends_well(clone(write_in_clone, stack + sizeof stack, CLONE_VM | SIGCHLD, &fd));
    writes(fd, 1);
}

static void forked_twice(void)
{
    int fd = file("own", O_RDWR);
    writes(fd, 1);
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            writes(fd, 4);
            _exit(0);
        }
        ends_well(grandchild);
        writes(fd, 2);
        exit(0);
    }
    ends_well(child);
}

/* ---- Signals and threads ---- */

static int handler_fd;

static void on_alarm(int number)
{
    (void)number;
    writes(handler_fd, 1);
}

static void handler_that_writes(void)
{
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    handler_fd = file("handler", O_RDWR);
    signal(SIGALRM, on_alarm);
    must(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
    for (int n = 0; n < 100000; n++) {
        char *some = malloc(100 + n % 5000);
        snprintf(some, 100, "%d %f", n, n / 3.0);
        free(some);
        if (n % 100 == 0)
            writes(handler_fd, 1);
    }
    setitimer(ITIMER_REAL, &never, NULL);
}

static void *write_ten(void *fd)
{
    writes(*(int *)fd, 10);
    return NULL;
}

static void thousand_threads(void)
{
    int fd = file("threads", O_RDWR);
    static pthread_t threads[1000];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int n = 0; n < 1000; n++)
        must(pthread_create(&threads[n], &small, write_ten, &fd) == 0, "pthread_create");
    for (int n = 0; n < 1000; n++)
        pthread_join(threads[n], NULL);
}

/* ---- Ends ---- */

static volatile int *volatile nowhere;

static void ends(const char *how)
{
    int fd = file("end", O_RDWR);
    writes(fd, 7);
    if (strcmp(how, "underscore_exit") == 0)
        _exit(0);
    if (strcmp(how, "quick_exit") == 0)
        quick_exit(0);
    if (strcmp(how, "aborts") == 0)
        abort();
    if (strcmp(how, "is_killed") == 0)
        raise(SIGKILL);
    if (strcmp(how, "crashes") == 0)
        *nowhere = 1;
    if (strcmp(how, "execs") == 0)
        execl("/bin/true", "true", (char *)NULL);
}

/* ---- Descriptors ---- */

static void is_number(int found, int expect) { must(found == expect, "a descriptor's number"); }

static void numbers(void)
{
    int first = file("first", O_RDWR);
    is_number(first, 3);
    writes(first, 1);
    is_number(dup(first), 4);
    pid_t child = fork();
    if (child == 0) {
        is_number(file("second", O_RDWR), 5);
        writes(5, 1);
        is_number(dup(5), 6);
        _exit(0);
    }
    ends_well(child);
    is_number(file("third", O_RDWR), 5);
}

/* 101 bytes are written to files, all else to pipes; each descriptor was of the other kind
 * before. */
static void renumbered(void)
{
    int ends[2], fd = file("file", O_WRONLY);
    is_number(fd, 3);
    must(write(3, block, 1) == 1, "write");
    closefrom(3);
    must(pipe(ends) == 0 && ends[1] == 4, "pipe");
    must(write(4, block, 9) == 9, "write");
    close_range(3, ~0U, 0);
    file("file", O_WRONLY);
    is_number(file("file", O_WRONLY | O_TRUNC), 4);
    must(write(4, block, 50) == 50, "write");
    must(close_range(4, 4, 0) == 0, "close_range");
    must(pipe(ends) == 0 && ends[0] == 4, "pipe");
    must(write(ends[1], block, 9) == 9, "write");
    must(dup2(ends[1], 3) == 3, "dup2");
    must(write(3, block, 9) == 9, "write");
    FILE *stream = fdopen(3, "w");
    setvbuf(stream, NULL, _IONBF, 0);
    must(fwrite(block, 1, 9, stream) == 9, "fwrite");
    must((stream = freopen("file", "w", stream)) != NULL, "freopen");
    must(fwrite(block, 1, 50, stream) == 50, "fwrite");
}

/* ---- Copies and directories ---- */

static void copies(void)
{
    int from = file("from", O_RDWR), to = file("to", O_RDWR), ends[2];
    writes(from, 1);
    must(copy_file_range(from, NULL, to, NULL, 1000, 0) == 1000, "copy_file_range");
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    must(sendfile(ends[0], from, NULL, 500) == 500, "sendfile");
    must(sendfile(to, from, NULL, 250) == 250, "sendfile");
    int directory = open(".", O_RDONLY | O_DIRECTORY);
    must(fsync(directory) == 0, "fsync");
    must(fsync(from) == 0, "fsync");
}

/* Files that are cut short while they are written: the file of the shim, and a file of the
 * program's own. */
static void cut_short(const char *ingest_files)
{
    int fd = file("own", O_RDWR);
    glob_t found;
    writes(fd, 1);
    must(glob(ingest_files, 0, NULL, &found) == 0 && found.gl_pathc == 1, "glob");
    must(truncate(found.gl_pathv[0], 0) == 0, "truncate");
    writes(fd, 10);
    pid_t child = fork();
    if (child == 0) {
        must(ftruncate(fd, 0) == 0, "ftruncate");
        char *mine = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        _exit(*mine);
    }
    int status;
    must(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "SIGBUS of its own");
}

int main(int count, char **arguments)
{
    must(errno == 0, "errno before the program does anything");
    const char *mode = count > 2 ? arguments[1] : "";
    must(count > 2 && chdir(arguments[2]) == 0, "io MODE FOLDER");
    if (strcmp(mode, "forks_beside_threads") == 0)
        forks_beside_threads();
    else if (strcmp(mode, "vforks") == 0)
        vforks(arguments);
    else if (strcmp(mode, "children_behind_the_library") == 0)
        children_behind_the_library();
    else if (strcmp(mode, "forked_twice") == 0)
        forked_twice();
    else if (strcmp(mode, "handler_that_writes") == 0)
        handler_that_writes();
    else if (strcmp(mode, "thousand_threads") == 0)
        thousand_threads();
    else if (strcmp(mode, "numbers") == 0)
        numbers();
    else if (strcmp(mode, "renumbered") == 0)
        renumbered();
    else if (strcmp(mode, "copies") == 0)
        copies();
    else if (strcmp(mode, "cut_short") == 0)
        cut_short(arguments[3]);
    else
        ends(mode);
    return 0;
}
