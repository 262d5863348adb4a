//===- Slices.h - parts of an array along one dimension -------------------===//
#ifndef CLEAVE_TRAINER_SLICES_H
#define CLEAVE_TRAINER_SLICES_H

#include "cleave/io/Array.h"

namespace cleave {

/// Copies the `count` slices from `fromBegin` on along dimension `dim` of
/// `from` to those from `toBegin` on of `to`. The arrays have one element type
/// and, but for `dim`, one shape; `label` names the array in the message if
/// they do not, or if a slice is outside.
void copySlices(const ArrayView &from, int64_t fromBegin, Array &to,
                int64_t toBegin, int64_t count, int64_t dim,
                const std::string &label);

} // namespace cleave

#endif // CLEAVE_TRAINER_SLICES_H
