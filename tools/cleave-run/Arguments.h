// How a process that becomes cleave-run passes its arguments. The command line
// stays as the user typed it, as `ps` and `top` show it; the environment
// carries the arguments of cleave-run.
#ifndef CLEAVE_TOOLS_RUN_ARGUMENTS_H
#define CLEAVE_TOOLS_RUN_ARGUMENTS_H

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <vector>

namespace cleave {

inline constexpr const char *kArgumentsVariable = "CLEAVE_RUN_ARGUMENTS";

/// Joins words to one string, each with its length before it: "5:train2:-x". So
/// a word may contain any bytes.
inline std::string packWords(const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &word : words)
    text += std::to_string(word.size()) + ":" + word;
  return text;
}

inline std::vector<std::string> unpackWords(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    size_t size = 0, digits = 0;
    for (; digits < text.size() && digits < 9 &&
           std::isdigit(static_cast<unsigned char>(text[digits]));
         ++digits)
      size = 10 * size + size_t(text[digits] - '0');
    if (digits + 1 + size > text.size() || text[digits] != ':')
      return {};
    words.emplace_back(text.substr(digits + 1, size));
    text.remove_prefix(digits + 1 + size);
  }
  return words;
}

/// Returns the words of this process's command line.
inline std::vector<std::string> ownCommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::string> words;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\0', begin);
    if (end == std::string::npos)
      end = text.size();
    words.push_back(text.substr(begin, end - begin));
  }
  return words;
}

/// Returns a null-terminated argv for exec. Its pointers refer to `words`,
/// which must outlive it.
inline std::vector<char *> argvOf(std::vector<std::string> &words) {
  std::vector<char *> argv;
  for (std::string &word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  return argv;
}

/// Sets the name of the process to the first word of its command line. Without
/// this, a process that executes /proc/self/exe would be named "exe".
inline void nameProcess(const char *command) {
  std::string_view name = command ? command : "cleave";
  std::string own(name.substr(name.find_last_of('/') + 1));
  prctl(PR_SET_NAME, own.c_str());
}

} // namespace cleave

#endif // CLEAVE_TOOLS_RUN_ARGUMENTS_H
