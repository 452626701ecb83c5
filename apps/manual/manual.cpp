#include "manual.hpp"

namespace roci::manual {
namespace {

const Entry kEnvironment[] = {
    {"ROCI_SOCKET",
     "The control socket of rocid. Default: /run/rocinante/rocid.sock. A set-user-ID program ignores the variable."},
    {"ROCI_LOG",
     "1: the client libraries print one line on standard error for every call that rocid refuses. 0: they print no refusals. "
     "Unset: "
     "they print the first refusal of each kind. Warnings that concern the whole program, for example that rocid has ended, are "
     "always printed."},
    {"ROCI_ADOPT",
     "How ibv_reg_mr freezes the pages that it shares with rocid. uffd: by userfaultfd. mprotect: by write protection and a "
     "fault "
     "handler. never: pages are not shared and rocid copies through the program's /proc/self/mem, which is slower. Unset: the "
     "first way "
     "that "
     "this machine allows."},
};

/// Escapes backslashes and hyphens for roff, and the control characters of roff at the beginning of a line.
std::string escape(std::string_view text) {
    std::string out;
    bool line_start = true;
    for (const char c : text) {
        if (line_start && (c == '.' || c == '\'')) out += "\\&";
        if (c == '\\')
            out += "\\e";
        else if (c == '-')
            out += "\\-";
        else
            out += c;
        line_start = c == '\n';
    }
    return out;
}

std::string paragraphs(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const size_t end = text.find("\n\n");
        out += ".PP\n" + escape(text.substr(0, end)) + "\n";
        if (end == std::string_view::npos) break;
        text.remove_prefix(end + 2);
    }
    return out;
}

std::string joined(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
    return out;
}

std::string upper(std::string text) {
    for (char& c : text)
        if (c >= 'a' && c <= 'z') c = char(c - 'a' + 'A');
    return text;
}

}  // namespace

std::string roff(const Page& page) {
    std::string out = ".TH \"" + upper(page.name) + "\" " + std::to_string(page.section) + " \"\" \"Rocinante " + page.version +
                      "\" \"Rocinante\"\n.SH NAME\n" + escape(page.name) + " \\- " + escape(page.brief) + "\n";
    for (const Section& section : page.sections) {
        out += ".SH \"" + upper(section.title) + "\"\n" + paragraphs(section.text);
        for (const Entry& entry : section.entries) out += ".TP\n.B " + escape(entry.term) + "\n" + escape(entry.text) + "\n";
    }
    return out;
}

std::string bash_completion(const std::string& program, const std::vector<Command>& commands, std::string_view runs) {
    std::string names, cases;
    for (const Command& command : commands) {
        if (!command.name.empty()) names += (names.empty() ? "" : " ") + command.name;
        cases += "        " + (command.name.empty() ? "''" : command.name) + ") words=\"" + joined(command.options) + "\" ;;\n";
    }
    const std::string function = "_" + program;
    std::string out = "# bash completion of " + program + "\n" + function + "() {\n    local words command='' i\n";
    if (!runs.empty())
        out +=
            "    for ((i = 1; i < COMP_CWORD; i++)); do\n        if [[ ${COMP_WORDS[i]} == -- ]]; then\n"
            "            _command_offset $((i + 1)) 2>/dev/null\n            return\n        fi\n    done\n";
    if (!names.empty()) out += "    [ \"$COMP_CWORD\" = 1 ] || command=\"${COMP_WORDS[1]}\"\n";
    out += "    case \"$command\" in\n" + cases + "    esac\n";
    if (!names.empty()) out += "    [ -n \"$command\" ] || words=\"" + names + " $words\"\n";
    out += "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\")\n}\n";
    return out + "complete -o default -F " + function + " " + program + "\n";
}

std::span<const Entry> environment() { return kEnvironment; }

std::string environment_help() {
    std::string out = "Environment:\n";
    for (const Entry& entry : kEnvironment) out += "  " + entry.term + "\n        " + entry.text + "\n";
    return out;
}

}  // namespace roci::manual
