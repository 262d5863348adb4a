// Operands during import, and ONNX-independent operations on them. An operation
// is evaluated if its operands' elements are known; otherwise it is emitted as
// nn IR.

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

/// An operand of a node during import. It is a tensor with known elements, a
/// value of the IR, or a tensor of the file that becomes a function argument
/// when a node first needs it as a value.
struct Operand {
  Element type = Element::Undefined;
  Shape shape;
  std::optional<HostTensor> host;
  mlir::Value value;
  const TensorRef *file = nullptr;
  /// For tensors of rows that a mask selects (ChosenRows.h): dimension
  /// `chosenDim` enumerates the selected rows. If `chosenDim` is -1, the tensor
  /// holds the number of these rows.
  std::shared_ptr<const ChosenRows> chosen;
  int64_t chosenDim = -1;
  /// A sequence of tensors instead of one tensor; see SequenceOps.cpp.
  std::shared_ptr<const std::vector<Operand>> parts;

  Operand() = default;
  Operand(HostTensor tensor);
  Operand(mlir::Value value);

  int64_t rank() const { return shape.size(); }
  bool isHost() const { return host.has_value(); }
  /// The common value of a known tensor whose elements are all equal. For large
  /// integers it is the nearest double.
  std::optional<double> splatValue() const;
  /// The same for integers.
  std::optional<int64_t> splatInt() const;
};

/// How an elementwise function is evaluated for known elements and emitted as
/// an operation. A null member means that the function does not support this
/// kind of types.
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
  /// `argument` adds the function argument for a tensor of the file on first
  /// use, and returns it.
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
  /// A select. The condition is boolean; the other operands have one type.
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

/// Returns whether the tensor has only two different values, one of which fills
/// a band of diagonals.
bool isBand(const HostTensor &tensor);

/// Returns whether the IR cannot represent tensors of this type, so that their
/// elements must be known.
bool isHostOnly(Element type);

/// Converts known floats of fewer than 32 bits to f32 if other operands are
/// values of the IR, which are f32; see computedType.
void widenBesideValues(llvm::MutableArrayRef<Operand> operands);
/// Converts known floats of fewer than 32 bits to f32 if another operand is a
/// value of the IR or a known f32 tensor. In the ONNX file, the operands must
/// have one common type (such as the branches of Where, or the terms of a sum
/// of empty tensors).
void widenToOneType(llvm::MutableArrayRef<Operand> operands);

/// Returns whether a tensor of element type `type`, which varies along the same
/// dimensions as `like`, is computed during import if its elements can be
/// known. A float tensor that varies along several dimensions, or along a long
/// one, is instead computed by operations of the IR. An example is the table of
/// the angles of rotary positions.
bool mayEvaluate(Element type, const HostTensor &like);

} // namespace cleave::importer

#endif
