// Collects the sums over pipeline stages. Each stage has its own list of the
// sums that it takes part in; the n-th sum over a set of stages in one list is
// the n-th sum over this set in the lists of all other stages of the set.

#include "cleave/Interfaces/StageSums.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"

#include <numeric>

using namespace mlir;
using namespace cleave;

std::string cleave::updatePart(int part) {
  return (nn::kUpdateFunc + "." + Twine(part)).str();
}

std::vector<StageSum> cleave::stageSums(
    int stages,
    llvm::function_ref<func::FuncOp(int, const std::string &)> find) {
  std::map<std::pair<std::vector<int>, int>, StageSum> byKey;
  std::vector<int> all(stages);
  std::iota(all.begin(), all.end(), 0);
  for (int stage = 0; stage < stages; ++stage) {
    std::map<std::vector<int>, int> seen;
    for (int part = 0; part <= stages; ++part) {
      func::FuncOp func = find(stage, updatePart(part));
      auto list =
          func ? func->getAttrOfType<ArrayAttr>(pipe::kSumsAttr) : nullptr;
      if (!list)
        continue;
      for (auto entry : list.getAsRange<pipe::SumAttr>()) {
        std::vector<int> members = all;
        DenseI64ArrayAttr some = entry.getStages();
        if (some)
          members.assign(some.asArrayRef().begin(), some.asArrayRef().end());
        StageSum &sum = byKey[{members, seen[members]++}];
        sum.stages = members;
        sum.isTied = bool(some);
        sum.members[stage] = {part, entry.getOperand().str(),
                              entry.getResult().str()};
      }
    }
  }
  std::vector<StageSum> some, whole;
  for (auto &[key, sum] : byKey)
    (key.first == all ? whole : some).push_back(std::move(sum));
  some.insert(some.end(), whole.begin(), whole.end());
  return some;
}
