// Which float tensors of a file are parameters, and which are constants.

#ifndef CLEAVE_LIB_IMPORT_ONNX_CLASSIFY_H
#define CLEAVE_LIB_IMPORT_ONNX_CLASSIFY_H

#include "Model.h"

#include <set>

namespace cleave::importer {

/// Names of float initializers that are never trained: single numbers; tables
/// that only ever meet tensors derived from shapes and positions, such as the
/// frequencies of rotary positions; what no gradient reaches, such as a triangle
/// of ones that is compared with 0; and masks. `tokens` names the input whose
/// values are no positions.
std::set<std::string> findConstants(Model &model, llvm::StringRef tokens);

/// Whether the elements are 0 and one large negative number, or 0 and 1, both of
/// them present, in at least two dimensions: what no training ends in.
bool holdsMask(Model &model, const TensorRef &tensor);

} // namespace cleave::importer

#endif
