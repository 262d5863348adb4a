// Which units share a kernel: pairs are merged as long as that is cheaper.

#include "FormKernels.h"

#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"

#include <numeric>

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

/// Units that a search for a path looks at. Far apart in the program, kernels
/// have little to share.
static constexpr size_t kMostBetween = 1000;
/// Readers of the same unit that a kernel is compared with in vain: in all, and
/// of one kind.
static constexpr int kMostAttempts = 64, kMostOfKind = 4;

/// Sums to scalars that a kernel takes one after the other. Chains of them stay
/// short: a deep model has the kernels of a shallow one.
static constexpr int kMostScalarSums = 8;

/// The units that are reached from `from` and stand in front of `to`. None if
/// `to` is reached through one of them, or if there are too many to tell.
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

/// Ranks units when `low` and `high` become one: between the two, what `high`
/// needs goes before it and what follows `low`, `after`, behind it. The rest
/// stays (Pearce and Kelly's order).
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
  SmallVector<int> behind(after), ranks = {first, last};
  auto byRank = [&](int x, int y) { return units[x].rank < units[y].rank; };
  llvm::sort(before, byRank);
  llvm::sort(behind, byRank);
  for (int number : before)
    ranks.push_back(units[number].rank);
  for (int number : behind)
    ranks.push_back(units[number].rank);
  llvm::sort(ranks);
  auto next = ranks.begin();
  for (int number : before)
    units[number].rank = *next++;
  units[low].rank = *next++;
  for (int number : behind)
    units[number].rank = *next++;
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

/// What can be said without a plan: whether there may be one that is merged.
bool Grouping::canShareLoops(const Unit &first, const Unit &second,
                             ArrayRef<Value> outputs) const {
  // A scatter has a loop of its own kind, for one result.
  if ((first.scatters || second.scatters) &&
      (outputs.size() != 1 || !outputs[0].getDefiningOp<nn::ScatterAddOp>()))
    return false;
  // All results have the same elements, or the same number of rows, of which
  // one is not enough for what is parallel.
  int64_t rows = 0;
  bool alike = true;
  for (Value output : outputs) {
    int64_t elements = typeOf(output).getNumElements();
    rows = std::gcd(rows, elements);
    alike &= elements == typeOf(outputs[0]).getNumElements();
  }
  return alike || rows != 1 || !(first.parallel || second.parallel);
}

/// The kinds of two units, and what both read; 0 where one reads the other.
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

bool Grouping::tryMerge(int a, int b) {
  auto key = std::pair(std::min(a, b), std::max(a, b));
  auto versions =
      std::pair(units[key.first].version, units[key.second].version);
  if (auto found = refused.find(key);
      found != refused.end() && found->second == versions)
    return false;
  Unit &first = units[a], &second = units[b];
  auto refuse = [&] {
    refused[key] = versions;
    return false;
  };
  if (first.when != second.when)
    return refuse();
  size_t kind = kindOfPair(first, second);
  if (hopeless.contains(kind))
    return refuse();
  bool aFirst = first.first < second.first;
  if (keepsLongAlive(aFirst ? first : second, aFirst ? second : first,
                     aFirst ? a : b, aFirst ? b : a))
    return refuse();
  // What depends on the kind alone is not asked again.
  auto refuseKind = [&] {
    if (kind)
      hopeless.insert(kind);
    return refuse();
  };
  Unit merged;
  merged.isKernel = true;
  merged.when = first.when;
  merged.ops = first.ops;
  llvm::append_range(merged.ops, second.ops);
  llvm::sort(merged.ops, [&](Operation *x, Operation *y) {
    return positions[x] < positions[y];
  });
  merged.outputs = outputsOf(merged.ops, a, b);
  merged.scatters = first.scatters || second.scatters;
  SetVector<Value> inputs;
  for (const Unit *unit : {&first, &second})
    for (Value input : unit->inputs) {
      Operation *source = input.getDefiningOp();
      int producer = source ? unitOf.lookup(source) : -1;
      if (producer != a && producer != b)
        inputs.insert(input);
    }
  merged.inputs = inputs.takeVector();
  if (merged.inputs.size() + merged.outputs.size() > kMostArguments ||
      !canShareLoops(first, second, merged.outputs))
    return refuseKind();
  bool scalars = llvm::all_of(merged.outputs, [](Value value) {
    return typeOf(value).getNumElements() == 1;
  });
  merged.reductions = first.reductions + second.reductions;
  if (scalars && first.reductions && second.reductions &&
      merged.reductions > kMostScalarSums)
    return refuseKind();
  int low = first.rank < second.rank ? a : b, high = low == a ? b : a;
  auto after = following(low, high);
  if (!after)
    return refuse();
  auto planned = plan(merged, merged.outputs);
  // A row of its own is one thread's: not for what was parallel before.
  auto isOneThreads = [&] {
    bool oneRow =
        planned->shape == KernelPlan::Shape::Rows && planned->row->size == 1;
    return oneRow && !scalars && (first.parallel || second.parallel);
  };
  if (!planned || planned->cost >= first.cost + second.cost || isOneThreads())
    return refuseKind();
  merged.parallel = planned->isParallel();
  merged.kind = kind ? kind : kindOf(merged);
  merged.version = first.version + 1;
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
  rankMerged(low, high, *after);
  merged.rank = units[low].rank;
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

/// Pairs of the kernels that read a unit's results. Each is compared with the
/// others in order, but with few of each kind: the time is then proportional to
/// the number of readers, and not to its square.
bool Grouping::mergeReaders(const Unit &unit) {
  llvm::MapVector<size_t, SmallVector<int>> byKind;
  for (int consumer : unit.consumers)
    if (units[consumer].isKernel)
      byKind[units[consumer].kind].push_back(consumer);
  /// A reader by its number, its kind, and its place among those of the kind.
  struct Entry {
    int number;
    size_t kind, place;
    bool operator<(const Entry &other) const { return number < other.number; }
  };
  // Of each kind, the first that is left.
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
      std::set<Entry> left; // of kinds whose head was refused
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

/// Kernels that read the same unit, if it has large values: its results are
/// then read once.
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
