// The operands of nodes during import, and operations on them that do not
// depend on ONNX. An operation is evaluated if the elements of all its operands
// are known during import; otherwise it is emitted as nn IR.

#ifndef CLEAVE_LIB_IMPORT_ONNX_BUILD_H
#define CLEAVE_LIB_IMPORT_ONNX_BUILD_H

#include "HostTensor.h"
#include "Model.h"

#include "cleave/Dialect/NN/IR/NN.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace cleave::importer {

std::string spell(llvm::ArrayRef<int64_t> shape);

struct ChosenRows;

/// An operand of a node during import. It is a tensor whose elements are known
/// during import, a value of the IR, or a tensor of the ONNX file that becomes
/// a function argument when a node first needs it as a value.
struct Operand {
  Element type = Element::Undefined;
  Shape shape;
  std::optional<HostTensor> host;
  mlir::Value value;
  const TensorRef *file = nullptr;
  /// Set only if the tensor holds rows that a mask selects at run time, or the
  /// number of such rows (ChosenRows.h). `chosenDim` is the dimension that
  /// enumerates the selected rows, or -1 if the tensor holds their number.
  std::shared_ptr<const ChosenRows> chosen;
  int64_t chosenDim = -1;
  /// The tensors, if the operand is a sequence of tensors (SequenceOps.cpp);
  /// null for one tensor.
  std::shared_ptr<const std::vector<Operand>> parts;

  Operand() = default;
  Operand(HostTensor tensor);
  Operand(mlir::Value value);

  int64_t rank() const { return shape.size(); }
  bool isHost() const { return host.has_value(); }
  /// Returns the value of all elements if they are known and equal, otherwise
  /// nullopt. A large integer is rounded to the nearest double.
  std::optional<double> splatValue() const;
  /// Like splatValue, but exact, and only for integers.
  std::optional<int64_t> splatInt() const;
};

/// An elementwise function: how it is evaluated if the elements of all operands
/// are known, and how it is emitted as an operation otherwise. A null
/// `onFloats` or `onInts` means that known elements of this kind are not
/// evaluated.
struct Elementwise {
  double (*onFloats)(const double *) = nullptr;
  int64_t (*onInts)(const int64_t *) = nullptr;
  mlir::Value (*emit)(mlir::OpBuilder &, mlir::Location,
                      llvm::ArrayRef<mlir::Value>) = nullptr;
  /// Evaluates the function for U64 elements; null if the result has the same
  /// bits as for signed integers.
  uint64_t (*onUnsigned)(const uint64_t *) = nullptr;
};

class Build {
public:
  /// `argument` returns the function argument for a tensor of the ONNX file,
  /// and adds it on first use.
  Build(mlir::OpBuilder &builder, mlir::Location loc,
        std::function<llvm::Expected<mlir::Value>(const TensorRef &)> argument)
      : builder(builder), loc(loc), argument(std::move(argument)) {}

  mlir::OpBuilder &builder;
  mlir::Location loc;

  /// The operand as a value of the IR.
  llvm::Expected<mlir::Value> value(const Operand &operand);
  /// Returns the operand as a value of shape `shape`. Elements that repeat
  /// along a dimension are stored once and broadcast in the IR.
  llvm::Expected<mlir::Value> valueAs(const Operand &operand,
                                      llvm::ArrayRef<int64_t> shape);

  llvm::Expected<Operand> reshape(const Operand &operand,
                                  llvm::ArrayRef<int64_t> shape);
  llvm::Expected<Operand> transpose(const Operand &operand,
                                    llvm::ArrayRef<int64_t> permutation);
  /// By numpy's rules.
  llvm::Expected<Operand> broadcast(const Operand &operand,
                                    llvm::ArrayRef<int64_t> shape);
  llvm::Expected<Operand> slice(const Operand &operand,
                                llvm::ArrayRef<int64_t> offsets,
                                llvm::ArrayRef<int64_t> sizes,
                                llvm::ArrayRef<int64_t> strides);
  llvm::Expected<Operand> concat(llvm::ArrayRef<Operand> operands, int64_t dim);
  llvm::Expected<Operand> cast(const Operand &operand, Element type);
  /// Emits or evaluates a select. The condition is boolean; the other two
  /// operands have the same type.
  llvm::Expected<Operand> select(const Operand &condition, const Operand &then,
                                 const Operand &otherwise);
  /// Broadcasts the operands and applies the function. `type` is the element
  /// type of the result.
  llvm::Expected<Operand> map(const Elementwise &function, Element type,
                              llvm::ArrayRef<Operand> inputs);
  /// Returns a boolean mask [rows, columns] whose element [i, j] is true if low
  /// <= j - i <= high; null if all elements are true.
  mlir::Value emitBand(int64_t rows, int64_t columns, int64_t low,
                       int64_t high);
  Operand splat(Element type, llvm::ArrayRef<int64_t> shape, double value);

private:
  llvm::Expected<mlir::Value> materialise(const HostTensor &tensor);
  mlir::Value emitConstant(const HostTensor &tensor);
  mlir::Value emitIota(Element type, int64_t size);
  mlir::Value emitBroadcast(mlir::Value value, llvm::ArrayRef<int64_t> shape,
                            llvm::ArrayRef<int64_t> dims);
  mlir::Value tryAffine(const HostTensor &tensor);
  mlir::Value tryAffineFloats(const HostTensor &tensor);
  mlir::Value tryAffineInts(const HostTensor &tensor);
  mlir::Value tryBand(const HostTensor &tensor);

  std::function<llvm::Expected<mlir::Value>(const TensorRef &)> argument;
};

/// Returns whether the tensor has only two different values, and one of them
/// fills a band of diagonals.
bool isBand(const HostTensor &tensor);

/// Returns whether the IR cannot represent tensors of this type, so that their
/// elements must be known.
bool isHostOnly(Element type);

/// Converts operands with known elements of a float type below 32 bits to f32
/// if other operands are values of the IR. Such values are f32 even where the
/// ONNX file has a narrower type; see computedType.
void widenBesideValues(llvm::MutableArrayRef<Operand> operands);
/// Converts operands with known elements of a float type below 32 bits to f32
/// if another operand is a value of the IR or a known f32 tensor. It is for
/// operands that have one type in the ONNX file, such as the branches of Where.
void widenToOneType(llvm::MutableArrayRef<Operand> operands);

/// Returns whether a tensor of element type `type` is computed during import if
/// its elements can be known. It varies along the same dimensions as `like`. A
/// float tensor that varies along several dimensions, or along a long one, is
/// instead computed by operations of the IR. An example is the table of angles
/// of rotary position embeddings.
bool mayEvaluate(Element type, const HostTensor &like);

} // namespace cleave::importer

#endif
