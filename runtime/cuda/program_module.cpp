// Selects and loads the generated kernels of a program.

#include "program_module.h"

#include "error.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

using namespace cleave;
using namespace cleave::cuda;

namespace {
struct Image {
  std::string name;
  int version = 0; // 90: sm_90
  bool isCode = false;
};

std::optional<Image> imageOf(const std::string &name) {
  constexpr std::string_view begin = "kernels.sm_";
  Image image{name, 0, name.ends_with(".cubin")};
  if (!name.starts_with(begin) || (!image.isCode && !name.ends_with(".ptx")))
    return std::nullopt;
  image.version = std::atoi(name.c_str() + begin.size());
  return image;
}

// Returns whether an image runs on a device of this version. Machine code runs
// on its own and on later devices of the same generation (such as sm_80 and
// sm_86). PTX runs on these and on all later devices.
bool serves(const Image &image, int version) {
  return image.version <= version &&
         (!image.isCode || image.version / 10 == version / 10);
}

// Returns the last part of the error that no image fits the device: what to do.
std::string remedyFor(int version) {
  int newest = 0; // the newest for target.architectures
  for (int served : {80, 90, 100})
    if (served <= version)
      newest = served;
  if (newest == 0)
    return "run on a device of sm_80 or newer";
  return "compile with target.architectures = [\"sm_" + std::to_string(newest) +
         "\"]";
}

std::string read(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (!file || bytes.empty())
    fail(CLEAVE_BAD_PROGRAM,
         path + ": cannot be read: " + std::strerror(errno));
  return bytes;
}

// Loads an image. The driver compiles PTX here; the output of its compiler
// becomes part of the error message.
CUmodule load(const std::string &bytes, const std::string &path) {
  char log[1024] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log))};
  CUmodule module = nullptr;
  CUresult status =
      driver().cuModuleLoadDataEx(&module, bytes.c_str(), 2, options, values);
  std::string said(log, strnlen(log, sizeof(log)));
  said = said.substr(0, said.find('\n'));
  check(status, "loading " + path +
                    (said.empty() ? "" : ", of which is said: " + said));
  return module;
}
} // namespace

std::shared_ptr<ProgramModule> cuda::loadModule(const cleave_program &loaded,
                                                Device &device) {
  const program::Program &program = loaded.data;
  const std::string &folder = loaded.libraryPath;
  auto result = std::make_shared<ProgramModule>();
  if (program.kernels.empty())
    return result;
  std::vector<Image> images;
  auto add = [&](const std::string &name) {
    if (std::optional<Image> image = imageOf(name))
      images.push_back(*image);
  };
  bool isSent = !loaded.images.empty();
  for (const auto &[name, bytes] : loaded.images)
    add(name);
  std::error_code error;
  std::filesystem::directory_iterator files, end;
  if (!isSent)
    files = std::filesystem::directory_iterator(folder, error);
  for (; !error && files != end; files.increment(error))
    add(files->path().filename().string());
  std::string all;
  std::sort(images.begin(), images.end(), [](const Image &a, const Image &b) {
    return std::pair(a.isCode, a.version) > std::pair(b.isCode, b.version);
  });
  const Image *chosen = nullptr;
  for (const Image &image : images) {
    all += (all.empty() ? "" : ", ") + image.name;
    if (!chosen && serves(image, device.capability()))
      chosen = &image;
  }
  if (!chosen)
    fail(CLEAVE_UNSUPPORTED, "device " + device.name() + " is sm_" +
                                 std::to_string(device.capability()) +
                                 ", but " + (isSent ? "the program" : folder) +
                                 " has only " +
                                 (all.empty() ? "no kernels" : all) + "; " +
                                 remedyFor(device.capability()));
  if (driver().kernels) {
    std::string host = isSent ? folder : folder + "/kernels.so";
    if (!std::filesystem::exists(host))
      fail(CLEAVE_UNSUPPORTED,
           "the program has no kernels for what stands in for a device; "
           "compile it with CLEAVE_HOST_KERNELS=1");
    driver().kernels(host.c_str());
  }
  std::string path = isSent ? chosen->name : folder + "/" + chosen->name;
  // PTX is text that ends with a zero.
  std::string bytes = isSent ? loaded.images.at(chosen->name) : read(path);
  CUmodule module = load(bytes, path);
  result->module = Module(module);
  for (const program::Kernel &kernel : program.kernels) {
    CUfunction function = nullptr;
    if (CUresult status = driver().cuModuleGetFunction(&function, module,
                                                       kernel.symbol.c_str());
        status == CUDA_ERROR_NOT_FOUND)
      fail(CLEAVE_BAD_PROGRAM, path + " has no kernel " + kernel.symbol);
    else
      check(status, "finding kernel " + kernel.symbol);
    if (kernel.grid < 1 || kernel.block < 1)
      fail(CLEAVE_BAD_PROGRAM, "kernel " + kernel.symbol + " has " +
                                   std::to_string(kernel.grid) + " blocks of " +
                                   std::to_string(kernel.block) + " threads");
    result->functions.push_back(function);
  }
  return result;
}
