// The output of the simulated CUDA library that records calls: errors, a log,
// and a summary.
#ifndef CLEAVE_TEST_GPU_RECORDER_REPORT_H
#define CLEAVE_TEST_GPU_RECORDER_REPORT_H

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace recorder {

struct Access {
  char *at = nullptr;
  int64_t bytes = 0;
  bool written = false;
};

// The runtime's description of the command whose launches follow.
struct Note {
  int rank = -1, command = -1;
  std::string action, source, kind;
  int64_t extent = 0;
  std::vector<Access> accesses;
};

// Describes one operation in messages.
struct Who {
  uint64_t number = 0;
  std::string what; // "launch NAME", "copy to the host"
  std::shared_ptr<const Note> note;
  int stream = 0, device = 0;

  std::string text() const;
};

struct Totals {
  int64_t operations = 0, launches = 0, emulated = 0, generated = 0, unrun = 0,
          unnoted = 0, products = 0, plans = 0, collectives = 0, messages = 0,
          copies = 0, edges = 0, graphs = 0;
};

// Collects errors and totals. An error ends the process with exit code 99
// unless CLEAVE_RECORDER_KEEP_GOING is set. All functions are called with the
// recorder's lock held.
class Report {
public:
  Report();
  void error(const std::string &text);
  void log(const Who &who, const std::vector<Access> &accesses,
           const std::vector<std::string> &places);
  bool isLogging() const { return file != nullptr; }
  std::string summary() const;
  std::vector<std::string> takeErrors();

  Totals totals;
  // Notes a kernel that was recorded but not run. The report names each such
  // kernel once.
  void unrun(const std::string &kernel);

private:
  bool keepsGoing = false;
  std::vector<std::string> errors, unrunNames;
  int64_t numErrors = 0;
  FILE *file = nullptr;
};

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_REPORT_H
