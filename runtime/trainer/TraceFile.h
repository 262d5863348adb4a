//===- TraceFile.h - what ranks did when, for a person to look at ---------===//
#ifndef CLEAVE_TRAINER_TRACEFILE_H
#define CLEAVE_TRAINER_TRACEFILE_H

#include "cleave/manifest.h"
#include "cleave/trainer/Executor.h"

#include <cstdio>
#include <string>

namespace cleave {

/// A trace file in Chrome's format, which https://ui.perfetto.dev opens. Each
/// rank is a process with one thread for compute and one for transfers; arrows
/// lead from sends to receives. Events of a step are appended when it ends, so
/// that a run that fails leaves a readable file.
class TraceFile {
public:
  /// Throws InputError if the file cannot be written.
  TraceFile(const std::string &path, const Manifest &manifest);
  ~TraceFile();
  TraceFile(const TraceFile &) = delete;

  /// Appends the events of all ranks in this step.
  void append(StepExecutor &executor, int64_t step);

private:
  void write(const std::string &event);

  std::string path;
  std::FILE *file = nullptr;
  bool isEmpty = true;
  int failure = 0;    ///< errno of the first write that failed
  int64_t origin = 0; ///< of the first event; there time begins
};

} // namespace cleave

#endif // CLEAVE_TRAINER_TRACEFILE_H
