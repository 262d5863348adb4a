// cleave-random-programs compares many random programs under random shardings
// with the interpreter. A failing case is shrunk and written to a small .mlir
// file.

#include "../Context.h"
#include "Bugs.h"
#include "Compiled.h"
#include "Shrink.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cstdlib>
#include <unistd.h>

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

static llvm::cl::opt<int64_t> cases("cases", llvm::cl::init(1000),
                                    llvm::cl::desc("how many programs"));
static llvm::cl::opt<int64_t> first("first", llvm::cl::init(0),
                                    llvm::cl::desc("number of the first one"));
static llvm::cl::opt<uint64_t> seedFlag("seed", llvm::cl::init(1),
                                        llvm::cl::desc("seed of the run"));
static llvm::cl::opt<int64_t>
    failures("failures", llvm::cl::init(1),
             llvm::cl::desc("stop after so many failing cases"));
static llvm::cl::opt<int64_t> least(
    "least", llvm::cl::init(0),
    llvm::cl::desc("fail where a cell of the coverage table has fewer cases"));
static llvm::cl::opt<bool> show("print", llvm::cl::desc("print every program"));
static llvm::cl::opt<bool>
    keep("no-shrink", llvm::cl::desc("leave failing programs as they are"));
static llvm::cl::opt<std::string>
    folder("out", llvm::cl::init("."),
           llvm::cl::desc("folder for failing programs"));
static llvm::cl::opt<std::string>
    replay("replay", llvm::cl::desc("run this .mlir file instead"));

static llvm::cl::opt<bool>
    compiled("compiled",
             llvm::cl::desc("also run compiled programs, on the CPU"));
static llvm::cl::opt<bool>
    recorded("recorder",
             llvm::cl::desc("also run programs compiled for CUDA devices, "
                            "on the recorder"));
static llvm::cl::opt<bool>
    bf16("bf16", llvm::cl::desc("programs that nn-mixed-precision narrows, "
                                "compiled"));

static llvm::cl::opt<bool>
    bugs("bugs",
         llvm::cl::desc("after how many cases is each planted bug found"));

/// For each injected bug, finds the first case in which each of the two runners
/// detects the bug.
static int huntBugs(Runner &proving, Runner &comparing, Style style) {
  int64_t missed = 0;
  llvm::outs() << llvm::formatv("{0,-24} {1,10} {2,10}  {3}\n", "bug", "proof",
                                "comparison", "what is wrong");
  for (const Bug &bug : plantedBugs()) {
    int64_t proof = huntBug(bug, proving, seedFlag, cases, style).number;
    int64_t comparison = huntBug(bug, comparing, seedFlag, cases, style).number;
    auto shown = [](int64_t number) {
      return number < 0 ? std::string("-") : std::to_string(number + 1);
    };
    llvm::outs() << llvm::formatv("{0,-24} {1,10} {2,10}  {3}\n", bug.name,
                                  shown(proof), shown(comparison),
                                  bug.description);
    missed += proof < 0 && comparison < 0;
  }
  llvm::outs() << missed << " missed in " << cases << " cases\n";
  return missed != 0;
}

// Starts this program again with LD_LIBRARY_PATH set, because dlopen uses the
// value that the variable had when the process started.
static void startWithRecorder(char **argv) {
  const std::string folder = CLEAVE_RECORDER_FOLDER;
  const char *found = std::getenv("LD_LIBRARY_PATH");
  std::string path = found ? found : "";
  if (path.find(folder) != std::string::npos)
    return;
  path = folder + (path.empty() ? "" : ":" + path);
  ::setenv("LD_LIBRARY_PATH", path.c_str(), /*overwrite=*/1);
  ::execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
  llvm::cl::ParseCommandLineOptions(argc, argv,
                                    "random programs under random shardings\n");
  llvm::sys::PrintStackTraceOnErrorSignal(argv[0]);
  if (recorded)
    startWithRecorder(argv);
  TestContext test;
  Style style{compiled || recorded || bf16, bf16};
  CompileStyle compileStyle{bf16, recorded ? program::Device::Cuda
                                           : program::Device::Cpu};
  if (std::string missing = recorded ? prepareRecorder() : "";
      !missing.empty()) {
    llvm::errs() << "--recorder: " << missing << "\n";
    return 2;
  }
  auto make = [&](bool interpret, bool prove) -> std::unique_ptr<Runner> {
    if (!style.compiled)
      return std::make_unique<Runner>(&test.context, prove);
    return std::make_unique<CompiledRunner>(&test.context, compileStyle,
                                            interpret, prove);
  };
  if (bugs)
    return huntBugs(*make(true, true), *make(false, false), style);
  std::unique_ptr<Runner> owned = make(true, true);
  Runner &runner = *owned;
  if (!replay.empty())
    return replayFile(replay, runner, &test.context);

  Coverage coverage;
  int64_t failed = 0, done = 0;
  auto begin = std::chrono::steady_clock::now();
  for (int64_t number = first; number < first + cases; ++number) {
    llvm::PrettyStackTraceFormat trace("case %lld of seed %llu",
                                       (long long)number,
                                       (unsigned long long)seedFlag);
    uint64_t seed = caseSeed(seedFlag, number);
    OwningOpRef<ModuleOp> program = Generator(&test.context, seed, style).run();
    if (show)
      (llvm::outs() << "// case " << number << "\n"
                    << *program << "\n")
          .flush();
    Outcome outcome = runner.run(*program, seed, &coverage);
    ++done;
    if (outcome)
      continue;
    llvm::outs() << "case " << number << " of seed " << seedFlag << ": "
                 << name(outcome.kind) << ": " << outcome.message << "\n";
    ++failed;
    if (keep) {
      llvm::outs() << *program << "\n";
    } else {
      std::string path =
          (folder + "/case-" + Twine(seedFlag) + "-" + Twine(number) + ".mlir")
              .str();
      reportShrunk(*program, seed, runner, outcome, path);
    }
    llvm::outs().flush();
    if (failed >= failures)
      break;
  }
  double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  coverage.print(llvm::outs());
  std::string missing =
      least > 0 ? coverage.missing(&test.context, least) : std::string();
  llvm::outs() << missing << done << " cases, " << failed << " failed, "
               << llvm::formatv("{0:F1} s, {1:F0} cases/s\n", seconds,
                                done / seconds);
  return failed || !missing.empty();
}
