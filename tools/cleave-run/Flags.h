// The flags of training and inference, shared by `cleave-run` and `cleave`.
#ifndef CLEAVE_TOOLS_RUN_FLAGS_H
#define CLEAVE_TOOLS_RUN_FLAGS_H

#include "cleave/io/Suggest.h"
#include "cleave/trainer/Train.h"

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cleave {

struct RunFlags {
  TrainOptions train;
  InferOptions infer;
  ExecutorOptions executor;
  std::optional<int64_t> ranks;
  bool verify = false;
};

/// Checks that a number is not negative. The validator of CLI11 is not used,
/// because its error message would contain the largest double.
inline const CLI::Validator notNegative(
    [](const std::string &text) {
      double value = 0;
      return CLI::detail::lexical_cast(text, value) && value >= 0 &&
                     std::isfinite(value)
                 ? std::string()
                 : "expected a number that is not negative, found '" + text +
                       "'";
    },
    "");

/// Returns the visible long flags of a command, without their dashes.
inline std::vector<std::string> flagsOf(const CLI::App &command) {
  std::vector<std::string> flags;
  for (const CLI::Option *option : command.get_options())
    for (const std::string &name : option->get_lnames())
      if (!option->get_group().empty())
        flags.push_back(name);
  return flags;
}

/// Returns the message for words of the command line that match no flag.
/// `meant` suggests a flag for words that other programs use.
inline std::string
describeUnknown(const CLI::App &command, const std::vector<std::string> &words,
                const std::function<std::string(const std::string &)> &meant) {
  for (const std::string &word : words) {
    if (word.find_first_not_of('-') == std::string::npos || word[0] != '-')
      continue;
    std::string flag = word.substr(0, word.find('='));
    std::string text = "unknown flag '" + flag + "'";
    if (std::string known = meant ? meant(flag) : ""; !known.empty())
      return text + "; did you mean " + known + "?";
    // The dashes are removed, because a common prefix would make short flags
    // look similar.
    auto near =
        nearest(flag.substr(flag.find_first_not_of('-')), flagsOf(command));
    if (near)
      near->insert(0, "--");
    const CLI::App *app = command.get_parent();
    if (app)
      for (const CLI::App *other : app->get_subcommands({}))
        if (other->get_option_no_throw(flag))
          return text + "; it is one of " + app->get_name() + " " +
                 other->get_name();
    return near ? text + "; did you mean '" + *near + "'?" : text;
  }
  const std::string &word = words.front();
  std::string text = "unexpected argument '" + word + "'";
  bool isKey = word.find('=') != std::string::npos &&
               word.find('.') < word.find('=') &&
               command.get_option_no_throw("--set");
  return isKey ? text + "; did you mean --set " + word + "?" : text;
}

/// Describes an error in a command line, in the style of our other messages.
inline std::string
describe(const CLI::ParseError &error, const CLI::App &app,
         const std::function<std::string(const std::string &)> &meant = {}) {
  std::string text = error.what();
  std::vector<std::string> words = app.remaining(/*recurse=*/true);
  auto commands = app.get_subcommands();
  if (dynamic_cast<const CLI::ExtrasError *>(&error) && !words.empty())
    text = describeUnknown(commands.empty() ? app : *commands.front(), words,
                           meant);
  // "Could not convert: --steps = 1.5".
  const std::string convert = "Could not convert: ";
  if (size_t at = text.find(" = ");
      text.starts_with(convert) && at != std::string::npos)
    text = text.substr(convert.size(), at - convert.size()) + ": found '" +
           text.substr(at + 3) + "', expected a number" +
           (text.find('.', at) == std::string::npos ? "" : " without a point");
  const std::string received = "At Most 1 required but received ";
  if (size_t at = text.find(received); at != std::string::npos)
    text = text.substr(0, at) + "given " + text.substr(at + received.size()) +
           " times, expected once";
  return text;
}

/// Describes arguments that CLI11 accepts but that are mistakes: an empty word
/// (an unset variable of a script), a number in C's octal or hexadecimal
/// notation (scripts pad numbers with zeros), or a number that overflows. Empty
/// if there are none.
inline std::string mistakeOf(const CLI::App &command) {
  const std::set<std::string> numbers = {"INT", "UINT", "N"};
  for (const CLI::Option *option : command.get_options())
    for (const std::string &word : option->results()) {
      const std::string name = option->get_name();
      if (word.empty() && !option->get_group().empty())
        return name + ": found nothing, expected a value; is a variable of a "
                      "script empty?";
      if (!numbers.count(option->get_type_name()))
        continue;
      const size_t begin = word.find_first_not_of("+-");
      if (begin == std::string::npos ||
          word.find_first_not_of("0123456789", begin) != std::string::npos ||
          (word[begin] == '0' && word.size() > begin + 1))
        return name + ": found '" + word +
               "', expected a decimal number without leading zeros";
      int64_t value = 0;
      if (std::from_chars(word.data() + begin, word.data() + word.size(), value)
              .ec != std::errc())
        return name + ": found '" + word + "', expected an integer of 64 bits";
    }
  return "";
}

inline void addExecutorFlags(CLI::App &app, RunFlags &flags) {
  app.add_option("--ranks", flags.ranks,
                 "Number of ranks; must be the mesh's size");
  app.add_option("--threads-per-rank", flags.executor.threadsPerRank,
                 "Threads of each rank; 0: cores / ranks")
      ->check(notNegative);
  app.add_option("--watchdog", flags.executor.watchdogSeconds,
                 "Seconds after which a waiting collective fails; 0: 300")
      ->check(notNegative);
  app.add_flag("--verify", flags.verify,
               "Compare the contents of all weight files with what the program "
               "was compiled from; default: where size or time differ");
  app.add_flag("--poison", flags.executor.poison,
               "Fill memory that is not live with NaNs and trap overlaps "
               "(slow, for tests)");
  app.add_option("--slow-link", flags.executor.link,
                 "Latency in us and GB/s: messages between ranks of this "
                 "process take as long as over such a link")
      ->type_name("US,GB/S")
      ->check(notNegative)
      ->delimiter(',')
      ->expected(2);
  // Injects a failure, for tests: rank, run, command, and optionally 1 for
  // silence instead of an error.
  app.add_option("--inject-failure", flags.executor.failure)
      ->delimiter(',')
      ->expected(3, 4)
      ->group("");
}

/// Flags that select the training data, the number of steps, and the output
/// folder.
inline void addTrainFlags(CLI::App &app, RunFlags &flags) {
  TrainOptions &train = flags.train;
  app.add_option("--data", train.data,
                 "Text (.txt), tokens (.bin, .npy), or named arrays (.npz, a "
                 "folder of .npy); default: data.path")
      ->type_name("FILE");
  app.add_option("--steps", train.steps,
                 "Steps in all, resumed ones included; default: train.steps, "
                 "which it sets where a run begins");
  // A hidden flag with which `cleave train` passes the value of train.steps,
  // the end of the learning-rate schedule.
  app.add_option("--horizon", train.horizon)->group("");
  app.add_option("--accept", train.accepted,
                 "What a resume may find changed: a key of the configuration, "
                 "data.path (other data), or model (another graph); once for "
                 "each")
      ->type_name("KEY")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--out", train.out,
                 "Folder to write, never overwritten; default: "
                 "runs/<model>-<n>")
      ->type_name("DIR");
  app.add_option("--save-every", train.saveEvery,
                 "Steps between checkpoints; 0: every train.save_minutes and "
                 "at the end only")
      ->check(notNegative);
  app.add_option("--resume", train.resume,
                 "A checkpoint to go on from; 'latest': the newest of --out, "
                 "else of this model's runs; 'auto': the newest of --out, and "
                 "where there is none, begin there")
      ->type_name("DIR|latest|auto");
  app.add_option("--weights", train.weights,
                 "Begin with these weights, by their names: a checkpoint, a "
                 "run (its newest one) or a .safetensors file; default: the "
                 "model's own")
      ->type_name("DIR|FILE");
  app.add_flag("--dry-run", train.dryRun,
               "Check data, weights and checkpoint; write nothing");
  app.add_option("--trace", train.trace,
                 "Write what every rank did when: Chrome's trace format, "
                 "opens in ui.perfetto.dev")
      ->type_name("FILE");
  app.add_option("--eval-every", train.evalEvery,
                 "Steps between validations; 0: at the end only; default: "
                 "ten times a run")
      ->check(notNegative);
  app.add_option("--eval-samples", train.evalSamples,
                 "Held-out samples of each validation; 0: all; default: few "
                 "enough to cost some percent of the time")
      ->check(notNegative);
}

inline void addInferFlags(CLI::App &app, RunFlags &flags) {
  app.add_option("--inputs", flags.infer.inputs,
                 "Arrays named like the model's inputs")
      ->type_name("IN.npz")
      ->required();
  app.add_option("--outputs", flags.infer.outputs,
                 "Where to write the model's outputs")
      ->type_name("OUT.npz")
      ->required();
  app.add_option("--weights", flags.infer.weights,
                 "A checkpoint, a run (its newest one) or a .safetensors file; "
                 "default: the model's own weights")
      ->type_name("DIR|FILE");
}

} // namespace cleave

#endif // CLEAVE_TOOLS_RUN_FLAGS_H
