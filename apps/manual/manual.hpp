// Generates manual pages and bash completions of Rocinante's commands from their option tables.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace roci::manual {

struct Entry {
    std::string term;  ///< such as "-c,--config FILE"
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
    std::string name;  ///< name of a subcommand; "" for the program itself
    std::vector<std::string> options;
};

/// Returns the bash completion script of a program. The script completes the names of the subcommands, then the options of the
/// chosen subcommand. If `runs` is not empty, the script completes the words after "--" as the command line of another program.
std::string bash_completion(const std::string& program, const std::vector<Command>& commands, std::string_view runs);

/// Returns the environment variables that the manual page of roci describes.
std::span<const Entry> environment();
/// Returns the variables of environment() as lines of a --help text.
std::string environment_help();

}  // namespace roci::manual
