// Finds for each operation the stages whose pattern (parallel.pipeline.stages)
// matches a name of the operation or of its parameters.

#include "MatchStages.h"

#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Interfaces/MatchNames.h"
#include "cleave/io/Pattern.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::stage;

namespace {

/// Turns "/h.0/attn/MatMul" into "h.0.attn.MatMul", the form of parameter
/// names.
std::string dotted(StringRef name) {
  std::string path = name.ltrim('/').str();
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

/// Finds the stages whose patterns match a name; caches the result per name.
class Matcher {
public:
  LogicalResult add(func::FuncOp func, ArrayRef<std::string> patterns) {
    for (auto [stage, pattern] : llvm::enumerate(patterns)) {
      if (std::string mistake = checkPattern(pattern); !mistake.empty())
        return func.emitError("pattern '")
               << pattern << "' of stage " << stage
               << " (parallel.pipeline.stages) is malformed: " << mistake;
    }
    this->patterns = patterns;
    return success();
  }

  ArrayRef<int64_t> stagesOf(StringRef name) {
    auto [it, isNew] = known.try_emplace(name);
    if (isNew) {
      std::string path = dotted(name);
      for (auto [stage, pattern] : llvm::enumerate(patterns))
        if (matchesPathPattern(pattern, path))
          it->second.push_back(stage);
    }
    return it->second;
  }

private:
  ArrayRef<std::string> patterns;
  llvm::StringMap<SmallVector<int64_t, 1>> known;
};

/// Returns the name of a parameter and the names of the parameters that are
/// tied to it.
SmallVector<StringRef, 2> namesOf(func::FuncOp func, unsigned argument) {
  SmallVector<StringRef, 2> names;
  llvm::append_range(names, nn::fileNamesOf(func.getArgAttrDict(argument)));
  llvm::append_range(names, nn::tiedNamesOf(func.getArgAttrDict(argument)));
  return names;
}

SmallVector<StringRef, 2> namesOf(Location loc) {
  SmallVector<StringRef, 2> names;
  loc->walk([&](Location part) {
    // If a name encloses another name, only the inner name is used. The outer
    // name only describes the node in messages.
    if (auto named = dyn_cast<NameLoc>(part);
        named && !isa<NameLoc>(named.getChildLoc()))
      names.push_back(named.getName());
    return WalkResult::advance();
  });
  return names;
}

} // namespace

FailureOr<SmallVector<SmallVector<int64_t, 1>>>
cleave::stage::matchStages(func::FuncOp func, const StageGraph &graph,
                           ArrayRef<std::string> patterns) {
  Matcher matcher;
  if (failed(matcher.add(func, patterns)))
    return failure();
  SmallVector<SmallVector<int64_t, 1>> wants;
  SmallVector<bool> used(patterns.size(), false);
  for (Operation *op : graph.staged()) {
    SmallVector<int64_t, 1> &stages = wants.emplace_back();
    for (StringRef name : namesOf(op->getLoc()))
      llvm::append_range(stages, matcher.stagesOf(name));
    for (unsigned argument : graph.parametersOf(op))
      for (StringRef name : namesOf(func, argument))
        llvm::append_range(stages, matcher.stagesOf(name));
    llvm::sort(stages);
    stages.erase(llvm::unique(stages), stages.end());
    for (int64_t stage : stages)
      used[stage] = true;
  }
  for (auto [stage, pattern] : llvm::enumerate(patterns)) {
    if (used[stage])
      continue;
    SmallVector<DictionaryAttr> parameters;
    for (BlockArgument argument : func.getArguments())
      if (isParameter(argument))
        parameters.push_back(func.getArgAttrDict(argument.getArgNumber()));
    return func.emitError("stage ")
           << stage << ": pattern '" << pattern
           << "' of parallel.pipeline.stages matches no node, and"
           << describeNoMatch(pattern, parameters,
                              "patterns match names from their beginning, "
                              "whole or up to a '.' or '/'");
  }
  return wants;
}

LogicalResult cleave::stage::checkStages(
    func::FuncOp func, const StageGraph &graph, ArrayRef<std::string> patterns,
    ArrayRef<SmallVector<int64_t, 1>> wants, ArrayRef<int64_t> stages) {
  // The stages in which each parameter is read.
  SmallVector<llvm::SmallDenseSet<int64_t, 2>> readers(func.getNumArguments());
  for (auto [op, stage] : llvm::zip_equal(graph.staged(), stages))
    for (unsigned argument : graph.parametersOf(op))
      readers[argument].insert(stage);
  Matcher matcher;
  if (failed(matcher.add(func, patterns)))
    return failure();
  for (auto [index, op] : llvm::enumerate(graph.staged())) {
    int64_t stage = stages[index];
    if (wants[index].empty() || llvm::is_contained(wants[index], stage))
      continue;
    bool isTied = false;
    std::string what;
    for (unsigned argument : graph.parametersOf(op))
      for (StringRef name : namesOf(func, argument))
        for (int64_t wanted : matcher.stagesOf(name)) {
          isTied |= readers[argument].contains(wanted);
          if (what.empty())
            what = ("'" + name + "'").str();
        }
    if (isTied)
      continue;
    if (what.empty() && !namesOf(op->getLoc()).empty())
      what = ("'" + namesOf(op->getLoc()).front() + "'").str();
    int64_t wanted = wants[index].front();
    return op->emitError("stage ")
           << wanted << ": pattern '" << patterns[wanted]
           << "' of parallel.pipeline.stages matches " << what
           << ", which is computed between operations of stage " << stage
           << "; stages are contiguous pieces of the program, so a pattern may "
              "match only operations between the previous and the next stage";
  }
  return success();
}
