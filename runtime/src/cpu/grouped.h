// Grouped matrix products: each row is multiplied with the matrix that it
// chooses.
#ifndef CLEAVE_RUNTIME_CPU_GROUPED_H
#define CLEAVE_RUNTIME_CPU_GROUPED_H

#include "cleave/program.h"
#include "command_buffers.h"

#include <functional>

namespace cleave {

// Returns a call that computes the product. Throws Error if it is not
// supported.
std::function<void()> makeGrouped(const program::GroupedGemm &grouped,
                                  const GroupedBuffers &buffers, int threads);

// Returns whether oneDNN can compute the product: it is f32, and rows and
// matrices have a unit stride.
bool fitsOneDnn(const program::GroupedGemm &grouped);
int64_t oneDnnGroupedWorkspace(const program::GroupedGemm &grouped);
std::function<void()> makeOneDnnGrouped(const program::GroupedGemm &grouped,
                                        const GroupedBuffers &buffers,
                                        int threads);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_GROUPED_H
