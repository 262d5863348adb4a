/* The form for CPUs of a kernel that adds the rank's first index to rows of 4
 * numbers. */
#include "cleave/runtime.h"

void add_index(const cleave_ctx *ctx, void *const *args, int64_t begin,
               int64_t end) {
  const float *in = args[0];
  float *out = args[1];
  for (int64_t row = begin; row < end; ++row)
    for (int i = 0; i < 4; ++i)
      out[4 * row + i] = in[4 * row + i] + (float)ctx->axis_index[0];
}
