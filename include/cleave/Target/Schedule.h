// The schedule of a module whose functions are those of pipeline stages, as an
// attribute, so that the module is all that its emission needs.

#ifndef CLEAVE_TARGET_SCHEDULE_H
#define CLEAVE_TARGET_SCHEDULE_H

#include "cleave/PipelineSchedule/Lower.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>

namespace cleave::target {

/// On the module: {axis, link, position, name, table}, and asynchronous.
inline constexpr llvm::StringLiteral kScheduleAttr = "pipe.schedule";

struct PipelineSchedule {
  /// The mesh axis, its link class, and its place among the axes.
  std::string axis = "pipeline", link = "inter";
  int64_t position = 0;
  pipeline::Table table;
};

void setSchedule(mlir::ModuleOp module, const PipelineSchedule &schedule);

/// Whether its functions are those of pipeline stages.
bool isPipelined(mlir::ModuleOp module);

/// Nothing where the module has no stages. Reports a malformed attribute.
mlir::FailureOr<std::optional<PipelineSchedule>>
scheduleOf(mlir::ModuleOp module);

/// What runs: the table with transfers, and, where neighbouring stages share a
/// rank, the hand-over from one to the other right behind what computes the
/// value, as a send and a receive with the rank itself as peer.
pipeline::Result<pipeline::LoweredTable>
lowerSchedule(const PipelineSchedule &schedule);

/// A class of slots (`pipe.slot`) in the schedule's words, such as
/// "recv_f:send_f,W". Nothing for what no schedule moves.
std::optional<pipeline::ValueClass> valueClassOf(int stage,
                                                 llvm::StringRef slot);

} // namespace cleave::target

#endif
