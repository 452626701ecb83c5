#pragma once

#include "account.hpp"

namespace roci::sharing {

/// Returns true if the model detects bad layouts and accepts good ones. Prints the failures.
bool model_is_right();

}  // namespace roci::sharing
