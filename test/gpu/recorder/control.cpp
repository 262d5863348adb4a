// Functions of the recorder that only tests call.

#include "control.h"

#include "queue.h"

#include <cstring>

using namespace recorder;

extern "C" int64_t cleaveRecorderTakeErrors(char *text, size_t size) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  std::string joined;
  std::vector<std::string> errors = all.report.takeErrors();
  for (const std::string &error : errors)
    joined += error + "\n";
  if (size > 0) {
    std::strncpy(text, joined.c_str(), size);
    text[size - 1] = 0;
  }
  return int64_t(errors.size());
}

extern "C" int64_t cleaveRecorderCount(const char *what) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  const Totals &totals = all.report.totals;
  const std::pair<const char *, int64_t> counts[] = {
      {"operations", totals.operations},
      {"launches", totals.launches},
      {"products", totals.products},
      {"plans", totals.plans},
      {"collectives", totals.collectives},
      {"messages", totals.messages},
      {"copies", totals.copies}};
  for (auto [name, count] : counts)
    if (std::strcmp(name, what) == 0)
      return count;
  return -1;
}
