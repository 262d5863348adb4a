// Runs MLIR passes. Pass flags, timing and dumps of the IR that the user
// requested for the process (PassFlags) apply to every pass manager that is run
// here.

#include "cleave/Support/Passes.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/Support/Timing.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <atomic>

using namespace mlir;

namespace cleave {

struct PassFlags::State {
  DefaultTimingManager timing;
  TimingScope root; ///< contains the timers of all phases
  bool isParsed = false;
  std::string folder; ///< for dumps of the IR; "": no dumps
  std::atomic<int> phases = 0;
  std::atomic<bool> hasRun = false; ///< whether passes have run
};

/// The state of the process's only PassFlags object, or null if there is none.
static std::atomic<PassFlags::State *> current = nullptr;

PassFlags::PassFlags() : state(std::make_unique<State>()) {
  current = state.get();
}

PassFlags::~PassFlags() { current = nullptr; }

void PassFlags::report() {
  if (!state->isParsed)
    return;
  state->isParsed = false;
  state->root = {};
  state->timing.print();
  state->timing.setEnabled(false); // else printed again at exit
}

std::string PassFlags::parse(const char *program,
                             const std::vector<std::string> &flags) {
  if (flags.empty())
    return "";
  registerMLIRContextCLOptions();
  registerPassManagerCLOptions();
  registerDefaultTimingManagerCLOptions();
  std::vector<const char *> arguments = {program};
  for (const std::string &flag : flags)
    arguments.push_back(flag.c_str());
  std::string text;
  llvm::raw_string_ostream errors(text);
  if (!llvm::cl::ParseCommandLineOptions(int(arguments.size()),
                                         arguments.data(), "", &errors)) {
    // MLIR's text begins with "PROGRAM: Unknown ... '--mlir-x'.  Try: 'PROGRAM
    // --help'". Only the part that says what is wrong is kept.
    StringRef line = StringRef(text).split('\n').first.split(".  Try:").first;
    line.consume_front(std::string(program) + ": ");
    return line.empty() ? "MLIR does not take the value of one of its flags"
                        : line.str();
  }
  applyDefaultTimingManagerCLOptions(state->timing);
  state->root = state->timing.getRootScope();
  state->isParsed = true;
  return "";
}

std::string PassFlags::dumpInto(const std::string &folder) {
  namespace fs = llvm::sys::fs;
  if (std::error_code error = fs::create_directories(folder))
    return "cannot be made: " + error.message();
  // Dumps of an earlier process would look like those of this one.
  std::vector<std::string> old;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; file != end && !error;
       file.increment(error))
    if (isDump(file->path()))
      old.push_back(file->path());
  for (const std::string &path : old)
    if (!error)
      error = fs::remove(path);
  if (error)
    return "an earlier dump cannot be removed: " + error.message();
  state->folder = folder;
  return "";
}

/// The beginning of the first line of a dump.
static constexpr llvm::StringLiteral kDumpLine =
    "// cleave: the program after ";

bool PassFlags::isDump(const std::string &path) {
  StringRef name = llvm::sys::path::filename(path);
  StringRef number = name.take_while(llvm::isDigit);
  if (number.size() < 3 || !name.drop_front(number.size()).starts_with("-") ||
      !name.ends_with(".mlir"))
    return false;
  auto text = llvm::MemoryBuffer::getFile(path);
  return text && (*text)->getBuffer().starts_with(kDumpLine);
}

bool PassFlags::areUnused() const {
  return (state->isParsed || !state->folder.empty()) && !state->hasRun;
}

static LogicalResult dump(PassFlags::State &state, Operation *op,
                          StringRef phase) {
  std::string path =
      (state.folder +
       llvm::formatv("/{0,0+3}-{1}.mlir", ++state.phases, phase).str());
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (!error) {
    out << kDumpLine << phase << "\n";
    op->print(out, OpPrintingFlags().enableDebugInfo());
    out << "\n";
    out.flush();
    error = out.error();
    out.clear_error();
  }
  return error ? emitError(UnknownLoc::get(op->getContext()))
                     << path << ": cannot be written: " << error.message()
               : success();
}

LogicalResult runPasses(Operation *op, StringRef phase,
                        llvm::function_ref<void(OpPassManager &)> build,
                        bool dumps) {
  PassFlags::State *flags = current;
  TimingScope scope;
  PassManager passes(op->getContext(), op->getName().getStringRef());
  if (flags)
    flags->hasRun = true;
  if (flags && flags->isParsed) {
    if (failed(applyPassManagerCLOptions(passes)))
      return emitError(op->getLoc()) << "the flags of passes do not fit";
    scope = flags->root.nest(phase);
    passes.enableTiming(scope);
  }
  build(passes);
  if (failed(passes.run(op)))
    return failure();
  return dumps && flags && !flags->folder.empty() ? dump(*flags, op, phase)
                                                  : success();
}

} // namespace cleave
