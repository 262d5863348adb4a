// Names of operations for users: the module of the user's model (such as a
// torch.nn.Module) that an operation comes from and the line of its source, or
// the name of its node in the ONNX graph.

#ifndef CLEAVE_SUPPORT_LOCATIONS_H
#define CLEAVE_SUPPORT_LOCATIONS_H

#include "mlir/IR/Location.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <vector>

namespace cleave {

/// The source of a node of the ONNX graph, as the exporter recorded it. Every
/// field may be missing.
struct NodeSource {
  std::string module; ///< path of the model's module: "blocks.0.qkv"
  /// Path of the model's source file, as the exporter wrote it.
  std::string file;
  unsigned line = 0; ///< line number, counted from 1; 0 if unknown
};

/// Returns a location like
/// loc("node_MatMul_116"(fused<"blocks.0.qkv">["model.py":13:1])). The outer
/// name identifies the node, and the metadata is the module's path.
mlir::Location locationOf(mlir::MLIRContext *context, llvm::StringRef node,
                          const NodeSource &source);

/// Returns a text that names the location in messages. For a node of the ONNX
/// graph, the text is like "blocks.0.qkv (model.py:13)", or has the node's name
/// in place of "blocks.0.qkv" if the exporter recorded no module of the model.
/// For a location in a file, the text is "file:line:column". For other
/// locations it is "".
std::string describeLocation(mlir::Location location);

/// Like describeLocation, for a node that has no location yet. Without a
/// module, the text is only "model.py:13"; without a line too, it is "".
std::string describeSource(const NodeSource &source);

/// Merges the names of layers that differ only in numbers into groups:
/// "blocks.0.fc", "blocks.1.fc" and "head" become "blocks.*.fc" and "head". A
/// number that is equal in all names of a group is kept. Groups are in the
/// order of their first members.
struct FoldedName {
  std::string text;
  std::vector<size_t> members; ///< indices into `names`
};
std::vector<FoldedName> foldLayers(llvm::ArrayRef<std::string> names);

} // namespace cleave

#endif
