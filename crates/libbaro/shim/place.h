/* The directory in which ingest files are made, and the naming of a new file. */
#ifndef BARO_SHIM_PLACE_H
#define BARO_SHIM_PLACE_H

#include <sys/types.h>

/* A file that is being made. */
struct new_file {
    int directory, fd;
    /* Its future name in its directory; without O_TMPFILE it already has the name `made_as`. */
    char name[48], made_as[48];
    const unsigned char *incarnation;
};

/* Finds the ingest directory of a run directory: of the named one, which is never made; otherwise
 * of this user's own agent, or of the packaged service (/run/barograph), or of root's agent, or
 * this user's own, which is made. Returns 0 if none of them can be trusted. */
int find_place(const char *named);
/* Opens a file that has no name yet, locked: a mapping keeps the lock when the descriptor is
 * closed. */
int open_new(struct new_file *file, const unsigned char incarnation[16]);
/* Gives the file its name. */
int name_new(struct new_file *file);
/* Closes the descriptors of the file; then wakes the agent or, if there is none, removes older
 * files of ended processes of this user. */
void close_new(struct new_file *file, int is_made);
/* Tells the agent at a socket of its run directory that this file has news; returns 0 if certainly
 * nobody listens. */
int knock(const char *socket, const unsigned char incarnation[16]);
void write_stat_path(char path[32], pid_t pid);

#endif
