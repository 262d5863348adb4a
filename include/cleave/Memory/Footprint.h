// The memory that a planned program takes on a rank, by category and by tensor.

#ifndef CLEAVE_MEMORY_FOOTPRINT_H
#define CLEAVE_MEMORY_FOOTPRINT_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave {

struct Footprint {
  /// The maximum of each category over time, in bytes. Activations are values
  /// that one command computes for other commands; workspace is scratch memory
  /// of library calls; `other` counts inputs, outputs and scalars that the host
  /// reads or writes.
  int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0,
          workspace = 0, other = 0;
  /// The total bytes of the arenas.
  int64_t peak = 0;
  /// The action and the command at which the live transient memory is largest.
  std::string action;
  int64_t command = 0;

  struct Entry {
    std::string tensor, kind, source;
    int64_t bytes = 0;
  };
  /// The tensors that are live at this command, largest first. Their bytes add
  /// up to `peak`.
  std::vector<Entry> atPeak;
};

/// Equally large tensors of repeated layers, listed under one name, such as
/// "blocks.*.fc.weight". They are parameters or computed values.
struct EqualTensors {
  std::string name, kind;
  int64_t count = 0, bytes = 0; ///< bytes of each
};

/// Returns the tensors that are live at the peak, grouped over equal layers,
/// the largest group first.
std::vector<EqualTensors> largestAtPeak(const Footprint &footprint);

/// "1.5 GiB", "96 B".
std::string readableBytes(double bytes);

/// Returns the largest categories as text: "activations 20 GiB, parameters 1.5
/// GiB, gradients 1.5 GiB".
std::string largestGroups(const Footprint &footprint);

/// Suggests how the program could fit into `limit` bytes: with a smaller batch,
/// if a smaller one than `batch` (0 means unknown) is likely to fit, or else
/// with sharding strategies.
std::string whatWouldFit(const Footprint &footprint, int64_t limit,
                         int64_t batch);

/// If the program has parameters, gradients and master weights in f32, a
/// footprint can count them with another element size. These are the bytes per
/// element that it counts. `master` is 0 if there are no master weights.
struct Booking {
  int64_t parameter = 4, gradient = 4, master = 4;
};

/// Computes the footprint from the attributes that rt-plan-memory sets. Reports
/// an error if they are missing.
mlir::FailureOr<Footprint> footprintOf(mlir::ModuleOp module,
                                       const Booking &booking = {});

/// An arena of a pipeline rank.
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

/// Returns the footprint of a pipeline rank that holds `stages` of the module.
mlir::FailureOr<Footprint> footprintOfStages(mlir::ModuleOp module,
                                             llvm::ArrayRef<int64_t> stages,
                                             llvm::ArrayRef<RankArena> arenas,
                                             const Booking &booking = {});

} // namespace cleave

#endif
