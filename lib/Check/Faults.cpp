// check-inject-fault: defines the kinds of faults and chooses the operation or
// value into which a fault is injected.

#include "cleave/Check/Faults.h"
#include "FaultPlaces.h"
#include "cleave/Check/Passes.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Support/Locations.h"

namespace cleave {
#define GEN_PASS_DEF_INJECTFAULTPASS
#include "cleave/Check/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

struct Kind {
  const char *name;
  Places (*places)(ModuleOp);
  const char *missing; // the error if no fault can be injected: what is missing
};

const Kind kinds[] = {
    {"drop-collective", dropCollective, "no sum over ranks"},
    {"sum-for-mean", sumForMean, "no sum of gradients or losses over ranks"},
    {"wrong-group", wrongGroup,
     "no collective that could work over another axis of its mesh"},
    {"swapped-axes", swappedAxes,
     "no place on the mesh that another axis, or another order of its axes, "
     "could give"},
    {"pad-identity", padIdentity, "no padding that is masked"},
    {"bias-twice", biasTwice, "no value added after a sum over ranks"},
    {"norm-twice", normTwice, "no sum over ranks in its gradient norm"},
    {"random-offset", randomOffset, "no random numbers"},
    {"stale-buffer", staleBuffer, "no updated parameter and no gathered value"},
    {"gradient-off", gradientOff, "no update that reads a gradient"},
    {"missing-wait", missingWaits, "no transfer that is waited for"},
    {"slot-reused", ofPipelines, "no pipeline"},
    {"microbatch-swapped", ofPipelines, "no pipeline"},
    {"gradient-twice", ofPipelines, "no pipeline"},
};

struct InjectFaultPass : cleave::impl::InjectFaultPassBase<InjectFaultPass> {
  using Base::Base;

  void runOnOperation() override {
    std::string where;
    if (succeeded(injectFault(getOperation(), kind, index, where)))
      return;
    getOperation().emitError(where);
    signalPassFailure();
  }
};

} // namespace

const std::vector<std::string> &check::faultKinds() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> names;
    for (const Kind &kind : kinds)
      names.push_back(kind.name);
    return names;
  }();
  return names;
}

static const Kind *findKind(StringRef name) {
  const Kind *kind = llvm::find_if(
      kinds, [&](const Kind &candidate) { return name == candidate.name; });
  return kind == std::end(kinds) ? nullptr : kind;
}

std::vector<std::string> check::faultPlaces(ModuleOp module, StringRef name) {
  std::vector<std::string> names;
  if (const Kind *kind = findKind(name))
    for (const Place &place : kind->places(module))
      names.push_back(describe(place.op));
  return names;
}

LogicalResult check::injectFault(ModuleOp module, StringRef name, int64_t index,
                                 std::string &where) {
  llvm::raw_string_ostream text(where);
  const Kind *kind = findKind(name);
  if (!kind) {
    text << "unknown kind of fault '" << name << "'; the kinds are ";
    llvm::interleaveComma(faultKinds(), text);
    return failure();
  }
  Places places = kind->places(module);
  if (places.empty()) {
    text << "this program cannot have the fault " << name << ": it has "
         << kind->missing;
    return failure();
  }
  if (index >= static_cast<int64_t>(places.size())) {
    text << "index " << index << " of the fault " << name
         << " is out of range; this program has " << places.size()
         << (places.size() == 1 ? " place" : " places") << " for it";
    return failure();
  }
  Place &place = places[index < 0 ? places.size() / 2 : index];
  text << describe(place.op);
  place.apply();
  return success();
}

std::string check::describe(Operation *op) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << op->getName();
  if (auto func = op->getParentOfType<func::FuncOp>())
    out << " in @" << func.getName();
  if (auto name = dyn_cast<NameLoc>(op->getLoc())) {
    std::string place = describeLocation(name);
    // If no module of the model is known for the node, its description begins
    // with the node's own name.
    bool isNode = StringRef(place).starts_with(name.getName().getValue());
    out << ", " << (isNode ? "node " : "") << place;
  } else if (auto file = dyn_cast<FileLineColLoc>(op->getLoc()))
    if (file.getLine())
      out << " at " << file.getFilename().getValue() << ":" << file.getLine();
  return text;
}

StringRef check::functionName(func::FuncOp func) {
  StringRef name = func.getName();
  return func->hasAttr(kStageAttr) ? name.split('.').first : name;
}

void check::walkChecked(ModuleOp module,
                        llvm::function_ref<void(Operation *)> visit) {
  // A check does not run @loss, which is the forward part of @loss_grad, nor
  // @init_state, which returns constants.
  for (auto func : module.getOps<func::FuncOp>())
    if (functionName(func) != nn::kLossFunc &&
        functionName(func) != nn::kInitStateFunc)
      func.walk([&](Operation *op) { visit(op); });
}

dist::MeshAttr check::meshOf(Operation *op, FlatSymbolRefAttr name) {
  auto mesh = dist::MeshOp::lookup(op, name);
  return mesh ? mesh.getMesh() : dist::MeshAttr();
}

SmallVector<dist::AxisRefAttr>
check::otherAxes(dist::MeshAttr mesh, dist::AxisListAttr axes, int64_t size) {
  SmallVector<dist::AxisRefAttr> others;
  for (dist::MeshAxisAttr axis : mesh.getAxes()) {
    auto whole = dist::AxisRefAttr::get(mesh.getContext(), axis.getName());
    bool used = llvm::any_of(axes.getAxes(), [&](dist::AxisRefAttr other) {
      return dist::overlaps(mesh, whole, other);
    });
    if (!used && axis.getSize() > 1 && (size == 0 || axis.getSize() == size))
      others.push_back(whole);
  }
  return others;
}

Value check::splatBefore(Operation *op, Type type, double value) {
  OpBuilder builder(op);
  return nn::createSplat(builder, op->getLoc(), cast<RankedTensorType>(type),
                         value);
}
