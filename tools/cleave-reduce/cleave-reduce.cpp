//===- cleave-reduce.cpp - makes a failing program small ------------------===//
//
// Shrinks FILE.mlir as long as the user's command finds the result interesting,
// that is, exits with 0. docs/reduce.md describes it.
//
//===----------------------------------------------------------------------===//

#include "cleave/Compiler/Dialects.h"
#include "cleave/Compiler/Version.h"
#include "cleave/Reduce/Reduce.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
namespace cl = llvm::cl;

namespace {

enum ExitCode { Success = 0, BadUsage = 2, RunFailed = 3 };

cl::OptionCategory category("Options of cleave-reduce");
cl::opt<std::string> input(cl::Positional, cl::desc("FILE.mlir"),
                           cl::value_desc("file"), cl::cat(category));
cl::opt<std::string>
    testCommand("test", cl::cat(category), cl::value_desc("command"),
                cl::desc("what /bin/sh runs on each candidate: it gets the "
                         "file's path as last argument, or where {} stands, "
                         "and ends with 0 while the file is interesting"));
cl::opt<std::string> output("o", cl::cat(category), cl::value_desc("file"),
                            cl::init("-"),
                            cl::desc("the smallest program found so far; -: "
                                     "standard output, at the end"));
cl::opt<unsigned> timeLimit("timeout", cl::cat(category),
                            cl::value_desc("seconds"), cl::init(60),
                            cl::desc("after which a candidate that is still "
                                     "tested is not interesting; 0: none"));
cl::opt<bool> quiet("quiet", cl::cat(category),
                    cl::desc("no line for every smaller program"));

int fail(ExitCode code, const Twine &message) {
  llvm::errs() << "cleave-reduce: error: " << message << "\n";
  return code;
}

/// The code that LLVM returns if the command could not be executed (the shell's
/// exit codes 126 and 127).
constexpr int kNotExecuted = -1;
/// The exit code of the shell if SIGKILL has ended the program.
constexpr int kKilled = 137;

/// How a command ended.
struct Ended {
  int code = 0;
  bool late = false; // it ran longer than --timeout
  std::string error; // why it could not be started
};

/// Runs the command on one file, without input and with its output discarded.
Ended runTest(StringRef path) {
  // The shell gets the path as its argument $1, so special characters in the
  // path do no harm.
  std::string script = testCommand;
  size_t at = script.find("{}");
  if (at == std::string::npos)
    script += " \"$1\"";
  for (; at != std::string::npos; at = script.find("{}", at))
    script.replace(at, 2, "\"$1\"");
  std::string limit = std::to_string(timeLimit);
  SmallVector<StringRef> arguments = {"sh", "-c", script, "cleave-reduce",
                                      path};
  std::string program = "/bin/sh";
  // The program `timeout` also ends the child processes of the shell. LLVM's
  // own time limit would end only the shell.
  llvm::ErrorOr<std::string> timeout = llvm::sys::findProgramByName("timeout");
  if (timeLimit > 0 && !timeout)
    return {0, false, "--timeout needs the program 'timeout' (coreutils)"};
  if (timeLimit > 0) {
    program = *timeout;
    arguments.insert(arguments.begin(), {"timeout", "-s", "KILL", limit});
  }
  std::optional<StringRef> null = StringRef("/dev/null");
  Ended ended;
  bool neverRan = false;
  ended.code = llvm::sys::ExecuteAndWait(
      program, arguments, std::nullopt, {null, null, null}, /*SecondsToWait=*/0,
      /*MemoryLimit=*/0, &ended.error, &neverRan);
  // LLVM sets an error text also if a signal has ended the command, but then
  // the command did run. When the time limit is exceeded, `timeout` ends itself
  // by SIGKILL, too.
  ended.late = timeLimit > 0 && (ended.code == kKilled || ended.code == -2);
  if (!neverRan)
    ended.error.clear();
  return ended;
}

std::string textOf(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream(text) << module << "\n";
  return text;
}

/// Writes a file completely or not at all; returns false with a message on
/// failure.
bool writeFile(StringRef path, StringRef text) {
  llvm::Error error = llvm::writeToOutput(path, [&](raw_ostream &out) {
    out << text;
    return llvm::Error::success();
  });
  if (!error)
    return true;
  fail(RunFailed, "cannot write '" + path + "': " + toString(std::move(error)));
  return false;
}

/// Runs the user's command on candidates. A candidate with the same text as an
/// earlier one is not tested again.
class Tests {
public:
  explicit Tests(std::string path) : path(std::move(path)) {}

  bool interesting(ModuleOp candidate) {
    std::string text = textOf(candidate);
    if (!failed.empty() || !seen.insert(llvm::xxh3_64bits(text)).second)
      return false;
    ++count;
    if (!writeFile(path, text)) {
      failed = "the candidate cannot be written";
      return false;
    }
    Ended ended = runTest(path);
    failed = ended.error;
    return failed.empty() && ended.code == 0;
  }

  const std::string path;
  int64_t count = 0;
  std::string failed; // why no more are tested

private:
  llvm::DenseSet<uint64_t> seen;
};

/// Returns the message for the case that the test fails for the original file,
/// that is, does not find it interesting.
std::string describe(const Ended &ended) {
  if (!ended.error.empty())
    return "--test cannot be run: " + ended.error;
  std::string text = "--test '" + testCommand + "' ";
  if (ended.late)
    return text + "ran longer than --timeout " + std::to_string(timeLimit) +
           " seconds on the file itself; give it more, or 0";
  if (ended.code == kNotExecuted)
    return text + "ended with 126 or 127: the shell found no such program, or "
                  "could not execute it";
  return text + "ended with " + std::to_string(ended.code) +
         " on the file itself, expected 0 (interesting): there is nothing to "
         "shrink towards";
}

std::string testsText(int64_t count) {
  return std::to_string(count) + (count == 1 ? " test" : " tests");
}

int reduce(ModuleOp program, StringRef folder) {
  Tests tests((folder + "/candidate.mlir").str());
  // The user's command first tests the original program. The program is written
  // as MLIR prints it, because all later candidates are printed by MLIR, too.
  if (!writeFile(tests.path, textOf(program)))
    return RunFailed;
  if (Ended ended = runTest(tests.path); ended.code != 0)
    return fail(BadUsage, describe(ended));
  size_t before = cleave::reduce::countOps(program);
  bool writes = output != "-", written = true;
  OwningOpRef<ModuleOp> small = cleave::reduce::shrink(
      program, [&](ModuleOp candidate) { return tests.interesting(candidate); },
      [&](ModuleOp better) {
        if (!quiet)
          llvm::errs() << cleave::reduce::countOps(better)
                       << " operations, after " << testsText(tests.count)
                       << "\n";
        if (writes && written)
          written = writeFile(output, textOf(better));
      });
  if (!tests.failed.empty())
    return fail(RunFailed, "--test failed after " + testsText(tests.count) +
                               ": " + tests.failed);
  if (!written || !writeFile(output, textOf(*small)))
    return RunFailed;
  if (!quiet)
    llvm::errs() << "from " << before << " to "
                 << cleave::reduce::countOps(*small) << " operations in "
                 << testsText(tests.count)
                 << (writes ? ": " + output : std::string()) << "\n";
  return Success;
}

} // namespace

int main(int argc, char **argv) {
  cleave::compiler::addVersionPrinter();
  cl::HideUnrelatedOptions(category);
  if (!cl::ParseCommandLineOptions(
          argc, argv,
          "Shrinks a program while --test finds it interesting.\n\n"
          "Exit codes: 0 success; 2 wrong usage or bad input; 3 a file cannot "
          "be written,\nor the test cannot be run any more.\n",
          &llvm::errs()))
    return BadUsage;
  if (input.empty())
    return fail(BadUsage, "no FILE.mlir is given; see cleave-reduce --help");
  if (testCommand.empty())
    return fail(BadUsage, "no --test COMMAND is given: which programs are "
                          "interesting? see cleave-reduce --help");

  MLIRContext context(MLIRContext::Threading::DISABLED);
  DialectRegistry registry;
  cleave::compiler::registerAllDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  if (input != "-" && !llvm::sys::fs::is_regular_file(input))
    return fail(BadUsage, "'" + input + "' is not a file");
  OwningOpRef<ModuleOp> program;
  std::string why;
  {
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
        return success();
      llvm::raw_string_ostream out(why);
      out << (why.empty() ? "" : "\n  ") << diagnostic.getLocation() << ": "
          << diagnostic;
      return success();
    });
    program = parseSourceFile<ModuleOp>(input, &context);
  }
  if (!program)
    return fail(BadUsage, "'" + input + "' is no valid program:\n  " + why);
  if (std::string reason = cleave::reduce::cannotReduce(*program);
      !reason.empty())
    return fail(BadUsage, "'" + input + "' cannot be shrunk: " + reason);

  SmallString<128> folder;
  if (std::error_code error =
          llvm::sys::fs::createUniqueDirectory("cleave-reduce", folder))
    return fail(RunFailed,
                "no folder for candidates can be made: " + error.message());
  llvm::scope_exit remove(
      [&] { (void)llvm::sys::fs::remove_directories(folder); });
  return reduce(*program, folder);
}
