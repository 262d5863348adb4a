// The pipeline schedule of a module, stored as an attribute, so that emission
// needs only the module.

#ifndef CLEAVE_TARGET_SCHEDULE_H
#define CLEAVE_TARGET_SCHEDULE_H

#include "cleave/PipelineSchedule/Lower.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>

namespace cleave::target {

struct PipelineSchedule {
  /// The pipeline's mesh axis, its link class, and its position among the mesh
  /// axes.
  std::string axis = "pipeline", link = "inter";
  int64_t position = 0;
  pipeline::Table table;
};

void setSchedule(mlir::ModuleOp module, const PipelineSchedule &schedule);

/// Returns whether the module contains functions of pipeline stages.
bool isPipelined(mlir::ModuleOp module);

/// Reads the module's schedule. Returns nullopt if the module has no stages.
/// Reports a malformed attribute.
mlir::FailureOr<std::optional<PipelineSchedule>>
scheduleOf(mlir::ModuleOp module);

/// Returns the schedule that is executed, which is the table with transfers. If
/// two adjacent stages are on the same rank, this rank passes the value from
/// one to the other by a send to itself and a receive from itself, right after
/// the action that computes the value.
pipeline::Result<pipeline::LoweredTable>
lowerSchedule(const PipelineSchedule &schedule);

/// Parses a slot class (attribute `pipe.slot`), which states the lifetime of a
/// value by the actions of a schedule: a value with "recv_f:send_f,W" lives
/// from the receipt of the activation until both its send and the action W have
/// ended. Returns nullopt for slots with events that are not in a schedule.
std::optional<pipeline::ValueClass> valueClassOf(int stage,
                                                 llvm::StringRef slot);

} // namespace cleave::target

#endif
