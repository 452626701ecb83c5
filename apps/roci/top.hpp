// roci top: who is busy, who sends how much, and what limits each flow now.
#pragma once

#include <cstddef>
#include <string>

#include "daemon.hpp"

namespace roci::cli {

struct TopOptions {
    Where where;
    std::string sort = "rate";
    double interval = 1;
    size_t rows = 0;   ///< QPs at most; 0: as many as fit, without a terminal 20
    size_t width = 0;  ///< 0: the terminal's, without one 100
    bool once = false, as_json = false;
};
int top(const TopOptions& options);

}  // namespace roci::cli
