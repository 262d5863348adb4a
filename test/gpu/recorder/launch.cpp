// The simulated CUDA driver: modules and kernel launches.

#include "emulated.h"
#include "image.h"
#include "queue.h"

#include "cleave/runtime.h"
#include "recorder.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

using namespace recorder;

namespace {
// The maximum shared memory of a thread block in bytes: `mostShared` if the
// kernel has requested more than the default, `unaskedShared` if it has not.
constexpr int64_t mostShared = 227 << 10, unaskedShared = 48 << 10;

struct Module;

struct Function {
  std::string name;
  Module *module = nullptr;
  KernelImage image;
  bool knowsParameters = false;
  int64_t dynamicLimit = 0; // that has been asked for
  EmulatedKernel emulated;
  cleave_kernel generated = nullptr;
};

struct Module {
  int device = 0;
  void *kernels = nullptr; // a library with the kernels for CPUs
  std::map<std::string, KernelImage> images;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

std::set<Module *> modules;
std::set<Function *> functions;
void *kernelLibrary = nullptr;

// Copies of the arguments of a launch. The caller's own arguments may no longer
// exist when the kernel runs.
struct Arguments {
  std::vector<std::vector<char>> values;
  std::vector<void *> pointers() const {
    std::vector<void *> out;
    for (const std::vector<char> &value : values)
      out.push_back(const_cast<char *>(value.data()));
    return out;
  }
};

void runGenerated(cleave_kernel kernel, const Arguments &arguments,
                  int64_t extent) {
  std::vector<void *> addresses;
  for (const std::vector<char> &value : arguments.values) {
    void *address = nullptr;
    std::memcpy(&address, value.data(), sizeof(address));
    addresses.push_back(address);
  }
  cleave_ctx ctx = {};
  ctx.axis_index = static_cast<const int64_t *>(addresses.back());
  int64_t indexFault[2] = {0, 0}; // which devices do not look for
  ctx.index_fault = indexFault;
  kernel(&ctx, addresses.data(), 0, extent);
}
} // namespace

extern "C" void cleaveRecorderNote(void *handle, const cleave_note *note) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Stream *stream = all.stream(static_cast<CUstream>(handle));
  if (!stream)
    return;
  stream->note.reset();
  if (!note)
    return;
  auto text = [](const char *text) { return std::string(text ? text : ""); };
  auto made = std::make_shared<Note>();
  made->rank = note->rank;
  made->command = note->command;
  made->action = text(note->action);
  made->source = text(note->source);
  made->kind = text(note->kind);
  made->extent = note->extent;
  for (int64_t i = 0; i < note->num_accesses; ++i) {
    const cleave_access &access = note->accesses[i];
    made->accesses.push_back(
        {static_cast<char *>(const_cast<void *>(access.at)), access.bytes,
         access.written != 0});
  }
  stream->note = std::move(made);
}

extern "C" void cleaveRecorderKernels(const char *path) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  kernelLibrary = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (path && !kernelLibrary)
    all.report.error(std::string("cannot load the kernels' forms for CPUs: ") +
                     dlerror());
}

CUresult cuModuleLoadData(CUmodule *out, const void *image) {
  if (!currentDevice)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!image)
    return CUDA_ERROR_INVALID_VALUE;
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  auto *module = new Module;
  module->device = currentDevice->number;
  module->kernels = kernelLibrary;
  module->images = kernelsOf(image);
  modules.insert(module);
  *out = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count,
                            CUjit_option *options, void **values) {
  auto text = static_cast<const char *>(image);
  if (!text || !std::strncmp(text, "\177ELF", 4) ||
      !std::getenv("CLEAVE_RECORDER_REFUSES_PTX"))
    return cuModuleLoadData(out, image);
  char *log = nullptr;
  size_t bytes = 0;
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
      log = static_cast<char *>(values[i]);
    else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      bytes = reinterpret_cast<size_t>(values[i]);
  if (log)
    std::snprintf(log, bytes, "line 7: no such instruction\nand more");
  return CUDA_ERROR_INVALID_PTX;
}

CUresult cuModuleUnload(CUmodule handle) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  auto *module = reinterpret_cast<Module *>(handle);
  if (!modules.erase(module))
    return CUDA_ERROR_INVALID_HANDLE;
  for (auto &[name, function] : module->functions)
    functions.erase(function.get());
  delete module;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle,
                             const char *name) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  auto *module = reinterpret_cast<Module *>(handle);
  if (!modules.count(module))
    return CUDA_ERROR_INVALID_HANDLE;
  auto known = module->images.find(name);
  // If the kernels of an image are known, all of them are known, so a kernel
  // that is missing does not exist.
  if (!module->images.empty() && known == module->images.end())
    return CUDA_ERROR_NOT_FOUND;
  std::unique_ptr<Function> &function = module->functions[name];
  if (!function) {
    function = std::make_unique<Function>();
    function->name = name;
    function->module = module;
    function->knowsParameters = known != module->images.end();
    if (function->knowsParameters)
      function->image = known->second;
    function->emulated = findEmulatedKernel(name);
    if (!function->emulated && module->kernels)
      function->generated =
          reinterpret_cast<cleave_kernel>(dlsym(module->kernels, name));
    functions.insert(function.get());
  }
  *out = reinterpret_cast<CUfunction>(function.get());
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute,
                            int value) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  auto *function = reinterpret_cast<Function *>(handle);
  if (!functions.count(function))
    return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (value < 0 || value + function->image.shared > mostShared)
    return CUDA_ERROR_INVALID_VALUE;
  function->dynamicLimit = value;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction handle, unsigned gridX, unsigned gridY,
                        unsigned gridZ, unsigned blockX, unsigned blockY,
                        unsigned blockZ, unsigned shared, CUstream on,
                        void **arguments, void **) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Stream *stream = all.stream(on);
  auto *function = reinterpret_cast<Function *>(handle);
  if (!stream || !functions.count(function))
    return CUDA_ERROR_INVALID_HANDLE;
  auto isWithin = [](uint64_t x, uint64_t most) { return x > 0 && x <= most; };
  if (!isWithin(gridX, 0x7fffffff) || !isWithin(gridY, 65535) ||
      !isWithin(gridZ, 65535) || !isWithin(blockZ, 64) ||
      !isWithin(uint64_t(blockX) * blockY * blockZ,
                function->image.threads ? function->image.threads : 1024))
    return CUDA_ERROR_INVALID_VALUE;
  if (shared >
      std::max(function->dynamicLimit, unaskedShared - function->image.shared))
    return CUDA_ERROR_INVALID_VALUE;

  Operation operation;
  operation.who = all.name(*stream, "launch of " + function->name);
  if (function->module->device != stream->device)
    all.report.error(operation.who->text() +
                     ": the module was loaded on device " +
                     std::to_string(function->module->device));
  ++all.report.totals.launches;
  std::shared_ptr<const Note> note = stream->note;
  if (note)
    operation.accesses = note->accesses;
  else
    ++all.report.totals.unnoted;

  // Like the driver, copies the arguments at the launch. The image states their
  // sizes. If the image has an unknown format, a kernel that the compiler
  // generated is assumed to have only addresses as arguments: one for each
  // memory access of the command (the runtime announces these accesses before
  // the launch, in a note), and then the address of an array with the rank's
  // index on each mesh axis.
  std::vector<int> sizes = function->image.parameters;
  if (!function->knowsParameters && function->generated && note)
    sizes.assign(note->accesses.size() + 1, 8);
  Arguments copied;
  for (size_t i = 0; i < sizes.size(); ++i) {
    auto *value = static_cast<const char *>(arguments[i]);
    copied.values.emplace_back(value, value + sizes[i]);
  }
  // Arguments of unknown sizes cannot be copied. They are valid only until this
  // call returns, so the kernel must run before that.
  bool needsArguments = function->emulated && !function->knowsParameters;
  auto hasRun = std::make_shared<bool>(false);
  if (function->emulated) {
    ++all.report.totals.emulated;
    Dims dims{{gridX, gridY, gridZ}, {blockX, blockY, blockZ}, shared};
    void **given = needsArguments ? arguments : nullptr;
    operation.run = [copied, dims, given, hasRun,
                     run = function->emulated.run] {
      run(dims, given ? given : copied.pointers().data());
      *hasRun = true;
    };
  } else if (function->generated && note && !copied.values.empty()) {
    ++all.report.totals.generated;
    operation.run = [copied, kernel = function->generated, note] {
      runGenerated(kernel, copied, note->extent);
    };
  } else {
    all.report.unrun(function->name);
  }
  std::string who = operation.who->text();
  all.enqueue(*stream, std::move(operation));
  if (needsArguments && !*hasRun)
    all.report.error(who + " has to wait, but its image does not tell the "
                           "sizes of its arguments");
  return CUDA_SUCCESS;
}
