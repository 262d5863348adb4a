// Element types of ONNX tensors. They are declared here because libonnx's own
// enum has only the types of opset 17 and earlier.

#ifndef CLEAVE_LIB_IMPORT_ONNX_ELEMENT_H
#define CLEAVE_LIB_IMPORT_ONNX_ELEMENT_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SmallVector.h"

#include <string>

namespace cleave::importer {

using Shape = llvm::SmallVector<int64_t, 4>;

/// Element types, with the numbers of TensorProto.DataType.
enum class Element : int32_t {
  Undefined = 0,
  F32 = 1,
  U8 = 2,
  I8 = 3,
  U16 = 4,
  I16 = 5,
  I32 = 6,
  I64 = 7,
  String = 8,
  Bool = 9,
  F16 = 10,
  F64 = 11,
  U32 = 12,
  U64 = 13,
  BF16 = 16,
};

inline bool isFloat(Element type) {
  return type == Element::F32 || type == Element::F64 ||
         type == Element::BF16 || type == Element::F16;
}
/// Booleans count as integers.
bool isInteger(Element type);
/// Returns the size in bytes of a stored element; 0 for unknown types.
int64_t byteSize(Element type);
/// The name of the type in messages and in `nn.data`: f32, i64, ...
std::string nameOf(Element type);

/// Returns the type in which programs compute values that have type `type` in
/// the ONNX file. There, bf16 and f16 only determine how weights are stored;
/// what is rounded is determined by train.precision.
inline Element computedType(Element type) {
  return type == Element::BF16 || type == Element::F16 ? Element::F32 : type;
}

/// The element type in the IR for the type `computedType(type)`, or null if the
/// IR has no such type.
mlir::Type toType(Element type, mlir::MLIRContext *context);
Element fromType(mlir::Type type);

} // namespace cleave::importer

#endif
