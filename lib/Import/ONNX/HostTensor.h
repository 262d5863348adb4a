// Tensors with known elements: shapes, indices, masks, scalars. Operations on
// them are evaluated during import, so that shape arithmetic does not appear in
// the IR. A tensor is a strided view of a shared buffer. Repeated dimensions
// have stride 0 and take no memory: a mask [8, 1, 4096, 4096] that is the same
// for all samples holds 4096^2 elements.

#ifndef CLEAVE_LIB_IMPORT_ONNX_HOSTTENSOR_H
#define CLEAVE_LIB_IMPORT_ONNX_HOSTTENSOR_H

#include "Element.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave::importer {

/// The number of elements; the largest integer if it overflows.
int64_t product(llvm::ArrayRef<int64_t> shape);
/// Returns the broadcast shape by NumPy's rules, or a reason if the shapes are
/// incompatible.
llvm::Expected<Shape> broadcastShapes(llvm::ArrayRef<int64_t> a,
                                      llvm::ArrayRef<int64_t> b);

class HostTensor {
public:
  /// The largest number of elements that an evaluation may store for one
  /// tensor, or visit in one step.
  static constexpr int64_t kMaxElements = int64_t(1) << 24;
  /// The largest number of elements of a tensor that may be read from a file.
  static constexpr int64_t kMaxStored = int64_t(1) << 28;

  /// Returns how many elements all tensors of this thread have stored so far.
  /// The difference between two calls measures the work in between.
  static int64_t stored();

  HostTensor() = default;
  /// A compact tensor of zeros.
  HostTensor(Element type, llvm::ArrayRef<int64_t> shape);
  static HostTensor splat(Element type, llvm::ArrayRef<int64_t> shape,
                          double value);
  static HostTensor ofInts(llvm::ArrayRef<int64_t> values,
                           Element type = Element::I64);
  static HostTensor ofInt(int64_t value, Element type = Element::I64);
  /// From little-endian bytes of a compact tensor.
  static llvm::Expected<HostTensor>
  fromBytes(Element type, llvm::ArrayRef<int64_t> shape, llvm::StringRef bytes);

  Element type() const { return element; }
  llvm::ArrayRef<int64_t> shape() const { return dims; }
  int64_t rank() const { return dims.size(); }
  int64_t size() const { return product(dims); }
  llvm::ArrayRef<int64_t> strides() const { return steps; }
  bool holdsFloats() const { return isFloat(element); }

  /// Returns the element at a position of the buffer. `forEach` passes such
  /// positions to its body. An unsigned 64-bit integer is returned as the
  /// signed integer with the same bits.
  int64_t intAt(int64_t position) const {
    if (element == Element::Bool)
      return buffer->bools[position];
    return holdsFloats() ? toInteger(buffer->floats[position], Element::I64)
                         : buffer->ints[position];
  }
  double floatAt(int64_t position) const {
    if (holdsFloats())
      return buffer->floats[position];
    int64_t value = intAt(position);
    return element == Element::U64
               ? static_cast<double>(static_cast<uint64_t>(value))
               : static_cast<double>(value);
  }
  /// Stores an element of a tensor whose buffer is not shared. The value is
  /// rounded to the element type, or wrapped to its range.
  void setInt(int64_t position, int64_t value);
  void setFloat(int64_t position, double value);
  /// Copies an element from another tensor of any type.
  void setFrom(int64_t position, const HostTensor &other, int64_t from);

  /// Returns the buffer position of an index.
  int64_t positionOf(llvm::ArrayRef<int64_t> index) const;
  /// Returns a string of bytes that serves as a cache key for the tensor.
  /// Tensors with equal keys have the same type, shape and elements. Equal
  /// tensors may have different keys, unless they are small or share a buffer.
  /// The key is valid as long as the tensor exists.
  std::string identity() const;
  /// All elements in row-major order.
  llvm::SmallVector<int64_t> ints() const;
  llvm::SmallVector<double> floats() const;

  /// Returns true if all elements are equal, also if there is only one element.
  bool isSplat() const;
  /// Returns an equal tensor in which dimensions along which elements repeat
  /// have stride 0, so that the buffer stores each element once.
  HostTensor compressed() const;
  /// Dimensions along which the elements vary.
  Shape liveDims() const;
  /// A row-major copy, in which every stride follows from the shape.
  HostTensor compact() const;

  // Views.
  HostTensor transposed(llvm::ArrayRef<int64_t> permutation) const;
  HostTensor sliced(llvm::ArrayRef<int64_t> offsets,
                    llvm::ArrayRef<int64_t> sizes,
                    llvm::ArrayRef<int64_t> strides) const;
  HostTensor reshaped(llvm::ArrayRef<int64_t> shape) const;
  /// Whether reshaping makes no copy.
  bool isReshapedInPlace(llvm::ArrayRef<int64_t> shape) const;
  /// By numpy's rules; the shapes fit.
  HostTensor broadcastTo(llvm::ArrayRef<int64_t> shape) const;
  HostTensor cast(Element type) const;

  /// Dense attribute with all elements.
  mlir::DenseElementsAttr toAttr(mlir::MLIRContext *context) const;

private:
  static int64_t toInteger(double value, Element type);

  struct Buffer {
    std::vector<uint8_t> bools;
    std::vector<int64_t> ints;
    std::vector<double> floats;
  };
  Element element = Element::Undefined;
  Shape dims, steps;
  int64_t base = 0;
  std::shared_ptr<Buffer> buffer;

  friend void forEach(llvm::ArrayRef<const HostTensor *> tensors,
                      llvm::ArrayRef<int64_t> shape,
                      llvm::function_ref<void(const int64_t *)> body);
};

/// Calls `body` for each index of `shape`, in row-major order, with the
/// position of each tensor's element in its buffer. All tensors must have this
/// shape.
void forEach(llvm::ArrayRef<const HostTensor *> tensors,
             llvm::ArrayRef<int64_t> shape,
             llvm::function_ref<void(const int64_t *)> body);

/// These functions apply a function elementwise with broadcasting. Elements
/// that repeat along a dimension are computed once. The arguments are passed as
/// integers or as doubles.
llvm::Expected<HostTensor>
mapInts(Element type, llvm::ArrayRef<const HostTensor *> operands,
        llvm::function_ref<int64_t(const int64_t *)> function);
/// The operands are of type U64.
llvm::Expected<HostTensor>
mapUnsigned(Element type, llvm::ArrayRef<const HostTensor *> operands,
            llvm::function_ref<uint64_t(const uint64_t *)> function);
llvm::Expected<HostTensor>
mapFloats(Element type, llvm::ArrayRef<const HostTensor *> operands,
          llvm::function_ref<double(const double *)> function);

/// Rounds a double to the precision of an element type.
double roundTo(Element type, double value);
/// Wraps an integer to the range of its type.
int64_t wrapTo(Element type, int64_t value);

/// The identities of maximum and minimum: the smallest and the largest number
/// of an element type.
HostTensor leastOf(Element type);
HostTensor greatestOf(Element type);

} // namespace cleave::importer

#endif
