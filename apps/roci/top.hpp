// roci top: shows the load of each engine, the rates of each queue pair, and what limits each flow now.
#pragma once

#include <cstddef>
#include <string>

#include "daemon.hpp"

namespace roci::cli {

struct TopOptions {
    Where where;
    std::string sort = "rate";
    double interval = 1;
    size_t rows = 0;   ///< maximum number of QPs; 0: as many as fit on the terminal, or 20 without a terminal
    size_t width = 0;  ///< characters per line with --once; 0: the width of the terminal, or 100 without a terminal
    bool once = false, as_json = false;
};
int top(const TopOptions& options);

}  // namespace roci::cli
