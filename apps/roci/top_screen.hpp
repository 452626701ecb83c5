// The terminal of `roci top`.
#pragma once

#include <string>
#include <vector>

namespace roci::cli {

/// False: this roci was built without ncurses.
bool has_screen();

/// Takes the terminal while it lives.
class TopScreen {
public:
    TopScreen();
    ~TopScreen();
    TopScreen(const TopScreen&) = delete;
    size_t width() const;
    size_t height() const;
    void show(const std::vector<std::string>& lines, const std::string& footer);
    /// The next key that was pressed, 0: none. A new size of the terminal is the key kResized.
    int key();
    static constexpr int kResized = -1;
};

}  // namespace roci::cli
