// Emits the loads of a GPU kernel, as wide accesses where possible.

#include "GpuEmitter.h"

#include "cleave/Fusion/Fusion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <numeric>

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::kernels;

Value GpuEmitter::constant32(int64_t value) {
  return arith::ConstantOp::create(b, b.getI32IntegerAttr(value));
}

Value GpuEmitter::add32(Value a, int64_t c) {
  return c == 0 ? a : Value(arith::AddIOp::create(b, a, constant32(c)));
}

Value GpuEmitter::wide(Value value) {
  return arith::ExtUIOp::create(b, b.getI64Type(), value);
}

Value GpuEmitter::quotient(Value value, int64_t divisor) {
  if (divisor == 1)
    return value;
  return arith::DivUIOp::create(b, value, constant32(divisor));
}

Value GpuEmitter::remainder(Value value, int64_t divisor) {
  if (divisor == 1)
    return constant32(0);
  return arith::RemUIOp::create(b, value, constant32(divisor));
}

void GpuEmitter::ifTrue(Value condition, llvm::function_ref<void()> body) {
  if (!condition) {
    body();
    return;
  }
  auto branch = scf::IfOp::create(b, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  body();
}

Value GpuEmitter::loopValue(const IndexVar *var, int copy) {
  if (!(var->loops & copyLoops))
    return loopValues.lookup(var->loop);
  return copyValues.lookup({var->loop, copy});
}

Value GpuEmitter::axisIndices() {
  return func.getArgument(func.getNumArguments() - 1);
}

//===----------------------------------------------------------------------===//
// Divisibility and uniformity of indices
//===----------------------------------------------------------------------===//

/// Returns a number that divides the index of the first lane of every vector
/// (`lanes` consecutive elements); 0 if that index is always 0.
int64_t GpuEmitter::divisorOf(const IndexExpr &index) const {
  int64_t divisor = std::abs(index.constant());
  for (auto [var, factor] : index.terms())
    divisor = std::gcd(divisor, factor * divisorOf(var));
  return divisor;
}

int64_t GpuEmitter::divisorOf(const IndexVar *var) const {
  switch (var->kind) {
  case IndexVar::Kind::Loop:
    return var == lane ? lanes : 1;
  case IndexVar::Kind::Mod:
    return std::gcd(divisorOf(var->base), var->divisor);
  case IndexVar::Kind::FloorDiv: {
    int64_t divisor = divisorOf(var->base);
    return divisor % var->divisor == 0
               ? std::max<int64_t>(1, divisor / var->divisor)
               : 1;
  }
  case IndexVar::Kind::Data:
    return 1;
  }
  llvm_unreachable("all kinds are covered");
}

/// Returns whether the variable has the same value in all lanes of a vector.
/// For base / divisor, where `base` increases by one from lane to lane, this
/// holds if the vector length divides both the divisor and the first lane's
/// `base`.
bool GpuEmitter::isUniform(const IndexVar *var) const {
  if (!(var->loops & lane->loops))
    return true;
  return var->kind == IndexVar::Kind::FloorDiv && var->divisor % lanes == 0 &&
         divisorOf(var->base) % lanes == 0 && isContiguous(var->base);
}

/// Returns whether the variable increases by one from lane to lane.
bool GpuEmitter::isStep(const IndexVar *var) const {
  if (var == lane)
    return true;
  return var->kind == IndexVar::Kind::Mod && var->divisor % lanes == 0 &&
         divisorOf(var->base) % lanes == 0 && isContiguous(var->base);
}

bool GpuEmitter::isContiguous(const IndexExpr &index) const {
  int64_t steps = 0;
  for (auto [var, factor] : index.terms()) {
    if (isUniform(var))
      continue;
    if (!isStep(var))
      return false;
    steps += factor;
  }
  return steps == 1;
}

unsigned GpuEmitter::alignmentOf(const IndexExpr &index, Type element,
                                 unsigned source) {
  int64_t divisor = divisorOf(index), aligned = 1;
  while (aligned < lanes && divisor % (2 * aligned) == 0)
    aligned *= 2;
  int64_t ofAddress =
      source < alignments.size() ? alignments[source] : kKernelAlignment;
  int64_t bytes = bytesOf(element);
  return std::max(std::min(aligned * bytes, ofAddress), bytes);
}

//===----------------------------------------------------------------------===//
// Loads
//===----------------------------------------------------------------------===//

Value GpuEmitter::createLaneLoad(const Node *node, int copy, Value base,
                                 VectorType type) {
  const IndexExpr &index = node->index;
  Type storage = type.getElementType();
  Value guard;
  if (node->guard)
    guard = emit(node->guard, copy);
  bool guardInLane = guard && isa<VectorType>(guard.getType());
  auto orFirst = [&](Value condition, Value at) -> Value {
    if (!condition)
      return at;
    return arith::SelectOp::create(b, condition, at, constantIndex(0));
  };

  bool uniform = true;
  for (auto [var, factor] : index.terms())
    uniform &= isUniform(var);
  if (uniform && !guardInLane) {
    Value at = orFirst(guard, emitIndex(index, copy));
    return splat(LLVM::LoadOp::create(b, storage, address(base, at, node->type),
                                      bytesOf(node->type)));
  }
  if (isContiguous(index) && !guardInLane) {
    // A node may have a guard. Where the guard is false, the node's index may
    // be out of range and must not be read. The vector at the beginning of the
    // tensor is then loaded instead, and its value is not used. This requires
    // that the tensor has at least the size of the vector.
    auto loaded = cast<RankedTensorType>(
        node->kind == Node::Kind::Table
            ? cast<DenseElementsAttr>(node->value).getType()
        : node->source < plan.arguments.size()
            ? plan.arguments[node->source].getType()
            : plan.outputs[node->source - plan.arguments.size()].getType());
    if (!guard || loaded.getNumElements() >= lanes) {
      Value at = orFirst(guard, emitLaneBase(index, copy));
      unsigned alignment = node->kind == Node::Kind::Table
                               ? bytesOf(node->type)
                               : alignmentOf(index, node->type, node->source);
      return LLVM::LoadOp::create(b, type, address(base, at, node->type),
                                  alignment);
    }
  }
  // Loads the lanes one by one. Where the guard is false, the tensor's first
  // element is loaded instead, because it always exists.
  Value at = emitIndexLanes(index, copy);
  if (guard)
    at = arith::SelectOp::create(b, splat(guard), at,
                                 constantOf(at.getType(), 0));
  Value result = constantOf(type, 0);
  for (int64_t i = 0; i < lanes; ++i) {
    Value one = vector::ExtractOp::create(b, at, i);
    Value element = LLVM::LoadOp::create(
        b, storage, address(base, one, node->type), bytesOf(node->type));
    result = vector::InsertOp::create(b, element, result, i);
  }
  return result;
}
