// Names of enum values, and conversions of link rates.
#include <algorithm>
#include <array>
#include <span>

#include "compat/private.hpp"

namespace {

// The texts are equal to those of rdma-core's library, because scripts search the output of programs for these texts.
constexpr std::array kNodeTypes = {
    "unknown",    "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router", "iWARP NIC", "usNIC", "usNIC UDP",
    "unspecified"};
constexpr std::array kPortStates = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
constexpr std::array kEvents = {"CQ error",
                                "local work queue catastrophic error",
                                "invalid request local work queue error",
                                "local access violation work queue error",
                                "communication established",
                                "send queue drained",
                                "path migrated",
                                "path migration request error",
                                "local catastrophic error",
                                "port active",
                                "port error",
                                "LID change",
                                "P_Key change",
                                "SM change",
                                "SRQ catastrophic error",
                                "SRQ limit reached",
                                "last WQE reached",
                                "client reregistration",
                                "GID table change",
                                "WQ fatal",
                                "Device link speed change"};
constexpr std::array kStatuses = {"success",
                                  "local length error",
                                  "local QP operation error",
                                  "local EE context operation error",
                                  "local protection error",
                                  "Work Request Flushed Error",
                                  "memory management operation error",
                                  "bad response error",
                                  "local access error",
                                  "remote invalid request error",
                                  "remote access error",
                                  "remote operation error",
                                  "transport retry counter exceeded",
                                  "RNR retry counter exceeded",
                                  "local RDD violation error",
                                  "remote invalid RD request",
                                  "aborted error",
                                  "invalid EE context number",
                                  "invalid EE context state",
                                  "fatal error",
                                  "response timeout error",
                                  "general error",
                                  "TM error",
                                  "TM software rendezvous"};
static_assert(kEvents.size() == IBV_EVENT_WQ_FATAL + 2 && kStatuses.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1);
constexpr std::array kWrOpcodes = {"rdma-write",
                                   "rdma-write-with-imm",
                                   "send",
                                   "send-with-imm",
                                   "rdma-read",
                                   "atomic-cmp-and-swp",
                                   "atomic-fetch-and-add",
                                   "local-inv",
                                   "bind-mw",
                                   "send-with-inv",
                                   "tso",
                                   "driver1",
                                   "unknown",
                                   "unknown",
                                   "flush",
                                   "atomic-write"};

const char* name(std::span<const char* const> names, int value) {
    return value >= 0 && size_t(value) < names.size() ? names[size_t(value)] : "unknown";
}

/// `mult` is the nominal rate in multiples of 2.5 Gbit/s, or 0 if ibv_rate_to_mult(3) of rdma-core has no value for the rate.
struct Rate {
    ibv_rate rate;
    int mult;
    int mbps;
};
constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},         {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_20_GBPS, 8, 20000},     {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},      {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_14_GBPS, 0, 14062},     {IBV_RATE_56_GBPS, 0, 56250},       {IBV_RATE_112_GBPS, 0, 112500},
    {IBV_RATE_168_GBPS, 0, 168750},   {IBV_RATE_25_GBPS, 0, 25781},       {IBV_RATE_100_GBPS, 0, 103125},
    {IBV_RATE_200_GBPS, 0, 206250},   {IBV_RATE_300_GBPS, 0, 309375},     {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},    {IBV_RATE_400_GBPS, 160, 425000},   {IBV_RATE_600_GBPS, 240, 637500},
    {IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000},
};

/// Returns the row whose field `key` equals `value`, or nullptr.
template <class T>
const Rate* find(T Rate::*key, T value) {
    const auto* it = std::find_if(std::begin(kRates), std::end(kRates), [&](const Rate& r) { return r.*key == value; });
    return it != std::end(kRates) ? it : nullptr;
}

}  // namespace

const char* ibv_node_type_str(ibv_node_type type) { return name(kNodeTypes, type); }
const char* ibv_port_state_str(ibv_port_state state) { return name(kPortStates, state); }
const char* ibv_event_type_str(ibv_event_type event) { return name(kEvents, event); }
const char* ibv_wc_status_str(ibv_wc_status status) { return name(kStatuses, status); }
const char* roci::client::wr_opcode_name(ibv_wr_opcode opcode) { return name(kWrOpcodes, opcode); }

int ibv_rate_to_mult(ibv_rate rate) {
    const Rate* r = find(&Rate::rate, rate);
    return r != nullptr && r->mult != 0 ? r->mult : -1;
}
ibv_rate mult_to_ibv_rate(int mult) {
    const Rate* r = mult != 0 ? find(&Rate::mult, mult) : nullptr;
    return r != nullptr ? r->rate : IBV_RATE_MAX;
}
int ibv_rate_to_mbps(ibv_rate rate) {
    const Rate* r = find(&Rate::rate, rate);
    return r != nullptr ? r->mbps : -1;
}
ibv_rate mbps_to_ibv_rate(int mbps) {
    const Rate* r = find(&Rate::mbps, mbps);
    return r != nullptr ? r->rate : IBV_RATE_MAX;
}
