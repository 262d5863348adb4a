// Fuzzes the reader of program.bin. In a program that the reader accepts, the
// buffers of all commands are inside their arenas, so that the runtime need not
// check them again.
#include "Fuzz.h"

#include "error.h"
#include "loaded_program.h"

#include "cleave/program_io.h"

using namespace cleave;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    std::unique_ptr<cleave_program> program =
        parseProgram(fuzz::textOf(data, size));
    program::Program again;
    std::string error;
    fuzz::require(
        program::deserialize(program::serialize(program->data), again, error),
        "a program that is written again is read");
  } catch (const RuntimeError &error) {
    fuzz::requireMessage(error.what());
  }
  return 0;
}
