// Runs one case: the results on one device, the partitioning pipeline, the
// per-rank program, and the comparison.

#include "Runner.h"

#include "Oracle.h"

#include "cleave/Partition/RegisterPasses.h"
#include "cleave/Partition/Utils/PortTable.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::random;

StringRef cleave::random::name(Outcome::Kind kind) {
  switch (kind) {
  case Outcome::Passed:
    return "passed";
  case Outcome::BadProgram:
    return "bad program";
  case Outcome::Refused:
    return "refused";
  case Outcome::Unproven:
    return "refused by dist-verify-variance";
  case Outcome::NotHonoured:
    return "sharding not honoured";
  case Outcome::RunFailed:
    return "run failed";
  case Outcome::ReplicaDiffers:
    return "replicas differ";
  case Outcome::WrongResult:
    return "wrong result";
  case Outcome::NotCompiled:
    return "not compiled";
  case Outcome::NotRun:
    return "does not run";
  case Outcome::Crashed:
    return "crashed";
  case Outcome::WrongCompiled:
    return "wrong result of compiled code";
  case Outcome::WrongRounding:
    return "wrong result in the real precision";
  case Outcome::Disordered:
    return "refused by the recorder";
  }
  llvm_unreachable("unknown outcome");
}

//===----------------------------------------------------------------------===//
// Checks between the passes
//===----------------------------------------------------------------------===//

namespace {

/// Returns how the sharding `have` violates the requested sharding `asked`, or
/// an empty string. Closed dimensions must be as requested, open dimensions may
/// be sharded further, and replicated axes must not be used.
std::string violation(MeshAttr mesh, ShardingAttr asked, ShardingAttr have) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (!asked)
    return text;
  if (!have) {
    out << "lost " << asked;
    return text;
  }
  ShardingAttr want = canonicalSharding(mesh, asked);
  for (auto [dim, pair] :
       llvm::enumerate(llvm::zip_equal(asked.getDims(), want.getDims()))) {
    auto [given, wanted] = pair;
    ArrayRef<AxisRefAttr> axes = have.getDims()[dim].getAxes();
    auto single = [&](ArrayRef<AxisRefAttr> refs) {
      return ShardingAttr::get(
          asked.getContext(), asked.getMesh(),
          DimShardingAttr::get(asked.getContext(), refs, false));
    };
    bool fits = given.getIsOpen()
                    ? refines(mesh, single(axes), single(wanted.getAxes()))
                    : canonicalAxes(mesh, axes) ==
                          canonicalAxes(mesh, wanted.getAxes());
    if (!fits)
      out << "dimension " << dim << " of " << asked << " became " << have;
  }
  for (AxisRefAttr kept : asked.getReplicated()) {
    for (DimShardingAttr dim : have.getDims())
      for (AxisRefAttr axis : dim.getAxes())
        if (overlaps(mesh, kept, axis))
          out << "replicated " << asked << " became " << have;
    for (AxisRefAttr axis : have.getPartial())
      if (overlaps(mesh, kept, axis))
        out << "replicated " << asked << " became " << have;
  }
  return text;
}

MeshAttr meshOf(ModuleOp module) {
  return (*module.getOps<MeshOp>().begin()).getMesh();
}

/// Returns the sharding constraints in program order, including those in loops
/// and branches.
SmallVector<ConstrainOp> constraintsOf(ModuleOp module) {
  SmallVector<ConstrainOp> found;
  module.walk<WalkOrder::PreOrder>(
      [&](ConstrainOp op) { found.push_back(op); });
  return found;
}

} // namespace

struct Runner::Watch : PassInstrumentation {
  ModuleOp global;
  Coverage *coverage = nullptr;
  const Bug *bug = nullptr;
  bool planted = false;
  std::string failedPass, notHonoured;

  void runAfterPass(Pass *pass, Operation *op) override {
    StringRef name = pass->getArgument();
    auto module = dyn_cast<ModuleOp>(op);
    if (!module)
      return;
    if (name == "dist-propagate")
      checkHonoured(module);
    if (name == "dist-plan-ops" && coverage)
      coverage->add(module);
    if (bug && name == bug->after && !planted)
      planted = bug->plant(module);
  }
  void runAfterPassFailed(Pass *pass, Operation *) override {
    if (failedPass.empty())
      failedPass = pass->getArgument().str();
  }

  void checkHonoured(ModuleOp module) {
    MeshAttr mesh = meshOf(module);
    for (auto [before, after] : llvm::zip_equal(partition::portsOf(global),
                                                partition::portsOf(module)))
      notHonoured += violation(mesh, before.sharding(), after.sharding());
    for (auto [before, after] :
         llvm::zip_equal(constraintsOf(global), constraintsOf(module))) {
      auto given = after->getAttrOfType<ArrayAttr>(kShardingAttrName);
      notHonoured +=
          violation(mesh, before.getSharding(),
                    given ? cast<ShardingAttr>(given[0]) : ShardingAttr());
    }
  }
};

/// Builds the partitioning pipeline without dist-verify-variance.
static void buildUnproven(OpPassManager &passes) {
  static bool registered = [] {
    registerPartitionPasses();
    registerTransformsPasses();
    return true;
  }();
  (void)registered;
  OpPassManager whole(ModuleOp::getOperationName());
  buildPartitionPipeline(whole);
  std::string text, kept;
  llvm::raw_string_ostream out(text);
  llvm::interleave(
      whole, out, [&](Pass &pass) { pass.printAsTextualPipeline(out); }, "\n");
  for (StringRef pass : llvm::split(text, '\n'))
    if (!pass.starts_with("dist-verify-variance"))
      kept += (kept.empty() ? "" : ",") + pass.str();
  if (failed(parsePassPipeline(kept, passes)))
    llvm::report_fatal_error(
        "the partitioning pipeline has passes that are not registered");
}

Runner::Runner(MLIRContext *context, bool prove)
    : passes(context), prove(prove),
      handler(context, [this](Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
          diagnostics += diagnostic.str() + "\n";
        return success();
      }) {
  if (prove)
    buildPartitionPipeline(passes);
  else
    buildUnproven(passes);
  auto watching = std::make_unique<Watch>();
  watch = watching.get();
  passes.addInstrumentation(std::move(watching));
}

Runner::~Runner() = default;

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

namespace {

/// Returns the tiles of `whole`. Unlike in shardTensor, no rank's partial sum
/// is trivially zero, and the rank with the largest candidate differs from
/// element to element.
RankTensors randomTiles(const Tensor &whole, MeshAttr mesh,
                        ShardingAttr sharding, uint64_t seed) {
  if (sharding.getPartial().empty())
    return shardTensor(whole, mesh, sharding);
  ShardingAttr split = ShardingAttr::get(
      sharding.getContext(), sharding.getMesh(), sharding.getDims());
  int64_t ways = axesSize(mesh, sharding.getPartial());
  SmallVector<Tensor> terms(ways, whole);
  for (int64_t at = 0; at < whole.size(); ++at) {
    Random random(Random::mix(seed + at));
    int64_t holder = random.below(ways);
    int64_t rest = 0;
    auto change = [&](int64_t index, int64_t by) {
      if (whole.isFloat())
        terms[index].floats[at] += by;
      else
        terms[index].ints[at] += by;
    };
    for (int64_t index = 0; index < ways; ++index) {
      int64_t part = random.between(-5, 5);
      if (index == holder)
        continue;
      switch (sharding.getPartialKind()) {
      case ReduceKind::Sum: {
        int64_t own =
            whole.isFloat() ? int64_t(whole.floats[at]) : whole.ints[at];
        change(index, part - own);
        rest += part;
        break;
      }
      case ReduceKind::Max:
        change(index, -std::abs(part));
        break;
      case ReduceKind::Min:
        change(index, std::abs(part));
        break;
      }
    }
    change(holder, -rest);
  }
  RankTensors tiles(mesh.getNumRanks());
  for (int64_t index = 0; index < ways; ++index) {
    RankTensors some = shardTensor(terms[index], mesh, split);
    for (auto [rank, tile] : llvm::enumerate(some))
      if (groupIndex(mesh, sharding.getPartial(), rank) == index)
        tiles[rank] = std::move(tile);
  }
  return tiles;
}

} // namespace

//===----------------------------------------------------------------------===//
// The case
//===----------------------------------------------------------------------===//

namespace {

/// The arguments of one function, and its results on one device.
struct Expected {
  std::vector<Tensor> arguments;
  Oracle oracle;
};

/// Runs the function on all ranks and compares the results with those of one
/// device.
Outcome compare(func::FuncOp part, MeshAttr mesh, const Expected &expected,
                uint64_t seed) {
  std::string where = ("@" + part.getName() + ": ").str();
  std::vector<RankTensors> tiles;
  for (auto [index, argument] : llvm::enumerate(expected.arguments))
    tiles.push_back(
        randomTiles(argument, mesh,
                    partition::Port{part, false, unsigned(index)}.sharding(),
                    seed + index));
  FailureOr<std::vector<RankTensors>> actual =
      interpretRanks(part, mesh, tiles);
  if (failed(actual))
    return {Outcome::RunFailed, ""};
  for (auto [index, want] : llvm::enumerate(expected.oracle.results)) {
    Assembled got =
        assembleTensor((*actual)[index], want.type, mesh,
                       partition::Port{part, true, unsigned(index)}.sharding());
    std::string what =
        difference(want, got.whole, expected.oracle.tolerances[index]);
    if (!what.empty())
      return {Outcome::WrongResult,
              (where + "result " + Twine(index) + " is " + what).str()};
    if (got.replicaDifference != 0)
      return {Outcome::ReplicaDiffers,
              (where + "copies of result " + Twine(index) + " differ by " +
               std::to_string(got.replicaDifference))
                  .str()};
  }
  return {};
}

} // namespace

Outcome Runner::run(ModuleOp global, uint64_t seed, Coverage *coverage,
                    const Bug *bug, bool *planted) {
  diagnostics.clear();
  if (failed(verify(global)))
    return {Outcome::BadProgram, diagnostics};
  Random random(Random::mix(seed));
  std::vector<Expected> expected;
  for (auto whole : global.getOps<func::FuncOp>()) {
    Expected &some = expected.emplace_back();
    for (Type type : whole.getArgumentTypes())
      some.arguments.push_back(
          randomTensor(random, cast<RankedTensorType>(type)));
    FailureOr<Oracle> oracle = Oracle::of(whole, some.arguments);
    if (failed(oracle))
      return {Outcome::BadProgram, diagnostics};
    some.oracle = std::move(*oracle);
  }

  OwningOpRef<ModuleOp> local = global.clone();
  watch->global = global;
  watch->coverage = coverage;
  watch->bug = bug;
  watch->planted = false;
  watch->failedPass.clear();
  watch->notHonoured.clear();
  LogicalResult done = passes.run(*local);
  if (planted)
    *planted = watch->planted;
  if (!watch->notHonoured.empty())
    return {Outcome::NotHonoured, watch->notHonoured};
  if (failed(done))
    return {watch->failedPass == "dist-verify-variance" ? Outcome::Unproven
                                                        : Outcome::Refused,
            diagnostics};
  MeshAttr mesh = meshOf(*local);
  for (auto [part, some] :
       llvm::zip_equal(local->getOps<func::FuncOp>(), expected)) {
    Outcome outcome = interprets ? compare(part, mesh, some, seed) : Outcome();
    if (outcome)
      continue;
    outcome.message += diagnostics;
    return outcome;
  }
  return runLocal(global, *local, seed);
}
