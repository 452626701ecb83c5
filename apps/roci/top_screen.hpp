// The screen of `roci top` on a terminal, drawn by ncurses.
#pragma once

#include <string>
#include <vector>

namespace roci::cli {

/// Returns false if this roci was built without ncurses.
bool has_screen();

/// The constructor switches the terminal to the ncurses screen. The destructor restores the terminal.
class TopScreen {
public:
    TopScreen();
    ~TopScreen();
    TopScreen(const TopScreen&) = delete;
    size_t width() const;
    size_t height() const;
    void show(const std::vector<std::string>& lines, const std::string& footer);
    /// Returns the next pressed key, or 0 if no key is waiting. Returns kResized if the size of the terminal has changed.
    int key();
    static constexpr int kResized = -1;
};

}  // namespace roci::cli
