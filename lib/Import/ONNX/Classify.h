// Which float tensors of a file are parameters, and which are constants.

#ifndef CLEAVE_LIB_IMPORT_ONNX_CLASSIFY_H
#define CLEAVE_LIB_IMPORT_ONNX_CLASSIFY_H

#include "Model.h"

#include <set>

namespace cleave::importer {

/// Names of float initializers that are never trained: single numbers, and
/// tables that only ever meet tensors derived from shapes and positions, such
/// as the frequencies of rotary positions. `tokens` names the input whose
/// values are no positions.
std::set<std::string> findConstants(const Model &model,
                                    llvm::StringRef tokens);

} // namespace cleave::importer

#endif
