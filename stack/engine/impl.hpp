// The internals of the engine, which the source files of this folder share. A turn is one call of a QP's requester or responder
// (qp/run_queue.hpp).
#pragma once

#include <array>
#include <vector>

#include "engine/counters.hpp"
#include "engine/departed.hpp"
#include "engine/engine.hpp"
#include "engine/prefetch_pipeline.hpp"
#include "engine/sessions.hpp"
#include "io/gsi.hpp"
#include "io/handover.hpp"
#include "qp/roles.hpp"
#include "qp/shared.hpp"
#include "wire/packet.hpp"

namespace roci::engine {

struct alignas(64) Engine::Impl {
    static constexpr uint32_t kMaxBurst = 256;
    static constexpr uint32_t kCrowd = 64;
    /// Number of frames that a QP may send per turn while QPs of several users wait.
    static constexpr uint32_t kContendedQuantum = 8;

    Config config;
    qp::Shared& shared;
    LineVector<io::Port*> ports;
    qp::Context ctx;
    io::EventRing events;
    Counters own_counters;
    /// The alignment prevents other engines from writing to the same cache lines.
    struct alignas(64) OwnDevice {
        qp::DeviceCounters counters;
    };
    std::vector<OwnDevice> own_devices;
    Counters& counters;
    Sessions sessions;
    std::array<io::RxFrame, kMaxBurst> frames;
    std::array<wire::Packet, kMaxBurst> packets;
    std::array<qp::Qp*, kMaxBurst> owners;
    io::FrameCopies copies;
    uint32_t wake_mask = 0;  ///< bit e: frames were handed over to engine e
    PrefetchPipeline pipeline;
    LineVector<qp::Qp*> resting;  ///< QPs that became idle in this round; their clients must ring the doorbell
    uint32_t rounds_unsettled = 0;
    Nanos shared_until = 0;  ///< end of the time with short rounds, because QPs of several users had turns
    Nanos last_turn = 0;
    uint16_t last_user = 0;  ///< user of the last turn; 0: none
    bool started = false;
    Nanos received_at = 0;     ///< time when the ports were last empty, or the end of the last sleep
    uint8_t deferrals = 0;     ///< number of consecutive rounds in which the timers have waited
    bool was_short = false;    ///< the last round was short, because a loss was detected
    bool lent = false;         ///< the conductor executes a command while the engine's thread sleeps
    uint32_t last_frames = 0;  ///< frames that removed QPs have sent since the last round
    uint64_t last_cost = 0;    ///< cost of these frames
    static constexpr uint32_t kPublishEvery = 128;
    bool was_busy = false;                 ///< the last round had work
    uint32_t rounds_left = kPublishEvery;  ///< number of rounds until the counters are published
    uint64_t rounds_published = 0;
    Nanos busy_from = 0;            ///< start of the busy time that is not counted yet, without lost time
    uint64_t busy_rounds_from = 0;  ///< number of rounds before the busy rounds that are not counted yet
    uint64_t doorbells = 0;         ///< doorbells found, including those that belong to no QP
    uint32_t gsi_psn = 0;
    DepartedQps departed;

    Impl(const Config& c, qp::Shared& s, std::span<io::Port* const> p, const CounterPlaces& places);
    ~Impl();

    // engine.cpp
    bool look_for_doorbells();
    uint32_t collect_doorbells(Session& s, uint32_t most);
    void ring(Session& s, uint32_t slot);
    void ring_tags(Session& s, uint32_t slot);
    bool run_timers(bool all_received);
    struct Budget;
    inline bool run_turns();
    bool holds_ack(qp::Qp& qp);
    uint32_t send_ack_first(qp::Qp& qp);
    inline void run_responders(Budget& budget);
    inline void run_requesters(Budget& budget);
    /// Returns true if kCrowd or more requesters wait for a turn. The nearest cache cannot hold the data of so many QPs, so the
    /// engine prefetches the data.
    bool crowded() const { return ctx.requesters.count() >= kCrowd; }
    /// Returns true if QPs of several users had turns recently (kSharedFor).
    bool shared_by_users() const { return ctx.now < shared_until; }
    inline void note_user(uint16_t user);
    /// Returns the number of frames that a QP may send per turn.
    uint32_t quantum(const qp::Qp& qp, bool contended) const {
        return contended || shared_by_users() ? std::min(config.qp_quantum, kContendedQuantum)
                                              : std::max(config.qp_quantum, ctx.outbox[qp.spec.port].best_burst());
    }
    uint32_t serve(qp::Qp& qp, uint32_t most);
    bool has_last_requests(const qp::Qp& qp) const;
    void send_last_requests(qp::Qp& qp);
    bool has_more(const qp::Qp& qp, uint32_t worked) const;
    bool lingers(qp::Qp& qp) const;
    void rest(qp::Qp& qp);
    void look_again(qp::Qp& qp);
    void settle();
    void settle_sleepers();
    // account.cpp
    void publish();
    void publish_reorder();
    void count_lost(Nanos now);
    void count_busy();
    void change_busy(bool busy);
    void count_sleep(Nanos from, Nanos to);
    /// Called before `ctx.now` is set to `now`. `ctx.now` is the time of the last round or command, or the end of the last sleep.
    /// If the interval from `ctx.now` to `now` is too long for a round, counts the interval as lost time.
    void note_gap(Nanos now) {
        if constexpr (!kCounted) return;
        constexpr Nanos kTaken = 1'000'000;
        if (now - ctx.now >= kTaken) [[unlikely]]
            count_lost(now);
    }
    void end_round(bool worked) {
        if constexpr (!kCounted) return;
        if (worked != was_busy) [[unlikely]]
            change_busy(worked);
        if (--rounds_left == 0) [[unlikely]]
            publish();
    }
    uint64_t rounds() const { return rounds_published + kPublishEvery - rounds_left; }
    // receive.cpp
    unsigned receive(uint32_t port);
    inline bool receive_all(bool& all_received);
    void ask_for_state(const qp::Qp& qp, const wire::Packet& p) const;
    void parse_batch(uint32_t port, unsigned first, unsigned end);
    void fetch_ahead(unsigned first, unsigned end);
    unsigned execute_batch(uint32_t port, unsigned first, unsigned end, unsigned done);
    bool receive_handed_over();
    bool inbox_waits() const;
    // departed.cpp
    /// Called for a frame whose QP number is unknown. If a removed QP has executed the request, sends its ACK and returns true.
    bool acknowledge_again(uint32_t port, const wire::Packet& p);
    // gsi.cpp
    void take_management(uint32_t port, const wire::Packet& p);
    int send_management(const io::GsiSend& m);
    void take_other(uint32_t port, const io::RxFrame& frame);
    int send_other(const neighbour::Frame& f);
    void notify_conductor();
};

}  // namespace roci::engine
