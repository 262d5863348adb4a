// The schedule of a module whose functions are those of pipeline stages, as an
// attribute, so that emission needs only the module.

#ifndef CLEAVE_TARGET_SCHEDULE_H
#define CLEAVE_TARGET_SCHEDULE_H

#include "cleave/PipelineSchedule/Lower.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>

namespace cleave::target {

/// On the module: {axis, link, position, name, table}, and the unit attribute
/// asynchronous if the schedule is.
inline constexpr llvm::StringLiteral kScheduleAttr = "pipe.schedule";

struct PipelineSchedule {
  /// The mesh axis, its link class, and its position among the axes.
  std::string axis = "pipeline", link = "inter";
  int64_t position = 0;
  pipeline::Table table;
};

void setSchedule(mlir::ModuleOp module, const PipelineSchedule &schedule);

/// Whether the module's functions are those of pipeline stages.
bool isPipelined(mlir::ModuleOp module);

/// Nothing where the module has no stages. Reports a malformed attribute.
mlir::FailureOr<std::optional<PipelineSchedule>>
scheduleOf(mlir::ModuleOp module);

/// The executed schedule: the table with transfers. If neighbouring stages
/// share a rank, a send and a receive with the rank itself as peer hand a value
/// over, right after the action that computes it.
pipeline::Result<pipeline::LoweredTable>
lowerSchedule(const PipelineSchedule &schedule);

/// The value class of a class of slots (`pipe.slot`), such as
/// "recv_f:send_f,W". Nothing for slots whose events are not in a schedule.
std::optional<pipeline::ValueClass> valueClassOf(int stage,
                                                 llvm::StringRef slot);

} // namespace cleave::target

#endif
