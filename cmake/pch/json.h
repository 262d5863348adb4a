// Precompiled header of files that read or write JSON.

#include "runtime.h"

#include <nlohmann/json.hpp>
