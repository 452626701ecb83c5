// The words of `roci top`: lines that fit a terminal's width.
#pragma once

#include <string>
#include <vector>

#include "top_model.hpp"

namespace roci::cli {

/// A column of a table. Where the width is too small, columns of the highest rank are left out first; rank 0 stays.
struct TopColumn {
    const char* title;
    int rank;
    bool left;
};
/// The lines of a table, header first. `dropped` gets the titles of the columns that were left out.
std::vector<std::string> fit_table(const std::vector<TopColumn>& columns, const std::vector<std::vector<std::string>>& rows,
                                   size_t width, std::vector<std::string>& dropped);
/// A text in lines of at most `width`, broken at spaces; from the second line on indented.
std::vector<std::string> wrap(const std::string& text, size_t width);

struct TopView {
    size_t width = 100;
    size_t rows = 20;  ///< QPs at most
    TopSort sort = TopSort::rate;
};
/// The whole screen.
std::vector<std::string> top_lines(const TopModel& model, const TopView& view);

}  // namespace roci::cli
