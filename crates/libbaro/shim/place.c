/* The directory in which ingest files are made, and the naming of a new file; with system calls
 * only.
 *
 * /dev/shm is open to all, so a directory of a known name may be anybody's: one that does not
 * belong to this user or root, or that others can write, is not used. In /run only root makes
 * directories: that of the packaged service may belong to any user. */
#define _GNU_SOURCE
#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "format.h"

/* Most files of ended processes of this user that are kept where no agent reads them: the
 * newest. */
#define LEFT_MAX 64
/* Most entries of the directory that are searched for them. */
#define ENTRIES_MAX 4096
#define DIGITS 32
#define EXTENSION ".ingest"

static char run_dir[PATH_MAX];
/* User of the agent that reads there. */
static uid_t agent;

/* ---- Finding the place ---- */

static char *append(char *to, const char *text)
{
    size_t length = strlen(text);
    memcpy(to, text, length + 1);
    return to + length;
}

static char *append_number(char *to, unsigned long number)
{
    char digits[24], *digit = digits + sizeof digits - 1;
    *digit = 0;
    do {
        *--digit = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    return append(to, digit);
}

void write_stat_path(char path[32], pid_t pid) { append(append_number(append(path, "/proc/"), (unsigned long)pid), "/stat"); }

static int open_directory(int at, const char *path, int flags)
{
    return (int)syscall(SYS_openat, at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags, 0);
}

static int close_file(int fd) { return (int)syscall(SYS_close, fd); }

static int look(int at, const char *path, struct stat *found, int flags) { return fstatat(at, path, found, flags) == 0; }

/* Whether the directory of a user's agent in /dev/shm belongs to that user (a link to it as well),
 * and nobody else can write it. */
static int is_of(uid_t user)
{
    struct stat link, directory;
    append_number(append(run_dir, "/dev/shm/barograph-"), user);
    return look(AT_FDCWD, run_dir, &link, AT_SYMLINK_NOFOLLOW) && look(AT_FDCWD, run_dir, &directory, 0) &&
           link.st_uid == user && directory.st_uid == user && S_ISDIR(directory.st_mode) && (directory.st_mode & 022) == 0;
}

/* Whether the directory of the packaged service, which root has given to its user, can be used: it
 * is in a directory that only root can write, is no link, and nobody else can write it. */
static int is_given_by_root(void)
{
    struct stat above, directory;
    append(run_dir, "/run/barograph");
    return look(AT_FDCWD, "/run", &above, 0) && above.st_uid == 0 && (above.st_mode & 022) == 0 &&
           look(AT_FDCWD, run_dir, &directory, AT_SYMLINK_NOFOLLOW) && S_ISDIR(directory.st_mode) &&
           (directory.st_mode & 022) == 0;
}

static int has_segment(void)
{
    struct stat found;
    int fd = open_directory(AT_FDCWD, run_dir, 0);
    int is_there = fd >= 0 && look(fd, "segment", &found, AT_SYMLINK_NOFOLLOW);
    if (fd >= 0)
        close_file(fd);
    return is_there;
}

/* Whether this process may make files in the ingest directory of the run directory, and both have
 * the same owner. */
static int can_use(void)
{
    struct stat above, ingest;
    int fd = open_directory(AT_FDCWD, run_dir, 0);
    int is_usable = fd >= 0 && fstat(fd, &above) == 0 && look(fd, "ingest", &ingest, AT_SYMLINK_NOFOLLOW) &&
                    S_ISDIR(ingest.st_mode) && ingest.st_uid == above.st_uid &&
                    faccessat(fd, "ingest", W_OK | X_OK, AT_EACCESS) == 0;
    if (is_usable)
        agent = above.st_uid;
    if (fd >= 0)
        close_file(fd);
    return is_usable;
}

static int make_own(uid_t us)
{
    append_number(append(run_dir, "/dev/shm/barograph-"), us);
    mkdir(run_dir, 0755);
    if (!is_of(us))
        return 0;
    int fd = open_directory(AT_FDCWD, run_dir, 0);
    if (fd < 0)
        return 0;
    mkdirat(fd, "ingest", 0700);
    close_file(fd);
    return can_use();
}

int find_place(const char *named)
{
    uid_t us = geteuid();
    if (named && *named) {
        /* An absolute path, because the program may change its directory. */
        size_t length = 0;
        if (*named != '/') {
            if (syscall(SYS_getcwd, run_dir, sizeof run_dir) < 0)
                return 0;
            length = strlen(run_dir);
            run_dir[length++] = '/';
        }
        if (length + strlen(named) >= sizeof run_dir)
            return 0;
        append(run_dir + length, named);
        return can_use();
    }
    if (is_of(us) && has_segment() && can_use())
        return 1;
    if (is_given_by_root() && has_segment() && can_use())
        return 1;
    if (is_of(0) && has_segment() && can_use())
        return 1;
    return make_own(us);
}

/* ---- The way into the directory ---- */

static void write_name(char *to, const unsigned char incarnation[16], const char *extension)
{
    for (int byte = 0; byte < DIGITS / 2; byte++) {
        *to++ = "0123456789abcdef"[incarnation[byte] >> 4];
        *to++ = "0123456789abcdef"[incarnation[byte] & 15];
    }
    append(to, extension);
}

/* Gives the agent's user access, and nobody else (include/uapi/linux/posix_acl_xattr.h). */
static void admit_agent(int fd)
{
    enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, MASK = 16, OTHER = 32, READ_WRITE = 6 };
    const uint32_t nobody = UINT32_MAX;
    struct {
        uint32_t version;
        struct {
            uint16_t tag, rights;
            uint32_t id;
        } entries[5];
    } acl = {2,
             {{USER_OBJ, READ_WRITE, nobody},
              {USER, READ_WRITE, agent},
              {GROUP_OBJ, 0, nobody},
              {MASK, READ_WRITE, nobody},
              {OTHER, 0, nobody}}};
    syscall(SYS_fsetxattr, fd, "system.posix_acl_access", &acl, sizeof acl, 0);
}

int open_new(struct new_file *file, const unsigned char incarnation[16])
{
    int flags = O_RDWR | O_CLOEXEC;
    write_name(file->name, incarnation, EXTENSION);
    file->incarnation = incarnation;
    file->made_as[0] = 0;
    int above = open_directory(AT_FDCWD, run_dir, 0);
    file->directory = above < 0 ? -1 : open_directory(above, "ingest", O_NOFOLLOW);
    if (above >= 0)
        close_file(above);
    if (file->directory < 0)
        return 0;
    file->fd = (int)syscall(SYS_openat, file->directory, ".", flags | O_TMPFILE, 0600);
    if (file->fd < 0) {
        write_name(file->made_as, incarnation, ".new");
        file->fd = (int)syscall(SYS_openat, file->directory, file->made_as, flags | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    }
    if (file->fd < 0) {
        close_file(file->directory);
        return 0;
    }
    /* Whatever the umask was. */
    fchmod(file->fd, 0600);
    if (agent != 0 && agent != geteuid())
        admit_agent(file->fd);
    /* On a file system without locks the agent uses the process id. */
    flock(file->fd, LOCK_EX | LOCK_NB);
    return 1;
}

int name_new(struct new_file *file)
{
    if (file->made_as[0])
        return renameat(file->directory, file->made_as, file->directory, file->name) == 0;
    if (linkat(file->fd, "", file->directory, file->name, AT_EMPTY_PATH) == 0)
        return 1;
    /* The form of open(2) for processes without the capability. */
    char path[48];
    append_number(append(path, "/proc/self/fd/"), (unsigned long)file->fd);
    return linkat(AT_FDCWD, path, file->directory, file->name, AT_SYMLINK_FOLLOW) == 0;
}

/* ---- Afterwards ---- */

int knock(const char *name, const unsigned char incarnation[16])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(run_dir) + 1 + strlen(name) >= sizeof address.sun_path)
        return 1; /* not known: the path is too long for a socket */
    append(append(append(address.sun_path, run_dir), "/"), name);
    int fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 1;
    long sent = syscall(SYS_sendto, fd, incarnation, DIGITS / 2, MSG_NOSIGNAL, &address, sizeof address);
    int is_nobody = sent < 0 && (errno == ECONNREFUSED || errno == ENOENT);
    close_file(fd);
    return !is_nobody;
}

/* Whether a file belongs to this library and its process has ended. */
static int is_left(int directory, const char *name)
{
    uint64_t cells = 0;
    int fd = (int)syscall(SYS_openat, directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    int is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    int is_ours = syscall(SYS_pread64, fd, &cells, sizeof cells, HEADER_CELLS) == (long)sizeof cells && cells != 0;
    close_file(fd);
    return is_free && is_ours;
}

struct left {
    struct timespec made;
    char name[DIGITS + sizeof EXTENSION];
};

static int is_older(const struct left *left, const struct left *than)
{
    return left->made.tv_sec < than->made.tv_sec ||
           (left->made.tv_sec == than->made.tv_sec && left->made.tv_nsec < than->made.tv_nsec);
}

/* A process makes one file at a time, so this memory has one user. */
static struct left newest[LEFT_MAX];
static unsigned newest_count;

/* Keeps a file if it is among the newest, in place of the oldest of them, which is removed. */
static void weigh(int directory, const char *name, uid_t us)
{
    struct stat found;
    struct left left;
    if (strlen(name) != DIGITS + sizeof EXTENSION - 1 || strcmp(name + DIGITS, EXTENSION) != 0)
        return;
    if (!look(directory, name, &found, AT_SYMLINK_NOFOLLOW) || !S_ISREG(found.st_mode) || found.st_uid != us)
        return;
    left.made = found.st_mtim;
    append(left.name, name);
    if (newest_count < LEFT_MAX) {
        newest[newest_count++] = left;
        return;
    }
    struct left *oldest = &newest[0];
    for (unsigned other = 1; other < LEFT_MAX; other++)
        if (is_older(&newest[other], oldest))
            oldest = &newest[other];
    if (is_older(oldest, &left)) {
        struct left put_aside = *oldest;
        *oldest = left;
        left = put_aside;
    }
    if (is_left(directory, left.name))
        unlinkat(directory, left.name, 0);
}

static void remove_left(int directory)
{
    static char entries[8192] __attribute__((aligned(8)));
    unsigned seen = 0;
    uid_t us = geteuid();
    newest_count = 0;
    while (seen < ENTRIES_MAX) {
        long length = syscall(SYS_getdents64, directory, entries, sizeof entries);
        if (length <= 0)
            return;
        for (long at = 0; at < length; seen++) {
            struct dirent64 *entry = (struct dirent64 *)(entries + at);
            weigh(directory, entry->d_name, us);
            at += entry->d_reclen;
        }
    }
}

void close_new(struct new_file *file, int is_made)
{
    close_file(file->fd);
    if (!is_made && file->made_as[0])
        unlinkat(file->directory, file->made_as, 0);
    if (is_made && !knock("ingest.sock", file->incarnation))
        remove_left(file->directory);
    close_file(file->directory);
}
