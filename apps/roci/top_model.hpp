// Computes the figures of `roci top` for one interval, from two readings of the counters and several samples of the QPs. The
// functions use and change only their arguments.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "counter_reader.hpp"

namespace roci::cli {

/// One reading of the counters and of the status. `status` is rocid's JSON (`roci status --json`).
struct TopReading {
    double at = 0;  ///< seconds
    std::vector<std::vector<uint64_t>> engines;
    std::vector<std::vector<std::vector<uint64_t>>> devices;  ///< indices: engine, then device
    nlohmann::ordered_json status;
};
TopReading read_top(const CounterReader& reader, nlohmann::ordered_json status, double at);

/// Maps a QP number to the number of samples per limit. The samples are those of one interval.
using LimitTally = std::map<uint32_t, std::map<std::string, uint32_t>>;
void tally(LimitTally& into, const nlohmann::ordered_json& status);

struct TopEngine {
    uint64_t index = 0, queues = 0;
    double busy = 0, asleep = 0, lost = 0;  ///< shares of the interval, 0 to 1
    double rx_frames = 0, tx_frames = 0, messages = 0, sleeps = 0;
    double cycles = 0;  ///< cycles per message; 0: unknown
};
struct TopDevice {
    std::string name;
    double tx_messages = 0, rx_messages = 0, tx_bits = 0, rx_bits = 0, resent = 0, errors = 0;
};
struct TopQp {
    uint64_t qpn = 0;
    std::string type, state, program, device, peer, limit;
    int64_t pid = 0;
    double tx_bits = 0, rx_bits = 0, tx_messages = 0, rx_messages = 0, resent = 0;
    double round_trip_us = 0;
    uint64_t in_flight = 0, window = 0;
    double limit_share = 0;  ///< share of the interval's samples in which the limit was `limit`
};
struct TopModel {
    double seconds = 0;
    std::vector<TopEngine> engines;
    std::vector<TopDevice> devices;
    std::vector<TopQp> qps;
    uint64_t not_shown = 0;          ///< number of QPs without figures, because rocid returns figures of at most 1,024 QPs
    std::vector<std::string> notes;  ///< sentences about bottlenecks, limits and destroyed QPs
};

enum class TopSort : uint8_t { rate, messages, retransmissions, rtt, window, limit };
/// The names of the sort orders, in the order of the help text.
extern const std::vector<std::pair<std::string, TopSort>> kTopSorts;

TopModel make_top(const CounterReader& reader, const TopReading& before, const TopReading& now, const LimitTally& limits);
void sort_top(std::vector<TopQp>& qps, TopSort by);
nlohmann::ordered_json top_json(const TopModel& model);

}  // namespace roci::cli
