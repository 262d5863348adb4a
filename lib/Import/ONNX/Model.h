// An ONNX file as the importer sees it: a flat list of nodes, with model-local
// functions inlined, and tensors whose bytes stay in their files.

#ifndef CLEAVE_LIB_IMPORT_ONNX_MODEL_H
#define CLEAVE_LIB_IMPORT_ONNX_MODEL_H

#include "Element.h"
#include "Metadata.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace onnx {
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
} // namespace onnx

namespace cleave {
class MappedFile;
struct ImportLimits;
} // namespace cleave

namespace cleave::importer {

/// Maps the domain of each operator set to the version that applies to a node.
using Opsets = std::map<std::string, int64_t>;

/// Where the bytes of a tensor are.
struct ByteRange {
  std::string file; // relative to the model's folder
  uint64_t offset = 0;
  uint64_t length = 0;
  bool operator==(const ByteRange &) const = default;
};

/// A tensor of the ONNX file. Its bytes are stored in the message `proto`, or
/// in a range of an external file.
struct TensorRef {
  const ::onnx::TensorProto *proto = nullptr;
  std::string name;
  Element type = Element::Undefined;
  Shape shape;
  bool inFile = false;
  ByteRange range;
  /// The reason why the bytes cannot be read; empty if they can.
  std::string missing;
  /// True if train.untie makes the tensor a parameter of its own, even though
  /// another tensor has the same byte range.
  bool isApart = false;

  int64_t numElements() const;
};

inline llvm::Error reason(const llvm::Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

struct Subgraph;

struct FlatNode {
  const ::onnx::NodeProto *proto = nullptr;
  std::shared_ptr<const Opsets> opsets;
  /// Name for messages and locations.
  std::string name;
  /// The graphs that are attributes of the node (If, Loop, Scan), by the name
  /// of the attribute. Outer values that they read are inputs of `proto`, after
  /// the first `formalInputs` ones that the operator defines.
  std::map<std::string, std::shared_ptr<const Subgraph>> subgraphs;
  int formalInputs = -1; // -1: all

  /// The version of the node's operator set; 0 if the ONNX file does not import
  /// it.
  int64_t opset() const;
};

/// A graph that is an attribute of a node. Its nodes are in topological order,
/// and the names of its values are unique in the file.
struct Subgraph {
  std::vector<std::string> inputs, outputs;
  std::vector<FlatNode> nodes;
};

/// Calls `visit` for each node, and for the nodes of its subgraphs after it.
void forEachNode(const std::vector<FlatNode> &nodes,
                 llvm::function_ref<void(const FlatNode &)> visit);

class Model;

/// Returns a pattern that matches only this tensor of the model, quoted as a
/// string of the configuration file.
std::string patternOf(const Model &model, llvm::StringRef name);

/// Returns a text with the first few of `lines`, indented, and with the number
/// of lines left out.
std::string shortList(const std::vector<std::string> &lines);

class Model {
public:
  ~Model();
  /// Returns what is wrong with the model's opset; "" if nothing is.
  const std::string &versionProblem() const { return version; }
  /// Reads and checks a file. Emits one error and returns null on failure.
  static std::unique_ptr<Model> load(llvm::StringRef path,
                                     mlir::MLIRContext &context,
                                     const ImportLimits &limits);

  const ::onnx::GraphProto &graph() const;
  mlir::Location location() const { return loc; }
  llvm::StringRef path() const { return filePath; }

  /// All nodes in topological order: every value is computed before it is used.
  const std::vector<FlatNode> &nodes() const { return flat; }
  const std::vector<TensorRef> &initializers() const { return tensors; }
  const TensorRef *findInitializer(llvm::StringRef name) const;
  /// An initializer that cannot be used, and the reason. initializers() does
  /// not return such initializers.
  struct Refused {
    std::string name, why;
  };
  const std::vector<Refused> &refusedInitializers() const { return refused; }

  /// Returns for each value the nodes that read it, in order. A node that has a
  /// value as two operands occurs twice.
  std::map<std::string, std::vector<const FlatNode *>> consumers() const;
  /// A use of a tensor: a node that reads its elements as one of its operands.
  /// A node that only moves elements is no use; the nodes that read its result
  /// are.
  struct Use {
    const FlatNode *node;
    int operand;
  };
  /// The uses of each initializer.
  std::map<std::string, std::vector<Use>> uses() const;

  const Metadata &metadata() const { return notes; }

  /// For each float initializer that matches a pattern, each use gets a tensor
  /// of its own. The first use keeps the name, unless the ONNX file says that
  /// another use is the original. The other tensors get the name that the
  /// file's metadata has for the use, or NAME.use2, NAME.use3, ...
  void splitUses(llvm::function_ref<bool(llvm::StringRef)> matches);

  /// Describes a tensor that is an attribute of a node. Returns a reason if its
  /// data cannot be used.
  llvm::Expected<TensorRef> describe(const ::onnx::TensorProto &proto);
  /// Returns the bytes of a range of a file, or a reason if the file is missing
  /// or too short.
  llvm::Expected<llvm::StringRef> read(const ByteRange &range);
  /// Reports an error if a file became shorter after it was opened. The bytes
  /// beyond its new end have been read as zeros.
  mlir::LogicalResult checkWhole() const;

private:
  explicit Model(mlir::Location loc);
  mlir::LogicalResult parse(mlir::MLIRContext &context);
  mlir::LogicalResult checkVersions();
  void nameDimensions();
  mlir::LogicalResult inlineFunctions(int64_t most);
  mlir::LogicalResult sortNodes();
  void describeInitializers();
  llvm::Error locate(const ::onnx::TensorProto &proto, TensorRef &tensor);

  mlir::Location loc;
  std::string filePath, folder, fileName, version;
  std::unique_ptr<MappedFile> bytes;
  std::map<std::string, std::unique_ptr<MappedFile>> externalFiles;
  std::unique_ptr<::onnx::ModelProto> proto;
  std::vector<std::unique_ptr<::onnx::NodeProto>> inlined;
  std::vector<FlatNode> flat;
  std::vector<TensorRef> tensors;
  std::vector<Refused> refused;
  std::map<std::string, size_t> tensorIndex;
  Metadata notes;
};

} // namespace cleave::importer

#endif
