// The driver `cleave`: picks the command and turns every failure into one line
// and the exit code that the contract gives it.

#include "../cleave-run/Flags.h"
#include "commands/Commands.h"

#include "cleave/io/Error.h"
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
  std::cerr << "cleave: error: " << message << "\n";
  return code;
}

// A process that only serves a rank needs no compiler.
int serve(char **argv) {
  std::error_code error;
  std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  ::execv((self.parent_path() / "cleave-run").c_str(), argv);
  return cleave_serve();
}

int runCommand(int argc, char **argv) {
  CLI::App app("Takes a model as an ONNX graph and trains it on many devices.");
  app.name("cleave");
  app.set_version_flag("--version", "cleave " CLEAVE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer("\n`cleave COMMAND --help` lists the flags of a command.\n"
             "Exit codes: 0 success; 1 the answer is no (a check failed);\n"
             "2 wrong usage or bad input; 3 a run failed.");

  std::map<CLI::App *, std::function<int()>> actions;
  for (const Command &command : commands) {
    CLI::App *sub = app.add_subcommand(command.name, command.summary);
    sub->footer(""); // the exit codes are the driver's
    actions[sub] = command.add(*sub);
  }

  // CLI11 would only say that a command is missing.
  if (argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const Command &command : commands)
      names.push_back(command.name);
    for (const char *later : {"export-onnx", "plan", "view"})
      if (std::string(later) == argv[1])
        return fail(BadUsage,
                    "cleave " + std::string(later) + " is not yet supported");
    if (std::find(names.begin(), names.end(), argv[1]) == names.end())
      return fail(BadUsage, "unknown command '" + std::string(argv[1]) +
                                "'; did you mean '" +
                                *cleave::nearest(argv[1], names, true) +
                                "'? `cleave --help` lists all");
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &asked) { // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError &error) {
    return fail(BadUsage,
                cleave::describe(error) +
                    "; see `cleave --help` or `cleave COMMAND --help`");
  }
  int code = actions.at(app.get_subcommands().front())();
  if (!std::cout.flush())
    return fail(RunFailed, "standard output cannot be written");
  return code;
}

} // namespace

int main(int argc, char **argv) {
  if (cleave_is_worker())
    return serve(argv);
  cleave::removeTemporariesOnSignals("cleave");
  if (cleave_await_workers() != CLEAVE_OK)
    return fail(BadUsage, cleave_last_error());
  // A check runs programs in this process, usually of more ranks than cores.
  if (argc > 1 && argv[1] == std::string_view("check"))
    cleave_prepare_process(INT32_MAX, 1, argv);
  std::signal(SIGXFSZ,
              SIG_IGN); // a file that is too large is an error of write
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
  return cleave_finish(guarded());
}
