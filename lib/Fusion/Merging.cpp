// Fuses pairs of kernels of a host function as long as each fusion lowers the
// estimated cost. A node of the graph of a function, which is a kernel or a
// single host operation, is called a unit.

#include "FormKernels.h"

#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"

#include <numeric>

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

/// Two kernels are not fused if the search for a path between them visits more
/// than this number of units (kernels and host operations). Kernels that are
/// far apart in the program hardly profit from fusion.
static constexpr size_t kMostBetween = 1000;
/// Kernels that read results of the same kernel or host operation are fused in
/// pairs if that is cheaper. Each of them is tried with at most kMostAttempts
/// other kernels. After kMostOfKind failures with kernels of the same kind
/// (equal operations on different values), no more kernels of this kind are
/// tried.
static constexpr int kMostAttempts = 64, kMostOfKind = 4;

/// The maximum number of scalar sums in a kernel, which run one after the
/// other. With this limit, deep models have the same kernels as shallow ones.
static constexpr int kMostScalarSums = 8;

/// Returns the units (kernels and host operations) that depend on `from` and
/// are ranked before `to` in topological order. Returns nullopt if `to` depends
/// on one of them (then fusing `from` and `to` would create a cycle), or if
/// there are more than kMostBetween of them.
std::optional<SmallVector<int>> Grouping::following(int from, int to) {
  int limit = units[to].rank;
  seenIn.resize(units.size());
  ++searches;
  SmallVector<int> found;
  auto push = [&](int number) {
    if (units[number].rank < limit && seenIn[number] != searches) {
      seenIn[number] = searches;
      found.push_back(number);
    }
  };
  for (int consumer : units[from].consumers)
    push(consumer);
  for (size_t i = 0; i < found.size(); ++i) {
    if (found.size() > kMostBetween)
      return std::nullopt;
    for (int consumer : units[found[i]].consumers) {
      if (consumer == to)
        return std::nullopt;
      push(consumer);
    }
  }
  return found;
}

/// Updates the topological ranks when the kernels `low` and `high` are fused:
/// units (kernels and host operations) ranked between them that `high` depends
/// on move before the fused kernel, and units that depend on `low` (`after`)
/// move after it. All other units keep their ranks (the algorithm of Pearce and
/// Kelly).
void Grouping::rankMerged(int low, int high, ArrayRef<int> after) {
  int first = units[low].rank, last = units[high].rank;
  if (after.empty()) {
    units[low].rank = last;
    return;
  }
  llvm::DenseSet<int> seen = {low, high};
  SmallVector<int> before;
  auto push = [&](int number) {
    if (units[number].rank > first && seen.insert(number).second)
      before.push_back(number);
  };
  for (int producer : units[high].producers)
    push(producer);
  for (size_t i = 0; i < before.size(); ++i)
    for (int producer : units[before[i]].producers)
      push(producer);
  SmallVector<int> following(after), ranks = {first, last};
  auto byRank = [&](int x, int y) { return units[x].rank < units[y].rank; };
  llvm::sort(before, byRank);
  llvm::sort(following, byRank);
  for (int number : before)
    ranks.push_back(units[number].rank);
  for (int number : following)
    ranks.push_back(units[number].rank);
  llvm::sort(ranks);
  auto next = ranks.begin();
  for (int number : before)
    units[number].rank = *next++;
  units[low].rank = *next++;
  for (int number : following)
    units[number].rank = *next++;
}

/// Returns whether fusing `late` with `early` would compute large values long
/// before they are needed. Such a fusion is refused: a value that the backward
/// pass recomputes from saved values would be computed in the forward pass and
/// kept alive in addition to the saved ones.
bool Grouping::keepsLongAlive(int earlyNumber, int lateNumber) const {
  const Unit &early = units[earlyNumber], &late = units[lateNumber];
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

/// Returns false if the two units certainly cannot be fused to one kernel with
/// the results `outputs`. Checks only necessary conditions that are cheap to
/// check, so there may be no kernel plan even if the result is true.
bool Grouping::canShareLoops(const Unit &first, const Unit &second,
                             ArrayRef<Value> outputs) const {
  // A kernel with a scatter has no other loop, and only the scatter's result.
  if ((first.scatters || second.scatters) &&
      (outputs.size() != 1 || !outputs[0].getDefiningOp<nn::ScatterAddOp>()))
    return false;
  // All results must have the same number of elements, or numbers with a common
  // divisor, which becomes the number of rows. A single row is not enough for
  // parallel work.
  int64_t rows = 0;
  bool alike = true;
  for (Value output : outputs) {
    int64_t elements = typeOf(output).getNumElements();
    rows = std::gcd(rows, elements);
    alike &= elements == typeOf(outputs[0]).getNumElements();
  }
  return alike || rows != 1 || !(first.parallel || second.parallel);
}

/// Returns a hash of the kinds of two kernels and of their common inputs; 0 if
/// one of the kernels reads a result of the other one.
size_t Grouping::kindOfPair(const Unit &first, const Unit &second) const {
  int a = &first - units.data(), b = &second - units.data();
  if (first.producers.contains(b) || second.producers.contains(a))
    return 0;
  llvm::hash_code hash = llvm::hash_combine(first.kind, second.kind);
  for (auto [index, input] : llvm::enumerate(second.inputs))
    if (auto found = llvm::find(first.inputs, input);
        found != first.inputs.end())
      hash = llvm::hash_combine(hash, index, found - first.inputs.begin());
  return hash;
}

/// Returns a new unit, the kernel into which units `a` and `b` would be fused,
/// with the operations of both. It has no kernel plan yet, and is not yet part
/// of the scheduling graph.
Unit Grouping::united(int a, int b) const {
  const Unit &first = units[a], &second = units[b];
  Unit merged;
  merged.isKernel = true;
  merged.when = first.when;
  merged.ops = first.ops;
  llvm::append_range(merged.ops, second.ops);
  llvm::sort(merged.ops, [&](Operation *x, Operation *y) {
    return positions.lookup(x) < positions.lookup(y);
  });
  merged.outputs = outputsOf(merged.ops, a, b);
  SetVector<Value> inputs;
  for (const Unit *unit : {&first, &second})
    for (Value input : unit->inputs) {
      Operation *source = input.getDefiningOp();
      int producer = source ? unitOf.lookup(source) : -1;
      if (producer != a && producer != b)
        inputs.insert(input);
    }
  merged.inputs = inputs.takeVector();
  merged.scatters = first.scatters || second.scatters;
  merged.reductions = first.reductions + second.reductions;
  merged.version = first.version + 1;
  merged.first = std::min(first.first, second.first);
  merged.last = std::max(first.last, second.last);
  return merged;
}

static bool hasOnlyScalars(const Unit &unit) {
  return llvm::all_of(unit.outputs, [](Value value) {
    return typeOf(value).getNumElements() == 1;
  });
}

/// Returns whether the fused kernel `merged` has few enough operands, results
/// and reductions, and whether canShareLoops does not exclude that a plan for
/// it exists.
bool Grouping::canMerge(const Unit &first, const Unit &second,
                        const Unit &merged) const {
  if (merged.inputs.size() + merged.outputs.size() > kMostArguments ||
      !canShareLoops(first, second, merged.outputs))
    return false;
  return !hasOnlyScalars(merged) || !first.reductions || !second.reductions ||
         merged.reductions <= kMostScalarSums;
}

/// Returns whether the plan of a fused kernel has a single row, although one of
/// the two kernels had work for several threads. Such a kernel runs on one
/// thread, which is too slow.
static bool losesParallelism(const KernelPlan &plan, const Unit &first,
                             const Unit &second, const Unit &merged) {
  return plan.shape == KernelPlan::Shape::Rows && plan.row->size == 1 &&
         !hasOnlyScalars(merged) && (first.parallel || second.parallel);
}

/// Replaces unit `a` by the fused kernel `merged` and removes unit `b`.
void Grouping::replaceByMerged(int a, int b, Unit merged) {
  Unit &first = units[a], &second = units[b];
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
}

bool Grouping::tryMerge(int a, int b) {
  auto key = std::pair(std::min(a, b), std::max(a, b));
  auto versions =
      std::pair(units[key.first].version, units[key.second].version);
  if (auto found = refused.find(key);
      found != refused.end() && found->second == versions)
    return false;
  const Unit &first = units[a], &second = units[b];
  auto refuse = [&] {
    refused[key] = versions;
    return false;
  };
  if (first.when != second.when)
    return refuse();
  size_t kind = kindOfPair(first, second);
  bool aFirst = first.first < second.first;
  if (hopeless.contains(kind) || keepsLongAlive(aFirst ? a : b, aFirst ? b : a))
    return refuse();
  // If a pair cannot be fused for a reason that depends only on its kind (see
  // kindOfPair), no pair of this kind is tried again.
  auto refuseKind = [&] {
    if (kind)
      hopeless.insert(kind);
    return refuse();
  };
  Unit merged = united(a, b);
  if (!canMerge(first, second, merged))
    return refuseKind();
  int low = first.rank < second.rank ? a : b, high = low == a ? b : a;
  auto after = following(low, high);
  if (!after)
    return refuse();
  auto planned = plan(merged, merged.outputs);
  if (!planned || planned->cost >= first.cost + second.cost ||
      losesParallelism(*planned, first, second, merged))
    return refuseKind();
  merged.parallel = planned->isParallel();
  merged.kind = kind ? kind : kindOf(merged);
  merged.cost = planned->cost;
  rankMerged(low, high, *after);
  merged.rank = units[low].rank;
  replaceByMerged(a, b, std::move(merged));
  return true;
}

/// Fuses every kernel with the kernels that produce its inputs, the latest
/// producer first.
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

/// Fuses kernels that read results of the same `unit` (a kernel or a host
/// operation) with each other. They are called readers of `unit`; readers of
/// one kind differ only in the values that they read. Each reader is tried with
/// the readers after it, in program order, but only with a few of each kind. So
/// the time is linear in the number of readers, and not quadratic.
bool Grouping::mergeReaders(const Unit &unit) {
  llvm::MapVector<size_t, SmallVector<int>> byKind;
  for (int consumer : unit.consumers)
    if (units[consumer].isKernel)
      byKind[units[consumer].kind].push_back(consumer);
  /// A kernel that reads results of `unit`: its number in `units`, the index of
  /// its kind in `byKind`, and its index among the readers of that kind.
  struct Entry {
    int number;
    size_t kind, place;
    bool operator<(const Entry &other) const { return number < other.number; }
  };
  // The first remaining reader of each kind.
  std::set<Entry> heads;
  auto nextOfKind = [&](Entry entry) -> std::optional<Entry> {
    const auto &members = byKind.begin()[entry.kind].second;
    while (++entry.place < members.size())
      if (units[members[entry.place]].alive)
        return Entry{members[entry.place], entry.kind, entry.place};
    return std::nullopt;
  };
  auto pop = [&](Entry entry) {
    heads.erase(entry);
    if (auto next = nextOfKind(entry))
      heads.insert(*next);
  };
  for (size_t kind = 0; kind < byKind.size(); ++kind)
    heads.insert({byKind.begin()[kind].second.front(), kind, 0});
  bool changed = false;
  while (!heads.empty()) {
    Entry reader = *heads.begin();
    pop(reader);
    for (bool again = true; again;) {
      again = false;
      std::set<Entry> left; // next readers, after refused ones
      llvm::SmallDenseMap<size_t, int> refusals;
      auto head = heads.begin();
      for (int attempts = 0; attempts < kMostAttempts; ++attempts) {
        bool fromHeads =
            head != heads.end() && (left.empty() || *head < *left.begin());
        if (!fromHeads && left.empty())
          break;
        Entry other = fromHeads ? *head++ : *left.begin();
        if (!fromHeads)
          left.erase(left.begin());
        if (tryMerge(reader.number, other.number)) {
          if (heads.contains(other))
            pop(other);
          changed = again = true;
          break;
        }
        if (++refusals[other.kind] < kMostOfKind)
          if (auto next = nextOfKind(other))
            left.insert(*next);
      }
    }
  }
  return changed;
}

/// Fuses kernels that read the same results of a kernel or host operation, if
/// these results have more than one element, so that they are read from memory
/// only once.
void Grouping::mergeSiblings() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t number = 0; number < units.size(); ++number) {
      if (!units[number].alive)
        continue;
      bool large = llvm::any_of(units[number].ops, [](Operation *op) {
        return llvm::any_of(op->getResultTypes(), [](Type type) {
          auto tensor = dyn_cast<RankedTensorType>(type);
          return tensor && tensor.getNumElements() > 1;
        });
      });
      if (large)
        changed |= mergeReaders(units[number]);
    }
  }
}
