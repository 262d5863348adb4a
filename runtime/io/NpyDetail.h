//===- NpyDetail.h - shared by the readers and writers of .npy and .npz ---===//
#ifndef CLEAVE_IO_NPYDETAIL_H
#define CLEAVE_IO_NPYDETAIL_H

#include "cleave/io/Array.h"

namespace cleave {

Array arrayFromNpy(const std::byte *data, size_t size, const std::string &name);
std::string npyHeader(const std::string &dtype,
                      const std::vector<int64_t> &shape);
/// Returns the array in a type that NumPy has. If a conversion is needed,
/// `converted` owns the new bytes.
ArrayView numpyView(const ArrayView &array, Array &converted);

} // namespace cleave

#endif // CLEAVE_IO_NPYDETAIL_H
