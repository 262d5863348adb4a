// The check's engine for compiled programs: compiles a program, with kernels in
// a temporary folder, and runs its ranks in a session of the runtime.

#include "cleave/Check/Engine.h"

#include "cleave/Check/Recording.h"
#include "cleave/Check/Views.h"

#include "cleave/Compiler/Backend.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Memory/BoundaryTable.h"
#include "cleave/Target/Schedule.h"
#include "cleave/Target/Target.h"
#include "cleave/io/Temporary.h"
#include "cleave/program_io.h"
#include "cleave/runtime.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

class CompiledEngine : public Engine {
public:
  explicit CompiledEngine(ModuleOp local)
      : module(cast<ModuleOp>(local->clone())) {}

  ~CompiledEngine() override {
    cleave_session_free(session);
    cleave_program_free(program);
  }

  LogicalResult load(const CompiledOptions &options) {
    // Erases @loss and @init_state, which a check does not run. Their loss,
    // which the host reads, has the same name as the loss that @loss_grad sums
    // over microbatches, but a different layout.
    for (auto func :
         llvm::make_early_inc_range(module->getOps<func::FuncOp>())) {
      StringRef name = func.getName();
      if (func->hasAttr(kStageAttr)) // NAME.STAGE
        name = name.rsplit('.').first;
      if (name == nn::kLossFunc || name == nn::kInitStateFunc)
        func.erase();
    }
    FailureOr<BoundaryTable> collected = BoundaryTable::visible(*module);
    if (failed(collected)) {
      if (options.refused)
        *options.refused = true;
      return failure();
    }
    table = std::move(*collected);

    std::string reason;
    folder = makeTemporaryFolder("cleave-check", reason);
    if (!folder)
      return module->emitError(reason);
    program::Device device =
        options.recording ? program::Device::Cpu : options.device;
    FailureOr<program::Program> commands =
        writeProgram(options, device, folder->path());
    if (failed(commands))
      return failure();
    if (options.recording && failed(record(options)))
      return failure();
    std::string kernels = device == program::Device::Cuda
                              ? folder->path()
                              : folder->path() + "/kernels.so";
    std::string bytes = program::serialize(*commands);
    if (failed(status(cleave_program_from_memory(
            bytes.data(), bytes.size(),
            commands->kernels.empty() ? nullptr : kernels.c_str(), &program))))
      return failure();
    cleave_session_options native{};
    native.version = CLEAVE_RUNTIME_VERSION;
    native.threads_per_rank = options.threads;
    native.poison = 1;
    native.comm_thread = options.arrivesEarly ? 1 : -1;
    native.transport = options.transport.c_str();
    cleave_status made = cleave_session_create(program, &native, &session);
    // As in `train`, a program that this machine cannot run is reported before
    // it starts.
    if (options.refused &&
        (made == CLEAVE_UNSUPPORTED || made == CLEAVE_OUT_OF_MEMORY))
      *options.refused = true;
    return status(made);
  }

  /// Emits the commands for a device, and writes their kernels to `into`.
  FailureOr<program::Program> writeProgram(const CompiledOptions &options,
                                           program::Device device,
                                           const std::string &into) {
    OwningOpRef<ModuleOp> lowered = cast<ModuleOp>((*module)->clone());
    BackendOptions backend;
    backend.device = device;
    backend.threads = options.threads;
    backend.cluster = options.cluster;
    backend.overlap = options.overlap;
    backend.tf32 = options.tf32;
    if (failed(lowerToCommands(*lowered, backend))) {
      if (options.refused)
        *options.refused = true;
      return failure();
    }
    FailureOr<program::Program> commands =
        target::emitProgram(*lowered, programOptions(backend));
    if (failed(commands) ||
        (options.change && failed(options.change(*commands))))
      return failure();
    target::KernelOptions kernelOptions{options.optLevel,
                                        options.architectures};
    if (failed(target::writeKernels(*lowered, *commands, kernelOptions, into)))
      return failure();
    return commands;
  }

  void begin(StringRef what) override {
    if (calls)
      calls->begin(what);
  }

  /// Also compiles the program for the device that is to be recorded, and
  /// records this engine's calls of it.
  LogicalResult record(const CompiledOptions &options) {
    std::string error;
    calls = options.recording->add(options.recordingName, error);
    if (!calls)
      return module->emitError(error);
    FailureOr<program::Program> commands =
        writeProgram(options, program::Device::Cuda, calls->folder());
    if (failed(commands))
      return failure();
    std::error_code code;
    llvm::raw_fd_ostream file(calls->folder() + "/program.bin", code);
    if (!code)
      file << program::serialize(*commands);
    return success(!code);
  }

  bool hasFunction(StringRef name) const override {
    return cleave_program_has_action(program, name.str().c_str());
  }

  LogicalResult set(const Port &port, const Tensor &whole) override {
    std::optional<cleave_buffer_info> info = find(port);
    if (!info)
      return success();
    Tensor stored = asStored(viewOf(*module, port), whole);
    if (stored.shape() != ArrayRef<int64_t>(info->global_shape, info->rank))
      return emitError(port.value.getLoc())
             << port.describe() << " has another shape in the program than "
             << stored.type;
    if (stored.isFloat())
      return scatter(*info, CLEAVE_F64, stored.floats.data(), stored.size());
    return scatterIntegers(*info, stored.ints);
  }

  LogicalResult run(StringRef function) override {
    // The host runs @loss_grad of a pipeline once for each microbatch. Every
    // call only loads the microbatch's inputs; the last one then runs the step.
    std::string load = program::loadAction(loaded);
    if (function == nn::kLossGradFunc && hasFunction(program::loadAction(0))) {
      if (failed(runAction(load)))
        return failure();
      if (hasFunction(program::loadAction(++loaded)))
        return success();
      loaded = 0;
    }
    return runAction(function);
  }

  LogicalResult runAction(StringRef function) {
    if (calls)
      calls->run(function);
    if (cleave_session_run(session, function.str().c_str()) == CLEAVE_OK)
      return success();
    std::string message = cleave_last_error();
    cleave_failure failed{};
    cleave_session_failure(session, &failed);
    InFlightDiagnostic error = module->emitError("@") << function << " failed";
    if (failed.rank >= 0)
      error << " on rank " << int64_t(failed.rank);
    if (failed.source && *failed.source)
      error << " at " << failed.source;
    return error << ": " << message;
  }

  FailureOr<Gathered> get(const Port &port) override {
    std::optional<cleave_buffer_info> info = find(port);
    if (!info)
      return emitError(port.value.getLoc())
             << port.describe() << " is not in the program";
    nn::ViewAttr view = viewOf(*module, port);
    Tensor stored(
        port.type.clone(ArrayRef<int64_t>(info->global_shape, info->rank)));
    cleave_gather_report report{};
    LogicalResult read =
        stored.isFloat()
            ? status(cleave_session_gather(session, info->name, CLEAVE_F64,
                                           stored.floats.data(), stored.size(),
                                           &report))
            : gatherIntegers(*info, stored.ints, report);
    if (failed(read))
      return failure();
    if (calls && stored.isFloat())
      calls->gather(*info, stored.floats);
    Gathered result;
    result.whole = seenThrough(view, stored);
    // Replicas may differ in bits but not in value, because zero has two signs.
    result.replicaDifference = report.max_difference;
    int64_t rank = report.identical ? 0 : std::max(report.rank_b, 0);
    result.rankOf = rankOf(port, rank);
    return result;
  }

private:
  LogicalResult scatter(const cleave_buffer_info &info, cleave_dtype type,
                        const void *data, int64_t count) {
    if (calls)
      calls->scatter(info, type, data, count);
    return status(
        cleave_session_scatter(session, info.name, type, data, count));
  }

  LogicalResult status(cleave_status code) {
    if (code == CLEAVE_OK)
      return success();
    return module->emitError("runtime: ") << cleave_last_error();
  }

  std::optional<cleave_buffer_info> find(const Port &port) const {
    int64_t index = port.role ? table.find(port.name, *port.role) : -1;
    if (index < 0)
      return std::nullopt;
    int32_t found = cleave_program_find_buffer(
        program, table.buffers[index].buffer.c_str());
    cleave_buffer_info info{};
    if (found < 0 || cleave_program_buffer(program, found, &info) != CLEAVE_OK)
      return std::nullopt;
    return info;
  }

  /// Calls `visit` with a vector of the buffer's element type.
  template <typename Visit>
  LogicalResult withType(const cleave_buffer_info &info, Visit visit) {
    switch (info.dtype) {
    case CLEAVE_I64:
      return visit(std::vector<int64_t>());
    case CLEAVE_I32:
      return visit(std::vector<int32_t>());
    case CLEAVE_I8:
      return visit(std::vector<int8_t>());
    case CLEAVE_U8:
      return visit(std::vector<uint8_t>());
    default:
      return module->emitError("buffer '")
             << info.name << "' holds no integers";
    }
  }

  LogicalResult scatterIntegers(const cleave_buffer_info &info,
                                ArrayRef<int64_t> values) {
    return withType(info, [&](auto typed) {
      typed.assign(values.begin(), values.end());
      return scatter(info, info.dtype, typed.data(), typed.size());
    });
  }

  LogicalResult gatherIntegers(const cleave_buffer_info &info,
                               std::vector<int64_t> &values,
                               cleave_gather_report &report) {
    return withType(info, [&](auto typed) {
      typed.resize(values.size());
      LogicalResult read = status(cleave_session_gather(
          session, info.name, info.dtype, typed.data(), typed.size(), &report));
      values.assign(typed.begin(), typed.end());
      return read;
    });
  }

  /// Returns a function that maps an element of the unsharded tensor to the
  /// first rank that holds it. If ranks have different copies, the function
  /// always returns `other`, a rank with a copy that differs.
  std::function<int64_t(int64_t)> rankOf(const Port &port, int64_t other) {
    if (other)
      return [other](int64_t) { return other; };
    int64_t index = port.role ? table.find(port.name, *port.role) : -1;
    const BoundaryBuffer &buffer = table.buffers[index];
    auto sharding =
        buffer.attrs.getAs<dist::ShardingAttr>(dist::kShardingAttrName);
    for (auto mesh : module->getOps<dist::MeshOp>())
      if (sharding && !target::isPipelined(*module))
        return [mesh = mesh.getMesh(), sharding,
                type = buffer.globalType](int64_t element) {
          return firstHolder(mesh, sharding, type.getShape(), element);
        };
    return {};
  }

  OwningOpRef<ModuleOp> module;
  BoundaryTable table;
  int64_t loaded = 0; // microbatches of this step
  std::unique_ptr<TemporaryPath> folder;
  Recording::Calls *calls = nullptr;
  cleave_program *program = nullptr;
  cleave_session *session = nullptr;
};

} // namespace

FailureOr<std::unique_ptr<Engine>>
check::makeCompiledEngine(ModuleOp local, const CompiledOptions &options) {
  auto engine = std::make_unique<CompiledEngine>(local);
  if (failed(engine->load(options)))
    return failure();
  return std::unique_ptr<Engine>(std::move(engine));
}
