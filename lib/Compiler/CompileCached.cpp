// Looks up compiled programs in the cache, and compiles them if they are
// missing. The cache throws exceptions, which are converted to diagnostics
// here.

#include "cleave/Compiler/Cache.h"
#include "cleave/Compiler/Compiler.h"

#include "Files.h"
#include "ModelFiles.h"

#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/Support/Errors.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

#include <dlfcn.h>
#include <filesystem>

using namespace mlir;
namespace fs = std::filesystem;

namespace cleave::compiler {

/// Returns a text that identifies this build of the compiler: the version, and
/// the time at which the compiler's own file was written.
static std::string identityOfCompiler() {
  Dl_info info{};
  std::error_code error;
  fs::path self;
  // The name of an executable may be relative to the folder where it was
  // started.
  if (::dladdr(reinterpret_cast<void *>(&identityOfCompiler), &info) &&
      info.dli_fname && fs::path(info.dli_fname).is_absolute())
    self = info.dli_fname;
  else
    self = fs::read_symlink("/proc/self/exe", error);
  auto time = fs::last_write_time(self, error).time_since_epoch();
  return CLEAVE_VERSION " " + std::to_string(time.count());
}

/// Returns the key of an artifact: a digest of everything that the artifact
/// depends on. The path of the data and the number of steps are not part of it,
/// because a compiled program gets them when it runs.
static FailureOr<std::string> keyOf(const std::string &path,
                                    const Config &config, const Mesh &mesh,
                                    Purpose purpose, const ModelFiles &files,
                                    MLIRContext *context) {
  Config keyed = config;
  keyed.data.path.clear();
  keyed.train.steps = 0;
  FailureOr<std::string> model = readFile(context, path);
  if (failed(model))
    return failure();
  llvm::SHA256 hash;
  for (const std::string &part :
       {identityOfCompiler(), *model,
        fs::absolute(path).lexically_normal().string(), writeConfigJson(keyed),
        std::to_string(threadsPerRank(config, mesh)),
        std::to_string(static_cast<int>(purpose)),
        // Weight files are part of the key, because their contents decide which
        // parameters are tied and which constants are folded.
        files.weights()}) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  }
  std::vector<std::string> others = {config.parallel.pipeline.table,
                                     config.target.cluster};
  for (const auto &[name, value] : config.data.bind)
    others.push_back(value);
  std::error_code error;
  for (const std::string &file : others) {
    // If the configuration does not name a file of this kind, `file` is empty.
    // A file that does not exist is reported later, when it is read.
    if (file.empty() || !fs::exists(file, error))
      continue;
    FailureOr<std::string> text = readFile(context, file);
    if (failed(text))
      return failure();
    hash.update(*text + ":");
  }
  // Environment variables decide in which form kernels for devices are written:
  // as PTX only or, if ptxas is found, also as cubins; and whether kernels for
  // the host are written, too.
  if (deviceOf(config) == program::Device::Cuda)
    hash.update(codegen::findPtxas().value_or("no ptxas") +
                (target::wantsHostKernels() ? ", host" : ""));
  auto digest = hash.final();
  // Entry names must not begin with a dot, and the length of file names is
  // limited.
  std::string stem = fs::path(path).stem().string().substr(0, 64);
  if (stem.starts_with("."))
    stem[0] = '_';
  return stem + "-" + llvm::toHex(digest, /*LowerCase=*/true).substr(0, 16);
}

namespace {

/// Records the warnings of a context, which are stored with the cache entry.
/// Also passes them on to the next diagnostic handler.
class WarningRecord {
public:
  explicit WarningRecord(MLIRContext &context) : context(context) {
    handler =
        context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() == DiagnosticSeverity::Warning)
            warnings.add(diagnostic);
          return failure();
        });
  }
  ~WarningRecord() { context.getDiagEngine().eraseHandler(handler); }
  std::string text() const {
    std::string lines;
    for (const std::string &line : warnings.lines())
      lines += escaped(line) + "\n";
    return lines;
  }

private:
  MLIRContext &context;
  DiagnosticEngine::HandlerID handler;
  FoldedMessages warnings;
};

/// Thrown after an error that has already been reported as a diagnostic.
struct Reported {};

} // namespace

FailureOr<std::string>
Compiler::compileCached(const std::string &path, const std::string &cache,
                        const std::function<void()> &onWait) {
  options.readWeights = true;
  FailureOr<ModelFiles> files = ModelFiles::note(path, settings, context);
  if (failed(files))
    return failure();
  FailureOr<std::string> key =
      keyOf(path, settings, ranks, options.purpose, *files, &context);
  if (failed(key))
    return failure();
  Cache::Listener listener;
  listener.warn = [&](const std::string &text) {
    emitWarning(UnknownLoc::get(&context)) << text;
  };
  if (onWait)
    listener.wait = onWait;
  try {
    return Cache(cache, listener).find(*key, [&](const std::string &folder) {
      WarningRecord record(context);
      if (failed(compile(path, folder)) || failed(files->check(&context)))
        throw Reported();
      return record.text();
    });
  } catch (const Error &error) {
    return report(&context, error);
  } catch (const Reported &) {
    return failure();
  }
}

} // namespace cleave::compiler
