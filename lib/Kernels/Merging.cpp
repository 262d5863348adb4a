// Which units share a kernel: pairs are merged as long as that is cheaper.

#include "FormKernels.h"

#include "cleave/Interfaces/Interfaces.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

/// More memory accesses than this in one kernel help nobody.
static constexpr size_t kMostArguments = 24;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// Whether `to` is reached from `from` through units other than the two.
bool Grouping::pathBetween(int from, int to, bool ignoreDirect) const {
  int limit = units[to].rank;
  llvm::DenseSet<int> seen;
  SmallVector<int> worklist;
  auto push = [&](int number) {
    if (units[number].rank <= limit && seen.insert(number).second)
      worklist.push_back(number);
  };
  for (int consumer : units[from].consumers)
    if (consumer != to)
      push(consumer);
    else if (!ignoreDirect)
      return true;
  while (!worklist.empty()) {
    int number = worklist.pop_back_val();
    if (number == to)
      return true;
    for (int consumer : units[number].consumers)
      push(consumer);
  }
  return false;
}

/// Whether running `late` together with `early` would compute large values long
/// before they are needed: what the backward pass can recompute from
/// saved values must not be saved beside them.
bool Grouping::keepsLongAlive(const Unit &early, const Unit &late,
                              int earlyNumber, int lateNumber) const {
  constexpr int farCalls = 3;
  int due = late.first;
  for (int consumer : early.consumers)
    if (consumer != lateNumber)
      due = std::min(due, units[consumer].first);
  if (callsBefore[late.first] - callsBefore[due] < farCalls)
    return false;
  auto bytes = [&](const Unit &unit) {
    int64_t sum = 0;
    for (Value value : unit.outputs)
      sum += bytesOf(value.getType());
    return sum;
  };
  return bytes(late) * 8 > bytes(early);
}

bool Grouping::tryMerge(int a, int b) {
  auto key = std::pair(std::min(a, b), std::max(a, b));
  if (refused.contains(key))
    return false;
  Unit &first = units[a], &second = units[b];
  auto refuse = [&] {
    refused.insert(key);
    return false;
  };
  if (pathBetween(a, b, true) || pathBetween(b, a, true))
    return refuse();
  bool aFirst = first.first < second.first;
  if (keepsLongAlive(aFirst ? first : second, aFirst ? second : first,
                     aFirst ? a : b, aFirst ? b : a))
    return refuse();
  Unit merged;
  merged.isKernel = true;
  merged.ops = first.ops;
  llvm::append_range(merged.ops, second.ops);
  llvm::sort(merged.ops, [&](Operation *x, Operation *y) {
    return positions[x] < positions[y];
  });
  merged.outputs = outputsOf(merged.ops, a, b);
  // Chains of scalars stay short: a deep model has the kernels of a shallow
  // one.
  bool scalars = llvm::all_of(merged.outputs, [](Value value) {
    return typeOf(value).getNumElements() == 1;
  });
  merged.reductions = first.reductions + second.reductions;
  if (scalars && first.reductions && second.reductions)
    return refuse();
  auto planned = plan(merged, merged.outputs);
  if (!planned || planned->cost >= first.cost + second.cost)
    return refuse();
  // A row of its own is one thread's: not for what was parallel before.
  merged.parallel = planned->isParallel();
  bool oneRow =
      planned->shape == KernelPlan::Shape::Rows && planned->row->size == 1;
  if (oneRow && !scalars && (first.parallel || second.parallel))
    return refuse();
  size_t big = 0;
  for (Value argument : planned->arguments)
    big += typeOf(argument).getNumElements() > 1;
  if (big + merged.outputs.size() > kMostArguments)
    return refuse();

  merged.cost = planned->cost;
  merged.first = std::min(first.first, second.first);
  merged.last = std::max(first.last, second.last);
  merged.producers = first.producers;
  merged.producers.insert(second.producers.begin(), second.producers.end());
  merged.consumers = first.consumers;
  merged.consumers.insert(second.consumers.begin(), second.consumers.end());
  for (int number : {a, b}) {
    merged.producers.erase(number);
    merged.consumers.erase(number);
  }
  for (Operation *op : second.ops)
    unitOf[op] = a;
  second.alive = false;
  second.producers.clear();
  second.consumers.clear();
  units[a] = std::move(merged);
  for (int producer : units[a].producers) {
    units[producer].consumers.erase(b);
    units[producer].consumers.insert(a);
  }
  for (int consumer : units[a].consumers) {
    units[consumer].producers.erase(b);
    units[consumer].producers.insert(a);
  }
  // Neighbours may now be merged where they could not before.
  std::erase_if(refused, [&](const auto &pair) {
    return pair.first == a || pair.second == a || pair.first == b ||
           pair.second == b;
  });
  rerank();
  return true;
}

/// Every kernel with the kernels that it reads from, the latest first.
void Grouping::mergeAlongEdges() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t number = 0; number < units.size(); ++number) {
      bool again = units[number].alive && units[number].isKernel;
      while (again) {
        again = false;
        SmallVector<int> producers(units[number].producers.begin(),
                                   units[number].producers.end());
        llvm::sort(producers,
                   [&](int x, int y) { return units[x].last > units[y].last; });
        for (int producer : producers)
          if (units[producer].isKernel && tryMerge(number, producer)) {
            again = changed = true;
            break;
          }
      }
    }
  }
}

/// Kernels that read the same large value.
void Grouping::mergeSiblings() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t number = 0; number < units.size() && !changed; ++number) {
      if (!units[number].alive)
        continue;
      SmallVector<int> readers;
      for (int consumer : units[number].consumers)
        if (units[consumer].isKernel)
          readers.push_back(consumer);
      bool large = llvm::any_of(units[number].ops, [](Operation *op) {
        return llvm::any_of(op->getResultTypes(), [](Type type) {
          auto tensor = dyn_cast<RankedTensorType>(type);
          return tensor && tensor.getNumElements() > 1;
        });
      });
      if (!large)
        continue;
      for (size_t i = 0; i < readers.size() && !changed; ++i)
        for (size_t j = i + 1; j < readers.size() && !changed; ++j)
          changed = tryMerge(readers[i], readers[j]);
    }
  }
}
