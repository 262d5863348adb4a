// rt-align-kernels: finds the alignment of the addresses that kernels get.

#include "cleave/Fusion/Fusion.h"
#include "cleave/Memory/BoundaryTable.h"
#include "cleave/Memory/Passes.h"

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

#include <numeric>

namespace cleave {
#define GEN_PASS_DEF_ALIGNKERNELSPASS
#include "cleave/Memory/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

static int64_t widthOf(Value value) {
  auto type = typeOf(value);
  return bytesOf(type) / std::max<int64_t>(1, type.getNumElements());
}

/// Returns the largest power of two, up to kKernelAlignment, that divides the
/// value's address on all ranks. Arenas are aligned to kKernelAlignment.
static int64_t alignmentOf(Value value) {
  int64_t divisor = kernels::kKernelAlignment, offset = 0;
  for (auto alias = value.getDefiningOp<rt::AliasOp>(); alias;
       alias = value.getDefiningOp<rt::AliasOp>()) {
    int64_t width = widthOf(value);
    offset += int64_t(alias.getOffset()) * width;
    // The axis terms are the part of the offset that depends on the rank. A
    // term has four numbers (axis, pre, size, elements) and adds `elements`
    // times the rank's index on the sub-axis axis:(pre)size, in Shardy's
    // notation.
    ArrayRef<int64_t> terms = alias.getAxisTerms();
    for (; !terms.empty(); terms = terms.drop_front(4))
      divisor = std::gcd(divisor, terms[3] * width);
    value = alias.getSource();
  }
  rt::AddressAttr where = rt::addressOf(value);
  if (where && where.getTrips())
    for (ArrayRef<int64_t> terms = where.getTrips(); !terms.empty();
         terms = terms.drop_front(3))
      divisor = std::gcd(divisor, terms[2]);
  return where ? std::gcd(divisor, where.getOffset() + offset) : 0;
}

namespace {
/// Launches of one kernel. For each operand and result, `alignments` has the
/// smallest alignment of its address in these launches.
struct Launches {
  SmallVector<rt::LaunchOp> ops;
  SmallVector<int64_t> alignments;

  void add(rt::LaunchOp op, ArrayRef<int64_t> given) {
    if (ops.empty())
      alignments.assign(given.begin(), given.end());
    for (auto [all, one] : llvm::zip(alignments, given))
      all = std::min(all, one);
    ops.push_back(op);
  }
  bool saysSomething() const {
    return llvm::any_of(alignments, [](int64_t alignment) {
      return alignment < kernels::kKernelAlignment;
    });
  }
};

struct AlignKernelsPass : cleave::impl::AlignKernelsPassBase<AlignKernelsPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    // For each kernel, two groups of launches: those with addresses aligned for
    // the widest access, and all other launches.
    llvm::MapVector<StringAttr, std::array<Launches, 2>> kernels;
    WalkResult walked = module.walk([&](rt::LaunchOp op) -> WalkResult {
      SmallVector<int64_t> alignments;
      bool isNarrow = false;
      auto add = [&](Value value) {
        int64_t alignment = alignmentOf(value);
        alignments.push_back(alignment);
        isNarrow |= alignment < kernels::widestAccess(bytesOf(value.getType()));
        return alignment > 0;
      };
      if (!llvm::all_of(op->getOperands(), add) ||
          !llvm::all_of(op->getResults(), add))
        return op.emitOpError("has no planned memory; run rt-plan-memory "
                              "first");
      kernels[StringAttr::get(&getContext(), op.getKernel())][isNarrow].add(
          op, alignments);
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return signalPassFailure();
    for (auto &[name, versions] : kernels) {
      auto &[wide, narrow] = versions;
      auto kernel = symbols.lookup<func::FuncOp>(name);
      if (!kernel)
        continue;
      auto other = kernel;
      if (!narrow.ops.empty() && !wide.ops.empty()) {
        other = cast<func::FuncOp>(kernel->clone());
        other.setName((name.getValue() + "_unaligned").str());
        symbols.insert(other, std::next(kernel->getIterator()));
        for (rt::LaunchOp op : narrow.ops)
          op.setKernel(other.getName());
      }
      for (auto [func, launches] :
           {std::pair(kernel, &wide), std::pair(other, &narrow)})
        if (launches->saysSomething())
          func->setAttr(kernels::kAlignAttr,
                        Builder(&getContext())
                            .getDenseI64ArrayAttr(launches->alignments));
    }
  }
};
} // namespace
