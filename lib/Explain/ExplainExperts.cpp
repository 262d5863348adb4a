// Computes, for each router, how many token-expert pairs a rank processes and
// exchanges.

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Explain/Explain.h"
#include "cleave/Memory/BoundaryTable.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace cleave;
using mlir::DictionaryAttr;
using mlir::IntegerAttr;
using mlir::ModuleOp;
using mlir::StringAttr;

int64_t ExpertLoad::mostDropped() const {
  if (!capacity)
    return 0;
  // A sample or microbatch has `capacityOf` token-expert pairs in total. In the
  // worst case, all of its tokens choose the same `slotsPerToken` experts, and
  // each of these experts accepts only `capacity` pairs.
  return std::max<int64_t>(0, capacityOf - slotsPerToken * capacity);
}

/// Returns the commands of type `Command` in the forward pass, in order. A pair
/// has the command's label and the command.
template <typename Command, typename Test>
static std::vector<std::pair<llvm::StringRef, const Command *>>
commandsOf(const program::Program &program, Test &&test) {
  std::vector<std::pair<llvm::StringRef, const Command *>> commands;
  for (const program::Action &action : program.actions) {
    llvm::StringRef name = action.name; // .F.STAGE in a pipeline
    if (name != nn::kLossGradFunc && !name.starts_with(".F."))
      continue;
    for (const program::Command &command : action.commands)
      if (auto *found = std::get_if<Command>(&command.op);
          found && test(*found))
        commands.push_back({program.strings[command.source], found});
  }
  return commands;
}

/// Returns the command that belongs to the router at position `place`. The
/// command is found by its label, the name of the router's grouped product, or,
/// if nodes have no names, by its position among the commands.
template <typename Command>
static const Command *
commandOf(llvm::ArrayRef<std::pair<llvm::StringRef, const Command *>> commands,
          llvm::StringRef product, size_t place, size_t routers) {
  for (auto [source, command] : commands)
    if (source == product && !product.empty())
      return command;
  if (commands.size() % routers != 0)
    return nullptr;
  return commands.empty()
             ? nullptr
             : commands[place * (commands.size() / routers)].second;
}

std::vector<ExpertLoad> cleave::expertLoadsOf(const program::Program &program,
                                              ModuleOp module) {
  std::vector<ExpertLoad> loads;
  std::vector<llvm::StringRef> products;
  for (mlir::func::FuncOp func : actionsOf(module))
    for (unsigned i = 0; i < func.getNumResults(); ++i) {
      DictionaryAttr attrs = func.getResultAttrDict(i);
      nn::RouterAttr router = nn::routerOf(attrs);
      if (!router)
        continue;
      ExpertLoad load;
      load.router = router.getName().str();
      if (router.getCounts() != nn::RouterCounts::Chosen ||
          llvm::any_of(loads, [&](const ExpertLoad &other) {
            return other.router == load.router;
          }))
        continue;
      auto counts =
          llvm::cast<mlir::RankedTensorType>(func.getResultTypes()[i]);
      if (auto whole = attrs.getAs<mlir::TypeAttr>(dist::kGlobalTypeAttrName))
        counts = llvm::cast<mlir::RankedTensorType>(whole.getValue());
      load.experts = counts.getNumElements();
      load.slotsPerToken = router.getSlotsPerToken();
      load.capacity = router.getCapacity();
      load.capacityOf = router.getCapacityOf();
      products.push_back(router.getProduct() ? router.getProduct().getValue()
                                             : llvm::StringRef());
      loads.push_back(std::move(load));
    }
  // If tokens are sent to the ranks of their experts, each router has a command
  // that plans this (PlanRows). Otherwise each rank computes all experts of its
  // tokens, in a grouped product.
  auto plans = commandsOf<program::PlanRows>(
      program, [](const program::PlanRows &) { return true; });
  auto gemms = commandsOf<program::GroupedGemm>(
      program, [](const program::GroupedGemm &gemm) { return !gemm.outer; });
  for (auto [place, load] : llvm::enumerate(loads)) {
    if (auto *plan = commandOf<program::PlanRows>(plans, products[place], place,
                                                  loads.size())) {
      load.ranks = plan->ranks;
      load.expertsPerRank = plan->tile;
      load.slots = plan->rows;
      load.places = plan->places;
      load.rounds = plan->rounds;
      // A hierarchical exchange has two hops. The second hop may forward every
      // row in the receive buffers of the first hop.
      auto next = llvm::find_if(
          plans, [&](auto &entry) { return entry.second == plan; });
      if (++next != plans.end() && next->second->tile < plan->tile &&
          next->second->rows == plan->ranks * plan->places) {
        load.ranks *= next->second->ranks;
        load.expertsPerRank = next->second->tile;
      }
    } else if (auto *gemm = commandOf<program::GroupedGemm>(
                   gemms, products[place], place, loads.size())) {
      load.expertsPerRank = gemm->e;
      load.slots = 1;
      for (int64_t size : gemm->rows)
        load.slots *= size;
    }
  }
  return loads;
}
