/* The volumes on which programs take turns, and which of them an open file is on.
 *
 * The volumes are told at the start (BAROGRAPH_IO_SCHEDULE, which `baro io --schedule` sets to those
 * of the agent). A file is on the volume with the longest path above its own; its path is that which
 * the kernel gives for the descriptor, so links and relative names do not matter. It is asked for
 * when the class of a descriptor is looked up, and kept with it. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Longest path of a volume, with its end. */
#define PATH_BYTES 256

struct place {
    /* The path by which the agent knows it, and that of its files. */
    char name[PATH_BYTES], path[PATH_BYTES];
    size_t length;
};

static struct place places[VOLUMES_MAX];
int volume_count;

const char *volume_name(int volume) { return places[volume].name; }

/* Copies a path without slashes at its end; returns its length, or -1 if it is not one. */
static int copy_path(char *to, const char *from, size_t length)
{
    if (length == 0 || length >= PATH_BYTES || *from != '/')
        return -1;
    while (length > 0 && from[length - 1] == '/')
        length--;
    memcpy(to, from, length);
    to[length] = 0;
    return (int)length;
}

void begin_volumes(const char *list)
{
    while (list && *list && volume_count < VOLUMES_MAX) {
        size_t length = strcspn(list, ":"), name = strcspn(list, "=:");
        struct place *place = &places[volume_count];
        const char *path = name < length ? list + name + 1 : list;
        int of_path = copy_path(place->path, path, (size_t)(list + length - path));
        int of_name = copy_path(place->name, list, name);
        if (of_path >= 0 && of_name >= 0) {
            place->length = (size_t)of_path;
            /* The root has a name as well. */
            if (of_name == 0)
                memcpy(place->name, "/", 2);
            volume_count++;
        }
        list += length + (list[length] != 0);
    }
}

static void write_fd_path(char path[32], int fd)
{
    static const char above[] = "/proc/self/fd/";
    char digits[12], *digit = digits + sizeof digits - 1;
    *digit = 0;
    do {
        *--digit = (char)('0' + fd % 10);
        fd /= 10;
    } while (fd != 0);
    memcpy(path, above, sizeof above - 1);
    memcpy(path + sizeof above - 1, digit, strlen(digit) + 1);
}

int volume_of(int fd)
{
    char link[32], path[PATH_BYTES + 1];
    int found = 0;
    size_t longest = 0;
    write_fd_path(link, fd);
    /* Of a longer path, its beginning is all that counts. */
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length <= 0 || *path != '/')
        return 0;
    path[length] = 0;
    for (int volume = 0; volume < volume_count; volume++) {
        const struct place *place = &places[volume];
        int is_below = (size_t)length > place->length && path[place->length] == '/' &&
                       memcmp(path, place->path, place->length) == 0;
        if (is_below && (found == 0 || place->length > longest)) {
            found = volume + 1;
            longest = place->length;
        }
    }
    return found;
}
