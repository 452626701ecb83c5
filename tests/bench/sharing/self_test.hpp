#pragma once

#include "account.hpp"

namespace roci::sharing {

/// Whether the model finds what is wrong with layouts that are, and nothing wrong with those that are not; says what not.
bool model_is_right();

}  // namespace roci::sharing
