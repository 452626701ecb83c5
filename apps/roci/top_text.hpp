// Converts the figures of `roci top` to lines of text that fit into the width of a terminal.
#pragma once

#include <string>
#include <vector>

#include "top_model.hpp"

namespace roci::cli {

/// A column of a table. If the table does not fit into the width, fit_table() omits columns, the highest rank first. It never
/// omits a column of rank 0.
struct TopColumn {
    const char* title;
    int rank;
    bool left;
};
/// Returns the lines of a table. The first line is the header. Adds the titles of the omitted columns to `dropped`.
std::vector<std::string> fit_table(const std::vector<TopColumn>& columns, const std::vector<std::vector<std::string>>& rows,
                                   size_t width, std::vector<std::string>& dropped);
/// Breaks a text into lines of at most `width` characters, at spaces and within words that do not fit. Two spaces indent all
/// lines except the first line.
std::vector<std::string> wrap(const std::string& text, size_t width);

struct TopView {
    size_t width = 100;
    size_t rows = 20;  ///< maximum number of QPs
    TopSort sort = TopSort::rate;
};
/// Returns the lines of the whole screen.
std::vector<std::string> top_lines(const TopModel& model, const TopView& view);

}  // namespace roci::cli
