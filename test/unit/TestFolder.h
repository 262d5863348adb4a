// A temporary folder that is removed at the end of a test.
#ifndef CLEAVE_TEST_UNIT_TESTFOLDER_H
#define CLEAVE_TEST_UNIT_TESTFOLDER_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace cleave::test {

class TestFolder {
public:
  TestFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cleave-XXXXXX").string();
    root = ::mkdtemp(pattern.data());
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }
  std::string path(const std::string &name = "") const {
    return name.empty() ? root.string() : (root / name).string();
  }
  void write(const std::string &name, const std::string &content) const {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name, std::ios::binary) << content;
  }
  std::string read(const std::string &name) const {
    std::ifstream file(root / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> list(const std::string &name = "") const {
    std::vector<std::string> names;
    for (auto &entry : std::filesystem::directory_iterator(root / name))
      names.push_back(entry.path().filename().string());
    return names;
  }

private:
  std::filesystem::path root;
};

/// Calls `run` and returns the message of the exception of type E that it
/// throws, or "(no error)" if it throws nothing.
template <typename E, typename F> std::string messageOf(F &&run) {
  try {
    run();
  } catch (const E &error) {
    return error.what();
  }
  return "(no error)";
}

} // namespace cleave::test

#endif // CLEAVE_TEST_UNIT_TESTFOLDER_H
