// nn-outline-scans: turns the region of each nn.scan into a function, and the
// scan into a command that runs it.

#include "Views.h"
#include "cleave/Conversion/ToRT/Passes.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/ProgramWalk.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave {
#define GEN_PASS_DEF_OUTLINESCANSPASS
#include "cleave/Conversion/ToRT/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {
struct OutlineScansPass : cleave::impl::OutlineScansPassBase<OutlineScansPass> {
  using Base::Base;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (func::FuncOp func : actionsOf(getOperation()))
      outlineAll(func, func.getName(), symbols);
  }

  /// Outlines the scans of a function, and then those in the new functions.
  void outlineAll(func::FuncOp func, StringRef action, SymbolTable &symbols) {
    SmallVector<nn::ScanOp> scans(func.getOps<nn::ScanOp>());
    for (nn::ScanOp scan : scans) {
      func::FuncOp body = makeBody(scan, func, action, symbols);
      replace(scan, body);
      outlineAll(body, action, symbols);
    }
  }

  /// Moves the region of a scan into a function.
  func::FuncOp makeBody(nn::ScanOp scan, func::FuncOp func, StringRef action,
                        SymbolTable &symbols) {
    OpBuilder b(scan);
    Block *block = scan.getBody();
    Operation *yield = block->getTerminator();
    auto body = func::FuncOp::create(
        scan.getLoc(), (action + ".trip").str(),
        b.getFunctionType(block->getArgumentTypes(), yield->getOperandTypes()));
    body.setPrivate();
    body->setAttr(rt::kBodyAttr, b.getUnitAttr());
    if (Attribute stage = func->getAttr(kStageAttr))
      body->setAttr(kStageAttr, stage);
    symbols.insert(body, getOperation().getBody()->end());
    auto port = [&](unsigned index, nn::Role role) {
      NamedAttrList attrs;
      nn::setName(attrs, &getContext(), std::to_string(index));
      nn::setRole(attrs, &getContext(), role);
      return attrs.getDictionary(&getContext());
    };
    SmallVector<DictionaryAttr> arguments, results;
    for (unsigned index = 0; index < block->getNumArguments(); ++index)
      arguments.push_back(port(index, nn::Role::Input));
    for (unsigned index = 0; index < yield->getNumOperands(); ++index)
      results.push_back(port(index, nn::Role::Output));
    body.setAllArgAttrs(arguments);
    body.setAllResultAttrs(results);
    b.setInsertionPoint(yield);
    func::ReturnOp::create(b, yield->getLoc(), yield->getOperands());
    yield->erase();
    body.getBody().takeBody(scan.getRegion());
    return body;
  }

  /// Replaces a scan by a command that runs `body`. A carried value becomes a
  /// pair of buffers, which alternate: a trip reads one and writes the other.
  /// The initial value is copied to the second one, which the first trip reads.
  void replace(nn::ScanOp scan, func::FuncOp body) {
    OpBuilder b(scan);
    Location loc = scan.getLoc();
    auto stacked = [](Type type, int64_t count) -> RankedTensorType {
      auto tensor = cast<RankedTensorType>(type);
      SmallVector<int64_t> shape = {count};
      llvm::append_range(shape, tensor.getShape());
      return tensor.clone(shape);
    };
    SmallVector<Value> pairs;
    SmallVector<Type> types;
    for (Value init : scan.getInits()) {
      RankedTensorType type = stacked(init.getType(), 2);
      StridedView view = denseView(init);
      SmallVector<int64_t> target = {typeOf(init).getNumElements()};
      llvm::append_range(target, view.strides);
      pairs.push_back(rt::CopyOp::create(b, loc, type, init, Value(),
                                         viewEntries(view), target, view.sizes,
                                         ArrayRef<int64_t>()));
      types.push_back(type);
    }
    llvm::append_range(types, scan.getStacked().getTypes());
    auto repeat = rt::RepeatOp::create(b, loc, types, body.getName(), pairs,
                                       scan.getSlices(), scan.getCaptures(),
                                       scan.getTrips(), scan.getReverse(),
                                       /*has_scratch=*/false);
    int64_t last = (scan.getTrips() - 1) % 2;
    for (auto [index, final] : llvm::enumerate(scan.getFinals()))
      final.replaceAllUsesWith(
          rt::AliasOp::create(b, loc, final.getType(), repeat.getResult(index),
                              last * typeOf(final).getNumElements()));
    for (auto [from, to] :
         llvm::zip_equal(scan.getStacked(), repeat.getStacked()))
      from.replaceAllUsesWith(to);
    scan.erase();
  }
};
} // namespace
