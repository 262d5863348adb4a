// The list of the driver's commands, in the order of --help. A new command is a
// file in this folder, an entry in the list, and a line in CMakeLists.txt.

#ifndef CLEAVE_TOOLS_COMMANDS_H
#define CLEAVE_TOOLS_COMMANDS_H

#include "Command.h"

namespace cleave::driver {

std::function<int()> addImport(CLI::App &app);
std::function<int()> addCheck(CLI::App &app);
std::function<int()> addCompile(CLI::App &app);
std::function<int()> addTrain(CLI::App &app);
std::function<int()> addInfer(CLI::App &app);
std::function<int()> addExplain(CLI::App &app);
std::function<int()> addConfig(CLI::App &app);
std::function<int()> addSchedule(CLI::App &app);
std::function<int()> addOps(CLI::App &app);
std::function<int()> addCache(CLI::App &app);
std::function<int()> addCompletion(CLI::App &app);

inline const Command commands[] = {
    {"import", "Read an ONNX model and print it in the nn dialect", addImport},
    {"check", "Compare the sharded with the unsharded program", addCheck},
    {"compile", "Write a program that cleave-run runs", addCompile},
    {"train", "Compile and train a model", addTrain},
    {"infer", "Compile a model and run it forward", addInfer},
    {"explain", "Memory, communication and kernels of a step", addExplain},
    {"config", "Show every key, its value and where it came from", addConfig},
    {"schedule", "Write, prove and draw a pipeline schedule", addSchedule},
    {"ops", "List the ONNX operators that are supported", addOps},
    {"cache", "Show or clear the compiled programs that are kept", addCache},
    {"completion", "Make bash or zsh complete these commands", addCompletion},
};

/// Returns the message for an unknown command: the command that is probably
/// meant, by its name in other programs or by its spelling. `names` are the
/// commands.
std::string describeUnknown(const std::string &name,
                            const std::vector<std::string> &names);

/// Returns our flag for a flag that other trainers have, for messages:
/// "'--out'". Returns "" if there is none.
std::string meantByFlag(const std::string &flag);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_COMMANDS_H
