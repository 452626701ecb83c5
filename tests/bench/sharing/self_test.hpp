#pragma once

#include "account.hpp"

namespace roci::sharing {

/// Checks that the model detects bad layouts and accepts good ones. Prints the failures.
bool model_is_right();

}  // namespace roci::sharing
