// The terminal of `roci top`.
#pragma once

#include <string>
#include <vector>

namespace roci::cli {

/// Returns false if this roci was built without ncurses.
bool has_screen();

/// Controls the terminal as long as the object exists.
class TopScreen {
public:
    TopScreen();
    ~TopScreen();
    TopScreen(const TopScreen&) = delete;
    size_t width() const;
    size_t height() const;
    void show(const std::vector<std::string>& lines, const std::string& footer);
    /// Returns the next pressed key, or 0 if there is none. Returns kResized if the size of the terminal has changed.
    int key();
    static constexpr int kResized = -1;
};

}  // namespace roci::cli
