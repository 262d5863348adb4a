// Tensors of a file that are one parameter, or several.

#ifndef CLEAVE_LIB_IMPORT_ONNX_TIES_H
#define CLEAVE_LIB_IMPORT_ONNX_TIES_H

#include "Classify.h"

#include "cleave/Import/ONNX/Import.h"

namespace cleave::importer {

/// A matrix that holds the elements of several tables, any of which its
/// products could be meant for.
struct OpenTie {
  std::string copy;
  std::vector<std::string> tables;
};

struct FoundTies {
  std::vector<Tie> ties;
  std::vector<OpenTie> open;
};

/// Tables that are looked up by rows, and matrices that hold the same elements,
/// maybe transposed, in products that depend on these lookups and give scores
/// of the rows. Other tensors of equal elements are parameters of their own.
/// Those whose bytes are missing are passed over, and those of which the file
/// says what they come from.
FoundTies tiesByContent(Model &model, const Constants &constants);

/// The model, with the tensors split that the options name.
std::unique_ptr<Model> loadSplit(llvm::StringRef path,
                                 const ImportOptions &options,
                                 mlir::MLIRContext &context);

} // namespace cleave::importer

#endif
