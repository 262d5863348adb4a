// nn-verify-types, the first pass of cleave-opt: reports types that no pass
// supports, so that the passes need not check types themselves.

#include "cleave/Dialect/NN/Transforms/VerifyTypes.h"

#include "cleave/Dialect/NN/Transforms/Passes.h"
#include "cleave/Support/AttrChecks.h"

#include "llvm/Support/MathExtras.h"

namespace cleave {
#define GEN_PASS_DEF_VERIFYTYPESPASS
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

/// The largest number of elements of a tensor. Bytes of many tensors can then
/// be added, and elements multiplied by small constants, without overflow.
static constexpr int64_t kMaxElements = int64_t(1) << 48;

static bool isSupported(Type element) {
  return element.isF64() || element.isF32() || element.isBF16() ||
         element.isInteger(64) || element.isInteger(32) ||
         element.isInteger(8) || element.isInteger(1);
}

/// Returns what is expected instead of the tensor type; empty if the type is
/// supported.
static StringRef expectedOf(TensorType type, bool inKernel) {
  if (!type.hasRank())
    return "a tensor of known rank";
  if (!type.hasStaticShape())
    return "sizes that are known before the program runs";
  if (!isSupported(type.getElementType()))
    return "elements of type f64, f32, bf16, i64, i32, i8 or i1";
  if (inKernel && llvm::is_contained(type.getShape(), 0))
    return "at least one element in a kernel";
  int64_t elements = 1;
  for (int64_t size : type.getShape())
    if (llvm::MulOverflow(elements, std::max<int64_t>(size, 1), elements) ||
        elements > kMaxElements)
      return "at most 2^48 elements";
  return "";
}

namespace {

class Checker {
public:
  explicit Checker(bool inKernel) : inKernel(inKernel) {}

  using Emit = llvm::function_ref<InFlightDiagnostic()>;

  /// Checks the tensor types that `type` is or contains.
  bool check(Type type, Emit emit) const {
    WalkResult result = type.walk([&](TensorType tensor) {
      StringRef expected = expectedOf(tensor, inKernel);
      if (expected.empty())
        return WalkResult::advance();
      emit() << "type " << tensor << "; expected " << expected;
      return WalkResult::interrupt();
    });
    return !result.wasInterrupted();
  }

  /// Checks a function's argument or result. Its attributes have types, too:
  /// that of the unsharded tensor.
  bool checkPort(Type type, DictionaryAttr attrs, Emit emit) const {
    // Loops and branches read their bounds and conditions from such scalars.
    bool isControl = type.isIntOrIndex() && !inKernel &&
                     !(attrs && attrs.contains(nn::kRoleAttr));
    if (isControl)
      return true;
    if (!isa<TensorType>(type)) {
      emit() << "type " << type << "; expected a tensor";
      return false;
    }
    if (!check(type, emit))
      return false;
    if (attrs)
      for (NamedAttribute attr : attrs)
        if (auto other = dyn_cast<TypeAttr>(attr.getValue());
            other && !check(other.getValue(), [&] {
              return emit() << "'" << attr.getName().getValue() << "': ";
            }))
          return false;
    return true;
  }

  bool checkFunction(func::FuncOp func) const {
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (!checkPort(func.getArgumentTypes()[i], func.getArgAttrDict(i),
                     [&] { return argumentError(func, i); }))
        return false;
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (!checkPort(func.getResultTypes()[i], func.getResultAttrDict(i),
                     [&] { return resultError(func, i); }))
        return false;
    return true;
  }

  bool checkOperation(Operation *op) const {
    for (auto [index, type] : llvm::enumerate(op->getResultTypes()))
      if (!check(type, [&, index = index] {
            return op->emitOpError("result ") << index << ": ";
          }))
        return false;
    for (Region &region : op->getRegions())
      for (BlockArgument argument : region.getArguments())
        if (!check(argument.getType(), [&] {
              return op->emitOpError("region argument ")
                     << argument.getArgNumber() << ": ";
            }))
          return false;
    for (NamedAttribute attr : op->getAttrs())
      if (auto type = dyn_cast<TypeAttr>(attr.getValue());
          type && !check(type.getValue(), [&] {
            return op->emitOpError("'") << attr.getName().getValue() << "': ";
          }))
        return false;
    return true;
  }

private:
  bool inKernel;
};

struct VerifyTypesPass : cleave::impl::VerifyTypesPassBase<VerifyTypesPass> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(nn::verifyTypes(getOperation())))
      signalPassFailure();
  }
};

} // namespace

LogicalResult nn::verifyTypes(Operation *root) {
  // A function is visited before its body, so that an error is about the
  // argument rather than about the first operation that reads it.
  WalkResult result = root->walk<WalkOrder::PreOrder>([](Operation *op) {
    auto func = dyn_cast<func::FuncOp>(op);
    auto around = func ? func : op->getParentOfType<func::FuncOp>();
    Checker checker(around && around->hasAttr("nn.kernel"));
    bool holds =
        (!func || checker.checkFunction(func)) && checker.checkOperation(op);
    return holds ? WalkResult::advance() : WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}
