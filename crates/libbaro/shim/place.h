/* Where ingest files are made, and how a file comes there under its name. */
#ifndef BARO_SHIM_PLACE_H
#define BARO_SHIM_PLACE_H

#include <sys/types.h>

/* A file that is being made. */
struct new_file {
    int directory, fd;
    /* In its directory: what it will be called; without O_TMPFILE it has a name already, `made_as`. */
    char name[48], made_as[48];
};

/* Finds the ingest directory: of the run directory that was named, which is never made; else of this user's own agent, else
 * of the packaged service (/run/barograph), else of root's, else this user's own, which is made. 0 if there is none to be
 * trusted. */
int find_place(const char *named);
/* Opens a file that nobody sees yet, locked: a mapping keeps the lock when the descriptor is closed. */
int open_new(struct new_file *file, const unsigned char incarnation[16]);
/* Gives it its name. */
int name_new(struct new_file *file);
/* Closes what is open of it; tells the agent that it is there, or, where there is none, removes older files of ended
 * processes of this user. */
void close_new(struct new_file *file, int is_made);
void write_stat_path(char path[32], pid_t pid);

#endif
