#include "top_screen.hpp"

#include <clocale>

#ifdef ROCI_NCURSES
#include <ncurses.h>

namespace roci::cli {

bool has_screen() { return true; }

TopScreen::TopScreen() {
    std::setlocale(LC_CTYPE, "");
    initscr();
    cbreak();
    noecho();
    nodelay(stdscr, TRUE);
    keypad(stdscr, TRUE);
    curs_set(0);
}
TopScreen::~TopScreen() { endwin(); }

size_t TopScreen::width() const { return size_t(COLS > 0 ? COLS : 80); }
size_t TopScreen::height() const { return size_t(LINES > 0 ? LINES : 24); }

void TopScreen::show(const std::vector<std::string>& lines, const std::string& footer) {
    erase();
    const size_t room = height() - 1;
    for (size_t i = 0; i < lines.size() && i < room; ++i) mvaddnstr(int(i), 0, lines[i].c_str(), int(width()));
    attron(A_REVERSE);
    mvaddnstr(int(room), 0, footer.c_str(), int(width()) - 1);
    attroff(A_REVERSE);
    refresh();
}

int TopScreen::key() {
    const int k = getch();
    return k == ERR ? 0 : k == KEY_RESIZE ? kResized : k;
}

}  // namespace roci::cli

#else

namespace roci::cli {

bool has_screen() { return false; }
TopScreen::TopScreen() = default;
TopScreen::~TopScreen() = default;
size_t TopScreen::width() const { return 80; }
size_t TopScreen::height() const { return 24; }
void TopScreen::show(const std::vector<std::string>&, const std::string&) {}
int TopScreen::key() { return 0; }

}  // namespace roci::cli

#endif
