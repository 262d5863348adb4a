// An ONNX file as the importer sees it: a flat list of nodes with model-local
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

/// The version of each operator set that a node uses.
using Opsets = std::map<std::string, int64_t>;

/// Where the bytes of a tensor are.
struct ByteRange {
  std::string file; // relative to the model's folder
  uint64_t offset = 0;
  uint64_t length = 0;
  bool operator==(const ByteRange &) const = default;
};

/// A tensor of the file: its bytes are inline in `proto` or in a range.
struct TensorRef {
  const ::onnx::TensorProto *proto = nullptr;
  std::string name;
  Element type = Element::Undefined;
  Shape shape;
  bool inFile = false;
  ByteRange range;
  /// Why the bytes cannot be read; empty where they can.
  std::string missing;
  /// Whether the tensor is a parameter of its own, even if another one has the
  /// same bytes in the file.
  bool isApart = false;

  int64_t numElements() const;
};

inline llvm::Error reason(const llvm::Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

struct FlatNode {
  const ::onnx::NodeProto *proto = nullptr;
  std::shared_ptr<const Opsets> opsets;
  /// Name for messages and locations.
  std::string name;

  /// The version of the node's operator set; 0 where it is not imported.
  int64_t opset() const;
};

class Model;

/// A pattern that names this tensor of the file alone, as a string of a
/// configuration.
std::string patternOf(const Model &model, llvm::StringRef name);

/// The first few of `lines`, indented, and how many more there are.
std::string shortList(const std::vector<std::string> &lines);

class Model {
public:
  ~Model();
  /// What is wrong with the model's opset; "" if nothing is.
  const std::string &versionProblem() const { return version; }
  /// Reads and checks a file. Emits one error and returns null on failure.
  static std::unique_ptr<Model> load(llvm::StringRef path,
                                     mlir::MLIRContext &context,
                                     const ImportLimits &limits);

  const ::onnx::GraphProto &graph() const;
  mlir::Location location() const { return loc; }
  llvm::StringRef path() const { return filePath; }

  /// All nodes in an order in which every value is made before it is used.
  const std::vector<FlatNode> &nodes() const { return flat; }
  const std::vector<TensorRef> &initializers() const { return tensors; }
  const TensorRef *findInitializer(llvm::StringRef name) const;
  /// Initializers that cannot be used, which are not among those, and why.
  struct Refused {
    std::string name, why;
  };
  const std::vector<Refused> &refusedInitializers() const { return refused; }

  /// The nodes that read each value, in their order; a node whose operands are
  /// one value twice is there twice.
  std::map<std::string, std::vector<const FlatNode *>> consumers() const;
  /// Where the elements of a tensor are read, after what only moves them.
  struct Use {
    const FlatNode *node;
    int operand;
  };
  /// The uses of each initializer.
  std::map<std::string, std::vector<Use>> uses() const;

  const Metadata &metadata() const { return notes; }

  /// Gives each use of the float initializers that match a tensor of its own.
  /// The first keeps the name, unless the file says that another use is meant
  /// by it; the others are called as the file says, or NAME.use2, NAME.use3,
  /// ...
  void splitUses(llvm::function_ref<bool(llvm::StringRef)> matches);

  /// Describes a tensor of an attribute. Fails with a reason.
  llvm::Expected<TensorRef> describe(const ::onnx::TensorProto &proto);
  /// The bytes of a range; a reason where the file is missing or too short.
  llvm::Expected<llvm::StringRef> read(const ByteRange &range);
  /// Says so where a file became shorter under the reader: the bytes that it
  /// had were taken for zeros.
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
