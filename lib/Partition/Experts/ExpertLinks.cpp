//===- ExpertLinks.cpp - tokens over two classes of links -----------------===//

#include "ExpertLinks.h"

#include "ExpertRows.h"

#include "cleave/Cost/LinkModel.h"
#include "cleave/Dialect/Dist/IR/Padding.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

std::optional<Levels> Levels::of(MeshOp mesh, StringRef axis) {
  std::optional<ArrayRef<int64_t>> within = mesh.getWithin();
  if (!within)
    return std::nullopt;
  MLIRContext *context = mesh.getContext();
  for (auto [known, ranks] :
       llvm::zip_equal(mesh.getMesh().getAxes(), *within)) {
    int64_t nodes = known.getSize() / ranks;
    if (known.getName() != axis || ranks == 1 || nodes == 1)
      continue;
    auto part = [&](int64_t before, int64_t size) {
      return AxisListAttr::get(
          context, {AxisRefAttr::get(context, known.getName(), before, size)});
    };
    return Levels{part(1, nodes), part(nodes, ranks)};
  }
  return std::nullopt;
}

bool cleave::partition::pays(func::FuncOp func, const Levels &levels,
                             AxisListAttr axes, const Cluster &cluster) {
  auto mesh = *func->getParentOfType<ModuleOp>().getOps<MeshOp>().begin();
  MeshAxes atoms(FlatSymbolRefAttr::get(mesh.getSymNameAttr()), mesh.getMesh(),
                 {levels.between.getAxes()[0], levels.within.getAxes()[0]});
  cost::LinkModel links =
      cost::LinkModel::of(func->getParentOfType<ModuleOp>(), atoms, cluster);
  auto setOf = [&](AxisListAttr list) {
    AxisSet set = 0;
    for (Axis atom : atoms.decompose(list.getAxes()))
      set |= AxisSet(1) << atom;
    return set;
  };
  ExpertRows rows(func, atoms, axes, /*maxLoad=*/1);
  llvm::SmallPtrSet<Value, 8> seen;
  double direct = 0, twice = 0;
  func.walk([&](nn::GroupedDotOp op) {
    if (!rows.gathered(op.getMatrices()) || !seen.insert(op.getInput()).second)
      return;
    RankedTensorType type = typeOf(op.getInput());
    double bytes =
        double(type.getNumElements()) * type.getElementTypeBitWidth() / 8;
    direct += links.allToAll(setOf(axes), bytes);
    twice += links.allToAll(setOf(levels.between), bytes) +
             links.allToAll(setOf(levels.within), bytes);
  });
  return twice < direct;
}

/// Emits one of the two steps into which a collective is split. Along the
/// dimension of the collective, the result of the step has `times` / `by` times
/// as many elements as its operand.
template <typename Make>
static SmallVector<Value> step(ValueRange inputs, ArrayRef<int64_t> dims,
                               int64_t times, int64_t by, Make make) {
  SmallVector<Type> types;
  for (auto [input, dim] : llvm::zip_equal(inputs, dims)) {
    SmallVector<int64_t> shape(typeOf(input).getShape());
    shape[dim] = shape[dim] * times / by;
    types.push_back(typeOf(input).clone(shape));
  }
  return llvm::to_vector_of<Value>(make(types)->getResults());
}

bool cleave::partition::splitByLevels(func::FuncOp func, const Levels &levels,
                                      AxisListAttr axes) {
  auto isOfExperts = [](Operation *op) {
    return isa_and_present<nn::GroupedDotOp, nn::GroupedOuterOp,
                           nn::ScatterAddOp, nn::GatherOp>(op);
  };
  auto through = [](Operation *op) {
    return isa_and_present<nn::SaveOp, nn::RematerializeOp, nn::SliceOp,
                           nn::PadOp>(op);
  };
  auto isRead = [&](auto &&self, Value value) -> bool {
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      return isOfExperts(user) ||
             (through(user) && self(self, user->getResult(0)));
    });
  };
  auto isMade = [&](Value value) {
    Operation *def = value.getDefiningOp();
    while (through(def))
      def = def->getOperand(0).getDefiningOp();
    return isOfExperts(def);
  };
  SmallVector<Operation *> found;
  func.walk([&](CollectiveOpInterface op) {
    if (op.getAxes() != axes)
      return;
    bool gathers = isa<AllGatherOp>(*op) &&
                   llvm::any_of(op->getResults(), [&](Value value) {
                     return isRead(isRead, value);
                   });
    bool sums =
        isa<ReduceScatterOp>(*op) && llvm::any_of(op->getOperands(), isMade);
    if (gathers || sums)
      found.push_back(op);
  });
  MeshAttr mesh =
      (*func->getParentOfType<ModuleOp>().getOps<MeshOp>().begin()).getMesh();
  for (Operation *op : found) {
    bool gathers = isa<AllGatherOp>(op);
    OpBuilder builder(op);
    auto dims = op->getAttrOfType<DenseI64ArrayAttr>("dims");
    SmallVector<Value> values(op->getOperands());
    // The ranks of a node have adjacent tiles, so a gather runs within nodes
    // first and then between nodes, and a reduce-scatter in the reverse order.
    SmallVector<AxisListAttr, 2> order = {levels.within, levels.between};
    if (!gathers)
      std::swap(order[0], order[1]);
    for (AxisListAttr over : order) {
      int64_t ranks = axesSize(mesh, over.getAxes());
      values = step(values, dims, gathers ? ranks : 1, gathers ? 1 : ranks,
                    [&](TypeRange types) {
                      OperationState state(op->getLoc(), op->getName(), values,
                                           types, op->getAttrs());
                      state.attributes.set("axes", over);
                      state.attributes.erase(kPaddingAttrName);
                      return builder.create(state);
                    });
    }
    op->replaceAllUsesWith(values);
    op->erase();
  }
  return !found.empty();
}
