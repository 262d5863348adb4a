// cleave cache: lists or removes the compiled programs in the cache.

#include "commands/Commands.h"

#include "cleave/Compiler/Cache.h"
#include "cleave/io/Escape.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>

using namespace cleave;
using namespace cleave::driver;
using compiler::Cache;
using compiler::CacheEntry;
using compiler::cacheLimit;

namespace {

std::string mebibytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f",
                static_cast<double>(bytes) / 1048576);
  return text;
}

std::string timeOf(std::filesystem::file_time_type time) {
  std::time_t seconds = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(
          std::chrono::file_clock::to_sys(time)));
  char text[32];
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local);
  return text;
}

std::string counted(size_t count) {
  return std::to_string(count) + (count == 1 ? " program" : " programs");
}

int show(const std::string &folder) {
  int64_t sum = 0;
  std::vector<CacheEntry> entries = Cache(folder).entries();
  if (!entries.empty())
    printEscaped(stdout, "%10s  %-16s  %s\n", "MiB", "last used", "program");
  for (const CacheEntry &entry : entries) {
    sum += entry.bytes;
    printEscaped(stdout, "%10s  %-16s  %s%s\n", mebibytes(entry.bytes).c_str(),
                 timeOf(entry.used).c_str(),
                 entry.folder.filename().string().c_str(),
                 entry.isUsed() ? " (in use)" : "");
  }
  printEscaped(stdout, "%s: %s, %s MiB of %s (CLEAVE_CACHE_GIB)\n",
               folder.c_str(), counted(entries.size()).c_str(),
               mebibytes(sum).c_str(), mebibytes(cacheLimit()).c_str());
  return Success;
}

int clear(const std::string &folder) {
  Cache cache(folder);
  size_t removed = 0, kept = 0;
  int64_t bytes = 0;
  for (const CacheEntry &entry : cache.entries()) {
    bool isGone = cache.remove(entry);
    ++(isGone ? removed : kept);
    bytes += isGone ? entry.bytes : 0;
  }
  cache.sweep();
  printEscaped(stdout, "%s: %s removed, %s MiB", folder.c_str(),
               counted(removed).c_str(), mebibytes(bytes).c_str());
  if (kept)
    printEscaped(stdout, "; %s in use, or another user's, kept",
                 counted(kept).c_str());
  printEscaped(stdout, "\n");
  return Success;
}

} // namespace

std::function<int()> driver::addCache(CLI::App &app) {
  auto options = std::make_shared<CommonOptions>();
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  CLI::App *list = app.add_subcommand(
      "show", "List the programs, the one that was used last first");
  CLI::App *empty =
      app.add_subcommand("clear", "Remove all programs that no process uses");
  for (CLI::App *sub : {list, empty}) {
    sub->footer("");
    addCacheFlag(*sub, *options);
  }
  return [options, list] {
    return list->parsed() ? show(options->cache) : clear(options->cache);
  };
}
