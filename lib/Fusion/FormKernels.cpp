// nn-form-kernels: outlines fused groups of operations into kernel functions.

#include "FormKernels.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Fusion/Fusion.h"
#include "cleave/Fusion/Passes.h"
#include "cleave/Interfaces/Condition.h"
#include "cleave/Support/Locations.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

namespace cleave {
#define GEN_PASS_DEF_FORMKERNELSPASS
#include "cleave/Fusion/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

namespace {

/// Returns the location of a kernel. This is the location of its last
/// operation; but if the kernel has operations that may fail at run time, it is
/// the locations of all of these, because an error may come from any of them.
Location nameOfKernel(ArrayRef<Operation *> ops) {
  SmallVector<Location> checks;
  std::string text;
  for (Operation *op : ops)
    if (isa<nn::CheckIndexOp>(op) &&
        !llvm::is_contained(checks, op->getLoc())) {
      checks.push_back(op->getLoc());
      if (isa<NameLoc>(op->getLoc()))
        text += (text.empty() ? "" : ", or ") + describeLocation(op->getLoc());
    }
  if (checks.size() < 2)
    return checks.empty() ? ops.back()->getLoc() : checks.front();
  Location all = FusedLoc::get(ops.front()->getContext(), checks);
  return text.empty() ? all
                      : Location(NameLoc::get(
                            StringAttr::get(all.getContext(), text), all));
}

struct FormKernelsPass : cleave::impl::FormKernelsPassBase<FormKernelsPass> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<func::FuncOp> hosts = commandListsOf(getOperation());
    symbols.emplace(getOperation());
    for (func::FuncOp host : hosts)
      if (failed(form(host)))
        return signalPassFailure();
  }

  LogicalResult form(func::FuncOp host) {
    if (!host.getBody().hasOneBlock())
      return host.emitError("@")
             << host.getName()
             << " has several blocks; expected straight-line code";
    for (Operation &op : host.front())
      for (Type type : op.getResultTypes())
        if (auto tensor = dyn_cast<RankedTensorType>(type);
            tensor && tensor.getNumElements() == 0 && !op.use_empty())
          return op.emitOpError("gives ")
                 << type
                 << ", which has no elements; expected sizes of at "
                    "least 1 in every dimension";
    Grouping grouping(host);
    if (failed(grouping.run()))
      return failure();

    // Calls of the new kernels are appended at the end of the block, and host
    // operations moved there, in topological order. The operations that are now
    // in kernels are erased last.
    Operation *terminator = host.front().getTerminator();
    for (const Unit *unit : grouping.schedule()) {
      if (!unit->isKernel) {
        if (unit->ops[0] != terminator)
          unit->ops[0]->moveBefore(terminator);
        continue;
      }
      if (failed(outline(grouping, *unit, host, terminator)))
        return failure();
    }
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(host.front()))) {
      bool gone =
          grouping.placeOf(&op) != Place::Host && !isa<func::CallOp>(op);
      bool unread = isa<arith::ConstantOp, nn::ReshapeOp, nn::SliceOp>(op);
      if (op.use_empty() && (gone || unread))
        op.erase();
    }
    return success();
  }

  /// Creates a kernel, a function with the operations of `unit`. Inserts a call
  /// of this function before the operation `before`.
  LogicalResult outline(const Grouping &grouping, const Unit &unit,
                        func::FuncOp host, Operation *before) {
    OpBuilder b(before);
    SmallVector<Operation *> ops = grouping.inlineOps(unit);
    llvm::append_range(ops, unit.ops);
    llvm::DenseSet<Operation *> members(ops.begin(), ops.end());
    llvm::SetVector<Value> arguments;
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        if (Operation *source = operand.getDefiningOp();
            !source || !members.contains(source))
          arguments.insert(operand);
    if (unit.outputs.empty())
      return success(); // no result is read

    SmallVector<Type> types, resultTypes;
    for (Value value : arguments)
      types.push_back(value.getType());
    for (Value value : unit.outputs)
      resultTypes.push_back(value.getType());
    Location loc = nameOfKernel(unit.ops);
    auto kernel = func::FuncOp::create(
        loc, (grouping.nameOf(unit) + "_" + Twine(counter++)).str(),
        b.getFunctionType(types, resultTypes));
    kernel.setPrivate();
    Block *body = kernel.addEntryBlock();
    IRMapping mapping;
    mapping.map(arguments.getArrayRef(), body->getArguments());
    OpBuilder inner = OpBuilder::atBlockEnd(body);
    // Each operation is copied after the operations that compute its operands.
    llvm::DenseSet<Operation *> done;
    std::function<void(Operation *)> copy = [&](Operation *op) {
      if (!members.contains(op) || !done.insert(op).second)
        return;
      for (Value operand : op->getOperands())
        if (Operation *source = operand.getDefiningOp())
          copy(source);
      inner.clone(*op, mapping)->removeAttr(kWhenAttrName);
    };
    for (Operation *op : ops)
      copy(op);
    SmallVector<Value> results;
    for (Value value : unit.outputs)
      results.push_back(mapping.lookup(value));
    func::ReturnOp::create(inner, loc, results);

    symbols->insert(kernel);
    if (failed(annotateKernel(kernel)))
      return failure();
    auto call = func::CallOp::create(b, loc, kernel, arguments.getArrayRef());
    if (unit.when)
      call->setAttr(kWhenAttrName, unit.when);
    for (auto [output, result] :
         llvm::zip_equal(unit.outputs, call.getResults()))
      Value(output).replaceUsesWithIf(result, [&](OpOperand &use) {
        return grouping.placeOf(use.getOwner()) != Place::Kernel ||
               !llvm::is_contained(unit.ops, use.getOwner());
      });
    return success();
  }

  /// All kernels share one symbol table, because building a symbol table takes
  /// time linear in the number of kernels.
  std::optional<SymbolTable> symbols;
  int64_t counter = 0;
};

} // namespace
