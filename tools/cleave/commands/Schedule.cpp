// cleave schedule: generates, verifies and draws the table of a pipeline
// schedule.

#include "commands/Commands.h"

#include "cleave/PipelineSchedule/Draw.h"
#include "cleave/PipelineSchedule/Verify.h"
#include "cleave/io/File.h"
#include "cleave/io/Input.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;
using namespace cleave::pipeline;

namespace {

struct Options {
  std::string name, table, csv, lowered, svg;
  int stages = 0, microbatches = 0, chunks = 0;
  std::vector<double> times = {1, 1, 1};
  double transfer = 0;
};

template <typename T> T need(Result<T> result) {
  if (!result)
    throw Failure(BadUsage, result.error());
  return std::move(*result);
}

[[noreturn]] void contradict(const Options &options, const std::string &flag,
                             int given, int found) {
  throw Failure(BadUsage, options.table + ": the table has " +
                              std::to_string(found) + " " + flag + ", but --" +
                              flag + " is " + std::to_string(given));
}

Table generated(const Options &options) {
  int chunks = need(chunksOf(options.name, options.chunks));
  if (options.stages < 1)
    throw Failure(BadUsage,
                  "--stages is needed: pipeline ranks x stages per rank");
  if (options.microbatches < 1)
    throw Failure(BadUsage, "--microbatches is needed");
  if (options.stages % chunks)
    throw Failure(BadUsage,
                  "schedule " + options.name + ": " +
                      std::to_string(options.stages) +
                      " stages do not divide into " + std::to_string(chunks) +
                      " per rank; stages are pipeline ranks x chunks");
  return need(generate({options.name, options.stages / chunks, options.chunks,
                        options.microbatches}));
}

std::string readFile(const std::string &path) {
  requireFile(path, "the table of a schedule");
  std::string text, reason;
  if (!readInput(path, text, reason))
    throw Failure(BadUsage, path + ": cannot be read: " + reason);
  return text;
}

// Returns the table without its transfers.
Table withoutTransfers(const LoweredTable &lowered, const std::string &name) {
  std::string text;
  for (const std::vector<LoweredAction> &list : lowered.actions) {
    for (const LoweredAction &action : list)
      if (!isTransfer(action.action.kind))
        text += print(action.action) + ",";
    text += ",\n"; // a row, even if it is empty
  }
  return need(readTableText(text, name));
}

void write(const std::string &path, const std::string &text,
           const std::string &table) {
  if (path.empty())
    return;
  if (path == "-") {
    std::cout << text;
    return;
  }
  refuseToReplace(path, {table});
  std::ofstream file(path, std::ios::binary);
  if (!(file << text) || !file.flush())
    throw Failure(BadUsage, path + ": cannot be written");
}

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * fraction);
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// Describes the time of consecutive steps. The gradient norm synchronizes all
// ranks at the end of each step, so ranks that finish early wait for the
// others.
void describeSteps(const Table &table, double alone, double inARow,
                   std::ostream &out) {
  out << "steps that follow each other: ";
  if (table.asynchronous) {
    out << number(inARow) << " each; nothing joins their ranks\n";
    return;
  }
  double cost = alone - inARow;
  bool costs = cost > 1e-9 * alone;
  out << number(alone)
      << " each where the norm of the gradients joins all ranks, as training "
         "takes it, "
      << number(inARow) << " where nothing does; the norm costs "
      << (costs ? number(cost) + ", " + percent(cost / alone) : "nothing")
      << "\n";
}

void describeReplay(const Table &table, const Times &times,
                    const Replay &replay, std::ostream &out) {
  const StageTimes &t = times.stage[0];
  out << "step: " << number(replay.makespan) << " with F = " << number(t.f)
      << ", I = " << number(t.i) << ", W = " << number(t.w)
      << ", transfer = " << number(times.transfer) << "\n"
      << "bubble: " << number(replay.bubble) << " idle in the step, "
      << number(replay.spanBubble)
      << " between first and last action (most of any rank); "
      << percent(replay.bubbleFraction) << " of the total span, "
      << percent(replay.bubbleOfIdeal) << " of the ideal time\n";
  describeSteps(table, replay.makespan, need(stepWithoutBarrier(table, times)),
                out);
  out << "peak in flight, from F to W, in activations of a stage and "
         "microbatch:\n";
  for (int rank = 0; rank < table.ranks; ++rank) {
    const RankReplay &r = replay.rank[rank];
    out << "  rank " << rank << ": " << r.peak << " (" << r.peakB
        << " before I, " << r.peakW << " between I and W), stages";
    for (int stage : table.stagesOfRank[rank])
      out << " " << stage;
    out << "\n";
  }
  if (table.asynchronous) {
    out << "asynchronous: each backward pass is followed by an update, so this "
           "does not "
           "compute what one step over all microbatches computes\n"
           "versions of the weights that ranks stash:";
    for (int versions : weightVersions(table))
      out << " " << versions;
    out << "\n";
  }
}

void verifyNumbers(const Options &options) {
  if (options.times.size() != 3 ||
      !std::all_of(options.times.begin(), options.times.end(),
                   [](double time) { return time > 0 && time < 1e12; }))
    throw Failure(BadUsage,
                  "--times needs three numbers above 0: F,I,W of a stage");
  if (!(options.transfer >= 0 && options.transfer < 1e12))
    throw Failure(BadUsage, "--transfer needs a number from 0");
}

/// The table of a schedule, read from a file or generated.
struct GivenTable {
  Table table;
  bool hasTransfers = false;
  LoweredTable lowered; ///< if it has transfers
};

/// If the user gives a table file as well as flags, the flags must not
/// contradict the table.
void verifyRepeated(const Options &options, const Table &table) {
  if (options.stages && options.stages != table.stages)
    contradict(options, "stages", options.stages, table.stages);
  if (options.microbatches && options.microbatches != table.microbatches)
    contradict(options, "microbatches", options.microbatches,
               table.microbatches);
  if (options.chunks && options.chunks != table.chunks())
    contradict(options, "chunks", options.chunks, table.chunks());
}

GivenTable readTable(const Options &options) {
  if (!options.name.empty() && options.name != "custom")
    throw Failure(BadUsage,
                  "--table is for the schedule custom, but --name is " +
                      options.name);
  GivenTable given;
  std::string text = readFile(options.table);
  given.hasTransfers = text.find("SEND_") != std::string::npos ||
                       text.find("RECV_") != std::string::npos;
  if (given.hasTransfers) {
    given.lowered = need(readLoweredText(text, options.table));
    given.table = withoutTransfers(given.lowered, options.table);
  } else {
    given.table = need(readTableText(text, options.table));
  }
  verifyRepeated(options, given.table);
  return given;
}

GivenTable tableOf(const Options &options) {
  if (!options.table.empty())
    return readTable(options);
  if (options.name.empty())
    throw Failure(BadUsage, "--name or --table is needed");
  if (options.name == "custom")
    throw Failure(
        BadUsage,
        "schedule custom is read from a table; give --table FILE.csv");
  GivenTable given;
  given.table = generated(options);
  return given;
}

int64_t countMessages(const LoweredTable &lowered) {
  int64_t messages = 0;
  for (const std::vector<LoweredAction> &list : lowered.actions)
    messages += std::count_if(
        list.begin(), list.end(), [](const LoweredAction &action) {
          return isSend(action.action.kind) && action.phase != Phase::Wait;
        });
  return messages;
}

/// Prints the verifier's findings and returns the exit code for them.
int report(const std::vector<Finding> &findings, const LoweredTable &lowered,
           std::ostream &out) {
  if (findings.empty()) {
    out << "verifier: proved, with " << countMessages(lowered)
        << " messages between ranks\n";
    return Success;
  }
  out << "verifier: rejected\n";
  for (const Finding &finding : findings)
    out << "  " << finding.rule << ": " << finding.message << "\n";
  return AnswerIsNo;
}

int run(const Options &options) {
  verifyNumbers(options);
  GivenTable given = tableOf(options);
  const Table &table = given.table;
  LoweredTable &lowered = given.lowered;

  // If the user sends a file (--csv, --svg or --lowered) to standard output,
  // the description goes to stderr.
  bool alone =
      options.csv == "-" || options.svg == "-" || options.lowered == "-";
  std::ostream &out = alone ? std::cerr : std::cout;
  Times times = Times::uniform(table.stages, options.times[0], options.times[1],
                               options.times[2], options.transfer);
  out << "schedule " << table.schedule << ": " << table.stages << " stages on "
      << table.ranks << " ranks, " << table.microbatches << " microbatches\n";
  write(options.csv, writeTable(table), options.table);

  Result<Replay> replayed = replay(table, times);
  if (!replayed && !given.hasTransfers) {
    out << "verifier: rejected\n  deadlock: " << replayed.error() << "\n";
    return AnswerIsNo;
  }
  if (!given.hasTransfers) {
    LowerOptions lowering;
    lowering.times = times;
    lowered = need(lower(table, lowering));
  }
  if (replayed) {
    out << drawText(table, *replayed);
    describeReplay(table, times, *replayed, out);
    write(options.svg, drawSvg(table, *replayed), options.table);
  }
  write(options.lowered, writeLowered(lowered), options.table);
  return report(
      verify(replayed ? programOf(lowered, *replayed) : programOf(lowered)),
      lowered, out);
}

} // namespace

std::function<int()> driver::addSchedule(CLI::App &app) {
  auto options = std::make_shared<Options>();
  std::string names;
  for (const std::string &name : scheduleNames())
    names += (names.empty() ? "" : ", ") + name;
  app.add_option("--name", options->name, names)->type_name("NAME");
  app.add_option("--stages", options->stages,
                 "pipeline ranks x stages per rank");
  app.add_option("--microbatches", options->microbatches, "of one step");
  app.add_option("--chunks", options->chunks,
                 "stages per rank; 0: what the schedule needs");
  app.add_option(
         "--table", options->table,
         "read the table of a custom schedule, with transfers or without")
      ->type_name("FILE.csv");
  app.add_option("--csv", options->csv,
                 "write the table; -: to standard output")
      ->type_name("FILE");
  app.add_option("--lowered", options->lowered,
                 "write the table with sends and receives")
      ->type_name("FILE");
  app.add_option("--svg", options->svg, "draw the replay")->type_name("FILE");
  app.add_option("--times", options->times, "of a stage; default 1,1,1")
      ->type_name("F,I,W")
      ->delimiter(',');
  app.add_option("--transfer", options->transfer,
                 "time of a message between ranks; default 0");
  return [options] { return run(*options); };
}
