// Text tables with aligned columns.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace roci::cli {

class Table {
public:
    explicit Table(std::vector<std::string> columns) : columns_(std::move(columns)) {}
    void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    const std::vector<std::string>& columns() const { return columns_; }
    bool empty() const { return rows_.empty(); }

    /// Returns the table as text. Two spaces indent each line. The text has a header only if a column has a name. Columns without
    /// any text are omitted. If the columns do not fit into `most` characters, the remaining columns follow in a further table. A
    /// further table also begins with the first column.
    std::string text(size_t most = std::string::npos) const {
        std::string out;
        for (size_t begin = 0; begin < columns_.size();) {
            std::vector<size_t> shown;
            if (begin != 0) shown.push_back(0);
            size_t used = begin != 0 ? 2 + width(0) : 1;
            for (; begin < columns_.size(); ++begin) {
                const size_t more = width(begin) == 0 ? 0 : width(begin) + 1;
                if (used + more > most && shown.size() > (begin != 0 ? 1u : 0u)) break;
                used += more;
                shown.push_back(begin);
            }
            out += block(shown);
        }
        return out;
    }

private:
    size_t width(size_t column) const {
        size_t cells = 0;
        for (const auto& row : rows_) cells = std::max(cells, row[column].size());
        return cells == 0 ? 0 : std::max(cells, columns_[column].size());
    }
    std::string block(const std::vector<size_t>& shown) const {
        const bool headed = std::ranges::any_of(columns_, [](const std::string& c) { return !c.empty(); });
        std::string out = headed ? line(columns_, shown) : "";
        for (const auto& row : rows_) out += line(row, shown);
        return out;
    }
    std::string line(const std::vector<std::string>& cells, const std::vector<size_t>& shown) const {
        std::string out = " ";
        for (const size_t i : shown)
            if (width(i) != 0) out += fmt::format(" {:<{}}", cells[i], width(i));
        out.erase(out.find_last_not_of(' ') + 1);
        return out + "\n";
    }
    std::vector<std::string> columns_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace roci::cli
