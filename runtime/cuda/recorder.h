/* What a recorder that stands in for the driver is told.
 *
 * A shared library that has the driver's functions may have these two besides.
 * The driver has not, and then nobody is told. */
#ifndef CLEAVE_RUNTIME_CUDA_RECORDER_H
#define CLEAVE_RUNTIME_CUDA_RECORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cleave_access {
  const void *at;
  int64_t bytes;
  int32_t written; /* else only read */
} cleave_access;

typedef struct cleave_note {
  int32_t rank;
  const char *action, *source, *kind; /* of the command; live during the call */
  int32_t command;                    /* its index in the action, or -1 */
  int64_t extent;                     /* rows of a generated kernel */
  const cleave_access *accesses;      /* what launches read and write */
  int64_t num_accesses;
} cleave_note;

/* cleaveRecorderNote: launches on `stream` from now on belong to this note,
 * until the next one for the stream. Copies, library calls and collectives are
 * known by their own arguments. */
typedef void (*cleave_recorder_note)(void *stream, const cleave_note *note);

/* cleaveRecorderKernels: a shared library that has forms for CPUs
 * (cleave_kernel) of the kernels of modules that are loaded from now on. */
typedef void (*cleave_recorder_kernels)(const char *path);

#ifdef __cplusplus
}
#endif

#endif /* CLEAVE_RUNTIME_CUDA_RECORDER_H */
