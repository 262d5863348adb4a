// Registers every pass and pipeline by name, for tools and plugins that run
// pipelines from text.

#ifndef CLEAVE_INIT_ALLPASSES_H
#define CLEAVE_INIT_ALLPASSES_H

namespace cleave {

/// Registers the passes of all folders, and MLIR's own transformations.
void registerAllPasses();

} // namespace cleave

#endif // CLEAVE_INIT_ALLPASSES_H
