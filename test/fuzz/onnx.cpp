// Fuzzes the import of ONNX files. Half of the mutations change bytes; the
// others change a field of the protobuf message tree: a number, a name, an
// element of a list, or a whole message.
#include "Fuzz.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Import/ONNX/Import.h"
#include "cleave/Interfaces/Interfaces.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <onnx/onnx_pb.h>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include <cmath>
#include <memory>
#include <random>
#include <vector>

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using namespace cleave;

//===----------------------------------------------------------------------===//
// Mutation
//===----------------------------------------------------------------------===//

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

namespace {

class TreeMutator {
public:
  explicit TreeMutator(unsigned seed) : random(seed) {}

  void mutate(Message &root) {
    places.clear();
    names.clear();
    collect(root, 0);
    if (!places.empty())
      change(places[below(places.size())]);
  }

private:
  struct Place {
    Message *message;
    const FieldDescriptor *field;
  };

  uint64_t below(uint64_t end) { return random() % end; }

  void collect(Message &message, int depth) {
    const Reflection &reflection = *message.GetReflection();
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor *field = message.GetDescriptor()->field(i);
      bool isSet = field->is_repeated()
                       ? reflection.FieldSize(message, field) > 0
                       : reflection.HasField(message, field);
      if (isSet || below(8) == 0)
        places.push_back({&message, field});
      if (!isSet || depth > 20)
        continue;
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        for (int at = 0; at < count(message, field); ++at)
          collect(mutableAt(message, field, at), depth + 1);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        for (int at = 0; at < count(message, field); ++at)
          names.push_back(field->is_repeated()
                              ? reflection.GetRepeatedString(message, field, at)
                              : reflection.GetString(message, field));
      }
    }
  }

  static int count(const Message &message, const FieldDescriptor *field) {
    return field->is_repeated()
               ? message.GetReflection()->FieldSize(message, field)
               : 1;
  }

  static Message &mutableAt(Message &message, const FieldDescriptor *field,
                            int at) {
    const Reflection &reflection = *message.GetReflection();
    return field->is_repeated()
               ? *reflection.MutableRepeatedMessage(&message, field, at)
               : *reflection.MutableMessage(&message, field);
  }

  int64_t number() {
    static constexpr int64_t known[] = {0,
                                        1,
                                        -1,
                                        2,
                                        3,
                                        4,
                                        7,
                                        8,
                                        16,
                                        64,
                                        127,
                                        255,
                                        1000,
                                        65536,
                                        1 << 24,
                                        INT32_MAX,
                                        INT32_MIN,
                                        int64_t(1) << 32,
                                        int64_t(1) << 40,
                                        int64_t(1) << 62,
                                        INT64_MAX,
                                        INT64_MIN};
    return below(4) ? known[below(std::size(known))]
                    : static_cast<int64_t>(random());
  }

  double real() {
    static constexpr double known[] = {0.0,
                                       -0.0,
                                       1.0,
                                       -1.0,
                                       0.5,
                                       1e-45,
                                       1e38,
                                       1e300,
                                       HUGE_VAL,
                                       -HUGE_VAL,
                                       __builtin_nan("")};
    return known[below(std::size(known))];
  }

  std::string text() {
    static const char *known[] = {
        "",   "x",    "batch", "Add", "MatMul",   "Reshape",         "Gather",
        "If", "Loop", "Scan",  "\n",  "\x1b[31m", "...ij,jk->...ik", "../x"};
    if (!names.empty() && below(3))
      return names[below(names.size())];
    return known[below(std::size(known))];
  }

  void change(const Place &place) {
    Message &message = *place.message;
    const FieldDescriptor *field = place.field;
    const Reflection &reflection = *message.GetReflection();
    if (!field->is_repeated()) {
      if (below(4) == 0)
        return reflection.ClearField(&message, field);
      return setOne(message, field);
    }
    int size = reflection.FieldSize(message, field);
    switch (below(5)) {
    case 0: // remove
      if (size > 0) {
        reflection.SwapElements(&message, field, static_cast<int>(below(size)),
                                size - 1);
        reflection.RemoveLast(&message, field);
      }
      break;
    case 1: // reorder
      if (size > 1)
        reflection.SwapElements(&message, field, static_cast<int>(below(size)),
                                static_cast<int>(below(size)));
      break;
    case 2: // clear
      reflection.ClearField(&message, field);
      break;
    case 3: // add an element
      add(message, field);
      break;
    default:
      if (size > 0)
        setAt(message, field, static_cast<int>(below(size)));
    }
  }

  void setOne(Message &message, const FieldDescriptor *field) {
    const Reflection &r = *message.GetReflection();
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r.SetInt32(&message, field, static_cast<int32_t>(number()));
    case FieldDescriptor::CPPTYPE_INT64:
      return r.SetInt64(&message, field, number());
    case FieldDescriptor::CPPTYPE_UINT32:
      return r.SetUInt32(&message, field, static_cast<uint32_t>(number()));
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.SetUInt64(&message, field, static_cast<uint64_t>(number()));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r.SetFloat(&message, field, static_cast<float>(real()));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r.SetDouble(&message, field, real());
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.SetBool(&message, field, below(2));
    case FieldDescriptor::CPPTYPE_ENUM:
      return r.SetEnumValue(&message, field, static_cast<int>(below(30)));
    case FieldDescriptor::CPPTYPE_STRING:
      return r.SetString(&message, field, text());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      r.MutableMessage(&message, field);
    }
  }

  void setAt(Message &message, const FieldDescriptor *field, int at) {
    const Reflection &r = *message.GetReflection();
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r.SetRepeatedInt32(&message, field, at,
                                static_cast<int32_t>(number()));
    case FieldDescriptor::CPPTYPE_INT64:
      return r.SetRepeatedInt64(&message, field, at, number());
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.SetRepeatedUInt64(&message, field, at,
                                 static_cast<uint64_t>(number()));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r.SetRepeatedFloat(&message, field, at,
                                static_cast<float>(real()));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r.SetRepeatedDouble(&message, field, at, real());
    case FieldDescriptor::CPPTYPE_STRING:
      return r.SetRepeatedString(&message, field, at, text());
    default:
      break;
    }
  }

  void add(Message &message, const FieldDescriptor *field) {
    const Reflection &r = *message.GetReflection();
    int size = r.FieldSize(message, field);
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return r.AddInt64(&message, field, number());
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r.AddFloat(&message, field, static_cast<float>(real()));
    case FieldDescriptor::CPPTYPE_STRING:
      return r.AddString(&message, field, text());
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      std::unique_ptr<Message> copy;
      if (size > 0) {
        const Message &like =
            r.GetRepeatedMessage(message, field, static_cast<int>(below(size)));
        copy.reset(like.New());
        copy->CopyFrom(like);
      }
      Message *added = r.AddMessage(&message, field);
      if (copy)
        added->CopyFrom(*copy);
      return;
    }
    default:
      break;
    }
  }

  std::mt19937_64 random;
  std::vector<Place> places;
  std::vector<std::string> names;
};

} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                          size_t most, unsigned seed) {
  onnx::ModelProto model;
  if (seed % 2 == 0 || !model.ParseFromArray(data, static_cast<int>(size)))
    return LLVMFuzzerMutate(data, size, most);
  TreeMutator mutator(seed);
  for (unsigned i = 0; i < 1 + seed / 2 % 3; ++i)
    mutator.mutate(model);
  size_t length = model.ByteSizeLong();
  if (length > most || !model.SerializeToArray(data, static_cast<int>(length)))
    return size;
  return length;
}

//===----------------------------------------------------------------------===//
// The importer
//===----------------------------------------------------------------------===//

static void readModel(const std::string &path, const ImportOptions &options,
                      mlir::MLIRContext &context) {
  (void)summarizeOnnx(path, context, options);
  if (mlir::failed(findTiesByContent(path, context, options)))
    return;
  mlir::OwningOpRef<mlir::ModuleOp> module = importOnnx(path, options, context);
  if (!module)
    return;
  mlir::PassManager passes(&context);
  buildImportPipeline(passes);
  (void)passes.run(*module);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::MemoryFile file(fuzz::textOf(data, size));
  // The context is recreated from time to time, because it never frees types
  // and attributes.
  static std::unique_ptr<mlir::MLIRContext> context;
  static int uses = 0;
  if (!context || ++uses % 256 == 0) {
    mlir::DialectRegistry registry;
    registry.insert<mlir::func::FuncDialect, mlir::arith::ArithDialect,
                    mlir::math::MathDialect, nn::NNDialect>();
    registerInterfaceModels(registry);
    context = std::make_unique<mlir::MLIRContext>(
        registry, mlir::MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
    context->printOpOnDiagnostic(false);
  }
  mlir::ScopedDiagnosticHandler quiet(
      context.get(), [](mlir::Diagnostic &) { return mlir::success(); });
  ImportOptions options;
  options.dims = {{"batch", 2}, {"sequence", 8}};
  readModel(file.path(), options, *context);
  return 0;
}
