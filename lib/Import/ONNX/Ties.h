// Decides which tensors of a file are one parameter (tied weights), and which
// are several.

#ifndef CLEAVE_LIB_IMPORT_ONNX_TIES_H
#define CLEAVE_LIB_IMPORT_ONNX_TIES_H

#include "Classify.h"

#include "cleave/Import/ONNX/Import.h"

namespace cleave::importer {

/// A matrix whose elements equal those of several embedding tables, so that it
/// could be tied to any of these tables.
struct OpenTie {
  std::string copy;
  std::vector<std::string> tables;
};

struct FoundTies {
  std::vector<Tie> ties;
  std::vector<OpenTie> open;
};

/// Finds tied pairs of an embedding table, which the graph looks up by rows,
/// and a matrix with the same elements, possibly transposed. The matrix must be
/// the weight of a product that depends on these lookups and computes one score
/// per row of the table. Other tensors with equal elements are separate
/// parameters. Tensors with missing bytes are skipped. A matrix is also skipped
/// if the ONNX file's metadata say that a module holds it as a tensor of its
/// own, or that the exporter computed it from tensors other than the table.
FoundTies tiesByContent(Model &model, const Constants &constants);

/// Loads a model file and splits the uses of tensors that the options name
/// (train.untie).
std::unique_ptr<Model> loadSplit(llvm::StringRef path,
                                 const ImportOptions &options,
                                 mlir::MLIRContext &context);

} // namespace cleave::importer

#endif
