// Searches for a smaller program that still fails: applies edits to copies of
// the program, and keeps an edit if the copy still fails, until no edit is
// kept.

#include "cleave/Reduce/Reduce.h"

#include "Edits.h"
#include "ShardingEdits.h"
#include "SizeClasses.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::reduce;

namespace {

/// For each operation, the number of its operands that the search tries as a
/// replacement for its result.
constexpr unsigned kOperandsTried = 4;
/// For each sharding, the number of axes that the search tries to remove, one
/// at a time.
constexpr size_t kReferencesTried = 8;

bool verifies(ModuleOp module) {
  ScopedDiagnosticHandler quiet(module.getContext(),
                                [](Diagnostic &) { return success(); });
  return succeeded(verify(module));
}

/// Returns the sizes that are tried instead of `size`, the smallest first.
SmallVector<int64_t> smallerSizes(int64_t size) {
  SmallVector<int64_t> sizes;
  for (int64_t next = 1; next < size; next += next < 8 ? 1 : next)
    sizes.push_back(next);
  if (size > 1 && sizes.back() != size - 1)
    sizes.push_back(size - 1);
  return sizes;
}

class Shrinker {
public:
  Shrinker(ModuleOp program, llvm::function_ref<bool(ModuleOp)> fails,
           llvm::function_ref<void(ModuleOp)> improved)
      : current(program.clone()), fails(fails), improved(improved) {}

  /// The search terminates, since every edit reduces the number of functions,
  /// of their arguments and results, of operations, references to axes,
  /// attributes or elements, in this order.
  OwningOpRef<ModuleOp> run() {
    attempt([](ModuleOp) { return true; });
    while (dropFunctions() || dropResults() || cutOps() || dropOps() ||
           dropNames() || dropNotes() || skipOps() || returnOperands() ||
           inlineRegions() || mergeArguments() || dropShardings() ||
           simplifyShardings() || dropAxes() || shrinkSizes())
      ;
    return std::move(current);
  }

private:
  /// Applies an edit to a copy of the program. Keeps the copy if the edit
  /// changed something and the copy still fails.
  bool attempt(llvm::function_ref<bool(ModuleOp)> edit) {
    OwningOpRef<ModuleOp> copy = current->clone();
    if (!edit(*copy))
      return false;
    tidy(*copy);
    if (!verifies(*copy) || !fails(*copy))
      return false;
    current = std::move(copy);
    if (improved)
      improved(*current);
    return true;
  }

  /// Applies an edit to ranges of the `count` operations, arguments or results:
  /// first to all of them, then to halves and to smaller and smaller ranges,
  /// since most of a large program can be removed.
  bool inRanges(llvm::function_ref<size_t(ModuleOp)> count,
                llvm::function_ref<bool(ModuleOp, size_t, size_t)> edit) {
    bool any = false;
    for (size_t size = count(*current); size > 0; size /= 2)
      for (size_t end = count(*current); end > 0;) {
        size_t begin = end > size ? end - size : 0;
        any |=
            attempt([&](ModuleOp module) { return edit(module, begin, end); });
        end = std::min(begin, count(*current));
      }
    return any;
  }

  bool dropFunctions() {
    bool any = false;
    for (size_t i = functionsOf(*current).size(); i-- > 0;)
      any |= attempt([&](ModuleOp module) { return dropFunction(module, i); });
    return any;
  }

  bool dropNames() { return inRanges(countPorts, reduce::dropNames); }
  bool dropResults() {
    return inRanges([](ModuleOp m) { return resultsOf(m).size(); },
                    reduce::dropResults);
  }
  bool cutOps() { return inRanges(countOps, reduce::cutOps); }
  bool dropOps() { return inRanges(countOps, reduce::dropOps); }
  bool dropNotes() {
    return inRanges(countPorts, reduce::dropPortNotes) ||
           inRanges(countOps, reduce::dropOpNotes);
  }
  bool dropShardings() { return inRanges(countPorts, reduce::dropShardings); }

  bool skipOps() {
    bool any = false;
    for (size_t number = countOps(*current); number-- > 0;)
      for (unsigned operand = 0; operand < kOperandsTried; ++operand)
        any |= attempt(
            [&](ModuleOp module) { return skipOp(module, number, operand); });
    return any;
  }

  bool returnOperands() {
    bool any = false;
    for (size_t result = resultsOf(*current).size(); result-- > 0;)
      for (unsigned operand = 0; operand < kOperandsTried; ++operand)
        any |= attempt([&](ModuleOp module) {
          return returnOperand(module, result, operand);
        });
    return any;
  }

  bool inlineRegions() {
    bool any = false;
    for (size_t number = countOps(*current); number-- > 0;)
      for (unsigned side : {0, 1})
        any |= attempt([&](ModuleOp module) {
          return inlineRegion(module, number, side);
        });
    return any;
  }

  bool mergeArguments() {
    bool any = false;
    for (size_t which = 0; which < functionsOf(*current).size(); ++which)
      for (unsigned i = functionsOf(*current)[which].getNumArguments();
           i-- > 1;)
        for (unsigned j = 0; j < i; ++j)
          any |= attempt([&](ModuleOp module) {
            return reduce::mergeArguments(module, which, i, j);
          });
    return any;
  }

  bool simplifyShardings() {
    bool any = false;
    for (size_t number = countSlots(*current); number-- > 0;) {
      any |= attempt(
          [&](ModuleOp module) { return simplifySharding(module, number); });
      for (size_t reference = 0; reference < kReferencesTried; ++reference)
        any |= attempt([&](ModuleOp module) {
          return dropReference(module, number, reference);
        });
    }
    return any;
  }

  bool dropAxes() {
    bool any = false;
    for (size_t mesh = meshesOf(*current).size(); mesh-- > 0;)
      for (size_t axis = meshesOf(*current)[mesh].getMesh().getAxes().size();
           axis-- > 0;)
        any |= attempt(
            [&](ModuleOp module) { return dropAxis(module, mesh, axis); });
    return any;
  }

  bool shrinkSizes() {
    bool any = false;
    for (bool again = true; again; any |= again) {
      again = false;
      SizeClasses found(*current);
      for (SizeClasses::Dim leader : found.leaders()) {
        for (int64_t size : smallerSizes(found.size(leader)))
          if (!again)
            again = attempt([&](ModuleOp module) {
              return SizeClasses(module).resize(leader, size);
            });
        if (again)
          break; // `found` speaks of what was
      }
    }
    return any;
  }

  static size_t countPorts(ModuleOp module) {
    return partition::portsOf(module).size();
  }

  OwningOpRef<ModuleOp> current;
  llvm::function_ref<bool(ModuleOp)> fails;
  llvm::function_ref<void(ModuleOp)> improved;
};

} // namespace

std::string reduce::cannotReduce(ModuleOp program) {
  SmallVector<func::FuncOp> functions = functionsOf(program);
  if (functions.empty())
    return "it has no function with a body";
  for (func::FuncOp func : functions)
    if (!func.getBody().hasOneBlock() ||
        !isa<func::ReturnOp>(func.getBody().front().getTerminator()))
      return ("@" + func.getName() +
              " has several blocks, expected one that ends with func.return")
          .str();
  return "";
}

OwningOpRef<ModuleOp>
reduce::shrink(ModuleOp program, llvm::function_ref<bool(ModuleOp)> fails,
               llvm::function_ref<void(ModuleOp)> improved) {
  return Shrinker(program, fails, improved).run();
}

size_t reduce::countOps(ModuleOp program) { return opsOf(program).size(); }
