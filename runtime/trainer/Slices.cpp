//===- Slices.cpp - parts of an array along one dimension -----------------===//
#include "Slices.h"
#include "cleave/io/Error.h"

#include <cstring>

namespace cleave {

void copySlices(const ArrayView &from, int64_t fromBegin, Array &to,
                int64_t toBegin, int64_t count, int64_t dim,
                const std::string &label) {
  std::vector<int64_t> want = to.shape;
  bool fits = from.dtype == to.dtype && from.shape.size() == want.size() &&
              dim >= 0 && dim < static_cast<int64_t>(want.size());
  if (fits) {
    want[dim] = from.shape[dim];
    fits = from.shape == want && count >= 0 && fromBegin >= 0 && toBegin >= 0 &&
           count <= from.shape[dim] - fromBegin &&
           count <= to.shape[dim] - toBegin;
  }
  if (!fits)
    throw InputError(label + ": has shape " + shapeToString(from.shape) +
                     " and type " + from.dtype + ", which does not fit " +
                     shapeToString(to.shape) + " and " + to.dtype +
                     " along dimension " + std::to_string(dim) +
                     "; compile the model again");
  size_t inner = elementSize(to.dtype), outer = 1;
  for (size_t d = dim + 1; d < want.size(); ++d)
    inner *= want[d];
  for (int64_t d = 0; d < dim; ++d)
    outer *= want[d];
  for (size_t i = 0; i < outer; ++i)
    std::memcpy(to.bytes.data() + (i * to.shape[dim] + toBegin) * inner,
                from.data + (i * from.shape[dim] + fromBegin) * inner,
                count * inner);
}

} // namespace cleave
