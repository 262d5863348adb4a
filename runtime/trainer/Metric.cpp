#include "Metric.h"

namespace cleave {

std::optional<double> readMetric(const Manifest &manifest,
                                 StepExecutor &executor,
                                 const std::string &action,
                                 const std::string &name) {
  const BufferInfo *found = nullptr;
  for (const ManifestMetric &entry : manifest.metrics)
    if (entry.action == action && entry.name == name)
      found = &executor.need(entry.buffer);
  if (!found && action == "update")
    for (const BufferInfo &buffer : executor.buffers())
      if (buffer.role == role::metric &&
          (buffer.name == "metric." + name || buffer.name == name))
        found = &buffer;
  if (!found)
    for (const BufferInfo &buffer : executor.buffers())
      if (buffer.role == name)
        found = &buffer;
  if (!found)
    return std::nullopt;
  if (isFloat(found->dtype))
    return executor.gather(found->name, "f64").as<double>()[0];
  Array value = executor.gather(found->name, found->dtype);
  return static_cast<double>(integerAt(value.dtype, value.bytes.data(), 0));
}

} // namespace cleave
