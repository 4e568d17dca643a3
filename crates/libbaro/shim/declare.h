/* What the file declares. */
#ifndef BARO_SHIM_DECLARE_H
#define BARO_SHIM_DECLARE_H

#include <stddef.h>

/* Writes all declarations: how many bytes of them. */
size_t declare_all(unsigned char *to, size_t room);

#endif
