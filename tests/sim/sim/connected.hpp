// Load of RC and XRC. All messages must arrive exactly once, in order, and with the right data. An RC actor sends and
// receives on one QP. An XRC actor sends on an XRC initiator QP and receives through SRQs. Each request to its XRC
// target QP contains the number of an SRQ.
#pragma once

#include "sim/load.hpp"

namespace roci::sim {

/// A posted work request and its expected result.
struct Work {
    uint64_t tag = 0;
    abi::WrOpcode opcode{};
    uint32_t length = 0;
    bool signaled = false;
    uint32_t imm = 0;
    size_t inbox = 0;       ///< index of the peer's inbox, for a SEND or a WRITE with immediate
    std::vector<Sge> sges;  ///< local memory of the data; a READ writes its result there
    uint64_t remote = 0;    ///< offset in the window of the peer
    uint64_t expected = 0;  ///< for atomics: the value that the word must have before the operation
};

class Actor {
public:
    Actor(Host& host, uint32_t device, const Plan& plan, Rng rng, bool xrc);
    static void join(Actor& a, Actor& b, const PathOptions& o);
    void act();
    bool finished() const { return posted_ == plan_.messages && pending_.empty() && peer_->owed_.empty(); }
    void check_end() const;
    std::string state() const;
    uint64_t done() const { return completed_; }

private:
    static constexpr uint64_t kWords = 64;  ///< bytes at the end of the window: word 0 for atomics, word 1 for atomic writes
    void create_queues(bool xrc);
    void post();
    Work plan_work();
    void prepare_data(Work& w, SendWr& wr);
    void prepare_word(Work& w, SendWr& wr);
    void prepare_flush(SendWr& wr);
    void poll();
    void on_send(const abi::Cqe& e);
    void on_recv(const abi::Cqe& e);
    void check_recv_data(const Work& w, const Posted& r) const;
    void check_done(const Work& w) const;
    void seal(const Work& w);
    uint64_t word_address(uint64_t n) const { return (window_.mr->address() + window_.mr->length - kWords) / 8 * 8 + n * 8; }
    uint64_t word(uint64_t n) const;

    const Plan& plan_;
    Rng rng_;
    Host& host_;
    Client client_;
    uint32_t pd_;
    Cq *send_cq_, *recv_cq_;
    Pool source_;  // payload of SENDs and WRITEs
    Pool target_;  // results of READs, and original values of atomics
    Pool window_;  // memory that the peer accesses; the peer allocates parts of this memory
    std::vector<Inbox> inboxes_;
    Qp *out_ = nullptr, *in_ = nullptr;
    Actor* peer_ = nullptr;
    PathOptions path_;
    uint32_t posted_ = 0;
    uint64_t completed_ = 0, next_tag_ = 1;
    uint64_t atomic_word_ = 0, written_word_ = 0;  // expected values of the words in the peer's window
    std::deque<Work> pending_;                     // posted requests whose completion was not polled yet
    std::deque<Work> owed_;                        // messages that must still arrive at the peer's receive queue
    Sealed read_, written_, received_;             // memory of completed requests, which must not change any more
    uint32_t silent_ = 0;                          // unsignalled requests since the last signalled one
};

}  // namespace roci::sim
