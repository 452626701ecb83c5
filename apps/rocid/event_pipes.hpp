// Event dispatchers, which send events to clients. Each completion vector has a dispatcher, which is a thread. The first
// dispatcher is the event thread. The event thread takes events from the engines' rings. It sends asynchronous events and the
// completion events of vector 0, and passes all other events to the other dispatchers. So lcores never wait for clients. A
// dispatcher never blocks on a client: if a channel is full, the dispatcher keeps one record per kind of event and object. The
// event thread sends this record later.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "abi/control.hpp"
#include "abi/rings.hpp"
#include "host/capabilities.hpp"
#include "io/event.hpp"
#include "pmd_glue/wake_flag.hpp"

namespace roci::rocid {

class EventPipes {
public:
    static constexpr uint32_t kVectors = host::Capabilities{}.comp_vectors;

    EventPipes();
    ~EventPipes();
    EventPipes(const EventPipes&) = delete;

    /// Starts all dispatchers. The event thread empties `rings`, which must exist until stop() has returned.
    void start(std::vector<io::EventRing*> rings);
    void stop();

    /// Creates the pipe of a completion channel, or of the session's asynchronous events if `channel` is kNoHandle. Returns the
    /// client's end, or -1 on failure. The client's end is blocking, and each read returns one record.
    int make(uint32_t session, uint32_t channel);
    /// Closes rocid's end. After the call, nothing is written to the pipe of (session, channel).
    void close(uint32_t session, uint32_t channel);
    /// Writes an async event. Any thread may call this function.
    void send_async(uint32_t session, const abi::AsyncEventRecord& record);

    /// Sets the function that the event thread calls when management datagrams wait for the conductor (rocid's control thread).
    /// Must precede start().
    void set_on_gsi(std::function<void()> f) { on_gsi_ = std::move(f); }
    /// Writes a record with `number` to the pipe of (session, channel). The record signals that an rdma_cm event waits.
    void signal(uint32_t session, uint32_t channel, uint32_t number);

    /// Returns the flag that wakes the event thread.
    pmd::WakeFlag& wake_flag() { return wake_; }
    /// Called by an lcore that has pushed events into `ring`. If the event thread sleeps, the lcore itself sends up to four
    /// completion events of vector 0. If events remain in the ring, the lcore wakes the event thread. A send and a wake-up each
    /// cost one system call, but a send by the lcore saves the client the latency of a thread's wake-up. The lcore never waits
    /// for a lock or for a full channel.
    void pushed(io::EventRing& ring);

    struct Counters {
        std::atomic<uint64_t> written{0}, kept{0}, merged{0}, no_pipe{0}, by_lcore{0};
    };
    const Counters& counters() const { return counters_; }
    size_t pipes() const;

private:
    /// Kept records, at most one per kind of event and object. The key is (kind of event, handle).
    template <class Record>
    using Kept = std::map<std::pair<uint32_t, uint32_t>, Record>;
    struct Pipe {
        int fd = -1;
        bool broken = false;  ///< the reader has closed its end
        Kept<abi::CompEventRecord> completions;
        Kept<abi::AsyncEventRecord> asyncs;
        bool has_kept() const { return !completions.empty() || !asyncs.empty(); }
    };
    using Table = std::unordered_map<uint64_t, Pipe>;

    /// Sends the events of a completion vector other than 0, in the order in which the event thread passes the events.
    struct Dispatcher {
        std::mutex mutex;
        std::condition_variable work;
        std::deque<io::Event> queue;
        bool stop = false;
        std::thread thread;
    };

    void run();
    bool send_first(io::EventRing& ring);
    void dispatch(Dispatcher& d);
    void hand_on(const io::Event& e);
    bool drain();
    bool has_kept() const;
    void deliver(const io::Event& e);
    template <class Record>
    void write_or_keep(Pipe& p, Kept<Record>& kept, uint32_t kind, const Record& r);
    template <class Record>
    bool write_now(Pipe& p, const Record& r);
    template <class Record>
    void write_kept(Pipe& p, Kept<Record>& kept);
    bool retry_kept();
    Pipe* find(uint32_t session, uint32_t channel);

    std::mutex consumer_;       ///< guards the removal of events from rings_; locked before mutex_
    mutable std::mutex mutex_;  ///< guards pipes_ and every write to a pipe
    Table pipes_;
    size_t kept_pipes_ = 0;  ///< number of pipes that have kept records
    pmd::WakeFlag wake_;
    std::vector<io::EventRing*> rings_;
    std::function<void()> on_gsi_;
    Counters counters_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
    std::array<Dispatcher, kVectors - 1> dispatchers_;
};

}  // namespace roci::rocid
