// Emits a planned module as a program.

#include "Emit.h"
#include "EmitPipeline.h"

#include "cleave/Memory/Arenas.h"
#include "cleave/Memory/Footprint.h"
#include "cleave/Target/Target.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::target;

/// Checks that the memory of each rank of a pipeline fits into `limit`. The
/// pass rt-check-fit cannot do this, because the schedule decides how many
/// microbatches a rank keeps in memory at the same time.
static LogicalResult checkFits(ModuleOp module, const program::Program &program,
                               int64_t limit) {
  uint32_t classes = *llvm::max_element(program.rankClass) + 1;
  for (uint32_t rankClass = 0; rankClass < classes; ++rankClass) {
    int64_t bytes = 0;
    std::vector<const program::Arena *> arenas;
    for (const program::Arena &arena : program.arenas)
      if (arena.rankClass < 0 || uint32_t(arena.rankClass) == rankClass) {
        bytes += arena.size;
        arenas.push_back(&arena);
      }
    if (bytes <= limit)
      continue;
    llvm::sort(arenas, [](auto *a, auto *b) {
      return std::pair(-a->size, a->name) < std::pair(-b->size, b->name);
    });
    InFlightDiagnostic error = module.emitError("a rank at place ")
                               << rankClass << " of the pipeline needs "
                               << readableBytes(bytes) << ", but there are "
                               << readableBytes(limit) << "; largest:";
    for (const program::Arena *arena :
         ArrayRef(arenas).take_front(std::min<size_t>(6, arenas.size())))
      error << " " << arena->name << " (" << readableBytes(arena->size) << ")";
    return error;
  }
  return success();
}

/// Emits the actions of a program without a pipeline.
static LogicalResult emitActions(ModuleOp module, program::Program &program) {
  FailureOr<PlannedArenas> arenas = plannedArenas(module);
  if (failed(arenas))
    return failure();
  FailureOr<BoundaryTable> table = BoundaryTable::collect(module);
  if (failed(table))
    return failure();
  // Reads the addresses that rt-plan-memory assigned to the buffers.
  for (func::FuncOp func : actionsOf(module)) {
    if (!func->hasAttr(rt::kLifetimesAttr))
      return func.emitOpError("has no planned memory");
    readOffsets(func, *table);
  }
  dist::MeshAttr mesh;
  for (auto op : module.getOps<dist::MeshOp>()) {
    if (mesh)
      return op.emitOpError("is a second mesh; a program runs on one");
    mesh = op.getMesh();
    for (auto [index, axis] : llvm::enumerate(mesh.getAxes())) {
      StringRef link = "intra";
      if (ArrayAttr links = op.getLinksAttr())
        link = cast<StringAttr>(links[index]).getValue();
      program.mesh.push_back({axis.getName().str(), axis.getSize(), link.str(),
                              op.getWithin() ? (*op.getWithin())[index] : 1});
    }
  }
  program.arenas.push_back(
      {"state", program::Lifespan::Persistent, arenas->state});
  program.arenas.push_back(
      {"transient", program::Lifespan::Transient, arenas->transient});
  if (failed(emitBoundary(*table, mesh, module, program)))
    return failure();
  CommandEmitter emitter(module, program);
  for (func::FuncOp func : actionsOf(module))
    if (failed(emitter.emit(func)))
      return failure();
  return success();
}

FailureOr<program::Program> target::emitProgram(ModuleOp module,
                                                const ProgramOptions &options) {
  FailureOr<std::optional<PipelineSchedule>> schedule = scheduleOf(module);
  if (failed(schedule))
    return failure();
  program::Program program;
  program.device = options.device;
  program.tf32 = options.tf32;
  program.threadsPerRank = options.threads;
  int64_t limit = options.memoryLimit;
  if (*schedule) {
    PipelineEmitter emitter(module, **schedule, program);
    if (failed(emitter.emit()) ||
        (limit && failed(checkFits(module, program, limit))) ||
        failed(emitter.prove()))
      return failure();
  } else if (failed(emitActions(module, program))) {
    return failure();
  }
  if (options.device == program::Device::Cuda &&
      failed(describeLaunches(module, program)))
    return failure();
  return program;
}
