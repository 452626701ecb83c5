// The result of the analysis of a capture. The page and the text are made from this result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "connections.hpp"
#include "frame.hpp"
#include "stream.hpp"

namespace roci::plot {

struct LadderRow {
    int64_t time = 0;
    bool to_a = false;
    Kind kind = Kind::sent;
    bool lost = false;
    std::string text;       ///< such as "WRITE 65,536 bytes, PSN 5 to 20"
    uint64_t left_out = 0;  ///< number of omitted rows before this one
};

struct Analysed {
    uint32_t number = 0;  ///< number of the connection, from 1
    Connection connection;
    Stream streams[2];  ///< [0]: requests of end A, [1]: requests of end B
    std::vector<LadderRow> ladder;
    int64_t begin = 0, end = 0;
};

struct Choice {
    uint32_t flow = 0;  ///< show only the connection with this number; 0: all
    uint32_t qpn = 0;   ///< show only connections of this QP; 0: all
};

struct Analysis {
    Capture capture;
    std::vector<Connection> connections;  ///< all connections of the capture
    std::vector<Analysed> drawn;
    std::vector<std::string> notices;
};

inline constexpr size_t kMostDrawn = 8;

/// Analyses a capture. Throws Failure if no connection matches `choice`.
Analysis analyse_capture(Capture capture, const Choice& choice);

std::vector<LadderRow> ladder_of(const Stream (&streams)[2]);

}  // namespace roci::plot
