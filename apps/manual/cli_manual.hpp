// Converts the options of a CLI11 program to entries of a manual page and to words for bash completion. Only files with a main()
// function include this header.
#pragma once

#include <CLI/CLI.hpp>

#include "manual.hpp"

namespace roci::manual {

/// Returns the options that --help shows. Options without a group are hidden.
inline std::vector<const CLI::Option*> shown(const CLI::App& app) {
    std::vector<const CLI::Option*> out;
    for (const CLI::Option* option : app.get_options())
        if (!option->get_group().empty()) out.push_back(option);
    return out;
}

inline std::vector<Entry> entries(const CLI::App& app) {
    std::vector<Entry> out;
    for (const CLI::Option* option : shown(app)) {
        const bool takes_value = option->get_items_expected_max() > 0 && !option->get_type_name().empty();
        out.push_back({option->get_name(option->get_positional(), true) + (takes_value ? " " + option->get_type_name() : ""),
                       option->get_description()});
    }
    return out;
}

/// Returns one section of the manual page per subcommand.
inline std::vector<Section> command_sections(const CLI::App& app) {
    std::vector<Section> out;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        out.push_back({app.get_name() + " " + command->get_name(), command->get_description() + ".", entries(*command)});
    return out;
}

inline Command words_of(const CLI::App& app, const std::string& name) {
    Command out{name, {}};
    for (const CLI::Option* option : shown(app)) {
        for (const std::string& word : option->get_snames()) out.options.push_back("-" + word);
        for (const std::string& word : option->get_lnames()) out.options.push_back("--" + word);
    }
    return out;
}

inline std::vector<Command> commands(const CLI::App& app) {
    std::vector<Command> out{words_of(app, "")};
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        out.push_back(words_of(*command, command->get_name()));
    return out;
}

}  // namespace roci::manual
