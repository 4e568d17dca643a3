/* The declarations in the file. */
#ifndef BARO_SHIM_DECLARE_H
#define BARO_SHIM_DECLARE_H

#include <stddef.h>
#include <stdint.h>

/* Writes all declarations; returns their length in bytes. */
size_t declare_all(unsigned char *to, size_t room);

/* Writes the declarations of the phases on a volume, after all others; returns their length in
 * bytes. They become publication `publication` of the file, with values from `value` on: */
size_t declare_phases(unsigned char *to, size_t room, const char *volume, uint32_t publication, uint32_t value);
enum { PHASE_STAGE, PHASE_DECLARED, PHASE_DONE, PHASE_PRIORITY, PHASE_LEASE, PHASE_VALUES };
/* Most bytes of them. */
#define PHASE_DECLARATIONS_BYTES 1024
/* Number of the values that `declare_all` has declared. */
extern uint32_t values_declared;

#endif
