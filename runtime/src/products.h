// What every backend asks of a matrix product.
#ifndef CLEAVE_RUNTIME_PRODUCTS_H
#define CLEAVE_RUNTIME_PRODUCTS_H

#include "cleave/program.h"

#include <string>

namespace cleave {

// Returns the reason why no backend can compute this product; empty if one may.
std::string checkGemm(const program::Gemm &gemm);

} // namespace cleave

#endif // CLEAVE_RUNTIME_PRODUCTS_H
