// Matrices of a file that are one parameter.

#ifndef CLEAVE_LIB_IMPORT_ONNX_TIES_H
#define CLEAVE_LIB_IMPORT_ONNX_TIES_H

#include "Classify.h"

#include "cleave/Import/ONNX/Import.h"

namespace cleave::importer {

/// Matrices, constants aside, that hold the same elements, or one the transpose
/// of the other. Those whose bytes are missing are passed over.
std::vector<Tie> tiesByContent(Model &model, const Constants &constants);

} // namespace cleave::importer

#endif
