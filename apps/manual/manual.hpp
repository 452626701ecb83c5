// The manual pages and the completion of our commands, generated from the tables that parse their options.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace roci::manual {

struct Entry {
    std::string term;  ///< "-c,--config FILE"
    std::string text;
};

struct Section {
    std::string title;
    std::string text;  ///< text before the entries; an empty line begins another paragraph
    std::vector<Entry> entries = {};
};

struct Page {
    std::string name;
    int section = 1;
    std::string brief;
    std::string version;
    std::vector<Section> sections = {};
};

/// Converts the page to roff with the macros of man(7).
std::string roff(const Page& page);

struct Command {
    std::string name;  ///< "" for the program itself
    std::vector<std::string> options;
};

/// Returns the bash completion of a program. It completes the names of commands, then the options of each command. If `runs` is
/// not empty, it completes programs after "--".
std::string bash_completion(const std::string& program, const std::vector<Command>& commands, std::string_view runs);

/// Returns the environment variables that the client libraries and our commands read.
std::span<const Entry> environment();
/// Returns the same variables as lines of a --help text.
std::string environment_help();

}  // namespace roci::manual
