// The memory of a rank that a planned program takes, by category and by tensor.

#ifndef CLEAVE_MEMORY_FOOTPRINT_H
#define CLEAVE_MEMORY_FOOTPRINT_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave {

struct Footprint {
  /// Each category's own maximum, in bytes. Activations are values that one
  /// command computes for others, workspace is scratch memory of library calls,
  /// other is inputs, outputs and scalars of the boundary.
  int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0,
          workspace = 0, other = 0;
  /// Bytes of the arenas.
  int64_t peak = 0;
  /// The action, and its command, at which most transient memory is alive.
  std::string action;
  int64_t command = 0;

  struct Entry {
    std::string tensor, kind, source;
    int64_t bytes = 0;
  };
  /// The tensors that are live then, largest first; they add up to `peak`.
  std::vector<Entry> atPeak;
};

/// Tensors of equal layers, which are alike: "blocks.*.fc.weight", of the model
/// or computed.
struct EqualTensors {
  std::string name, kind;
  int64_t count = 0, bytes = 0; ///< bytes of each
};

/// What is alive at the peak, what takes most first.
std::vector<EqualTensors> largestAtPeak(const Footprint &footprint);

/// "1.5 GiB", "96 B".
std::string readableBytes(double bytes);

/// "activations 20 GiB, parameters 1.5 GiB, gradients 1.5 GiB": the largest
/// categories.
std::string largestGroups(const Footprint &footprint);

/// What would make the program fit into `limit` bytes: a number of samples, if
/// the `batch` (0: not known) is too large, or strategies.
std::string whatWouldFit(const Footprint &footprint, int64_t limit,
                         int64_t batch);

/// Bytes per element that are counted for parameters, gradients and master
/// weights (0: there are none) where the program has f32.
struct Booking {
  int64_t parameter = 4, gradient = 4, master = 4;
};

/// Reads the attributes of `rt-plan-memory`. Reports a module without them.
mlir::FailureOr<Footprint> footprintOf(mlir::ModuleOp module,
                                       const Booking &booking = {});

/// An arena of a pipeline's rank.
struct RankArena {
  std::string name;
  int64_t bytes = 0;
  enum {
    Planned,     ///< named buffers, or values of one action: by stage
    Activations, ///< of the microbatches in flight
    Inputs,      ///< of all microbatches of a step
    Versions,    ///< `count` versions of parameters; the first is named
    Gathered,    ///< parameters, from UNSHARD to RESHARD
  } holds = Planned;
  int64_t count = 1;
};

/// The footprint of a rank that holds `stages` of a module of stages.
mlir::FailureOr<Footprint> footprintOfStages(mlir::ModuleOp module,
                                             llvm::ArrayRef<int64_t> stages,
                                             llvm::ArrayRef<RankArena> arenas,
                                             const Booking &booking = {});

} // namespace cleave

#endif
