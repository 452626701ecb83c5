// Event dispatchers, one per completion vector. The first dispatcher is the event thread. It takes events from the engines'
// rings, sends the events of its own vector and asynchronous events to the clients, and passes all other events to their
// dispatchers. So lcores never wait for clients. A dispatcher never blocks on a client: if a channel is full, the dispatcher
// keeps one record per kind of event and object. The event thread sends the record later.
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

    /// Starts the thread that empties `rings`. The rings must exist until stop() has returned.
    void start(std::vector<io::EventRing*> rings);
    void stop();

    /// Creates the pipe of a completion channel, or of the session's asynchronous events if `channel` is kNoHandle. Returns the
    /// client's end, or -1 on failure. The client's end is blocking, and each read returns one record.
    int make(uint32_t session, uint32_t channel);
    /// Closes rocid's end. After this nothing is written for (session, channel).
    void close(uint32_t session, uint32_t channel);
    /// Writes an async event. Any thread may call this function.
    void send_async(uint32_t session, const abi::AsyncEventRecord& record);

    /// Sets the function that the event thread calls when management datagrams wait for the conductor. Must precede start().
    void set_on_gsi(std::function<void()> f) { on_gsi_ = std::move(f); }
    /// Sends a record with `number` to the client's end of (session, channel), to signal that an event waits.
    void signal(uint32_t session, uint32_t channel, uint32_t number);

    /// Returns the flag that wakes the event thread. pushed() notifies it if events remain in the ring.
    pmd::WakeFlag& wake_flag() { return wake_; }
    /// Sends events that the calling lcore has pushed into `ring`, or wakes the event thread to send them. Both cost the lcore
    /// one system call, but sending saves one wake-up before the client gets the event. So if the event thread sleeps, the lcore
    /// itself sends up to four completion events of vector 0. The lcore never waits for a lock, and leaves an event to the event
    /// thread if sending it could block.
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

    /// Serves the events of a completion vector other than the first. It writes the events in the order in which the event thread
    /// passes them.
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

    std::mutex consumer_;       ///< held while taking events from rings_; locked before mutex_
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
