/* Whether this machine can run programs for a kind of device, asked before one
 * is compiled. */
#ifndef CLEAVE_DEVICE_H
#define CLEAVE_DEVICE_H

#include "cleave/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CLEAVE_OK where a CUDA driver with a device is; else CLEAVE_UNSUPPORTED, and
 * cleave_last_error says what is missing and what to do. */
cleave_status cleave_find_cuda(void);

#ifdef __cplusplus
}
#endif

#endif
