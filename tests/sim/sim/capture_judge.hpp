// What a capture of a device's frames says of its counters. It knows the protocol and nothing of the stack's state.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>

#include "qp/counters.hpp"
#include "sim/network.hpp"

namespace roci::sim {

/// Of one endpoint with RC or XRC QPs, of which only one sends requests.
class CaptureJudge {
public:
    /// `keeps`: the endpoint keeps requests that come before an earlier one, and executes them when their turn comes.
    explicit CaptureJudge(uint32_t endpoint, bool keeps = true) : endpoint_(endpoint), keeps_(keeps) {}

    /// The next frame of the capture.
    void take(const Sent& frame);

    /// By the counter's name; all that a capture shows, also those that are 0.
    const std::map<std::string, uint64_t>& of_device() const { return device_; }
    const std::map<std::string, uint64_t>& of_qp() const { return qp_; }
    /// Fatal NAKs sent, by code (invalid request, remote access, remote operational error).
    uint64_t naks_sent(uint8_t code) const { return naks_[code]; }

    static constexpr const char* kDevice[] = {"tx_frames",
                                              "tx_octets",
                                              "rx_frames",
                                              "rx_octets",
                                              "rx_errors",
                                              "icrc_errors",
                                              "ecn_marked",
                                              "cnp_sent",
                                              "cnp_received",
                                              "cnp_ignored",
                                              "tx_messages",
                                              "rx_messages",
                                              "retransmits",
                                              "rnr_nak_sent",
                                              "seq_nak_sent",
                                              "rnr_nak_received",
                                              "seq_nak_received",
                                              "duplicates",
                                              "duplicate_requests",
                                              "out_of_order",
                                              "implied_naks",
                                              "requests_refused",
                                              "write_requests",
                                              "read_requests",
                                              "atomic_requests",
                                              "remote_access_errors",
                                              "remote_invalid_requests",
                                              "remote_operation_errors"};
    static constexpr const char* kQp[] = {"tx_packets", "tx_bytes", "rx_packets", "rx_bytes"};

private:
    struct Inbound {  // requests to one of the endpoint's QPs
        bool known = false;
        Psn expected;
        std::map<uint32_t, wire::Packet> kept;                     // by PSN
        std::map<uint32_t, std::vector<const char*>> counted_for;  // by PSN: what its message counted
    };
    void sent(const Sent& frame);
    void sent_request(const wire::Packet& p);
    void sent_nak(const wire::Packet& p);
    void received(const Sent& frame);
    void received_request(const wire::Packet& p);
    void received_response(const wire::Packet& p);
    void execute(Inbound& in, const wire::Packet& p);
    uint64_t& device(const char* name) { return device_.at(name); }

    const uint32_t endpoint_;
    const bool keeps_;
    std::map<std::string, uint64_t> device_ = zeroes(kDevice), qp_ = zeroes(kQp);
    std::array<uint64_t, 4> naks_{};
    std::map<uint32_t, Inbound> inbound_;  // by QP
    uint32_t last_inbound_ = 0;
    bool sending_ = false;
    Psn acked_, next_;                      // of the requests sent: the oldest without an answer, the one behind the newest
    std::map<uint32_t, uint32_t> answers_;  // requests with responses of their own: PSN, packets
    Gid peer_;

    template <size_t n>
    static std::map<std::string, uint64_t> zeroes(const char* const (&names)[n]) {
        std::map<std::string, uint64_t> all;
        for (const char* name : names) all[name] = 0;
        return all;
    }
};

}  // namespace roci::sim
