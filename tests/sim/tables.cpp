#include "tables.hpp"

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace roci::sim {

std::string text(const char* format, ...) {
    char line[400];
    va_list args;
    va_start(args, format);
    std::vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return line;
}

void expect_table(const std::string& name, const std::string& now) {
    std::printf("%s", now.c_str());
    const std::string file = std::string(ROCI_TABLES) + "/" + name + ".txt";
    if (std::getenv("ROCI_WRITE_TABLES") != nullptr) {
        std::ofstream(file) << now;
        return;
    }
    std::ifstream in(file);
    std::ostringstream stored;
    stored << in.rdbuf();
    EXPECT_EQ(stored.str(), now)
        << file << " differs from the measured table. If the change is intended, store the table with ROCI_WRITE_TABLES=1";
}

}  // namespace roci::sim
