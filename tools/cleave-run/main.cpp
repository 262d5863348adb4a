// cleave-run DIR train|infer: runs a compiled program without LLVM. An
// executable that carries a program (compile --emit exe) needs no DIR.
#include "Arguments.h"
#include "Flags.h"
#include "cleave/io/Bundle.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/FileLock.h"
#include "cleave/io/Temporary.h"
#include "cleave/launcher.h"
#include "cleave/runtime.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>

using namespace cleave;

namespace {
/// The command line: a folder, a command and its flags.
class CommandLine {
public:
  explicit CommandLine(const UnpackedBundle *carried);

  /// Parses the command line. Returns an exit code if nothing is left to do, as
  /// after --help.
  std::optional<int> parse(int argc, char **argv);
  bool trains() const { return bool(*trainCommand); }

  std::string folder;
  RunFlags flags;
  const UnpackedBundle *carried;

private:
  void refuseLostBundle(int argc, char **argv) const;

  CLI::App app{"Runs a program that `cleave compile` wrote."};
  CLI::App *trainCommand;
};
} // namespace

CommandLine::CommandLine(const UnpackedBundle *carried)
    : folder(carried ? carried->folder() : ""), carried(carried) {
  if (carried) {
    app.description("Runs the program that it carries.");
  } else {
    app.name("cleave-run");
    app.add_option("DIR", folder, "The folder of the program")->required();
  }
  trainCommand = app.add_subcommand("train", "Train the model");
  addTrainFlags(*trainCommand, flags);
  addExecutorFlags(*trainCommand, flags);
  CLI::App *inferCommand =
      app.add_subcommand("infer", "Run the model forward on given inputs");
  addInferFlags(*inferCommand, flags);
  addExecutorFlags(*inferCommand, flags);
  app.require_subcommand(1);
}

/// Refuses an executable that has lost the program which was appended to it,
/// because the file was truncated.
void CommandLine::refuseLostBundle(int argc, char **argv) const {
  std::error_code ignored;
  const std::string self = std::filesystem::path(argv[0]).filename().string();
  if (std::string_view first = argc > 1 ? argv[1] : "";
      !carried && self != "cleave-run" && self != "cleave" &&
      (first == "train" || first == "infer") &&
      !std::filesystem::exists(first, ignored))
    throw InputError(std::string(argv[0]) +
                     ": carries no program, or was cut; copy it again, or "
                     "give the folder of a program: cleave-run DIR " +
                     std::string(first));
}

std::optional<int> CommandLine::parse(int argc, char **argv) {
  refuseLostBundle(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &asked) { // --help
    return app.exit(asked);
  } catch (const CLI::ParseError &error) {
    if (app.get_subcommands().empty() &&
        (folder == "train" || folder == "infer"))
      throw InputError("the folder of the program is missing: cleave-run DIR " +
                       folder);
    throw InputError(describe(error, app) + "; see " +
                     (carried ? argv[0] : "cleave-run") + " --help");
  }
  if (std::string mistake = mistakeOf(*app.get_subcommands().front());
      !mistake.empty())
    throw InputError(mistake);
  return std::nullopt;
}

static Manifest openProgram(CommandLine &line) {
  Manifest manifest;
  std::string error;
  if (!readManifest(line.folder, manifest, error))
    throw InputError(error);
  manifest.verifiesWeights = line.flags.verify;
  line.flags.executor.transport = checkRanks(manifest, line.flags.ranks);
  return manifest;
}

/// Prepares threads and processes for the ranks of a program. If the process
/// must execute itself again, it uses the command line `own`.
static void prepareProcess(CommandLine &line, const Manifest &manifest,
                           char **own) {
  // mpirun connects a terminal to every process, even if nobody reads its
  // output there.
  bool inProcesses = usesProcesses(line.flags.executor.transport);
  if (inProcesses)
    line.flags.train.progressBar = false;
  if (!line.flags.train.dryRun) {
    std::optional<HeldSignals> held; // it may execute itself anew
    if (line.carried)
      held.emplace();
    cleave_prepare_process(static_cast<int32_t>(inProcesses
                                                    ? launcher()->localSize
                                                    : manifest.ranks),
                           line.flags.executor.threadsPerRank, own);
  }
}

static int run(int argc, char **argv, char **own,
               const UnpackedBundle *carried) {
  CommandLine line(carried);
  if (std::optional<int> ended = line.parse(argc, argv))
    return *ended;
  // Training continues if the reader of its output ends (a closed shell, a
  // `tee` that has ended).
  if (line.trains())
    std::signal(SIGPIPE, SIG_IGN);

  // Locks a program in the cache against removal while it runs. Programs
  // outside of the cache have no lock.
  FileLock used;
  used.lockSoon(line.folder + "/lock", FileLock::Shared, /*create=*/false);
  Manifest manifest = openProgram(line);
  prepareProcess(line, manifest, own);
  unsetenv(kArgumentsVariable); // of this process alone
  auto start = [&] {
    return makeSessionExecutor(line.folder, line.flags.executor);
  };
  if (cleave_allocation_count() > 0) // 0: a build that does not count
    line.flags.train.allocations = cleave_allocation_count;
  if (line.trains())
    train(manifest, line.flags.train, start);
  else
    infer(manifest, line.flags.infer, start);
  return 0;
}

// Unpacks the program that the executable carries. If this includes the library
// of the MPI transport, the library is used under mpirun.
static std::unique_ptr<UnpackedBundle> unpack() {
  std::unique_ptr<UnpackedBundle> carried = unpackBundle();
  if (carried) {
    std::string mpi = carried->folder() + "/" + carriedMpiLibrary;
    if (std::filesystem::exists(mpi))
      setenv("CLEAVE_MPI_LIBRARY", mpi.c_str(), /*overwrite=*/0);
  }
  return carried;
}

int main(int argc, char **argv) {
  nameProcess(argv[0]);
  // `cleave train` executes this program with the name "cleave" in argv[0];
  // messages then begin with this name.
  const char *name = argc > 0 && argv[0] == std::string_view("cleave")
                         ? "cleave"
                         : "cleave-run";
  removeTemporariesOnSignals(name);
  std::signal(SIGXFSZ,
              SIG_IGN); // then a write to a too large file fails
  auto fail = [name](ExitCode code, const char *message) {
    std::fflush(stdout);
    printEscaped(stderr, "%s: error: %s\n", name, message);
    return cleave_finish(static_cast<int>(code));
  };
  try {
    std::unique_ptr<UnpackedBundle> carried = unpack();
    if (carried)
      letSignalsThrough();
    if (cleave_is_worker()) {
      std::optional<HeldSignals> held;
      if (carried)
        held.emplace();
      cleave_prepare_process(static_cast<int32_t>(launcher()->localSize), 1,
                             argv);
      held.reset();
      return cleave_serve();
    }
    if (cleave_await_workers() != CLEAVE_OK)
      throw InputError(cleave_last_error());
    std::vector<std::string> words;
    if (const char *given = std::getenv(kArgumentsVariable);
        given && name == std::string_view("cleave"))
      words = unpackWords(given);
    if (words.empty())
      return cleave_finish(run(argc, argv, argv, carried.get()));
    return cleave_finish(run(static_cast<int>(words.size()),
                             argvOf(words).data(), argv, carried.get()));
  } catch (const Error &error) {
    return fail(error.code, error.what());
  } catch (const std::bad_alloc &) {
    return fail(ExitCode::failed, "out of memory");
  } catch (const std::exception &error) {
    return fail(ExitCode::failed, error.what());
  }
}
