// The driver `cleave`: runs the command that the user names. If the command
// fails, prints an error message and ends with the exit code for this kind of
// failure (enum ExitCode).

#include "../cleave-run/Arguments.h"
#include "../cleave-run/Flags.h"
#include "commands/Commands.h"

#include "cleave/Init/AllPasses.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/Temporary.h"
#include "cleave/runtime.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <new>
#include <unistd.h>

using namespace cleave::driver;

namespace {

int fail(int code, const std::string &message) {
  std::cout.flush();
  std::string text = "cleave: error: ";
  for (size_t i = 0; i < message.size(); ++i) {
    text += message[i];
    // A line that is not indented begins a new message, and gets the prefix.
    if (message[i] == '\n' && i + 1 < message.size() && message[i + 1] != ' ')
      text += "cleave: error: ";
  }
  std::cerr << text << "\n";
  return code;
}

// Runs a worker process, which only serves a rank: becomes cleave-run, because
// no compiler is needed.
int serve(char **argv) {
  std::error_code error;
  std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  ::execv((self.parent_path() / "cleave-run").c_str(), argv);
  return cleave_serve();
}

// Removes MLIR's flags for passes from the arguments, and returns them.
std::vector<std::string> takePassFlags(std::vector<char *> &words) {
  std::vector<std::string> flags;
  auto isFlag = [](const char *word) {
    return std::string_view(word).starts_with("--mlir-");
  };
  for (const char *word : words)
    if (isFlag(word))
      flags.push_back(word);
  std::erase_if(words, isFlag);
  return flags;
}

// Applies MLIR's flags for passes. Returns what is wrong with them, or "".
std::string applyPassFlags(const std::vector<std::string> &flags,
                           const CLI::App &command) {
  if (flags.empty())
    return "";
  // Commands that compile have the flag --dump-phases; others run no passes.
  if (!command.get_option_no_throw("--dump-phases"))
    return flags.front() + ": `cleave " + command.get_name() +
           "` runs no passes; leave the flag out";
  cleave::registerAllPasses(); // for flags that name passes
  return passFlags().parse("cleave", flags);
}

int runCommand(int argc, char **argv) {
  CLI::App app("Takes a model as an ONNX graph and trains it on many devices.");
  app.name("cleave");
  app.set_version_flag("--version", versionText());
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer("\n`cleave COMMAND --help` lists the flags of a command.\n"
             "Commands that compile take MLIR's flags of passes, too:\n"
             "--mlir-print-ir-after-all, --mlir-timing,\n"
             "--mlir-pass-pipeline-crash-reproducer=FILE, ...\n"
             "Exit codes: 0 success; 1 the answer is no (a check failed);\n"
             "2 wrong usage or bad input; 3 a run failed.");

  std::map<CLI::App *, std::function<int()>> actions;
  for (const Command &command : commands) {
    CLI::App *sub = app.add_subcommand(command.name, command.summary);
    sub->footer(""); // the exit codes are the driver's
    actions[sub] = command.add(*sub);
  }

  // A word that is no command is reported here. CLI11 would only say that a
  // command is missing.
  if (argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const Command &command : commands)
      names.push_back(command.name);
    if (std::find(names.begin(), names.end(), argv[1]) == names.end())
      return fail(BadUsage, describeUnknown(argv[1], names));
  }

  std::vector<char *> words(argv, argv + argc);
  std::vector<std::string> flags = takePassFlags(words);
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::Success &asked) { // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError &error) {
    return fail(BadUsage,
                cleave::describe(error, app, meantByFlag) +
                    "; see `cleave --help` or `cleave COMMAND --help`");
  }
  CLI::App *command = app.get_subcommands().front();
  if (std::string mistake = cleave::mistakeOf(*command); !mistake.empty())
    return fail(BadUsage, mistake);
  if (std::string mistake = applyPassFlags(flags, *command); !mistake.empty())
    return fail(BadUsage, mistake);
  beginDumps(*command);
  int code = actions.at(command)();
  if (!std::cout.flush())
    return fail(RunFailed, "standard output cannot be written");
  return code;
}

} // namespace

int main(int argc, char **argv) {
  cleave::nameProcess(argv[0]);
  // Everything that commands print, such as names from files, is escaped by
  // these streams.
  cleave::EscapingStream shownOut(std::cout), shownError(std::cerr);
  if (cleave_is_worker())
    return serve(argv);
  cleave::removeTemporariesOnSignals("cleave");
  if (cleave_await_workers() != CLEAVE_OK)
    return fail(BadUsage, cleave_last_error());
  // `check` runs all ranks as threads of this process, usually more ranks than
  // there are cores.
  if (argc > 1 && argv[1] == std::string_view("check"))
    cleave_prepare_process(INT32_MAX, 1, argv);
  std::signal(SIGXFSZ,
              SIG_IGN); // then a write to a too large file fails
  auto guarded = [&] {
    try {
      return runCommand(argc, argv);
    } catch (const Failure &failure) {
      return fail(failure.code, failure.what());
    } catch (const cleave::Error &error) { // of files
      return fail(static_cast<int>(error.code), error.what());
    } catch (const std::bad_alloc &) {
      return fail(RunFailed, "out of memory");
    } catch (const std::exception &error) {
      return fail(RunFailed, error.what());
    }
  };
  int code = guarded();
  passFlags().report();
  return cleave_finish(code);
}
