// What exporters note beside a graph, in the metadata of its values and nodes.
// Files may lack all of it.

#ifndef CLEAVE_LIB_IMPORT_ONNX_METADATA_H
#define CLEAVE_LIB_IMPORT_ONNX_METADATA_H

#include "cleave/Support/Locations.h"

#include "llvm/ADT/StringRef.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace onnx {
class GraphProto;
class NodeProto;
} // namespace onnx

namespace cleave::importer {

/// What a tensor is to its module. A Number is a constant of the code, or a
/// buffer that no state_dict has.
enum class HeldAs { Unknown, Parameter, Buffer, Number };

class Metadata {
public:
  Metadata() = default;
  /// Of PyTorch's exporter: `pkg.torch.export.graph_signature.InputSpec.kind`,
  /// `.persistent` and `pkg.onnxscript.optimizer.folded_from`, of initializers.
  explicit Metadata(const ::onnx::GraphProto &graph);

  HeldAs heldAs(llvm::StringRef tensor) const;
  /// Whether the file says of some tensors that they are parameters, so that
  /// others, of which it says nothing, are not.
  bool namesParameters() const { return !kinds.empty(); }
  /// Tensors of the model that an exporter computed this one from.
  const std::vector<std::string> &foldedFrom(llvm::StringRef tensor) const;

private:
  std::map<std::string, HeldAs> kinds;
  std::map<std::string, std::vector<std::string>> folded;
};

/// Where the node comes from: the path of the module whose code made it
/// ("h.0.attn"; "" where the file does not say, or it is the model itself), and
/// the line of that code (`pkg.torch.onnx.name_scopes` or `namespace`, and
/// `pkg.torch.onnx.stack_trace`).
NodeSource sourceOf(const ::onnx::NodeProto &node);
/// The module of that source alone.
std::string moduleOf(const ::onnx::NodeProto &node);

/// The parameters and buffers that the node read before exporting, with "_" for
/// "." in their names ("h_0_attn_scale"); empty where the file does not say.
std::vector<std::string> readsOf(const ::onnx::NodeProto &node);

} // namespace cleave::importer

#endif
