// cleave ops: lists the ONNX operators that the importer supports.

#include "Diagnostics.h"
#include "commands/Commands.h"

#include "cleave/Compiler/Dialects.h"

#include "cleave/Import/ONNX/OpTable.h"
#include "cleave/Interfaces/Interfaces.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <iostream>

using namespace cleave;
using namespace cleave::driver;

namespace {
// `becomes` names the operations that the importer creates for an ONNX
// operator. Returns "yes" if all of them implement the interface, else "no".
// Returns "-" if there are none, because the importer evaluates the operator or
// only moves elements.
template <class Interface>
const char *answers(mlir::MLIRContext &context, llvm::StringRef becomes) {
  llvm::SmallVector<llvm::StringRef> names;
  becomes.split(names, ' ', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef name : names)
    if (name != "arith.constant" &&
        !mlir::OperationName(name, &context).hasInterface<Interface>())
      return "no";
  return names.empty() ? "-" : "yes";
}

void cell(llvm::StringRef text, size_t width) {
  std::cout << text.str()
            << std::string(text.size() < width ? width - text.size() : 1, ' ');
}
} // namespace

std::function<int()> driver::addOps(CLI::App &) {
  return [] {
    mlir::MLIRContext context;
    compiler::loadDialects(context);
    cell("operator", 24);
    cell("opsets", 10);
    cell("tier", 6);
    cell("derivative", 12);
    cell("sharding", 10);
    std::cout << "becomes\n";
    for (const OnnxOp &op : onnxOps()) {
      cell(op.name, 24);
      cell(std::to_string(op.first) + "-" + std::to_string(op.last), 10);
      cell(std::to_string(op.tier), 6);
      cell(answers<DifferentiableInterface>(context, op.becomes), 12);
      cell(answers<ShardingRuleInterface>(context, op.becomes), 10);
      std::cout << (op.becomes.empty() ? "evaluated or absorbed"
                                       : op.becomes.str())
                << "\n";
    }
    return Success;
  };
}
