#include "account.hpp"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>

#include "cores.hpp"
#include "heap.hpp"

namespace roci::sharing {
namespace {

std::string output_of(const std::string& command) {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string text;
    for (int c; pipe != nullptr && (c = std::fgetc(pipe.get())) != EOF;) text += c == '\n' ? ' ' : char(c);
    return text;
}

/// Returns the function and the line of a code address, as addr2line (binutils) prints them. If addr2line is not
/// installed, returns the address within the program.
std::string source_of(const void* code) {
    if (code == nullptr) return "-";
    ElfW(Addr) base = 0;
    dl_iterate_phdr([](dl_phdr_info* i, size_t, void* out) { return *static_cast<ElfW(Addr)*>(out) = i->dlpi_addr, 1; }, &base);
    char program[4096] = {}, at[32];
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return "-";
    // `code` is a return address, and the call is before it. So 1 is subtracted.
    std::snprintf(at, sizeof at, "%#zx", size_t(reinterpret_cast<uintptr_t>(code) - base - 1));
    const std::string text = output_of("addr2line -fCse '" + std::string(program) + "' " + at + " 2>/dev/null");
    return text.empty() ? at : text;
}

std::string decimal(double v) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", v);
    return text;
}

std::string bytes_of(uint64_t mask) {
    std::string text;
    for (uint32_t i = 0; i < kLine; ++i) {
        if ((mask >> i & 1) == 0) continue;
        uint32_t end = i;
        while (end + 1 < kLine && (mask >> (end + 1) & 1) != 0) ++end;
        text += (text.empty() ? "" : ",") + std::to_string(i) + (end != i ? "-" + std::to_string(end) : "");
        i = end;
    }
    return text.empty() ? "none" : text;
}

}  // namespace

void Account::name(const void* from, size_t bytes, const char* structure) {
    const auto at = reinterpret_cast<uintptr_t>(from);
    if (bytes != 0) names_[at] = {at + bytes, structure};
}

void Account::completed() {
    const Unseen unseen;
    if (over()) return;
    if (++done_ == warm_up_) lines_.restart();
    if (over()) lines_.stop();
}

std::string Account::structure_of(uintptr_t line) const {
    const auto after = names_.lower_bound(line + kLine);
    if (after == names_.begin()) return kUnnamed;
    const Range& r = std::prev(after)->second;
    return r.end > line ? r.structure : kUnnamed;
}

uint64_t Account::between_engines(const Line& line) const {
    uint64_t n = 0;
    for (uint32_t to = 0; to < engines_; ++to)
        for (uint32_t from = 0; from < engines_; ++from) n += line.between[to][from];
    return n;
}

uint64_t Account::wrong() const {
    uint64_t n = 0;
    for (const auto& [at, line] : lines_.all()) n += std::max(line.moves.falsely, between_engines(line));
    return n;
}

std::map<std::string, Moves> Account::rows() const {
    std::map<std::string, Moves> rows;
    for (const auto& [at, line] : lines_.all())
        if (line.moves.all() != 0) rows[structure_of(at)].add(line.moves);
    return rows;
}

std::string Account::describe(uintptr_t at, const Line& line) const {
    std::string text = structure_of(at) + ", " + decimal(a_message(line.moves.all())) + " moves a message, " +
                       decimal(a_message(line.moves.falsely)) + " of them false";
    for (uint32_t c = 0; c < kCores; ++c) {
        if (line.ever[c].any() == 0) continue;
        text += "\n      " + std::string(c < engines_ ? "engine" : "program") + " on core " + std::to_string(c) + " reads " +
                bytes_of(line.ever[c].read) + ", writes " + bytes_of(line.ever[c].written) + "; last at " +
                source_of(line.where[c]);
    }
    return text;
}

std::vector<std::string> Account::faults(std::span<const Limit> limits) const {
    std::vector<std::string> found;
    for (const auto& [at, line] : lines_.all()) {
        for (uint32_t e = 0; e < engines_; ++e)
            if (line.written_by[e] != nullptr && may_share_its_line(reinterpret_cast<const void*>(at)) &&
                structure_of(at) == kUnnamed)
                found.push_back("an engine writes an object without a line of its own: " + source_of(line.written_by[e]));
        if (line.moves.all() == 0) continue;
        if (line.moves.falsely != 0) found.push_back("falsely shared line: " + describe(at, line));
        if (between_engines(line) != 0) found.push_back("line between engines: " + describe(at, line));
        if (structure_of(at) == kUnnamed) found.push_back("line that nobody should share: " + describe(at, line));
    }
    std::map<std::string, Moves> left = rows();
    left.erase(kUnnamed);
    for (const Limit& l : limits) {
        const double moves = a_message(left[l.structure].all());
        left.erase(l.structure);
        if (moves > l.most)
            found.push_back(std::string(l.structure) + " moves " + decimal(moves) + " times a message, more than " +
                            decimal(l.most) + " (" + l.why + ")");
    }
    for (const auto& [structure, moves] : left)
        found.push_back(structure + " moves " + decimal(a_message(moves.all())) + " times a message, and no limit says why");
    return found;
}

}  // namespace roci::sharing
