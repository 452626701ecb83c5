// Computes the counters of a device from a capture of the device's frames. The state of the stack is not used.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>

#include "qp/counters.hpp"
#include "sim/network.hpp"

namespace roci::sim {

/// Computes the counters of one endpoint with RC or XRC QPs. Only one of the QPs may send requests.
class CaptureJudge {
public:
    /// `keeps` is true if the endpoint keeps requests that arrive out of order and executes them in order.
    explicit CaptureJudge(uint32_t endpoint, bool keeps = true) : endpoint_(endpoint), keeps_(keeps) {}

    /// Evaluates the next frame of the capture.
    void take(const Sent& frame);

    /// of_device() and of_qp() return the values of the counters in kDevice and in kQp, by name.
    const std::map<std::string, uint64_t>& of_device() const { return device_; }
    const std::map<std::string, uint64_t>& of_qp() const { return qp_; }
    /// Returns the number of sent NAKs with `code` (1 invalid request, 2 remote access, 3 remote operational error).
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
        std::map<uint32_t, wire::Packet> kept;  // by PSN
        // By PSN of a message: the counters that were incremented for the message.
        std::map<uint32_t, std::vector<const char*>> counted_for;
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
    Psn acked_, next_;                      // PSNs of the sent requests: the oldest without a response, and the next new one
    std::map<uint32_t, uint32_t> answers_;  // number of response packets of the sent READs, atomics and atomic writes, by PSN
    Gid peer_;

    template <size_t n>
    static std::map<std::string, uint64_t> zeroes(const char* const (&names)[n]) {
        std::map<std::string, uint64_t> all;
        for (const char* name : names) all[name] = 0;
        return all;
    }
};

}  // namespace roci::sim
