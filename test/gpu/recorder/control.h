/* What tests ask the recorder; found with dlsym. */
#ifndef CLEAVE_TEST_GPU_RECORDER_CONTROL_H
#define CLEAVE_TEST_GPU_RECORDER_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many errors there were since the last call, and their texts, a line
 * each. Only with CLEAVE_RECORDER_KEEP_GOING, else there are none. */
int64_t cleaveRecorderTakeErrors(char *text, size_t size);

/* How many there have been of "operations", "launches", "products", "plans"
 * (of cuDNN), "collectives", "messages", "copies"; -1 of anything else. */
int64_t cleaveRecorderCount(const char *what);

#ifdef __cplusplus
}
#endif

#endif /* CLEAVE_TEST_GPU_RECORDER_CONTROL_H */
