#include "lines.hpp"

namespace roci::sharing {
namespace {

Bytes of_others(const Line& line, uint32_t core) {
    Bytes b;
    for (uint32_t c = 0; c < kCores; ++c) {
        if (c == core) continue;
        b.read |= line.ever[c].read;
        b.written |= line.ever[c].written;
    }
    return b;
}

void end_stay(Line& line, uint32_t core) {
    const Line::Stay stay = line.stay[core];
    line.stay[core] = {};
    if (!stay.moved) return;
    const Bytes others = of_others(line, core);
    if (stay.touched.any() == 0)
        ++line.moves.in_vain;
    else if ((stay.touched.read & others.written) == 0 && (stay.touched.written & others.any()) == 0)
        ++line.moves.falsely;
}

void begin_stay(Line& line, uint32_t core, uint8_t from, const void* where) {
    line.stay[core].moved = true;
    line.where[core] = where;
    for (uint32_t c = 0; c < kCores; ++c) line.between[core][c] += from >> c & 1;
}

}  // namespace

Lines::Cost Lines::access(uint32_t core, uintptr_t at, uint64_t bytes, Access kind, const void* where) {
    if (stopped_) return Cost::none;
    Line& line = lines_[at];
    const auto me = uint8_t(1u << core);
    const auto others = uint8_t(line.holders & ~me);
    const bool writes = kind == Access::write || kind == Access::prefetch_to_write;
    Cost cost = Cost::none;
    if (writes && others != 0) {
        for (uint32_t c = 0; c < kCores; ++c) end_stay(line, c);
        begin_stay(line, core, others, where);
        ++line.moves.takes;
        cost = Cost::take;
    } else if (!writes && others != 0 && (line.holders & me) == 0) {
        const auto writer = uint8_t(1u << line.writer);
        begin_stay(line, core, (others & writer) != 0 ? writer : others, where);
        ++line.moves.fetches;
        cost = Cost::fetch;
    }
    line.holders = writes ? me : line.holders | me;
    if (writes) line.writer = uint8_t(core);
    if (kind == Access::read) line.stay[core].touched.read |= bytes, line.ever[core].read |= bytes;
    if (kind == Access::write) {
        line.stay[core].touched.written |= bytes, line.ever[core].written |= bytes;
        line.written_by[core] = where;
    }
    return cost;
}

void Lines::restart() {
    for (auto& [at, line] : lines_) {
        line.moves = {};
        line.between = {};
        line.written_by = {};
        for (Line::Stay& s : line.stay) s.moved = false;
    }
}

void Lines::stop() {
    stopped_ = true;
    for (auto& [at, line] : lines_)
        for (uint32_t c = 0; c < kCores; ++c) end_stay(line, c);
}

}  // namespace roci::sharing
