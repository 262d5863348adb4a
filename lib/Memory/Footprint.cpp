// The memory that a planned program takes on a rank.

#include "cleave/Memory/Footprint.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/Arenas.h"
#include "cleave/Memory/BoundaryTable.h"
#include "cleave/Support/Locations.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Format.h"

#include <cmath>

using namespace mlir;
using namespace cleave;

static SmallVector<rt::LifetimeAttr> lifetimesOf(func::FuncOp func) {
  auto list = func->getAttrOfType<ArrayAttr>(rt::kLifetimesAttr);
  return list ? llvm::to_vector(list.getAsRange<rt::LifetimeAttr>())
              : SmallVector<rt::LifetimeAttr>();
}

/// Returns the peak of the total live bytes, and the command at which it
/// occurs.
static std::pair<int64_t, int64_t>
maximum(ArrayRef<rt::LifetimeAttr> lifetimes,
        llvm::function_ref<bool(rt::LifetimeAttr)> counts) {
  SmallVector<std::pair<int64_t, int64_t>> events; // (command, change)
  for (rt::LifetimeAttr lifetime : lifetimes)
    if (counts(lifetime)) {
      events.push_back({lifetime.getFirst(), lifetime.getSize()});
      events.push_back({lifetime.getLast() + 1, -lifetime.getSize()});
    }
  llvm::sort(events); // at one command, ends precede starts
  int64_t now = 0, most = 0, at = 0;
  for (auto [command, change] : events) {
    now += change;
    if (now > most) {
      most = now;
      at = command;
    }
  }
  return {most, at};
}

/// Returns the bytes that a footprint counts for a buffer. Parameters,
/// gradients and master weights that are f32 in the program count with the
/// bytes per element that `booking` has for them; other buffers count with
/// their own size.
static int64_t bookedBytes(const BoundaryBuffer &buffer,
                           const Booking &booking) {
  if (!buffer.type.getElementType().isF32())
    return buffer.bytes;
  bool parameter = buffer.role == nn::Role::Parameter ||
                   (buffer.attrs && buffer.attrs.contains(nn::kFrozenAttr));
  bool master = buffer.role == nn::Role::State &&
                StringRef(buffer.name).ends_with(nn::kMasterSuffix);
  int64_t width = parameter                           ? booking.parameter
                  : buffer.role == nn::Role::Gradient ? booking.gradient
                  : master                            ? booking.master
                                                      : 4;
  return buffer.bytes / 4 * width;
}

namespace {
/// Computes the footprint of a module, or of some of its pipeline stages: adds
/// up the named buffers by category (parameters, gradients, and so on), and
/// finds the function in which the most bytes of temporary values are live at
/// once.
class Counter {
public:
  explicit Counter(const Booking &booking) : booking(booking) {}

  void list(StringRef tensor, StringRef kind, StringRef source, int64_t bytes) {
    footprint.atPeak.push_back({tensor.str(), kind.str(), source.str(), bytes});
    listed += bytes;
  }

  void add(const BoundaryTable &table) {
    for (const BoundaryBuffer &buffer : table.buffers) {
      if (!buffer.isVisible()) // counted per microbatch in flight
        continue;
      int64_t &category =
          nn::isOneOf(buffer.role, {nn::Role::Parameter, nn::Role::Buffer,
                                    nn::Role::Constant})
              ? footprint.parameters
          : buffer.role == nn::Role::Gradient ? footprint.gradients
          : buffer.role == nn::Role::State    ? footprint.optimizer
                                              : footprint.other;
      int64_t bytes = bookedBytes(buffer, booking);
      category += bytes;
      footprint.peak += bytes - buffer.bytes;
      list(buffer.buffer, nn::spell(buffer.role), buffer.name, bytes);
    }
  }

  void add(func::FuncOp func) {
    SmallVector<rt::LifetimeAttr> all = lifetimesOf(func);
    auto kind = [](StringRef name) {
      return [=](rt::LifetimeAttr lifetime) {
        return lifetime.getKind().getValue() == name;
      };
    };
    footprint.activations =
        std::max(footprint.activations, maximum(all, kind("activation")).first);
    footprint.workspace =
        std::max(footprint.workspace, maximum(all, kind("workspace")).first);
    auto [bytes, command] = maximum(all, [](rt::LifetimeAttr) { return true; });
    if (bytes <= most)
      return;
    most = bytes;
    footprint.action = func.getName().str();
    footprint.command = command;
    atPeak.clear();
    for (rt::LifetimeAttr lifetime : all)
      if (lifetime.getFirst() <= command && command <= lifetime.getLast())
        atPeak.push_back(lifetime);
  }

  Footprint finish() {
    for (rt::LifetimeAttr lifetime : atPeak)
      list(lifetime.getName(), lifetime.getKind(), lifetime.getName(),
           lifetime.getSize());
    if (footprint.peak > listed)
      list("(alignment and gaps)", "gap", "", footprint.peak - listed);
    llvm::stable_sort(footprint.atPeak, [](const auto &x, const auto &y) {
      return x.bytes > y.bytes;
    });
    return std::move(footprint);
  }

  Footprint footprint;

private:
  const Booking &booking;
  int64_t listed = 0, most = -1;
  SmallVector<rt::LifetimeAttr> atPeak;
};
} // namespace

std::vector<EqualTensors> cleave::largestAtPeak(const Footprint &footprint) {
  llvm::MapVector<std::pair<StringRef, int64_t>, std::vector<std::string>>
      alike;
  for (const Footprint::Entry &entry : footprint.atPeak)
    alike[{entry.kind, entry.bytes}].push_back(entry.tensor);
  std::vector<EqualTensors> largest;
  for (const auto &[key, names] : alike)
    for (FoldedName &name : foldLayers(names))
      largest.push_back({std::move(name.text), key.first.str(),
                         int64_t(name.members.size()), key.second});
  llvm::stable_sort(largest, [](const auto &a, const auto &b) {
    return a.count * a.bytes > b.count * b.bytes;
  });
  return largest;
}

std::string cleave::readableBytes(double bytes) {
  const char *unit = "B";
  for (const char *next : {"KiB", "MiB", "GiB"}) {
    if (bytes < 1024)
      break;
    bytes /= 1024;
    unit = next;
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  // Prints three significant digits, but never rounds the integer part.
  bool isWhole = bytes == std::floor(bytes) || bytes >= 100;
  out << llvm::format(isWhole      ? "%.0f"
                      : bytes < 10 ? "%.2f"
                                   : "%.1f",
                      bytes)
      << " " << unit;
  return text;
}

std::string cleave::largestGroups(const Footprint &footprint) {
  std::pair<int64_t, StringRef> groups[] = {
      {footprint.activations, "activations"},
      {footprint.parameters, "parameters"},
      {footprint.gradients, "gradients"},
      {footprint.optimizer, "optimizer state"},
      {footprint.workspace, "workspace"},
      {footprint.other, "inputs and outputs"}};
  llvm::stable_sort(
      groups, [](const auto &a, const auto &b) { return a.first > b.first; });
  std::string text;
  for (const auto &[bytes, name] : ArrayRef(groups).take_front(3))
    if (bytes > 0)
      text +=
          (text.empty() ? "" : ", ") + name.str() + " " + readableBytes(bytes);
  return text;
}

std::string cleave::whatWouldFit(const Footprint &footprint, int64_t limit,
                                 int64_t batch) {
  // Parameters, gradients and optimizer state, whose bytes do not depend on the
  // batch size.
  int64_t fixed =
      footprint.parameters + footprint.gradients + footprint.optimizer;
  int64_t samples = 0;
  if (batch > 1 && fixed < limit && footprint.peak > fixed)
    samples = batch * (double(limit - fixed) / double(footprint.peak - fixed));
  int64_t digits = 1; // two significant digits are printed
  while (samples / digits >= 100)
    digits *= 10;
  samples = samples / digits * digits;
  if (samples == 0 || samples >= batch)
    return "split it: parallel.data.zero, mesh.tensor or mesh.pipeline";
  return "dims.batch = " + std::to_string(samples) +
         " is likely to fit; or use more train.microbatches, "
         "parallel.data.zero or mesh.tensor";
}

FailureOr<Footprint> cleave::footprintOf(ModuleOp module,
                                         const Booking &booking) {
  FailureOr<PlannedArenas> arenas = plannedArenas(module);
  if (failed(arenas))
    return failure();
  FailureOr<BoundaryTable> table = BoundaryTable::collect(module);
  if (failed(table))
    return failure();
  Counter counter(booking);
  counter.footprint.peak = arenas->peak();
  counter.add(*table);
  for (func::FuncOp func : actionsOf(module))
    counter.add(func);
  return counter.finish();
}

FailureOr<Footprint> cleave::footprintOfStages(ModuleOp module,
                                               ArrayRef<int64_t> stages,
                                               ArrayRef<RankArena> arenas,
                                               const Booking &booking) {
  if (!module->hasAttr(rt::kStagesAttr))
    return module.emitError(
        "the module has no planned memory of stages; run rt-plan-memory first");
  Counter counter(booking);
  for (int64_t stage : stages) {
    FailureOr<BoundaryTable> table = BoundaryTable::collect(module, stage);
    if (failed(table))
      return failure();
    counter.add(*table);
    for (func::FuncOp func : actionsOf(module, stage))
      counter.add(func);
  }
  // Each arena is allocated with its maximal size: the peak of its transient
  // values, or the memory for all microbatches in flight. So the peak of the
  // rank is the sum of all arenas.
  for (const RankArena &arena : arenas) {
    counter.footprint.peak += arena.bytes;
    if (arena.holds == RankArena::Planned || arena.bytes == 0)
      continue;
    if (arena.holds == RankArena::Versions) {
      int64_t more = arena.bytes - arena.bytes / arena.count;
      int64_t booked = more / 4 * booking.parameter;
      counter.footprint.parameters += booked;
      counter.footprint.peak += booked - more;
      if (more)
        counter.list(arena.name, "parameter", arena.name, booked);
      continue;
    }
    if (arena.holds == RankArena::Gathered) {
      int64_t bytes = arena.bytes / 4 * booking.parameter;
      counter.footprint.parameters += bytes;
      counter.footprint.peak += bytes - arena.bytes;
      counter.list(arena.name, "parameter", arena.name, bytes);
      continue;
    }
    bool input = arena.holds == RankArena::Inputs;
    (input ? counter.footprint.other : counter.footprint.activations) +=
        arena.bytes;
    counter.list(arena.name, input ? "input" : "activation", arena.name,
                 arena.bytes);
  }
  return counter.finish();
}
