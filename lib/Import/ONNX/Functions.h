// Inlining of model-local functions, and the graphs that are attributes of
// nodes.

#ifndef CLEAVE_LIB_IMPORT_ONNX_FUNCTIONS_H
#define CLEAVE_LIB_IMPORT_ONNX_FUNCTIONS_H

#include "Model.h"

#include "llvm/Support/Error.h"

namespace onnx {
class AttributeProto;
class FunctionProto;
class GraphProto;
} // namespace onnx

namespace cleave::importer {

/// Replaces calls of model-local functions by their bodies. Inner values get
/// fresh names, references to attributes are resolved, and nodes use the
/// operator sets that the function imports.
class FunctionInliner {
public:
  /// `storage` owns the nodes that are created. `most` limits their number,
  /// since nested calls can multiply nodes exponentially.
  FunctionInliner(const ::onnx::ModelProto &model,
                  std::vector<std::unique_ptr<::onnx::NodeProto>> &storage,
                  int64_t most);
  ~FunctionInliner();
  llvm::Error run(std::vector<FlatNode> &nodes);

private:
  struct Function;
  struct Scope;
  llvm::Error inlineCall(const ::onnx::NodeProto &call, const std::string &name,
                         const Function &function, std::vector<FlatNode> &nodes,
                         unsigned depth);
  llvm::Error add(std::unique_ptr<::onnx::NodeProto> owned,
                  const ::onnx::NodeProto &node, std::string name,
                  const std::shared_ptr<const Opsets> &opsets,
                  std::vector<FlatNode> &nodes, unsigned depth);
  llvm::Error addSubgraphs(::onnx::NodeProto &node, FlatNode &flat,
                           unsigned depth);
  llvm::Expected<std::shared_ptr<const Subgraph>>
  flatten(const ::onnx::GraphProto &graph, const FlatNode &owner,
          unsigned depth);
  const Function *find(const ::onnx::NodeProto &node) const;

  const ::onnx::ModelProto &model;
  std::vector<std::unique_ptr<::onnx::NodeProto>> &storage;
  std::map<std::string, Function> functions;
  const int64_t most;
  int64_t spent = 0;
  unsigned calls = 0, graphs = 0;
};

} // namespace cleave::importer

#endif
