// Shrinks failing programs, writes them to files, and replays such files.

#include "Shrink.h"

#include "cleave/Reduce/Reduce.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

static constexpr StringRef kSeedMark = "// seed of the values: ";

void cleave::random::reportShrunk(ModuleOp program, uint64_t seed,
                                  Runner &runner, const Outcome &outcome,
                                  StringRef path) {
  OwningOpRef<ModuleOp> small =
      reduce::shrink(program, [&](ModuleOp candidate) {
        return runner.run(candidate, seed).kind == outcome.kind;
      });
  Outcome last = runner.run(*small, seed);
  std::string text;
  llvm::raw_string_ostream out(text);
  out << kSeedMark << seed << "\n";
  for (auto [line, rest] = StringRef(last.message).split('\n'); !line.empty();
       std::tie(line, rest) = rest.split('\n'))
    out << "// " << name(last.kind) << ": " << line << "\n";
  out << *small << "\n";
  llvm::outs() << text;
  std::error_code error;
  llvm::raw_fd_ostream file(path, error);
  if (error) {
    llvm::errs() << path << ": " << error.message() << "\n";
    return;
  }
  file << text;
  llvm::outs() << "written to " << path << "\n";
}

int cleave::random::replayFile(StringRef path, Runner &runner,
                               MLIRContext *context) {
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, context);
  if (!module) {
    llvm::errs() << path << " is no module\n";
    return 2;
  }
  uint64_t seed = 1;
  if (auto buffer = llvm::MemoryBuffer::getFile(path))
    if (StringRef text = (*buffer)->getBuffer(); text.consume_front(kSeedMark))
      (void)text.consumeInteger(10, seed);
  Outcome outcome = runner.run(*module, seed);
  llvm::outs() << path << ": " << name(outcome.kind) << "\n"
               << outcome.message << "\n";
  return outcome ? 0 : 1;
}
