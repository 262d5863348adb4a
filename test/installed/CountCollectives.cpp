// A pass of a plugin: cleave-opt --load-pass-plugin=libcount-collectives.so
// --count-collectives. The pass emits a remark for each function that says how
// many collectives of the dist dialect it contains.

#include "cleave/Dialect/Dist/IR/Dist.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Tools/Plugins/PassPlugin.h"

using namespace mlir;

namespace {

struct CountCollectives
    : PassWrapper<CountCollectives, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CountCollectives)

  StringRef getArgument() const override { return "count-collectives"; }
  StringRef getDescription() const override {
    return "Says how many collectives each function has";
  }

  void runOnOperation() override {
    int64_t count = 0;
    getOperation().walk([&](Operation *op) {
      count += isa<cleave::dist::AllReduceOp, cleave::dist::AllGatherOp,
                   cleave::dist::ReduceScatterOp>(op);
    });
    getOperation().emitRemark() << count << " collectives";
  }
};

} // namespace

extern "C" PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "count-collectives", "1",
          [] { PassRegistration<CountCollectives>(); }};
}
