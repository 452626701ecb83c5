// The output of `roci top` as lines that fit the width of a terminal.
#pragma once

#include <string>
#include <vector>

#include "top_model.hpp"

namespace roci::cli {

/// A column of a table. If the width is too small, columns with the highest rank are omitted first. A column of rank 0 is never
/// omitted.
struct TopColumn {
    const char* title;
    int rank;
    bool left;
};
/// Returns the lines of a table, header first. Adds the titles of the omitted columns to `dropped`.
std::vector<std::string> fit_table(const std::vector<TopColumn>& columns, const std::vector<std::vector<std::string>>& rows,
                                   size_t width, std::vector<std::string>& dropped);
/// Breaks a text into lines of at most `width` characters, at spaces and within longer words. All lines but the first are
/// indented.
std::vector<std::string> wrap(const std::string& text, size_t width);

struct TopView {
    size_t width = 100;
    size_t rows = 20;  ///< maximum number of QPs
    TopSort sort = TopSort::rate;
};
/// Returns the lines of the whole screen.
std::vector<std::string> top_lines(const TopModel& model, const TopView& view);

}  // namespace roci::cli
