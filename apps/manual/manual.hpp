// The manual pages and the completion of our commands, made from the tables that parse their options.
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
    std::string text;  ///< before the entries; an empty line begins another paragraph
    std::vector<Entry> entries = {};
};

struct Page {
    std::string name;
    int section = 1;
    std::string brief;
    std::string version;
    std::vector<Section> sections = {};
};

/// The page as roff, in the macros of man(7).
std::string roff(const Page& page);

struct Command {
    std::string name;  ///< "" for the program itself
    std::vector<std::string> options;
};

/// bash completion of a program: names of its commands, then each one's options; after a command of `runs`, other programs.
std::string bash_completion(const std::string& program, const std::vector<Command>& commands, std::string_view runs);

/// What the client libraries and our commands read from the environment.
std::span<const Entry> environment();
/// The same as lines under a --help.
std::string environment_help();

}  // namespace roci::manual
