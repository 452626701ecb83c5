// The result of the analysis of a capture. page.cpp and words.cpp convert this result to the page and to the summary.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "connections.hpp"
#include "frame.hpp"
#include "stream.hpp"

namespace roci::plot {

/// A row of the ladder, which shows the packets of a connection as arrows between its two ends.
struct LadderRow {
    int64_t time = 0;
    bool to_a = false;
    Kind kind = Kind::sent;
    bool lost = false;
    std::string text;       ///< such as "WRITE 65,536 bytes, PSN 5 to 20"
    uint64_t left_out = 0;  ///< number of omitted rows between this row and the row before
};

struct Analysed {
    uint32_t number = 0;  ///< number of the connection, from 1
    Connection connection;
    Stream streams[2];  ///< [0]: requests of end A, [1]: requests of end B
    std::vector<LadderRow> ladder;
    int64_t begin = 0, end = 0;
};

/// The connections that the user selects by options.
struct Choice {
    uint32_t flow = 0;  ///< number of the only connection to show; 0: all connections
    uint32_t qpn = 0;   ///< number of the QP whose connections are shown; 0: all QPs
};

struct Analysis {
    Capture capture;
    std::vector<Connection> connections;  ///< all connections of the capture
    std::vector<Analysed> drawn;
    std::vector<std::string> notices;
};

inline constexpr size_t kMostDrawn = 8;

/// Analyses a capture. Analyses at most kMostDrawn of the connections that match `choice`, those with the most frames. Throws
/// Failure if no connection matches `choice`.
Analysis analyse_capture(Capture capture, const Choice& choice);

std::vector<LadderRow> ladder_of(const Stream (&streams)[2]);

}  // namespace roci::plot
