// nn-host-to-rt: converts host functions, which call kernels, library
// operations and collectives, to command lists.

#include "CollectivePattern.h"
#include "Views.h"
#include "cleave/Conversion/ToRT/Passes.h"
#include "cleave/Dialect/Dist/IR/Padding.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Fusion/Fusion.h"
#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/ProgramWalk.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

namespace cleave {
#define GEN_PASS_DEF_HOSTTORTPASS
#include "cleave/Conversion/ToRT/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {

/// Rewrites the operations of one host function.
class HostConverter {
public:
  HostConverter(ModuleOp module, SymbolTable &symbols)
      : module(module), symbols(symbols), b(module.getContext()) {}

  /// Converts one operation. If it is conditional (nn.when), so are the new
  /// operations.
  LogicalResult convert(Operation *op) {
    Attribute when = op->getAttr(kWhenAttrName);
    Operation *before = op->getPrevNode(), *after = op->getNextNode();
    if (failed(rewrite(op)))
      return failure();
    if (when)
      for (Operation *made = before ? before->getNextNode()
                                    : &after->getBlock()->front();
           made != after; made = made->getNextNode())
        made->setAttr(kWhenAttrName, when);
    return success();
  }

private:
  LogicalResult rewrite(Operation *op) {
    b.setInsertionPoint(op);
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case([&](func::CallOp call) { return launch(call); })
        .Case([&](arith::ConstantOp constant) { return fill(constant); })
        .Case<nn::SaveOp, nn::RematerializeOp>(
            [&](auto identity) { return replace(op, {identity.getInput()}); })
        .Case<nn::ReshapeOp, nn::SliceOp, nn::TransposeOp>(
            [&](auto) { return place(op); })
        .Case([&](dist::SliceOp slice) { return tile(slice); })
        .Case([&](dist::PlanRowsOp op) {
          return replace(op, rt::PlanRowsOp::create(b, op.getLoc(),
                                                    op->getResultTypes(),
                                                    op.getIds(), op.getTile())
                                 ->getResults());
        })
        .Case([&](dist::SortRowsOp op) {
          return replace(op, rt::SortRowsOp::create(b, op.getLoc(),
                                                    op->getResultTypes(),
                                                    op.getIds(), op.getGroups())
                                 ->getResults());
        })
        .Case([&](dist::ConditionOp op) {
          rt::ConditionOp::create(b, op.getLoc(), op.getFlag(), op.getNumber());
          return replace(op, {});
        })
        .Case([&](dist::CollectiveOpInterface op) { return collective(op); })
        .Case<rt::CommandOpInterface, func::ReturnOp>(
            [](auto) { return success(); })
        .Default([](Operation *op) {
          return op->emitOpError(
              "cannot be compiled: it is none of those that become kernels, "
              "library calls, collectives or placements of elements; express "
              "it by operations of nn, arith and math that do");
        });
  }

  LogicalResult replace(Operation *op, ValueRange values) {
    op->replaceAllUsesWith(values);
    op->erase();
    return success();
  }

  LogicalResult launch(func::CallOp call) {
    auto kernel = symbols.lookup<func::FuncOp>(call.getCallee());
    auto extent = kernel
                      ? kernel->getAttrOfType<IntegerAttr>(kernels::kExtentAttr)
                      : nullptr;
    if (!extent || !kernel->hasAttr(kKernelAttr))
      return call.emitOpError("calls @")
             << call.getCallee() << ", which is not a kernel with an extent";
    auto grain = kernel->getAttrOfType<IntegerAttr>(kernels::kGrainAttr);
    auto inplace =
        kernel->getAttrOfType<DenseI64ArrayAttr>(kernels::kInPlaceAttr);
    auto op = rt::LaunchOp::create(
        b, call.getLoc(), call.getResultTypes(), call.getCalleeAttr().getAttr(),
        call.getOperands(), extent.getInt(), grain ? grain.getInt() : 1,
        inplace ? inplace.asArrayRef() : ArrayRef<int64_t>());
    ArrayRef<int64_t> beyond = readBeyond(kernel);
    if (llvm::any_of(beyond, [](int64_t elements) { return elements != 0; }))
      op->setAttr(rt::kBeyondAttr, b.getDenseI64ArrayAttr(beyond));
    return replace(call, op.getResults());
  }

  /// Returns, for each argument of a kernel, how many elements beyond its end
  /// the kernel may read (values that a mask then replaces). This happens if a
  /// dimension is not divisible by the number of shards: the tiles of the last
  /// ranks may then begin or end beyond the end of the dimension. If such a
  /// tile is divided again, its tiles may be even further beyond.
  ArrayRef<int64_t> readBeyond(func::FuncOp kernel) {
    auto [entry, isNew] = beyond.try_emplace(kernel);
    SmallVector<int64_t> &elements = entry->second;
    if (!isNew)
      return elements;
    elements.assign(kernel.getNumArguments(), 0);
    // Maps each value to the arguments that it depends on and, for each of
    // them, to the maximum number of elements that are read beyond the
    // argument's end.
    llvm::DenseMap<Value, llvm::SmallMapVector<unsigned, int64_t, 4>> past;
    for (BlockArgument argument : kernel.getArguments())
      past[argument][argument.getArgNumber()] = 0;
    kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
      llvm::SmallMapVector<unsigned, int64_t, 4> made;
      for (Value operand : op->getOperands())
        for (auto [argument, most] : past.lookup(operand))
          made[argument] = std::max(made[argument], most);
      if (auto slice = dyn_cast<dist::SliceOp>(op))
        for (auto &[argument, most] : made) {
          most += pastEnd(slice, typeOf(kernel.getArgument(argument)));
          elements[argument] = std::max(elements[argument], most);
        }
      for (Value result : op->getResults())
        past[result] = made;
    });
    return elements;
  }

  /// Returns the maximum number of elements that the last tile of the slice
  /// reads beyond the end of `source`.
  int64_t pastEnd(dist::SliceOp slice, RankedTensorType source) {
    FailureOr<dist::MeshAttr> mesh = meshOf(slice, slice.getMeshAttr());
    if (failed(mesh))
      return 0;
    int64_t whole = typeOf(slice.getInput()).getDimSize(slice.getDim());
    int64_t tile = typeOf(slice.getResult()).getDimSize(slice.getDim());
    int64_t past =
        tile * dist::axesSize(*mesh, slice.getAxes().getAxes()) - whole;
    return past <= 0 ? 0
                     : past * llvm::divideCeil(source.getNumElements(), whole);
  }

  LogicalResult fill(arith::ConstantOp constant) {
    if (constant->use_empty()) {
      constant.erase();
      return success();
    }
    auto value = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (!value || !value.isSplat())
      return constant.emitOpError("has different elements and is read by the "
                                  "host program; it should be "
                                  "part of a kernel");
    auto op = rt::FillOp::create(b, constant.getLoc(), constant.getType(),
                                 value.getSplatValue<TypedAttr>());
    return replace(constant, op.getResult());
  }

  /// Converts reshape, slice and transpose. They become an alias of the operand
  /// if the elements are contiguous, and otherwise a copy.
  LogicalResult place(Operation *op) {
    if (auto slice = dyn_cast<nn::SliceOp>(op);
        slice &&
        llvm::any_of(slice.getStrides(), [](int64_t s) { return s < 0; }))
      return op->emitOpError("reverses a dimension in the host program; it "
                             "should be part of a kernel");
    Value source = op->getOperand(0), result = op->getResult(0);
    StridedView from = denseView(source), view = from;
    if (auto slice = dyn_cast<nn::SliceOp>(op)) {
      for (auto [dim, size] : llvm::enumerate(slice.getSizes())) {
        view.offset += slice.getOffsets()[dim] * from.strides[dim];
        view.strides[dim] = from.strides[dim] * slice.getStrides()[dim];
        view.sizes[dim] = size;
      }
    } else if (auto transpose = dyn_cast<nn::TransposeOp>(op)) {
      for (auto [index, dim] : llvm::enumerate(transpose.getPermutation())) {
        view.strides[index] = from.strides[dim];
        view.sizes[index] = from.sizes[dim];
      }
    }
    if (view.isContiguous())
      return replace(op, rt::AliasOp::create(b, op->getLoc(), result.getType(),
                                             source, view.offset)
                             .getResult());
    return replace(op, copy(op->getLoc(), result.getType(), view, {}));
  }

  /// Copies the elements of a strided view to a dense tensor.
  Value copy(Location loc, Type type, const StridedView &view,
             ArrayRef<int64_t> axisTerms) {
    SmallVector<int64_t> target = {0};
    llvm::append_range(target, denseStrides(view.sizes));
    return rt::CopyOp::create(b, loc, type, view.base, Value(),
                              viewEntries(view), target, view.sizes, axisTerms);
  }

  FailureOr<dist::MeshAttr> meshOf(Operation *op, FlatSymbolRefAttr name) {
    if (dist::MeshOp mesh = dist::MeshOp::lookup(op, name))
      return mesh.getMesh();
    return op->emitOpError("refers to no mesh ") << name;
  }

  /// Returns the axes of a collective's group of ranks as triples: the index of
  /// the mesh axis, and the pre-size and the size of the sub-axis, as in Shardy
  /// (for a whole axis, 1 and the size of the axis).
  SmallVector<int64_t> groupOf(dist::MeshAttr mesh,
                               ArrayRef<dist::AxisRefAttr> axes) {
    SmallVector<int64_t> group;
    for (dist::AxisRefAttr axis : axes)
      for (auto [index, candidate] : llvm::enumerate(mesh.getAxes()))
        if (candidate.getName() == axis.getName())
          group.append({int64_t(index), axis.isWhole() ? 1 : axis.getPre(),
                        dist::axisSize(mesh, axis)});
    return group;
  }

  /// Converts dist.slice, which returns the rank's tile of a value. The tile
  /// begins at index * tile elements in the dimension, where the index is a sum
  /// over mesh axes.
  LogicalResult tile(dist::SliceOp op) {
    FailureOr<dist::MeshAttr> mesh = meshOf(op, op.getMeshAttr());
    if (failed(mesh))
      return failure();
    StridedView view = denseView(op.getInput());
    int64_t dim = op.getDim();
    int64_t size = typeOf(op.getResult()).getDimSize(dim);
    SmallVector<int64_t> terms = groupOf(*mesh, op.getAxes().getAxes());
    int64_t step = size * view.strides[dim], ways = 1;
    for (size_t end = terms.size(); end > 0; end -= 3) {
      int64_t axisSize = terms[end - 1];
      terms.insert(terms.begin() + end, step * ways);
      ways *= axisSize;
    }
    int64_t whole = view.sizes[dim];
    view.sizes[dim] = size;
    if (view.isContiguous()) {
      int64_t reach =
          (ways - 1) * step + typeOf(op.getResult()).getNumElements();
      return replace(op, rt::AliasOp::create(b, op.getLoc(), op.getType(),
                                             op.getInput(), 0, terms, reach)
                             .getResult());
    }
    if (size * ways != whole)
      return op.emitOpError("of an inner dimension of ")
             << whole << " elements that " << ways
             << " ranks do not divide is not supported in the host program";
    return replace(op, copy(op.getLoc(), op.getType(), view, terms));
  }

  /// Converts a collective to commands, one for each element type of its
  /// operands.
  LogicalResult collective(dist::CollectiveOpInterface op) {
    FailureOr<dist::MeshAttr> mesh = meshOf(op, op.getMeshAttr());
    if (failed(mesh))
      return failure();
    SmallVector<int64_t> group = groupOf(*mesh, op.getAxes().getAxes());
    int64_t members = dist::axesSize(*mesh, op.getAxes().getAxes());
    if (members == 1) // a collective of one rank does nothing
      return replace(op, alike(op));
    if (auto rows = dyn_cast<dist::AllToAllVOp>(*op)) {
      int64_t count = typeOf(rows.getInputs()[0]).getDimSize(1);
      int64_t row =
          typeOf(rows.getInputs()[0]).getNumElements() / members / count;
      return replace(op,
                     rt::CollectiveOp::create(
                         b, op->getLoc(), op->getResultTypes(),
                         rt::CollectiveKind::AllToAllV, rows.getInputs(),
                         ValueRange{rows.getSent(), rows.getReceived()}, group,
                         ArrayRef<int64_t>{count, row, count, row},
                         dist::stringifyPurpose(op.getPurpose()),
                         rt::Reduce::Sum, /*sources=*/ArrayRef<int64_t>{},
                         /*root=*/0, /*exchanges=*/ArrayRef<int64_t>{},
                         rows.getExpected(),
                         rows.getBy() ? groupOf(*mesh, rows.getBy()->getAxes())
                                      : SmallVector<int64_t>(),
                         rows.getHome())
                         .getResults());
    }
    FailureOr<CollectivePattern> pattern = patternOf(op, *mesh, members);
    if (failed(pattern))
      return failure();
    llvm::MapVector<Type, SmallVector<unsigned>> byType;
    for (auto [index, operand] : llvm::enumerate(op->getOperands()))
      byType[typeOf(operand).getElementType()].push_back(index);
    SmallVector<Value> results(op->getNumResults());
    int64_t padding = dist::paddingOf(op);
    for (auto &[element, indices] : byType) {
      SmallVector<Value> operands;
      SmallVector<Type> types;
      SmallVector<int64_t> layout, exchanges;
      for (unsigned index : indices) {
        operands.push_back(op->getOperand(index));
        types.push_back(op->getResult(index).getType());
        llvm::append_range(layout, pattern->layouts[index]);
        if (!pattern->exchanges.empty())
          rt::encodeExchange(pattern->exchanges[index], exchanges);
      }
      auto command = rt::CollectiveOp::create(
          b, op->getLoc(), types, pattern->kind, operands,
          /*counts=*/ValueRange(), group, layout,
          dist::stringifyPurpose(op.getPurpose()), pattern->reduce,
          pattern->sources, /*root=*/0, exchanges);
      dist::setPadding(command, std::exchange(padding, 0));
      for (auto [index, result] : llvm::zip(indices, command.getResults()))
        results[index] = result;
    }
    return replace(op, results);
  }

  /// Returns the operands, converted to the results' types.
  SmallVector<Value> alike(Operation *op) {
    SmallVector<Value> values;
    for (auto [operand, result] :
         llvm::zip(op->getOperands(), op->getResults()))
      values.push_back(operand.getType() == result.getType()
                           ? operand
                           : rt::AliasOp::create(b, op->getLoc(),
                                                 result.getType(), operand, 0)
                                 .getResult());
    return values;
  }

  ModuleOp module;
  SymbolTable &symbols;
  OpBuilder b;
  llvm::DenseMap<Operation *, SmallVector<int64_t>> beyond; // by kernel
};

struct HostToRTPass : cleave::impl::HostToRTPassBase<HostToRTPass> {
  using Base::Base;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    HostConverter converter(getOperation(), symbols);
    for (func::FuncOp func : commandListsOf(getOperation())) {
      // Constants are converted last: a constant that no operation reads by
      // then is erased.
      SmallVector<Operation *> ops;
      for (Operation &op : actionBody(func))
        if (!isa<arith::ConstantOp>(op))
          ops.push_back(&op);
      for (Operation &op : actionBody(func))
        if (isa<arith::ConstantOp>(op))
          ops.push_back(&op);
      for (Operation *op : ops)
        if (failed(converter.convert(op)))
          return signalPassFailure();
    }
  }
};
} // namespace
