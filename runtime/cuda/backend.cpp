// The CUDA backend of a rank: commands are enqueued on one stream, in order.

#include "cuda/backend.h"

#include "blas.h"
#include "cleave/workspace.h"
#include "dnn.h"
#include "kernels.h"
#include "nccl_transport.h"
#include "neighbours.h"
#include "positions.h"
#include "program_module.h"
#include "span.h"
#include "storage.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <thread>

using namespace cleave;
using namespace cleave::cuda;
using program::Action;
using program::Arena;
using program::Attention;
using program::Convolution;
using program::Gemm;
using program::GroupedGemm;
using program::Kernel;
using program::Launch;
using program::PlanRows;
using program::PositionInExpert;
using program::Program;
using program::SortRows;

namespace {
constexpr const char *withoutGraphs =
    " (set CLEAVE_CUDA_NO_GRAPHS=1 to run without graphs)";

bool isSet(const char *variable) {
  const char *value = std::getenv(variable);
  return value && *value && std::string_view(value) != "0";
}

class CudaBackend : public Backend {
public:
  CudaBackend(const cleave_program &program, int rank, Device &device,
              std::shared_ptr<ProgramModule> module, bool poison)
      : program(program.data), rank(rank), device(device),
        kernels(Kernels::of(device)), module(std::move(module)),
        synchronises(poison || isSet("CLEAVE_CUDA_SYNCHRONOUS")),
        replays(!isSet("CLEAVE_CUDA_NO_GRAPHS")), compute(makeStream()),
        copies(device, compute.get()) {
    std::vector<int64_t> index = axisIndices(this->program, rank);
    int64_t bytes = 8 * std::max<int64_t>(1, std::ssize(index));
    axisIndex = std::make_unique<DeviceStorage>(device, copies, bytes,
                                                "the indices of a rank");
    axisIndex->write(0, index.data(), 8 * std::ssize(index));
    void *pinned = nullptr;
    check(driver().cuMemHostAlloc(&pinned, 8, 0), "allocating host memory");
    flagCopy = Owned<char *, freeHost>(static_cast<char *>(pinned));
  }

  void attach(std::function<void()> given) override {
    device.use();
    meanwhile = std::move(given);
  }

  std::unique_ptr<Storage> allocate(int64_t bytes,
                                    const std::string &purpose) override {
    device.use();
    return std::make_unique<DeviceStorage>(device, copies, bytes, purpose,
                                           allocator);
  }

  int64_t workspace(const Gemm &gemm, std::string &error) const override {
    return gemmWorkspace(gemm, error);
  }
  int64_t workspace(const Attention &attention,
                    std::string &error) const override {
    return attentionWorkspace(attention, error);
  }
  int64_t workspace(const GroupedGemm &grouped,
                    std::string &error) const override {
    return groupedWorkspace(grouped, error);
  }
  int64_t workspace(const Convolution &convolution,
                    std::string &error) const override {
    return convolutionWorkspace(convolution, error);
  }

  Run launch(const Launch &launch, std::vector<void *> args) override;
  Run gemm(const Gemm &gemm, const GemmBuffers &buffers,
           int64_t workspaceBytes) override {
    return onStream(
        makeGemm(device, gemm, buffers, workspaceBytes, program.tf32));
  }
  Run attention(const Attention &attention,
                const AttentionBuffers &buffers) override {
    return onStream(makeBestAttention(device, attention, buffers));
  }
  Run grouped(const GroupedGemm &grouped,
              const GroupedBuffers &buffers) override {
    return onStream(makeGrouped(kernels, grouped, buffers));
  }
  Run convolution(const Convolution &convolution,
                  const ConvolutionBuffers &buffers) override {
    return onStream(
        makeBestConvolution(device, convolution, buffers, program.tf32));
  }
  Run planRows(const PlanRows &plan,
               const cleave::PlanRowsBuffers &at) override {
    return onStream(makePlanRows(
        kernels, plan, {at.ids, at.sources, at.placeOf, at.sent, at.counts}));
  }
  Run sortRows(const SortRows &sort,
               const cleave::SortRowsBuffers &at) override {
    return onStream(
        makeSortRows(kernels, sort, {at.ids, at.order, at.placeOf, at.sorted}));
  }
  Run positionInExpert(const PositionInExpert &order,
                       const PositionInExpertBuffers &buffers) override {
    return onStream(makePositionInExpert(kernels, order, buffers));
  }
  Run copy(const CopyBuffers &buffers, int64_t block, std::vector<int64_t> dims,
           std::vector<int64_t> srcStrides,
           std::vector<int64_t> dstStrides) override;
  Run fill(char *dst, int64_t count, int64_t size, uint64_t pattern) override {
    return onStream(
        makeFill(kernels, dst, count, static_cast<int>(size), pattern));
  }

  char flag(const char *at) override;
  Run at(CallSite site, Run run) override;
  void finish() override {
    wait("a command of the action failed on the device (set "
         "CLEAVE_CUDA_SYNCHRONOUS=1 to learn which)");
  }
  void makeMarks(size_t count) override;
  void mark(size_t number) override;
  int64_t passed(size_t number) override;
  bool replay(const Action &action) override;
  bool beginCapture(const Action &action) override;
  void endCapture(const Action &action) override;
  void cancelCapture() override;
  void *stream() const override { return compute.get(); }

  void forget() override {
    device.tryUse();
    graphs.clear();
  }

  // Sets the allocator (NCCL's or the driver's) for arenas that are allocated
  // from now on.
  void setAllocator(Allocator given) { allocator = given; }

  const RankStream seen() { return {&device, compute.get()}; }

private:
  static void freeHost(char *at) { (void)driver().cuMemFreeHost(at); }

  Run onStream(Enqueue enqueue) {
    return [enqueue = std::move(enqueue), stream = compute.get()] {
      enqueue(stream);
    };
  }
  void note(const CallSite &site) const;
  void wait(const char *what);

  const Program &program;
  const int rank;
  Device &device;
  Kernels &kernels;
  std::shared_ptr<ProgramModule> module;
  const bool synchronises; // after each command, to find the failing one
  const bool replays;
  Allocator allocator = Allocator::Driver;
  Stream compute;
  HostCopies copies;
  std::unique_ptr<DeviceStorage> axisIndex;
  Owned<char *, freeHost> flagCopy;
  // The CUDA graph of each action that has run. It is null after the first run,
  // and captured in the second.
  std::map<const Action *, GraphExec> graphs;
  std::vector<Event> marks;
  int64_t markedFirst = 0; // time of mark 0, in the host's clock
  std::function<void()> meanwhile;
};
} // namespace

Backend::Run CudaBackend::launch(const Launch &launch,
                                 std::vector<void *> args) {
  const Kernel &kernel = program.kernels[launch.kernel];
  args.push_back(axisIndex->data());
  return [this, args = std::move(args),
          function = module->functions[launch.kernel],
          grid = static_cast<unsigned>(kernel.grid),
          block = static_cast<unsigned>(kernel.block), &kernel,
          pointers = std::vector<void *>()]() mutable {
    if (pointers.empty()) // first call: `args` moves no more
      for (void *&arg : args)
        pointers.push_back(&arg);
    CUresult status =
        driver().cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0,
                                compute.get(), pointers.data(), nullptr);
    if (status != CUDA_SUCCESS)
      check(status, "launching kernel " + kernel.symbol);
  };
}

Backend::Run CudaBackend::copy(const CopyBuffers &buffers, int64_t block,
                               std::vector<int64_t> dims,
                               std::vector<int64_t> srcStrides,
                               std::vector<int64_t> dstStrides) {
  if (dims.empty())
    return [=, this] {
      check(driver().cuMemcpyDtoDAsync(address(buffers.dst),
                                       address(buffers.src), block,
                                       compute.get()),
            "copying");
    };
  // The size of the elements to copy: the largest power of two, up to 16 bytes,
  // that divides the block, all strides and both addresses.
  int64_t size = std::gcd(block, int64_t(16));
  for (size_t i = 0; i < dims.size(); ++i)
    size = std::gcd(size, std::gcd(srcStrides[i], dstStrides[i]));
  size = std::gcd(size, std::gcd(reinterpret_cast<int64_t>(buffers.src),
                                 reinterpret_cast<int64_t>(buffers.dst)));
  dims.push_back(block / size);
  srcStrides.push_back(size);
  dstStrides.push_back(size);
  return onStream(
      makeCopy(kernels, {buffers.dst, buffers.src, size, std::move(dims),
                         std::move(dstStrides), std::move(srcStrides)}));
}

char CudaBackend::flag(const char *at) {
  check(
      driver().cuMemcpyDtoHAsync(flagCopy.get(), address(at), 1, compute.get()),
      "reading a condition");
  wait("a command before a condition failed on the device");
  return *flagCopy.get();
}

void CudaBackend::note(const CallSite &site) const {
  std::vector<cleave_access> accesses;
  for (const Access &access : site.accesses)
    accesses.push_back({access.at, access.bytes, access.written});
  cleave_note note{};
  note.rank = rank;
  note.action = site.action->name.c_str();
  note.source = program.strings[site.command->source].c_str();
  note.kind = "command";
  note.command = site.index;
  if (auto *launch = std::get_if<Launch>(&site.command->op)) {
    note.kind = program.kernels[launch->kernel].symbol.c_str();
    note.extent = launch->extent;
    accesses.push_back({axisIndex->data(), axisIndex->size(), 0});
  }
  note.accesses = accesses.data();
  note.num_accesses = std::ssize(accesses);
  driver().note(compute.get(), &note);
}

Backend::Run CudaBackend::at(CallSite site, Run run) {
  if (!driver().note && !synchronises)
    return run;
  return [this, site = std::move(site), run = std::move(run)] {
    if (driver().note)
      note(site);
    run();
    if (synchronises)
      wait("it failed on the device");
  };
}

// Waits until the stream has no work left. The stream may contain transfers
// that wait for other ranks, so meanwhile() is called repeatedly: it throws if
// a transfer is lost.
void CudaBackend::wait(const char *what) {
  using namespace std::chrono_literals;
  for (int round = 0;; ++round) {
    CUresult status = driver().cuStreamQuery(compute.get());
    if (status == CUDA_SUCCESS)
      return;
    if (status != CUDA_ERROR_NOT_READY)
      check(status, what);
    meanwhile();
    if (round > 1000)
      std::this_thread::sleep_for(20us);
    else
      std::this_thread::yield();
  }
}

void CudaBackend::makeMarks(size_t count) {
  device.use();
  while (marks.size() < count)
    marks.push_back(makeEvent(/*timed=*/true));
}

void CudaBackend::mark(size_t number) {
  if (number == 0) { // the stream is idle: the event completes at once
    copies.finish();
    markedFirst = traceClock();
  }
  check(driver().cuEventRecord(marks[number].get(), compute.get()),
        "marking the end of a command");
}

int64_t CudaBackend::passed(size_t number) {
  float milliseconds = 0;
  if (number > 0)
    check(driver().cuEventElapsedTime(&milliseconds, marks[0].get(),
                                      marks[number].get()),
          "asking when a command ended");
  return markedFirst + std::llround(1e6 * double(milliseconds));
}

bool CudaBackend::replay(const Action &action) {
  auto found = graphs.find(&action);
  if (found == graphs.end() || !found->second)
    return false;
  check(driver().cuGraphLaunch(found->second.get(), compute.get()),
        "replaying action \"" + action.name + "\"" + withoutGraphs);
  return true;
}

// The first run is not captured, because libraries initialise themselves in it.
bool CudaBackend::beginCapture(const Action &action) {
  if (!replays || synchronises || graphs.try_emplace(&action).second)
    return false;
  check(driver().cuStreamBeginCapture(compute.get(),
                                      CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "capturing action \"" + action.name + "\"" + withoutGraphs);
  return true;
}

void CudaBackend::endCapture(const Action &action) {
  std::string what = "capturing action \"" + action.name + "\"" + withoutGraphs;
  CUgraph graph = nullptr;
  check(driver().cuStreamEndCapture(compute.get(), &graph), what);
  CUgraphExec exec = nullptr;
  CUresult status = driver().cuGraphInstantiateWithFlags(&exec, graph, 0);
  driver().cuGraphDestroy(graph);
  check(status, what);
  graphs[&action] = GraphExec(exec);
  replay(action);
}

// Ends the capture of the stream and discards what was captured of the action.
void CudaBackend::cancelCapture() {
  CUgraph graph = nullptr;
  (void)driver().cuStreamEndCapture(compute.get(), &graph);
  if (graph)
    (void)driver().cuGraphDestroy(graph);
}

std::vector<std::unique_ptr<Backend>>
cuda::makeBackends(cleave_program &program, const SessionShape &shape) {
  std::vector<Device *> devices;
  std::map<Device *, int64_t> need;
  for (int rank = shape.first; rank < shape.first + shape.here; ++rank) {
    Device &device = Device::of(shape.device + rank - shape.first);
    devices.push_back(&device);
    for (const Arena &arena : program.data.arenas)
      if (arena.rankClass < 0 ||
          static_cast<uint32_t>(arena.rankClass) == program.data.classOf(rank))
        need[&device] += arena.size;
  }
  std::map<Device *, std::shared_ptr<ProgramModule>> modules;
  for (auto [device, bytes] : need) {
    device->use();
    size_t free = 0, total = 0;
    check(driver().cuMemGetInfo(&free, &total), "asking for free memory");
    if (bytes > static_cast<int64_t>(free))
      fail(CLEAVE_OUT_OF_MEMORY,
           "the ranks on device " + device->name() + " need " +
               std::to_string(bytes) + " bytes, but it has " +
               std::to_string(free) + " of " + std::to_string(total) +
               " free; cut the model finer, use a smaller batch, recompute, or "
               "use more devices");
    modules[device] = loadModule(program, *device);
  }
  std::vector<std::unique_ptr<Backend>> backends;
  for (int i = 0; i < shape.here; ++i) {
    devices[i]->use();
    backends.push_back(
        std::make_unique<CudaBackend>(program, shape.first + i, *devices[i],
                                      modules[devices[i]], shape.poison));
  }
  return backends;
}

std::unique_ptr<Transport>
cuda::makeTransport(std::string_view kind, const TransportOptions &options,
                    const SessionShape &shape, Counters &counters,
                    const Neighbours &neighbours,
                    const std::vector<std::unique_ptr<Backend>> &backends) {
  std::vector<RankStream> ranks;
  for (const std::unique_ptr<Backend> &backend : backends)
    ranks.push_back(static_cast<CudaBackend &>(*backend).seen());
  // Chooses NCCL's allocator for the arenas, which are allocated after this.
  // With CLEAVE_NCCL_PLAIN_MEMORY=1 the driver allocates them.
  auto useMemoryOfNccl = [&] {
    if (!isSet("CLEAVE_NCCL_PLAIN_MEMORY"))
      for (const std::unique_ptr<Backend> &backend : backends)
        static_cast<CudaBackend &>(*backend).setAllocator(Allocator::Nccl);
  };
  if (neighbours.world) { // several processes: "nccl"
    std::unique_ptr<Store> store = makeWorldStore(neighbours);
    compareDevices(*store, neighbours, options.timeoutSeconds,
                   *ranks.front().device);
    useMemoryOfNccl();
    return makeNcclTransport(options, counters, shape.first, std::move(ranks),
                             std::move(store));
  }
  bool hasOwn = shape.here <= Device::count();
  if (kind == "auto")
    kind = shape.here > 1 && hasOwn ? "nccl" : "local";
  if (kind == "local")
    return makeLocalTransport(options, counters, shape.first, std::move(ranks));
  if (!hasOwn)
    fail(CLEAVE_UNSUPPORTED,
         "transport nccl needs a device for each of the " +
             std::to_string(shape.here) + " ranks, but there are " +
             std::to_string(Device::count()) +
             "; use transport = \"local\", whose ranks share devices, or fewer "
             "ranks");
  useMemoryOfNccl();
  return makeNcclTransport(options, counters, shape.first, std::move(ranks),
                           makeLocalStore());
}
