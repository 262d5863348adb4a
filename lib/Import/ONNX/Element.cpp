// Element types of ONNX tensors.

#include "Element.h"

using namespace mlir;

namespace cleave::importer {

bool isInteger(Element type) {
  switch (type) {
  case Element::U8:
  case Element::I8:
  case Element::U16:
  case Element::I16:
  case Element::I32:
  case Element::I64:
  case Element::Bool:
  case Element::U32:
  case Element::U64:
    return true;
  default:
    return false;
  }
}

int64_t byteSize(Element type) {
  switch (type) {
  case Element::U8:
  case Element::I8:
  case Element::Bool:
    return 1;
  case Element::U16:
  case Element::I16:
  case Element::F16:
  case Element::BF16:
    return 2;
  case Element::F32:
  case Element::I32:
  case Element::U32:
    return 4;
  case Element::F64:
  case Element::I64:
  case Element::U64:
    return 8;
  default:
    return 0;
  }
}

std::string nameOf(Element type) {
  switch (type) {
  case Element::F32:
    return "f32";
  case Element::U8:
    return "u8";
  case Element::I8:
    return "i8";
  case Element::U16:
    return "u16";
  case Element::I16:
    return "i16";
  case Element::I32:
    return "i32";
  case Element::I64:
    return "i64";
  case Element::String:
    return "string";
  case Element::Bool:
    return "bool";
  case Element::F16:
    return "f16";
  case Element::F64:
    return "f64";
  case Element::U32:
    return "u32";
  case Element::U64:
    return "u64";
  case Element::BF16:
    return "bf16";
  default:
    return "type " + std::to_string(static_cast<int32_t>(type));
  }
}

Type toType(Element type, MLIRContext *context) {
  switch (type) {
  case Element::F32:
  case Element::BF16:
  case Element::F16:
    return Float32Type::get(context);
  case Element::F64:
    return Float64Type::get(context);
  case Element::I32:
    return IntegerType::get(context, 32);
  case Element::I64:
    return IntegerType::get(context, 64);
  case Element::Bool:
    return IntegerType::get(context, 1);
  default:
    return {};
  }
}

Element fromType(Type type) {
  if (type.isF32())
    return Element::F32;
  if (type.isF64())
    return Element::F64;
  if (type.isInteger(64))
    return Element::I64;
  if (type.isInteger(32))
    return Element::I32;
  if (type.isInteger(1))
    return Element::Bool;
  return Element::Undefined;
}

} // namespace cleave::importer
