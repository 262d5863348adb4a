// Checks of matrix products that all backends share.
#ifndef CLEAVE_RUNTIME_PRODUCTS_H
#define CLEAVE_RUNTIME_PRODUCTS_H

#include "cleave/program.h"

#include <string>

namespace cleave {

// Returns the reason why no backend can compute this product; "" if some
// backend can.
std::string checkGemm(const program::Gemm &gemm);

} // namespace cleave

#endif // CLEAVE_RUNTIME_PRODUCTS_H
