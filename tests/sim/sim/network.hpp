// The simulated network. Each endpoint has one port per receive queue. A switch that forwards by MAC address connects
// the endpoints. The link of each endpoint has a bandwidth, a latency and faults. The seed determines all events.
// Tests can record the frames.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/types.hpp"
#include "io/port.hpp"
#include "sim/rng.hpp"
#include "wire/packet.hpp"

namespace roci::sim {

/// Fault probabilities per frame on the link from one endpoint.
struct Faults {
    double drop = 0;
    double duplicate = 0;
    double corrupt = 0;  ///< one bit of the frame is flipped, but never a bit of the source MAC address
    double delay = 0;    ///< the frame arrives up to max_delay later, and other frames overtake it
    Nanos max_delay = 0;
    double burst = 0;  ///< a burst of losses starts: up to burst_length frames are lost, within at most 10 us
    uint32_t burst_length = 0;
    double starve = 0;  ///< a tx_alloc or tx_burst call handles fewer frames than requested
    double mark = 0;    ///< the frame is marked Congestion Experienced if its sender is ECN-capable
};

struct Link {
    uint64_t bits_per_second = 100'000'000'000;
    Nanos latency = 1000;
};

/// A slow receiver. Frames wait in its queue. If the queue is full, frames are lost.
struct Intake {
    Nanos jitter = 0;     ///< the host takes each frame late, by at most this time, and in order
    Nanos per_frame = 0;  ///< processing time per frame; 0: all frames are taken at once
    uint32_t room = 0;    ///< capacity of the queue in frames
};

enum class Fate : uint8_t { delivered, dropped, duplicated, corrupted, delayed, unroutable };
const char* fate_name(Fate f);
/// Marks a frame Congestion Experienced. Returns false if its sender is not ECN-capable (RFC 3168).
bool mark(std::vector<uint8_t>& frame);

/// A frame that an endpoint sent.
struct Sent {
    Nanos when = 0;
    uint32_t from = 0;
    Fate fate = Fate::delivered;
    std::vector<uint8_t> bytes;
    bool parsed = false;  ///< `packet` is valid; the frame is parsed before any fault
    wire::Packet packet;  ///< points into `bytes`
    std::string text() const;
};

/// The action of a test's script on a frame. `corrupt` flips a random bit, as Faults::corrupt does.
struct Verdict {
    enum Kind : uint8_t { pass, drop, duplicate, corrupt, delay } kind = pass;
    Nanos delay_by = 0;
};
using Script = std::function<Verdict(const Sent&)>;

/// The switches between the links of the endpoints. If there is no Fabric, the links are connected directly.
class Fabric {
public:
    using Frame = std::shared_ptr<std::vector<uint8_t>>;
    using Deliver = std::function<void(uint32_t to, Nanos at, Frame frame)>;
    virtual ~Fabric() = default;
    /// Accepts a frame that leaves the link of endpoint `from` at time `at`. This time may be in the future.
    virtual void enter(uint32_t from, uint32_t to, Nanos at, Frame frame) = 0;
    /// Advances all frames to time `now`. Calls `deliver` for each frame whose arrival time is known.
    virtual void run(Nanos now, const Deliver& deliver) = 0;
    virtual Nanos next_event() const = 0;
};

class Network;

/// The port of one receive queue of an endpoint.
class SimPort final : public io::Port {
public:
    SimPort(Network& net, uint32_t endpoint, uint32_t pool, uint32_t best_burst);
    ~SimPort() override;
    unsigned rx_burst(io::RxFrame* frames, unsigned max) override;
    void rx_free(io::RxFrame* frames, unsigned count) override;
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override;
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override;
    void tx_free(io::TxFrame* frames, unsigned count) override;
    unsigned best_burst() const override { return best_burst_; }
    uint32_t lends() const override { return lends_; }
    /// Sets the number of received frames that the engine may keep. Called before the engine is created.
    void lend(uint32_t frames) { lends_ = frames; }

    /// tx_held() and rx_held() return the number of frames that the engine holds. An idle engine holds none.
    int64_t tx_held() const { return tx_held_; }
    int64_t rx_held() const { return rx_held_; }
    bool rx_waiting() const { return !rx_.empty(); }

private:
    friend class Network;
    struct Buffer;
    struct Arrived;
    Network& net_;
    const uint32_t endpoint_;
    const uint32_t pool_, best_burst_;
    uint32_t lends_ = 0;
    std::deque<Fabric::Frame> rx_;
    std::vector<std::unique_ptr<Buffer>> free_;
    int64_t tx_held_ = 0, rx_held_ = 0;
};

class Network {
public:
    Network(Rng rng, const Nanos& clock) : rng_(rng), clock_(clock) {}

    /// Adds an endpoint and returns its number. An engine may hold at most `tx_pool` TX frames per port. `best_burst` is the
    /// number of frames per burst that the port prefers.
    uint32_t add_endpoint(const MacAddress& mac, uint32_t queues, uint32_t tx_pool = 1024, uint32_t best_burst = 1);
    SimPort& port(uint32_t endpoint, uint32_t queue) { return *ends_[endpoint].ports[queue]; }
    uint32_t queues(uint32_t endpoint) const { return uint32_t(ends_[endpoint].ports.size()); }
    const MacAddress& mac(uint32_t endpoint) const { return ends_[endpoint].mac; }

    Link& link(uint32_t endpoint) { return ends_[endpoint].link; }
    Faults& faults(uint32_t endpoint) { return ends_[endpoint].faults; }
    Intake& intake(uint32_t endpoint) { return ends_[endpoint].intake; }
    void set_faults(const Faults& f);
    /// Drops all frames that `endpoint` sends before the time `until`.
    void blackout(uint32_t endpoint, Nanos until) { ends_[endpoint].dark_until = until; }
    void set_script(Script s) { script_ = std::move(s); }
    /// Distributes frames to random queues, as a NIC with a bad hash does. Otherwise the UDP source port determines
    /// the queue.
    void spread_by_chance(bool on) { spread_by_chance_ = on; }
    void keep_capture(bool on) { keep_ = on; }
    /// Sets a function that the network calls for every sent frame. `Sent` contains the fate of the frame.
    void set_watch(std::function<void(const Sent&)> watch) { watch_ = std::move(watch); }
    /// Sets a function that a port calls before it gives transmit buffers. The argument is the port's endpoint. Tests use the
    /// function to post work in the middle of a round.
    void set_on_alloc(std::function<void(uint32_t endpoint)> on_alloc) { on_alloc_ = std::move(on_alloc); }
    void set_fabric(std::unique_ptr<Fabric> f) { fabric_ = std::move(f); }
    /// Makes the ports report every ICRC as right, so that long measurements take less time. Only for tests that corrupt no
    /// frame.
    void trust_icrc(bool on) { trusted_ = on; }
    /// Makes the ports check IPv4 header checksums, as NICs do.
    void sum_headers(bool on) { sums_ = on; }

    /// Delivers a frame to endpoint `to`, without a sender and without faults.
    void inject(uint32_t to, std::vector<uint8_t> bytes);
    /// Sends a frame as if endpoint `from` had sent it. The faults of the link of `from` apply.
    void transmit(uint32_t from, const uint8_t* data, uint32_t length);

    /// Delivers all frames whose arrival time has passed. Returns true if there were any.
    bool deliver();
    Nanos next_arrival() const {
        const Nanos fabric = fabric_ != nullptr ? fabric_->next_event() : kNever;
        return flying_.empty() ? fabric : std::min(fabric, flying_.top().at);
    }

    const std::deque<Sent>& capture() const { return capture_; }
    void clear_capture() { capture_.clear(); }
    uint64_t frames() const { return frames_; }
    uint64_t lost() const { return lost_; }
    /// Returns the number of frames that were written beyond their buffers.
    uint64_t overflows() const { return overflows_; }

private:
    friend class SimPort;
    struct End {
        MacAddress mac;
        Link link;
        Faults faults;
        Intake intake;
        Nanos intake_busy_until = 0, taken_at = 0;
        Nanos dark_until = 0, busy_until = 0, last_arrival = 0, burst_until = 0;
        uint32_t burst_left = 0;
        std::vector<std::unique_ptr<SimPort>> ports;
    };
    struct Flying {
        Nanos at;
        uint64_t order;
        uint32_t to;
        Fabric::Frame bytes;
        bool operator<(const Flying& o) const { return at != o.at ? at > o.at : order > o.order; }
    };
    Fate decide(End& end, const Sent& s, Nanos& extra);
    Fate draw(End& end, const Sent& s, Nanos& extra);
    void flip_random_bit(std::vector<uint8_t>& bytes);
    /// Returns all endpoints to which the destination MAC address of the frame leads.
    std::vector<uint32_t> route(uint32_t from, const std::vector<uint8_t>& bytes) const;
    uint32_t queue_of(const End& end, const std::vector<uint8_t>& bytes);
    void fly(uint32_t from, uint32_t to, Nanos at, std::vector<uint8_t> bytes);
    /// Sends the frame to all endpoints of `to`. May move the bytes out of `s`; the bytes stay at the same address.
    void fly_to(const std::vector<uint32_t>& to, Nanos at, Sent& s);
    void land(uint32_t to, Nanos at, Fabric::Frame frame);

    Rng rng_;
    const Nanos& clock_;
    std::vector<End> ends_;
    std::priority_queue<Flying> flying_;
    Script script_;
    std::function<void(const Sent&)> watch_;
    std::function<void(uint32_t)> on_alloc_;
    std::unique_ptr<Fabric> fabric_;
    bool spread_by_chance_ = false, sums_ = false, trusted_ = false;
    bool keep_ = true;
    std::deque<Sent> capture_;
    std::unordered_map<uint64_t, uint8_t> lost_in_a_row_;  ///< consecutive losses per retry_key()
    uint64_t order_ = 0, frames_ = 0, lost_ = 0, overflows_ = 0;
};

}  // namespace roci::sim
