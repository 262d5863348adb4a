//===- Slices.h - parts of an array along one dimension -------------------===//
#ifndef CLEAVE_TRAINER_SLICES_H
#define CLEAVE_TRAINER_SLICES_H

#include "cleave/io/Array.h"

namespace cleave {

/// Copies `count` slices along dimension `dim`: from position `fromBegin` of
/// `from` to position `toBegin` of `to`. Both arrays must have the same element
/// type, and the same shape except in `dim`. Throws an error that names the
/// array `label` if they do not, or if a slice is out of range.
void copySlices(const ArrayView &from, int64_t fromBegin, Array &to,
                int64_t toBegin, int64_t count, int64_t dim,
                const std::string &label);

} // namespace cleave

#endif // CLEAVE_TRAINER_SLICES_H
