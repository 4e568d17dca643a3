/* The declarations in the file. */
#ifndef BARO_SHIM_DECLARE_H
#define BARO_SHIM_DECLARE_H

#include <stddef.h>

/* Writes all declarations; returns their length in bytes. */
size_t declare_all(unsigned char *to, size_t room);

#endif
