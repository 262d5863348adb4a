// The memory that a planned program takes on a rank, by category and by tensor.

#ifndef CLEAVE_MEMORY_FOOTPRINT_H
#define CLEAVE_MEMORY_FOOTPRINT_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave {

struct Footprint {
  /// The maximum over time of the memory of each category, in bytes.
  /// Activations are values that one command computes for other commands;
  /// workspace is scratch memory of library calls; `other` counts inputs,
  /// outputs and scalars that the host reads or writes.
  int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0,
          workspace = 0, other = 0;
  /// The total size of the arenas in bytes.
  int64_t peak = 0;
  /// The function (an action) and the index of the command in it at which the
  /// most bytes of temporary values are live.
  std::string action;
  int64_t command = 0;

  struct Entry {
    std::string tensor, kind, source;
    int64_t bytes = 0;
  };
  /// The tensors that are live at `command`, largest first, with an entry for
  /// alignment and gaps. Their bytes add up to `peak`.
  std::vector<Entry> atPeak;
};

/// The tensors of equal kind and size that repeated layers have at the same
/// place, under one name such as "blocks.*.fc.weight". They are parameters or
/// computed values.
struct EqualTensors {
  std::string name, kind;
  int64_t count = 0, bytes = 0; ///< number of tensors, bytes of each tensor
};

/// Returns the tensors that are live at the peak. Tensors of repeated layers
/// are grouped (EqualTensors); the largest group comes first.
std::vector<EqualTensors> largestAtPeak(const Footprint &footprint);

/// Returns a size as text, such as "1.5 GiB" or "96 B".
std::string readableBytes(double bytes);

/// Returns the three largest categories as text: "activations 20 GiB,
/// parameters 1.5 GiB, gradients 1.5 GiB".
std::string largestGroups(const Footprint &footprint);

/// Returns a suggestion how to make the program fit into `limit` bytes: a batch
/// size below `batch` that is likely to fit or, if there is none or `batch` is
/// 0 (unknown), sharding strategies.
std::string whatWouldFit(const Footprint &footprint, int64_t limit,
                         int64_t batch);

/// The bytes per element that a footprint counts for the parameters, gradients
/// and master weights that are f32 in the program. They differ from 4 if these
/// tensors are to be stored in another type. `master` is 0 if no master weights
/// are to be stored.
struct Booking {
  int64_t parameter = 4, gradient = 4, master = 4;
};

/// Computes the footprint from the attributes that rt-plan-memory sets. Reports
/// an error if these attributes are missing.
mlir::FailureOr<Footprint> footprintOf(mlir::ModuleOp module,
                                       const Booking &booking = {});

/// An arena of a pipeline rank, and the values that it holds.
struct RankArena {
  std::string name;
  int64_t bytes = 0;
  enum {
    Planned,     ///< named buffers of a stage, or temporary values of actions
    Activations, ///< activations of the microbatches in flight
    Inputs,      ///< inputs of all microbatches of a step
    Versions,    ///< `count` versions of parameters; the first has a name
    Gathered,    ///< gathered parameters, from UNSHARD to RESHARD
  } holds = Planned;
  int64_t count = 1;
};

/// Returns the footprint of a pipeline rank that runs the stages `stages` of
/// the module and has the arenas `arenas`.
mlir::FailureOr<Footprint> footprintOfStages(mlir::ModuleOp module,
                                             llvm::ArrayRef<int64_t> stages,
                                             llvm::ArrayRef<RankArena> arenas,
                                             const Booking &booking = {});

} // namespace cleave

#endif
