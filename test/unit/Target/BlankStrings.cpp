// cleave-blank-strings FILE: writes a program without its descriptive strings
// to standard output, for tools/same-programs. Sources, labels and names of
// lifetimes become empty; the string table keeps only the purposes of
// collectives.

#include "cleave/program_io.h"

#include <fstream>
#include <iostream>
#include <iterator>

using namespace cleave::program;

static Program blank(Program program) {
  std::vector<std::string> strings = std::move(program.strings);
  program.strings = {""};
  for (Action &action : program.actions) {
    for (Command &command : action.commands) {
      command.source = 0;
      if (auto *collective = std::get_if<Collective>(&command.op))
        collective->purpose = program.intern(strings[collective->purpose]);
      if (auto *call = std::get_if<Call>(&command.op))
        call->label = 0;
    }
    for (Lifetime &lifetime : action.lifetimes)
      lifetime.name = 0;
  }
  return program;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    std::cerr << "usage: cleave-blank-strings program.bin\n";
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Program program;
  std::string error;
  if (!file || !deserialize(bytes, program, error)) {
    std::cerr << argv[1] << ": is no program: " << error << "\n";
    return 2;
  }
  std::cout << serialize(blank(std::move(program)));
  return std::cout.flush() ? 0 : 2;
}
