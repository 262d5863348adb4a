// What files that read and write JSON include.

#include "runtime.h"

#include <nlohmann/json.hpp>
