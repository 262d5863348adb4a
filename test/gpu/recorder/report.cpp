// The output of the simulated CUDA library that records calls.

#include "report.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <utility>

using namespace recorder;

namespace {
std::string quote(const std::string &text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    if (c < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      out += code;
    } else {
      out += char(c);
    }
  }
  return out + '"';
}
} // namespace

std::string Who::text() const {
  std::string out = what + " (";
  if (note) {
    if (note->rank >= 0)
      out += "rank " + std::to_string(note->rank) + ", ";
    if (!note->action.empty())
      out += "action " + note->action + ", ";
    if (note->command >= 0)
      out += "command " + std::to_string(note->command) + ", ";
    if (!note->kind.empty())
      out += note->kind + ", ";
    if (!note->source.empty())
      out += "source " + quote(note->source) + ", ";
  }
  return out + "stream " + std::to_string(stream) + ", operation " +
         std::to_string(number) + ")";
}

Report::Report() {
  keepsGoing = std::getenv("CLEAVE_RECORDER_KEEP_GOING") != nullptr;
  if (const char *path = std::getenv("CLEAVE_RECORDER_LOG")) {
    file = std::fopen(path, "w");
    if (!file)
      error(std::string("cannot write ") + path +
            ", which CLEAVE_RECORDER_LOG names");
  }
}

void Report::error(const std::string &text) {
  std::fprintf(stderr, "recorder: %s\n", text.c_str());
  ++numErrors;
  if (!keepsGoing) {
    if (file)
      std::fflush(file);
    std::fflush(nullptr);
    _exit(99);
  }
  errors.push_back(text);
}

std::vector<std::string> Report::takeErrors() {
  return std::exchange(errors, {});
}

void Report::unrun(const std::string &kernel) {
  ++totals.unrun;
  if (std::find(unrunNames.begin(), unrunNames.end(), kernel) ==
      unrunNames.end())
    unrunNames.push_back(kernel);
}

void Report::log(const Who &who, const std::vector<Access> &accesses,
                 const std::vector<std::string> &places) {
  if (!file)
    return;
  std::string line = "{\"operation\": " + std::to_string(who.number) +
                     ", \"what\": " + quote(who.what) +
                     ", \"device\": " + std::to_string(who.device) +
                     ", \"stream\": " + std::to_string(who.stream);
  if (who.note)
    line += ", \"rank\": " + std::to_string(who.note->rank) +
            ", \"action\": " + quote(who.note->action) +
            ", \"command\": " + std::to_string(who.note->command) +
            ", \"kind\": " + quote(who.note->kind) +
            ", \"source\": " + quote(who.note->source);
  for (bool written : {false, true}) {
    line += written ? "], \"writes\": [" : ", \"reads\": [";
    bool first = true;
    for (size_t i = 0; i < accesses.size(); ++i) {
      if (accesses[i].written != written)
        continue;
      line += std::string(first ? "" : ", ") + places[i];
      first = false;
    }
  }
  std::fprintf(file, "%s]}\n", line.c_str());
  std::fflush(file);
}

std::string Report::summary() const {
  auto count = [](const char *name, int64_t value) {
    return std::string(", ") + name + " " + std::to_string(value);
  };
  std::string out = "operations " + std::to_string(totals.operations);
  out += count("launches", totals.launches);
  out += " (" + std::to_string(totals.emulated) + " emulated, " +
         std::to_string(totals.generated) + " generated, " +
         std::to_string(totals.unrun) + " not run, " +
         std::to_string(totals.unnoted) + " without a note)";
  out += count("products", totals.products);
  out += count("cudnn plans", totals.plans);
  out += count("collectives", totals.collectives);
  out += count("messages", totals.messages);
  out += count("copies", totals.copies);
  out += count("edges", totals.edges);
  out += count("graph launches", totals.graphs);
  out += count("errors", numErrors);
  if (!unrunNames.empty()) {
    out += "; not run:";
    for (size_t i = 0; i < unrunNames.size() && i < 8; ++i)
      out += " " + unrunNames[i];
    if (unrunNames.size() > 8)
      out += " and " + std::to_string(unrunNames.size() - 8) + " more";
  }
  return out + "; nothing ran on a device";
}
